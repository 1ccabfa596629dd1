"""What a loss landscape costs against the bare forward passes of the same batches.

For each run, every row of the grid is computed in turns with as many bare passes of the model over the same prepared
batches, so that a noisy machine is equally unkind to both. The ratio is that of the summed seconds; the median ratio
of a row stands beside it. Directions, journal, and the return of the weights are part of the landscape's time;
loading, tokenisation and the Hessian are in neither.

    export ROSEWOOD_DATA=...
    python benchmarks/landscape_cost.py runs/vanilla runs/rose --points 25 --size 256
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path

import torch

from rosewood.lab.landscape import grid_coordinates
from rosewood.lab.losses import FixedLoss, RunLosses
from rosewood.lab.sharpness import excursion, random_directions
from rosewood.models.modes import evaluating
from rosewood.results.work_folder import RowJournal


@torch.inference_mode()
def bare_row(loss: FixedLoss, points: int) -> float:
    """Seconds for nothing but forward passes, as many as a row of the grid has."""
    began = time.perf_counter()
    for _ in range(points):
        for inputs, _ in loss._batches:
            loss.model(**inputs)
    return time.perf_counter() - began


def compare(loss: FixedLoss, points: int, journal: RowJournal) -> tuple[list[float], list[float]]:
    """Seconds of each row of the landscape, setting up in the first and tearing down in the last, and of bare rows."""
    coordinates = grid_coordinates(points, 0.25)
    rows, bare = [], []
    with evaluating(loss.model):
        bare_row(loss, 1)  # warms up
        began = time.perf_counter()
        directions = random_directions(loss.model)
        with excursion(loss.model) as trip:
            spent = time.perf_counter() - began
            for number, a in enumerate(coordinates):
                began = time.perf_counter()
                values = []
                for b in coordinates:
                    trip.go(directions, (a, b))
                    values.append(loss.measure().loss)
                journal.append(number, values)
                rows.append(time.perf_counter() - began + spent)
                spent = 0.0
                bare.append(bare_row(loss, points))
    return rows, bare


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runs", nargs="+", type=Path)
    parser.add_argument("--data-dir")
    parser.add_argument("--points", type=int, default=25)
    parser.add_argument("--size", type=int, default=256)
    arguments = parser.parse_args()
    losses = RunLosses(arguments.runs, arguments.data_dir, size=arguments.size)
    all_rows: list[float] = []
    all_bare: list[float] = []
    for name in losses.folders:
        with tempfile.TemporaryDirectory() as folder:
            rows, bare = compare(losses.of(name), arguments.points, RowJournal(Path(folder) / "result.json", "bench"))
        all_rows += rows
        all_bare += bare
    ratios = [row / plain for row, plain in zip(all_rows, all_bare, strict=True)]
    figures = {
        "runs": list(losses.folders),
        "source": losses.source,
        "points": arguments.points,
        "threads": torch.get_num_threads(),
        "landscape_seconds": round(sum(all_rows), 3),
        "bare_forward_seconds": round(sum(all_bare), 3),
        "ratio": round(sum(all_rows) / sum(all_bare), 4),
        "median_row_ratio": round(statistics.median(ratios), 4),
    }
    print(json.dumps(figures, indent=2))


if __name__ == "__main__":
    main()
