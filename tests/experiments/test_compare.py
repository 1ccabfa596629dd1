"""An experiment from its file to its tables: skipped, isolated, killed, and always the same."""

from __future__ import annotations

import csv
import io
import json
import os
import random
import shutil
import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from scipy.stats import ttest_ind

from held_elsewhere import held_elsewhere
from launcher import child
from rosewood.comparison import significance
from rosewood.errors import RunError
from rosewood.experiments.cell import LiveTable, status_of
from rosewood.experiments.compare import compare
from rosewood.experiments.engines import worker
from rosewood.experiments.engines.local import Event
from rosewood.experiments.grid import cells_of
from rosewood.experiments.tables import comparison_of
from rosewood.results import CellResult, Comparison
from rosewood.training.run import finish_run
from tiny_experiment import InThisProcess, tiny_experiment, write_data, write_experiment

FILES = ("results.json", "table.md", "table.tex", "table.csv")
QUIET = Console(quiet=True)


class Place:
    """Files, data, and a finished experiment."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.data, self.whole = folder, write_data(folder / "data"), folder / "whole"
        write_experiment(folder)

    def compare(self, output: Path, engine: Any = None, **changes: Any) -> tuple[Comparison, list[str]]:
        engine = engine or InThisProcess()
        found = compare(tiny_experiment(self.folder, **changes), output, self.data, engine, QUIET)
        return found, engine.worked_on


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    place = Place(tmp_path_factory.mktemp("experiment"))
    assert len(place.compare(place.whole)[1]) == 6
    return place


def tables(output: Path) -> list[bytes]:
    return [(output / name).read_bytes() for name in FILES]


def test_figures_are_means_over_seeds_tested_against_the_baseline(place: Place) -> None:
    comparison = Comparison.load(place.whole / "results.json")
    assert {cell.state for cell in comparison.cells} == {"finished"} and len(comparison.cells) == 6
    by_name = {(each.label, each.figure): each for each in comparison.figures}
    assert {figure for _, figure in by_name} >= {"test", "typos", "under typos test", "worst group test", "gap test"}
    found, base = by_name["drop", "test"], by_name["vanilla", "test"]
    results = [CellResult.load(path) for path in place.whole.glob("drop-*/result.json")]
    right = {each.seed: next(s.accuracy for s in each.evaluation.sets if s.name == "test") for each in results}
    assert found.values == right
    values = list(right.values())
    assert found.mean == pytest.approx(sum(values) / 2)
    assert found.interval is None, "of two seeds"
    assert found.guessing == base.guessing == [0, 1] and found.p is None, (
        "ten steps teach nothing, so nothing is tested"
    )
    attacked = by_name["drop", "under typos test"]
    assert attacked.values == {each.seed: each.evaluation.attacks[0].summary.robust_accuracy for each in results}
    rows = list(csv.DictReader((place.whole / "table.csv").open()))
    assert len(rows) == len(comparison.figures) and {row["seeds"] for row in rows} == {"2"}
    assert "| vanilla | 2 |" in (place.whole / "table.md").read_text()
    assert r"\toprule" in (place.whole / "table.tex").read_text()


def test_figures_of_models_that_have_learnt_are_tested(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(significance, "is_guessing", lambda evaluation: False)
    experiment = tiny_experiment(place.folder)
    found = [status_of(cell, place.whole) for cell in cells_of(experiment, place.data)]
    by_name = {(each.label, each.figure): each for each in comparison_of(experiment, found).figures}
    pairs = [(by_name[label, "test"], by_name["vanilla", "test"]) for label in ("drop", "rose-second")]
    for ours, base in pairs:
        values, theirs = list(ours.values.values()), list(base.values.values())
        if len({*values}) > 1 or len({*theirs}) > 1:
            expected = ttest_ind(values, theirs, equal_var=False, alternative="greater").pvalue
            assert ours.p == pytest.approx(expected)
            assert ours.p is not None and ours.p_adjusted is not None and ours.p_adjusted >= ours.p
        assert base.p is None


def test_a_cell_is_an_ordinary_run(place: Place) -> None:
    (cell,) = place.whole.glob("rose-second-*-seed1-*")
    assert json.loads((cell / "run" / "run.json").read_text())["status"] == "finished"
    assert (cell / "run" / "evaluation.json").exists() and list((cell / "run" / "attacks").glob("typos-test-*"))


def test_an_experiment_ends_with_a_report_over_its_cells(place: Place) -> None:
    page = (place.whole / "report.html").read_text()
    assert "<h1><bdi>tiny</bdi></h1>" in page and "typos on tiny test" in page
    assert "drop, seed 1" in page and "3 methods · 6 runs" in page
    assert "drop is at guessing (tiny): it has not learnt the task" in page
    assert f"rosewood compare tiny --output {place.whole}" in page and "rosewood.experiments.engines.worker" not in page
    assert page.count("rosewood compare") == 1 and "rosewood evaluate" not in page


def test_notes_are_under_the_title_and_the_command_names_the_file(place: Place, tmp_path: Path) -> None:
    output = tmp_path / "noted"
    shutil.copytree(place.whole, output)
    file = write_experiment(place.folder, notes=["Only <b>ten</b> steps.", "Two\nlines."])
    compare(file, output, place.data, InThisProcess(), QUIET)
    assert (output / "table.md").read_text().startswith("# tiny\n\n- Only <b>ten</b> steps.\n- Two lines.\n\n**")
    page = (output / "report.html").read_text()
    assert "<li><bdi>Only &lt;b&gt;ten&lt;/b&gt; steps.</bdi></li>" in page
    assert f"rosewood compare {file} --output {output}" in page


def test_finished_cells_are_skipped_and_a_changed_setting_reruns_only_its_own(place: Place, tmp_path: Path) -> None:
    output = tmp_path / "again"
    shutil.copytree(place.whole, output)
    assert place.compare(output)[1] == []
    assert tables(output) == tables(place.whole)
    changed = [
        "vanilla",
        "rose-second",
        {"recipe": "r-drop", "label": "drop", "set": {"objective.divergence_weight": 0.9}},
    ]
    comparison, worked_on = place.compare(output, recipes=changed)
    assert [name.rpartition("-")[0] for name in worked_on] == [f"drop-tiny-checkpoint-seed{seed}" for seed in (0, 1)]
    assert len(comparison.cells) == 6 and {cell.state for cell in comparison.cells} == {"finished"}
    assert place.compare(output)[1] == [], "the old cells are still there"


def test_a_cell_that_fails_stops_no_other_and_is_tried_again(place: Place, tmp_path: Path) -> None:
    output = tmp_path / "failing"
    shutil.copytree(place.whole, output)
    broken = {"recipe": "rose-second", "label": "broken", "training": {"optim": "adafactor"}}
    recipes = ["vanilla", broken, "smart"]
    comparison, worked_on = place.compare(output, recipes=recipes, seeds=[0])
    assert [name.split("-")[0] for name in worked_on] == ["broken", "smart"]
    assert [cell.state for cell in comparison.cells] == ["finished", "failed", "finished"]
    failed = comparison.cells[1]
    assert failed.error is not None and "masks AdamW's update" in failed.error
    assert failed.error.endswith(f"Log: {failed.name}/log.txt")
    table = (output / "table.md").read_text()
    assert "**Cells that failed**" in table and "masks AdamW's update" in table and "| smart | 1 |" in table
    page = (output / "report.html").read_text()
    assert '<h2 id="section-' in page and "<bdi>Cells that failed</bdi></h2>" in page
    assert "masks AdamW&#39;s update" in page
    assert [name.split("-")[0] for name in place.compare(output, recipes=recipes, seeds=[0])[1]] == ["broken"]


def test_published_figures_stand_beside_the_measured_ones(place: Place, tmp_path: Path) -> None:
    output = tmp_path / "published"
    shutil.copytree(place.whole, output)
    published = {"vanilla": {"tiny": {"test": 91.5, "tset": 3}}, "drop": {"tiny": {"test": None}}}
    comparison, _ = place.compare(output, published=published)
    found = {each.label: each.published for each in comparison.figures if each.figure == "test"}
    assert found == {"vanilla": pytest.approx(0.915), "rose-second": None, "drop": None}
    header, _, *rows = [line for line in (output / "table.md").read_text().splitlines() if line.startswith("|")]
    assert "| test | paper test |" in header
    assert "Published, but not a column here: tset." in (output / "table.md").read_text()
    at = header.split(" | ").index("paper test")
    assert [row.split(" | ")[at] for row in rows[:3]] == ["91.5", "unknown", "unknown"]


def test_dropout_inconsistency_stands_beside_the_published_one(place: Place, tmp_path: Path) -> None:
    output, name = tmp_path / "watched", "tiny inconsistent until"
    published = {"vanilla": {"tiny": {f"{name} 4": 12.5, f"{name} 10": None}}}
    comparison, _ = place.compare(
        output, recipes=["vanilla"], seeds=[0], attacks=[], published=published, baseline=None,
        evaluation={"sets": ["test"], "inconsistent_until": [4, 10, 50]},
    )  # fmt: skip
    (run,) = (run.parent for run in output.glob("*/run/run.json"))
    seen = [json.loads(line) for line in (run / "dynamics" / "inconsistency.jsonl").read_text().splitlines()]
    assert [each["step"] for each in seen] == list(range(1, 11))
    shares = {
        steps: sum(each["differing"] for each in seen[:steps]) / sum(each["compared"] for each in seen[:steps])
        for steps in (4, 10)
    }
    found = {each.figure: each for each in comparison.figures}
    assert {steps: found[f"{name} {steps}"].mean for steps in shares} == shares
    assert found[f"{name} 4"].published == 0.125 and f"{name} 50" not in found
    headers = [line for line in (output / "table.md").read_text().splitlines() if line.startswith("| method |")]
    columns = "".join(line.removeprefix("| method").removesuffix(" |") for line in headers)  # of a table in parts
    assert f"| {name} 4 | paper {name} 4 | {name} 10 | paper {name} 10" in columns


def test_a_cell_goes_on_with_its_data_elsewhere_and_its_recipe_in_other_words(place: Place, tmp_path: Path) -> None:
    one: dict[str, Any] = {"recipes": ["vanilla"], "seeds": [0], "attacks": []}
    whole, moved = place.compare(tmp_path / "whole", **one)[0], tmp_path / "moved"
    shutil.copytree(tmp_path / "whole", moved)
    (result,) = moved.glob("*/result.json")
    result.unlink()
    run, recipe = result.parent / "run" / "run.json", result.parent / "run" / "recipe.yaml"
    run.write_text(run.read_text().replace('"finished"', '"interrupted"'))
    recipe.write_text(recipe.read_text().replace("summary: ", "summary: In short, "))
    data = write_data(tmp_path / "elsewhere")
    with pytest.warns(UserWarning, match="starting again from the beginning"):
        found = compare(tiny_experiment(place.folder, **one), moved, data, InThisProcess(), QUIET)
    assert found == whole
    assert json.loads(run.read_text())["data_dir"] == str(data)


def test_a_finished_run_is_of_its_data_wherever_they_lie(place: Place, tmp_path: Path) -> None:
    plan = cells_of(tiny_experiment(place.folder, recipes=["vanilla"], seeds=[0], attacks=[]), place.data)[0].plan()
    info = finish_run(plan, tmp_path / "run")
    assert (
        finish_run(plan.model_copy(update={"data_dir": str(write_data(tmp_path / "moved"))}), tmp_path / "run") == info
    )
    other = write_data(tmp_path / "other")
    (other / "train.jsonl").write_text((other / "validation.jsonl").read_text())
    with pytest.raises(RunError, match=r"the train data has changed since .*run was started"):
        finish_run(plan.model_copy(update={"data_dir": str(other)}), tmp_path / "run")


def test_a_cell_that_was_killed_before_its_run_began_is_begun_again(place: Place, tmp_path: Path) -> None:
    output = tmp_path / "stub"
    cell = cells_of(tiny_experiment(place.folder, recipes=["vanilla"], seeds=[0], attacks=[]), place.data)[0]
    (output / cell.name / "run" / "checkpoints").mkdir(parents=True)
    (output / cell.name / "run" / ".run.json.77.tmp").write_text('{"recipe": "van')
    comparison, _ = place.compare(output, recipes=["vanilla"], seeds=[0], attacks=[])
    assert [each.state for each in comparison.cells] == ["finished"]


def test_a_cell_that_another_process_works_on_fails_and_the_others_go_on(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(worker, "_PATIENCE", 0.1)
    changes: dict[str, Any] = {"recipes": ["vanilla"], "attacks": [], "baseline": None}
    first, _ = cells_of(tiny_experiment(place.folder, **changes), place.data)
    with held_elsewhere(tmp_path / first.name) as number:
        found, _ = place.compare(tmp_path, **changes)
    assert [cell.state for cell in found.cells] == ["failed", "finished"]
    assert f"is in use: process {number} on " in (found.cells[0].error or "")
    again, worked_on = place.compare(tmp_path, **changes)
    assert [cell.state for cell in again.cells] == ["finished"] * 2 and worked_on == [first.name]
    assert not list(tmp_path.rglob(".lock"))


def test_the_live_table_shows_what_the_folders_tell(place: Place, tmp_path: Path) -> None:
    cells = cells_of(tiny_experiment(place.folder), place.data)
    output = tmp_path / "live"
    for cell in cells[:2]:
        shutil.copytree(place.whole / cell.name, output / cell.name)
    begun = output / cells[1].name
    (begun / "result.json").unlink()
    (begun / "run" / "evaluation.json").unlink()
    (begun / "run" / "metrics.json").unlink()
    history = (begun / "run" / "history.jsonl").read_text().splitlines(keepends=True)
    (begun / "run" / "history.jsonl").write_text("".join(history[:4]))
    (output / cells[2].name).mkdir()
    (output / cells[2].name / "error.txt").write_text("it broke\n")
    console = Console(width=120, height=40, record=True, file=io.StringIO())
    watch = LiveTable(cells, output, console)
    with watch.shown() as follow:
        follow(Event(begun, "started"))
        console.print(watch.table())
    printed = console.export_text()
    rows = [[part.strip() for part in line.split("│")[1:-1]] for line in printed.splitlines() if "│" in line]
    assert [row[4] for row in rows] == ["finished", "training 40%", "failed", "waiting", "waiting", "waiting"]
    assert rows[0][5].endswith("%")
    assert "1 finished, 1 failed, 1 running, 3 waiting" in printed


class WaitsAfter(InThisProcess):
    """Goes no further than one cell: who kills the process a moment later finds it alive, however fast it is."""

    def __init__(self, last: str) -> None:
        super().__init__()
        self.last = last

    def run(self, folders: Sequence[Path]) -> Iterator[Event]:
        for event in super().run(folders):
            yield event
            while event.what == "ended" and event.folder.name == self.last:
                time.sleep(1)


def run_experiment(place: Place, output: Path, last: str) -> None:
    with Path(os.devnull).open("w") as nothing:
        os.dup2(nothing.fileno(), 1)
        os.dup2(nothing.fileno(), 2)
        place.compare(output, WaitsAfter(last))


def test_six_cells_killed_twice_end_with_the_same_tables(place: Place, tmp_path: Path) -> None:
    """In forks of a process that has imported everything; each is killed at a random moment of some cell."""
    output, chance = tmp_path / "killed", random.Random(os.urandom(4).hex())
    in_turn = sorted(cells_of(tiny_experiment(place.folder), place.data), key=lambda cell: cell.seed)
    names = [cell.name for cell in in_turn]  # the first seed of all recipes comes first
    for number in (chance.randrange(0, 3), chance.randrange(3, 6)):
        process = child(run_experiment, place, output, names[number])
        process.start()
        while process.is_alive() and not (output / names[number] / "run" / "run.json").exists():
            time.sleep(0.002)
        time.sleep(chance.uniform(0, 0.3))
        os.kill(process.pid or 0, signal.SIGKILL)
        process.join()
        assert process.exitcode == -signal.SIGKILL
        assert not (output / "results.json").exists()
    done = len(list(output.glob("*/result.json")))
    assert done > 2  # all six, if the last kill comes after the last cell
    assert len(place.compare(output)[1]) == 6 - done
    assert tables(output) == tables(place.whole)
