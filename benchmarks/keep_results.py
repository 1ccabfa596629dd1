"""Keep what the finished cells of an experiment have measured, without models: experiments/results/NAME.tar.xz.

Unpacked again, `rosewood compare` counts these cells as finished: `--table` writes every table anew, and without it
only the cells that are missing run. Folders of the machine that they ran on are left out.

    python benchmarks/keep_results.py runs/replication
    tar -xf experiments/results/replication.tar.xz -C runs
"""

from __future__ import annotations

import argparse
import io
import tarfile
from pathlib import Path

from rosewood.experiments.cell import RESULT, SPECIFICATION, load_cell
from rosewood.results import CellResult, Evaluation

KEPT = Path(__file__).parent.parent / "experiments" / "results"


def keep(output: Path, archive: Path) -> int:
    """Write the archive of an experiment's output, and say how many cells it has; equal cells make equal bytes."""
    folders = sorted(path.parent for path in output.glob(f"*/{RESULT}"))
    archive.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(archive, "w:xz") as kept:
        for folder in folders:
            cell = load_cell(folder).model_copy(update={"data_dir": None})
            result = _nowhere(CellResult.load(folder / RESULT))
            for name, text in (
                (SPECIFICATION, cell.model_dump_json(by_alias=True)),
                (RESULT, result.model_dump_json()),
            ):
                entry = tarfile.TarInfo(f"{output.name}/{folder.name}/{name}")
                entry.size = len(content := text.encode())
                kept.addfile(entry, io.BytesIO(content))
    return len(folders)


def _nowhere(result: CellResult) -> CellResult:
    """The result without the folders of its models, which are not kept."""

    def placeless(evaluation: Evaluation) -> Evaluation:
        return evaluation.model_copy(update={"model": Path(evaluation.model).name})

    moments = [each.model_copy(update={"evaluation": placeless(each.evaluation)}) for each in result.moments]
    return result.model_copy(update={"evaluation": placeless(result.evaluation), "moments": moments})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("outputs", nargs="+", type=Path, help="folders that `rosewood compare` has written to")
    for output in parser.parse_args().outputs:
        archive = KEPT / f"{output.name}.tar.xz"
        print(f"{archive.name}: {keep(output, archive)} cells, {archive.stat().st_size / 1024:.0f} KiB")


if __name__ == "__main__":
    main()
