"""The landscapes of the runs in a report, from the folder that `rosewood landscape` wrote."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from rosewood.errors import RunError
from rosewood.lab.landscape import Landscape
from rosewood.lab.runs import PRETRAINED, run_names


def read_landscapes(folder: Path, runs: Mapping[str, Path]) -> list[Landscape]:
    """That of the pre-trained model first, if it is there, then those of runs (name -> folder) under their names."""
    names = {PRETRAINED: PRETRAINED} | dict(zip(run_names(list(runs.values())), runs, strict=True))
    files = {folder / f"{file}.json": name for file, name in names.items()}
    found = [Landscape.load(path).model_copy(update={"name": name}) for path, name in files.items() if path.exists()]
    if all(each.name == PRETRAINED for each in found):
        wanted = ", ".join(path.name for path, name in files.items() if name != PRETRAINED)
        raise RunError(
            f"{folder} has no landscape of these runs (expected {wanted}): "
            f"compute them with rosewood landscape RUN ... --output {folder}"
        )
    _check_alike(found, folder)
    return found


def _check_alike(landscapes: Sequence[Landscape], folder: Path) -> None:
    """They stand side by side only if directions, distances, examples and the bound of basins are the same."""
    first = landscapes[0]
    for each in landscapes[1:]:
        theirs = _settings(each)
        for what, own in _settings(first).items():
            if theirs[what] != own:
                raise RunError(
                    f"the landscapes in {folder} do not compare: {first.name} and {each.name} differ in {what}. "
                    "Compute all of them with one rosewood landscape."
                )


def _settings(landscape: Landscape) -> dict[str, object]:
    plain = {what: getattr(landscape, what) for what in ("data", "coordinates", "seed", "normalisation")}
    return plain | {"threshold": landscape.sharpness.threshold}
