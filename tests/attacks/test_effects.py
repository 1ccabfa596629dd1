"""What is believed of effects is what plain normal equations say."""

import numpy as np
import pytest

from rosewood.attacks.runner.slopes import Edit, Effects
from slow_gradient import believed, with_edits

WORDS = ["a", "good", "old", "film"]
EDITS = [Edit(1, "fine"), Edit(1, "nice"), Edit(2, "aged"), Edit(3, "movie"), Edit(3, "picture"), Edit(3, "reel")]


def effects_of(slopes: list[np.ndarray], asked: list[tuple[list[int], float]]) -> Effects:
    effects = Effects(EDITS)
    for each in slopes:
        effects.sloped(each)
    for chosen, change in asked:
        effects.asked([EDITS[i] for i in chosen], change)
    return effects


@pytest.mark.parametrize("texts", range(5))
def test_effects_are_ridge_regression_around_the_mean_of_slopes(texts: int) -> None:
    rng = np.random.default_rng(texts)
    slopes = [rng.normal(size=len(EDITS)) for _ in range(1 + texts % 3)]
    asked = list(zip([[0, 2, 3], [1, 2], [5], [0, 4]], rng.normal(size=4).tolist(), strict=True))[:texts]
    means, spreads = effects_of(slopes, asked).believed()
    changes = {with_edits(WORDS, [tuple(EDITS[i]) for i in chosen]): change for chosen, change in asked}
    expected = believed(WORDS, [tuple(edit) for edit in EDITS], np.mean(slopes, axis=0).tolist(), changes)
    assert np.column_stack([means, spreads]) == pytest.approx(np.array(expected), abs=1e-9)


def test_an_answer_is_about_the_edits_of_its_text_alone() -> None:
    slopes = [np.array([-1.0, 0.5, -0.2, 0.0, -0.1, 0.3])]
    before, wide = effects_of(slopes, []).believed()
    after, narrow = effects_of(slopes, [([0, 2], 2.0)]).believed()
    assert (after[[0, 2]] > before[[0, 2]]).all() and (narrow[[0, 2]] < wide[[0, 2]]).all()
    assert (after[[1, 3, 4, 5]] == before[[1, 3, 4, 5]]).all() and (narrow[[1, 3, 4, 5]] == wide[[1, 3, 4, 5]]).all()
    assert after[0] + after[2] < 2.0  # not all of it is believed
