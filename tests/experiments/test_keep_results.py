"""What is kept of an experiment is enough for all of its tables, and does not say where runs and data were."""

from __future__ import annotations

import json
import runpy
import tarfile
from pathlib import Path

import pytest
from rich.console import Console

from rosewood.attacks.runner.report import load_attack
from rosewood.evaluation.files import correct_by_set
from rosewood.experiments.compare import compare
from rosewood.experiments.grid import cells_of
from rosewood.results import CellResult
from tiny_experiment import InThisProcess, tiny_experiment, write_data

SCRIPT = Path(__file__).parent.parent.parent / "benchmarks" / "keep_results.py"
TABLES = ("results.json", "table.md", "table.tex", "table.csv", "moments.csv")


def test_kept_cells_are_finished_cells(tmp_path: Path) -> None:
    script = runpy.run_path(str(SCRIPT))
    keep, unpack = script["keep"], script["unpack"]
    data = write_data(tmp_path / "data")
    experiment = tiny_experiment(
        tmp_path, recipes=["vanilla", "rose-second"], evaluation={"sets": ["test"], "at_steps": [4]}, validation_size=12
    )
    quiet = Console(quiet=True)
    compare(experiment, tmp_path / "first" / "tiny", data, InThisProcess(), quiet)
    archive = tmp_path / "tiny.tar.xz"
    assert keep(tmp_path / "first" / "tiny", archive) == 4
    before = archive.read_bytes()
    assert unpack(archive, tmp_path / "second" / "tiny") == 4
    assert unpack(archive, tmp_path / "second" / "tiny") == 0
    with tarfile.open(archive) as kept:
        written = b"".join(kept.extractfile(each).read() for each in kept)  # type: ignore[union-attr]
    assert str(tmp_path / "first").encode() not in written and str(data).encode() not in written

    engine = InThisProcess()
    compare(experiment, tmp_path / "second" / "tiny", data, engine, quiet)
    assert not engine.worked_on
    for name in TABLES:
        first, second = ((tmp_path / each / "tiny" / name).read_bytes() for each in ("first", "second"))
        assert first == second, name
    assert keep(tmp_path / "second" / "tiny", archive) == 4 and archive.read_bytes() == before
    for file in (tmp_path / "second").rglob("result.json"):
        evaluation = CellResult.load(file).evaluation
        [predictions] = file.parent.glob("run/predictions-*.parquet")
        correct = correct_by_set(predictions)
        assert {name: found.mean() for name, found in correct.items()} == {
            each.name: each.accuracy for each in evaluation.sets
        }
        [attacked] = file.parent.glob("run/attacks/*")
        outcome, [live] = load_attack(attacked), evaluation.attacks
        assert outcome.summary == live.summary
        assert sum(each.status == "robust" for each in outcome.examples) == live.summary.counts["robust"]


def test_a_cell_of_before_a_setting_was_new_is_a_finished_one(tmp_path: Path) -> None:
    script = runpy.run_path(str(SCRIPT))
    data = write_data(tmp_path / "data")
    experiment = tiny_experiment(tmp_path, recipes=["rose-second"], seeds=[0], baseline=None)
    [cell] = cells_of(experiment, data)
    compare(experiment, tmp_path / "first" / "tiny", data, InThisProcess(), Console(quiet=True))
    [old] = (tmp_path / "first" / "tiny").glob("*/cell.json")
    settings = json.loads(old.read_text())
    assert settings["recipe"]["selection"].pop("risk_sketch") == 0  # as if the setting came later
    old.write_text(json.dumps(settings))
    script["keep"](tmp_path / "first" / "tiny", tmp_path / "tiny.tar.xz")
    assert script["unpack"](tmp_path / "tiny.tar.xz", tmp_path / "second" / "tiny") == 1
    assert CellResult.load(tmp_path / "second" / "tiny" / cell.name / "result.json").fingerprint == cell.fingerprint
    engine = InThisProcess()
    compare(experiment, tmp_path / "second" / "tiny", data, engine, Console(quiet=True))
    assert not engine.worked_on


def test_fewer_cells_do_not_replace_more(tmp_path: Path) -> None:
    keep = runpy.run_path(str(SCRIPT))["keep"]
    (tmp_path / "tiny" / "vanilla").mkdir(parents=True)
    (tmp_path / "tiny" / "vanilla" / "result.json").write_text("{")  # damaged, so unfinished
    with pytest.raises(SystemExit, match=r"results of 0 cells, and .* of 0: nothing is kept"):
        keep(tmp_path / "tiny", tmp_path / "tiny.tar.xz")
    assert not (tmp_path / "tiny.tar.xz").exists()
    with tarfile.open(tmp_path / "tiny.tar.xz", "w:xz") as kept:
        kept.add(tmp_path / "tiny" / "vanilla", "tiny/vanilla")
    before = (tmp_path / "tiny.tar.xz").read_bytes()
    with pytest.raises(SystemExit, match=r"Unpack the archive there first \(--unpack .*\), or delete it"):
        keep(tmp_path / "tiny", tmp_path / "tiny.tar.xz")
    assert (tmp_path / "tiny.tar.xz").read_bytes() == before
