"""The size of the attack space, against counting."""

import os
from math import prod

import pytest

from rosewood import Lexicon, load_task
from rosewood.data.loading import load_split
from rosewood.words.constraints import AttackSpace, Substituting, Surface, attack_space
from rosewood.words.text import Words


def test_sizes_multiply() -> None:
    surfaces: list[Surface] = [[("a",), (), ("b", "c", "d")], [(), ("e", "f", "g")], []]
    space = attack_space(surfaces)
    assert space.words == 1 and space.choices == pytest.approx((2 + 4 + 4) / 3)
    sizes = [2 * 4, 4, 1]
    assert space.geometric_choices**space.words == pytest.approx(prod(sizes) ** (1 / 3))


def test_nothing_to_choose() -> None:
    assert attack_space([]) == attack_space([[(), ()]]) == AttackSpace(0, 1, 1)


@pytest.mark.data
@pytest.mark.skipif("ROSEWOOD_DATA" not in os.environ, reason="needs ROSEWOOD_DATA")
def test_the_papers_figure_for_snli() -> None:
    texts = load_split(load_task("snli"), "test")["hypothesis"]
    substituting = Substituting(Lexicon.counter_fitted(), exact_case=True)
    space = attack_space(substituting.surface(Words.split(text).words) for text in texts)
    assert (round(space.choices, 1), round(space.words)) == (6.5, 4)
