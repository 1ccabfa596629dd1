"""Each slip makes one small mistake, from the letter it may begin at."""

from random import Random

import pytest

from rosewood.data.slips import HOMOGLYPHS, Slip, drop, homoglyph, insert, neighbour_key, swap


@pytest.mark.parametrize(("slip", "length"), [(swap, 6), (drop, 5), (insert, 7), (neighbour_key, 6), (homoglyph, 6)])
def test_lengths_and_the_first_letter(slip: Slip, length: int) -> None:
    words = {slip("planet", Random(seed), 1) for seed in range(100)}
    assert {len(word) for word in words} == {length} and all(word[0] == "p" for word in words)
    free = {slip("planet", Random(seed), 0) for seed in range(100)}
    assert any(word[0] != "p" for word in free)


def test_homoglyphs_look_alike_and_are_not() -> None:
    assert homoglyph("bad", Random(0)) == "bаd" != "bad"
    assert homoglyph("bbb", Random(0)) == "bbb"
    assert all(latin.isascii() and not other.isascii() for latin, other in HOMOGLYPHS.items())
