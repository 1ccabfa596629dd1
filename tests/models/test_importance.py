"""Sums of squared gradients, in one process and in two."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed, nn

from launcher import child
from rosewood.models.parameters import SquaredGradients
from rosewood.protocol import Output


class Lines(nn.Module):
    """Weights whose gradients are the mean rows of the batch."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.zeros(2))
        self.second = nn.Parameter(torch.zeros(1))
        self.unused = nn.Parameter(torch.zeros(2))


def rows(batch: Any, model: nn.Module | None = None) -> Output:
    assert isinstance(model, Lines)
    loss = (batch["x"] * torch.cat([model.first, model.second])).sum(1).mean()
    return Output(loss, torch.zeros(1))


def batches(*values: list[list[float]]) -> list[dict[str, torch.Tensor]]:
    return [{"x": torch.tensor(value)} for value in values]


def sums(data: list[dict[str, torch.Tensor]], clip: float | None = None) -> torch.Tensor:
    model = Lines()
    squares = SquaredGradients(list(model.parameters()))
    squares.add_pass(rows, model, [[batch] for batch in data], clip)
    assert all(p.grad is None for p in model.parameters())
    return squares.sums.whole


def test_a_batch_counts_with_the_square_of_its_mean() -> None:
    found = sums(batches([[3.0, 4.0, 1.0], [1.0, 0.0, 1.0]], [[0.3, 0.4, 0.0]]))
    torch.testing.assert_close(found, torch.tensor([4.09, 4.16, 1, 0, 0]))


def test_accumulated_batches_count_as_one() -> None:
    model, parts = Lines(), batches([[3.0, 4.0, 1.0]], [[1.0, 0.0, 1.0]])
    squares = SquaredGradients(list(model.parameters()))
    squares.add_pass(rows, model, [parts])
    torch.testing.assert_close(squares.sums.whole, sums(batches([[3.0, 4.0, 1.0], [1.0, 0.0, 1.0]])))


def test_a_batch_that_is_not_finite_is_left_out() -> None:
    with pytest.warns(UserWarning, match="NaN or infinity in 1 steps of the pass before training: left out"):
        found = sums(batches([[3.0, 4.0, 1.0]], [[float("nan"), 1.0, 1.0]], [[1.0, 0.0, 0.0]]))
    torch.testing.assert_close(found, torch.tensor([10.0, 16, 1, 0, 0]))


def test_every_parameter_is_clipped_on_its_own() -> None:
    found = sums(batches([[3.0, 4.0, 0.5]], [[0.3, 0.4, 2.0]]), clip=1.0)
    torch.testing.assert_close(found, torch.tensor([0.45, 0.8, 1.25, 0, 0]), rtol=0, atol=1e-5)
    model = Lines()
    model.first.grad = torch.tensor([3.0, 4.0])
    nn.utils.clip_grad_norm_([model.first], 1.0)
    torch.testing.assert_close(sums(batches([[3.0, 4.0, 0.0]]), 1.0)[:2], model.first.grad**2, rtol=1e-6, atol=0)


def test_a_factor_and_missing_gradients() -> None:
    squares = SquaredGradients(list(Lines().parameters()))
    squares.add([torch.tensor([1.0, 2.0]), None, None], torch.tensor(3.0))
    squares.add([None, None, None])
    assert squares.sums.whole.tolist() == [9, 36, 0, 0, 0]


ROWS = [[3.0, 4.0, 1.0], [1.0, 0.0, 1.0], [0.5, -2.0, 0.1], [0.0, 1.0, 9.0]]


def share(rank: int, folder: str) -> None:
    """One of two processes, with one of two rows of each batch."""
    distributed.init_process_group("gloo", init_method=f"file://{folder}/meet", rank=rank, world_size=2)
    torch.save(sums(batches([ROWS[rank]], [ROWS[2 + rank]]), 1.0), f"{folder}/{rank}.pt")
    distributed.destroy_process_group()


def test_two_processes_see_one_batch_together(tmp_path: Path) -> None:
    workers = [child(share, rank, str(tmp_path)) for rank in range(2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(60)
        assert worker.exitcode == 0
    found = [torch.load(tmp_path / f"{rank}.pt") for rank in range(2)]
    assert torch.equal(*found)
    torch.testing.assert_close(found[0], sums(batches(ROWS[:2], ROWS[2:]), 1.0))
