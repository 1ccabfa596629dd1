"""rosewood compare on the command line: the plan, the tables, the exit code."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from transformers import BertConfig, BertModel

from cli.conftest import Rosewood
from rosewood.data.embedded import embedded_model
from rosewood.errors import ExperimentError
from rosewood.experiments import plan
from rosewood.experiments.cell import finished_with_other_settings, status_of
from rosewood.experiments.engines import local
from rosewood.experiments.engines.local import LocalEngine
from rosewood.experiments.experiment import read_experiment
from rosewood.experiments.grid import cells_of
from rosewood.models import names
from rosewood.results import CellResult, Evaluation
from tiny_experiment import InThisProcess, tiny_experiment, write_data, write_experiment
from tiny_text import tiny_tokenizer

EXPERIMENTS = sorted((Path(__file__).parent.parent.parent / "experiments").glob("*.yaml"))


def test_a_plan_names_every_problem_at_once_and_starts_nothing(
    rosewood: Rosewood, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "wrong.yaml"
    file.write_text(yaml.safe_dump({"recipes": ["vanila"], "tasks": ["sst3"], "models": ["../x"], "baseline": "y"}))
    printed = rosewood("compare", file, "--plan", code=1)
    assert "experiment wrong has 4 problems:" in printed
    assert {path.name for path in tmp_path.iterdir()} == {"wrong.yaml"}
    assert rosewood("compare", file, code=1) == printed


def test_one_recipe_of_an_experiment_can_be_run_alone() -> None:
    """Its cells are those of the whole experiment; settings of a task for the others are left out."""
    whole = read_experiment(EXPERIMENTS[0].parent / "replication.yaml")
    alone = whole.with_recipes(["rose-first"])
    assert [choice.name for choice in alone.recipes] == ["rose-first"] and alone.baseline is None
    names = [cell.name for cell in cells_of(alone)]
    assert names == [cell.name for cell in cells_of(whole) if cell.label == "rose-first"] and len(names) == 12
    assert whole.with_recipes([]) is whole
    with pytest.raises(ExperimentError, match="no recipe 'rose-frist': did you mean rose-first"):
        whole.with_recipes(["rose-frist"])


def test_a_plan_measures_what_is_here_and_says_what_is_not(rosewood: Rosewood, tmp_path: Path) -> None:
    data, file = write_data(tmp_path / "data"), write_experiment(tmp_path)
    headless = tmp_path / "flat"
    BertModel(
        BertConfig(vocab_size=58, hidden_size=16, num_hidden_layers=0, num_attention_heads=2, intermediate_size=32)
    ).save_pretrained(headless)
    tiny_tokenizer().save_pretrained(headless)
    raw = yaml.safe_load(file.read_text())
    raw["models"] += ["some-org/some-model", str(headless)]
    file.write_text(yaml.safe_dump(raw))
    output = tmp_path / "out"
    printed = rosewood("compare", file, "--plan", "--data-dir", data, "-o", output, code=1)
    here, hub, flat = (_rows(part) for part in re.split("model: (?:some-model|flat)", printed))
    assert here["vanilla"][2:5] == ["2", "0", "10"] and here["vanilla"][5].startswith("0:")
    assert [row[5] for row in hub.values()] == ["unknown"] * 3 and "\nmodel on the Hub\n" in printed
    assert flat["vanilla"][5].startswith("0:") and flat["rose-second"][5] == "unknown"
    assert "\nrose-second on tiny: refused: recipe rose-second" in printed and "vanilla on tiny" not in printed
    assert "Training data of tiny: folder: train.jsonl\n" in printed
    assert "18 cells, 0 finished" in printed and "The time of 8 cells cannot be measured here" in printed
    assert not output.exists()


def _rows(table: str) -> dict[str, list[str]]:
    """Recipe -> its row."""
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in table.splitlines() if "│" in line]
    return {row[1]: row for row in rows}


def test_a_plan_is_not_cut_where_there_is_no_terminal(rosewood: Rosewood) -> None:
    """Eighty columns are what a pipe gets."""
    printed = rosewood("compare", EXPERIMENTS[0].with_name("question-scaling.yaml"), "--plan")
    assert "…" not in printed and "deberta-v2-xxlarge" in printed


def test_finished_cells_of_other_data_are_named_and_no_table_takes_the_place_of_theirs(
    rosewood: Rosewood, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, output = write_data(tmp_path / "data"), tmp_path / "out"
    file = write_experiment(tmp_path, recipes=["vanilla"], seeds=[0, 1], attacks=[])
    monkeypatch.setattr(local.LocalEngine, "run", lambda self, folders: InThisProcess().run(folders))
    assert "Looking in" not in rosewood("compare", file, "-o", output, "--data-dir", data)
    before = {each.name: each.read_bytes() for each in output.iterdir() if each.is_file()}
    seen = "2 finished cells there have other settings or data"
    shown = rosewood("compare", file, "-o", output, "--table", code=1)
    assert seen in shown and "none of the 2 cells" in shown and "no table is written" in " ".join(shown.split())
    assert seen in rosewood("compare", file, "-o", output, "--plan")
    assert seen in rosewood("compare", file, "-o", output, code=1), "the data are missing"
    assert {each.name: each.read_bytes() for each in output.iterdir() if each.is_file()} == before
    write_experiment(tmp_path, recipes=["vanilla"], seeds=[0, 1, 2], attacks=[], max_length=12)
    shown = rosewood("compare", file, "-o", output, "--data-dir", data)
    assert seen in shown and "3 of 3 cells are finished" in shown
    assert "Looking in" not in rosewood("compare", file, "-o", output, "--data-dir", data)


def test_cells_of_the_file_and_damaged_results_are_not_taken_for_others(tmp_path: Path) -> None:
    """Models that share the last part of their name share the beginnings of their cells' names."""
    experiment = tiny_experiment(
        tmp_path, recipes=["vanilla"], seeds=[0], models=["one/m", "other/m"], attacks=[], baseline=None
    )
    first, second = cells_of(experiment)
    assert first.place == second.place
    measured = Evaluation(model="m", task="tiny", seed=0, sets=[], size=None, max_length=16, typo_rate=None, missing=[])
    result = CellResult(
        fingerprint=first.fingerprint, label="vanilla", task="tiny", model="one/m", seed=0, steps=9,
        validation_accuracy=0.7, training_seconds=None, data={}, evaluation=measured,
    )  # fmt: skip
    result.save(tmp_path / first.name / "result.json")
    (tmp_path / f"{first.place}-00000000").mkdir()
    (tmp_path / f"{first.place}-00000000" / "result.json").write_text("broken")
    found = [status_of(cell, tmp_path) for cell in (first, second)]
    assert found[0].result is not None and found[1].result is None and finished_with_other_settings(found) == []
    result.save(tmp_path / f"{first.place}-00000001" / "result.json")
    assert finished_with_other_settings(found) == [tmp_path / f"{first.place}-00000001"]


def test_tables_are_shown_again_and_a_failed_cell_is_exit_code_one(
    rosewood: Rosewood, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data, output = write_data(tmp_path / "data"), tmp_path / "out"
    broken = {"recipe": "rose-second", "label": "broken", "training": {"optim": "adafactor"}}
    file = write_experiment(
        tmp_path, recipes=["vanilla", "smart", broken], seeds=[0], attacks=[], notes=["All [of] it is small."]
    )
    monkeypatch.setattr(local.LocalEngine, "run", lambda self, folders: InThisProcess().run(folders))
    printed = rosewood("compare", file, "-o", output, "--data-dir", data, code=1)
    assert "- All [of] it is small.\n2 of 3 cells are finished" in printed and "Cells that failed" in printed
    assert "Not tested: smart (one of the two is at guessing)" in " ".join(printed.split()), "ten steps teach nothing"
    shown = rosewood("compare", file, "-o", output, "--data-dir", data, "--table", code=1)
    assert shown in printed


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--engine", "rya"], "unknown engine 'rya': did you mean ray?"),
        (
            ["--engine", "ray", "--jobs", 2],
            "--jobs is for local processes: on Ray, --cpus says how much room a cell takes",
        ),
        (["--cpus", 2], "--ray-address, --cpus and --retries are Ray's: add --engine ray, or leave them out"),
        (["--engine", "ray", "--ray-address", "ray://head:10001"], "give the command on a node of the cluster"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    options: list[object], message: str, rosewood: Rosewood, tmp_path: Path
) -> None:
    printed = rosewood("compare", write_experiment(tmp_path), "-o", tmp_path / "out", *options, code=1)
    assert message in printed and not (tmp_path / "out").exists()


def test_the_models_to_trust_reach_the_workers(
    rosewood: Rosewood, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[LocalEngine] = []
    monkeypatch.setattr(LocalEngine, "run", lambda self, folders: iter(seen.append(self) or []))
    file, data = write_experiment(tmp_path), write_data(tmp_path / "data")
    rosewood("compare", file, "-o", tmp_path / "out", "--data-dir", data, "--trust-remote-code", "mine", "--jobs", 3)
    assert [(engine.jobs, engine.trusted) for engine in seen] == [(3, ["mine"])]


@pytest.fixture(scope="module")
def other(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration of a model, without weights."""
    folder = tmp_path_factory.mktemp("model")
    BertConfig(hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16).save_pretrained(folder)
    return folder


@pytest.mark.parametrize("file", EXPERIMENTS, ids=lambda file: file.stem)
def test_every_experiment_that_is_shipped_can_be_planned(
    file: Path, rosewood: Rosewood, tmp_path: Path, other: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plan, "seconds_per_step", lambda cell: 1.0)
    # The packages of larger models are not installed with the project; a plan reads no more than their configuration.
    monkeypatch.setattr(names, "embedded_model", lambda name: embedded_model() if name == "minilm" else other)
    printed = rosewood("compare", file, "--plan", "--output", tmp_path)
    experiment = read_experiment(file)
    cells = len(experiment.recipes) * len(experiment.tasks) * len(experiment.models) * len(experiment.seeds)
    assert f"{cells} cells, 0 finished" in printed
    assert not list(tmp_path.iterdir())
