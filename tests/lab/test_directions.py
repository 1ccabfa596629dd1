"""Directions have the scale of the weights, and the same shape for every model."""

import pytest
import torch
from torch import nn

from rosewood.errors import RunError
from rosewood.lab.sharpness import random_directions
from tiny_losses import fixed_loss
from tiny_text import tiny_classifier


def test_rows_have_the_norms_of_the_weights_rows_and_biases_stay() -> None:
    model = tiny_classifier().double()
    for direction in random_directions(model, seed=3):
        for weight, piece in zip(model.parameters(), direction.pieces, strict=True):
            if weight.dim() < 2:
                assert not piece.any()
            else:
                norms = piece.flatten(1).norm(dim=1), weight.detach().flatten(1).norm(dim=1)
                torch.testing.assert_close(*norms, rtol=1e-8, atol=1e-12)  # the formula adds 1e-10 to a norm


def test_the_whole_vector_has_the_norm_of_all_weights_and_biases_move() -> None:
    model = tiny_classifier().double()
    (direction,) = random_directions(model, 1, normalisation="whole")
    norm = torch.cat([weight.detach().flatten() for weight in model.parameters()]).norm()
    torch.testing.assert_close(direction.whole.norm(), norm, rtol=1e-9, atol=0)
    assert all(piece.any() for piece in direction.pieces)


def test_models_of_any_scale_get_the_same_directions_up_to_scale() -> None:
    small, large = tiny_classifier().double(), tiny_classifier().double()
    with torch.no_grad():
        for weight in large.parameters():
            weight.mul_(7)
    for first, second in zip(random_directions(small, seed=1), random_directions(large, seed=1), strict=True):
        torch.testing.assert_close(7 * first.whole, second.whole, rtol=1e-8, atol=1e-12)
    other = random_directions(small, seed=2)[0].whole
    assert not torch.allclose(other, random_directions(small, seed=1)[0].whole)


def test_the_two_directions_are_nearly_orthogonal() -> None:
    first, second = random_directions(fixed_loss().model)
    assert abs(torch.cosine_similarity(first.whole, second.whole, dim=0)) < 0.1


def test_weights_that_would_round_steps_away_are_refused() -> None:
    with pytest.raises(RunError, match=r"all float32 or all float64, got bfloat16: call model\.float\(\)"):
        random_directions(tiny_classifier().bfloat16())
    with pytest.raises(RunError, match="got no weights"):
        random_directions(nn.ReLU())
