"""Keep what the finished cells of an experiment have measured, without models: experiments/results/NAME.tar.xz.

Of each cell: its settings, its figures, its prediction for every example, and the outcome of every attacked example.
Unpacked again, `rosewood compare` counts these cells as finished: `--table` writes every table again, and without it
only the cells that are missing run. The folders of the data and of trained models are left out; a model, a task, a
suite or a lexicon that an experiment names by its path keeps it, since that is part of what its cells are.

    python benchmarks/keep_results.py runs/question-duration-small
    python benchmarks/keep_results.py --unpack runs/question-duration-small

A setting that a recipe did not have when a cell ran is taken at its default when it is unpacked: a new setting must
leave things as they were by default. So a cell is still a finished one where newer code knows more settings.
"""

from __future__ import annotations

import argparse
import io
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from rosewood.errors import RecipeError, RunError
from rosewood.experiments.cell import RESULT, RUN, SPECIFICATION, Cell, load_cell
from rosewood.recipe import build_recipe
from rosewood.results import AttackReport, CellResult, Evaluation
from rosewood.results.files import write_bytes_whole

KEPT = Path(__file__).parent.parent / "experiments" / "results"


def keep(output: Path, archive: Path) -> int:
    """Write the archive of an experiment's output, and say how many cells it has; equal cells make equal bytes."""
    entries = dict(_entries(output))
    count = _cells(list(entries))
    if count < (before := _kept_cells(archive)) or not count:
        raise SystemExit(
            f"{output} has results of {count} cells, and {archive} of {before}: nothing is kept. "
            f"Unpack the archive there first (--unpack {output}), or delete it."
        )
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w:xz") as kept:
        for name, text in entries.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(text)
            kept.addfile(entry, io.BytesIO(text))
    archive.parent.mkdir(parents=True, exist_ok=True)
    write_bytes_whole(archive, content.getvalue())
    return count


def unpack(archive: Path, output: Path) -> int:
    """Put kept cells that the output does not have yet into it, and say how many; of no archive none."""
    added = 0
    if not archive.exists():
        return added
    with tarfile.open(archive) as kept:
        folders = {Path(name).parent.name for name in kept.getnames() if Path(name).name == SPECIFICATION}
        for folder in sorted(folders):
            entries = {
                Path(*Path(entry.name).parts[2:]): kept.extractfile(entry).read()  # type: ignore[union-attr]
                for entry in kept.getmembers()
                if entry.isfile() and Path(entry.name).parts[1] == folder
            }
            cell = _as_known_now(Cell.model_validate_json(entries[Path(SPECIFICATION)]))
            if (output / cell.name / RESULT).exists():
                continue
            result = CellResult.model_validate_json(entries.pop(Path(RESULT)))
            for path, content in entries.items():
                write_bytes_whole(output / cell.name / path, content)
            cell.save(output / cell.name)
            result.model_copy(update={"fingerprint": cell.fingerprint}).save(output / cell.name / RESULT)
            added += 1
    return added


def _as_known_now(cell: Cell) -> Cell:
    """The cell with settings that its recipe has got since it ran; a recipe of another form stays as it was."""
    try:
        return cell.model_copy(update={"recipe": build_recipe(cell.recipe).to_dict()})
    except RecipeError:
        return cell


def _entries(output: Path) -> Iterator[tuple[str, bytes]]:
    """Names and contents of the files of each finished cell."""
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
        for name, content in _examples(file.parent / RUN):
            yield f"{place}/{RUN}/{name}", content


def _examples(run: Path) -> Iterator[tuple[str, bytes]]:
    """What became of every single example."""
    for predictions in sorted(run.glob("predictions-*.parquet")):
        plain = pa.BufferOutputStream()
        pq.write_table(pq.read_table(predictions), plain, compression="none")  # the archive compresses better
        yield predictions.name, plain.getvalue().to_pybytes()
    for report in sorted(run.glob("attacks/*/attack.json")):
        attack = AttackReport.load(report)
        folder = f"attacks/{report.parent.name}"
        yield (
            f"{folder}/attack.json",
            attack.model_copy(update={"model": Path(attack.model).name}).model_dump_json().encode(),
        )
        yield f"{folder}/examples.jsonl", report.with_name("examples.jsonl").read_bytes()


def _kept_cells(archive: Path) -> int:
    if not archive.exists():
        return 0
    with tarfile.open(archive) as kept:
        return _cells(kept.getnames())


def _cells(names: list[str]) -> int:
    return sum(Path(name).name == RESULT for name in names)


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
    parser.add_argument("--unpack", action="store_true", help="put what is kept back into the folders")
    parser.add_argument("outputs", nargs="+", type=Path, help="folders that `rosewood compare` has written to")
    given = parser.parse_args()
    for output in given.outputs:
        archive = KEPT / f"{output.resolve().name}.tar.xz"
        if given.unpack:
            print(f"{output}: {unpack(archive, output)} cells from {archive.name}")
        else:
            print(f"{archive.name}: {keep(output, archive)} cells, {archive.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
