"""Keep what the finished cells of an experiment have measured, without models: experiments/results/NAME.tar.xz.

Unpacked again, `rosewood compare` counts these cells as finished: `--table` writes every table anew, and without it
only the cells that are missing run. The folders of the data and of trained models are left out; a model, a task, a
suite or a lexicon that an experiment names by its path keeps it, since that is part of what its cells are.

    python benchmarks/keep_results.py runs/question-duration-small
    mkdir -p runs && tar -xf experiments/results/question-duration-small.tar.xz -C runs
"""

from __future__ import annotations

import argparse
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

from rosewood.durable import write_bytes_whole
from rosewood.errors import RunError
from rosewood.experiments.cell import RESULT, SPECIFICATION, load_cell
from rosewood.results import CellResult, Evaluation

KEPT = Path(__file__).parent.parent / "experiments" / "results"


def keep(output: Path, archive: Path) -> int:
    """Write the archive of an experiment's output, and say how many cells it has; equal cells make equal bytes."""
    entries = dict(_entries(output))
    if len(entries) < (before := _size(archive)) or not entries:
        raise SystemExit(
            f"{output} has results of {len(entries) // 2} cells, and {archive} of {before // 2}: nothing is kept. "
            "Unpack the archive there first, or delete it."
        )
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:xz") as kept:
        for name, text in entries.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            kept.addfile(entry, io.BytesIO(text))
    archive.parent.mkdir(parents=True, exist_ok=True)
    write_bytes_whole(archive, content.getvalue())
    return len(entries) // 2


def _entries(output: Path) -> Iterator[tuple[str, bytes]]:
    """Names and contents of two files for each finished cell."""
    for file in sorted(output.glob(f"*/{RESULT}")):
        try:
            result = CellResult.load(file)
        except RunError:  # a damaged one is none
            continue
        cell = load_cell(file.parent)
        place = f"{output.resolve().name}/{file.parent.name}"
        without = cell.model_copy(update={"data_dir": None})
        yield f"{place}/{SPECIFICATION}", without.model_dump_json(by_alias=True).encode()
        yield f"{place}/{RESULT}", _nowhere(result, cell.data_dir or "").model_dump_json().encode()


def _size(archive: Path) -> int:
    if not archive.exists():
        return 0
    with tarfile.open(archive) as kept:
        return len(kept.getnames())


def _nowhere(result: CellResult, data_dir: str) -> CellResult:
    """The result without the folders of its models and data."""

    def placeless(evaluation: Evaluation) -> Evaluation:
        missing = [
            each.model_copy(update={"reason": each.reason.replace(f"{data_dir}/", "") if data_dir else each.reason})
            for each in evaluation.missing
        ]
        return evaluation.model_copy(update={"model": Path(evaluation.model).name, "missing": missing})

    moments = [each.model_copy(update={"evaluation": placeless(each.evaluation)}) for each in result.moments]
    return result.model_copy(update={"evaluation": placeless(result.evaluation), "moments": moments})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("outputs", nargs="+", type=Path, help="folders that `rosewood compare` has written to")
    for output in parser.parse_args().outputs:
        archive = KEPT / f"{output.resolve().name}.tar.xz"
        print(f"{archive.name}: {keep(output, archive)} cells, {archive.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
