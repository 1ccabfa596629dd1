"""rosewood compare on the command line: the plan, the tables, the exit code."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from transformers import BertConfig, BertForSequenceClassification

from cli.conftest import Rosewood
from rosewood.experiments import local, outlook
from rosewood.experiments.experiment import read_experiment
from rosewood.experiments.local import LocalEngine
from tiny_experiment import InThisProcess, write_data, write_experiment
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


def test_a_plan_measures_what_is_here_and_says_what_is_not(rosewood: Rosewood, tmp_path: Path) -> None:
    data, file = write_data(tmp_path / "data"), write_experiment(tmp_path)
    headless = tmp_path / "flat"
    BertForSequenceClassification(
        BertConfig(vocab_size=58, hidden_size=16, num_hidden_layers=0, num_attention_heads=2, intermediate_size=32)
    ).save_pretrained(headless)
    tiny_tokenizer().save_pretrained(headless)
    raw = yaml.safe_load(file.read_text())
    raw["models"] += ["some-org/some-model", str(headless)]
    file.write_text(yaml.safe_dump(raw))
    output = tmp_path / "out"
    printed = rosewood("compare", file, "--plan", "--data-dir", data, "-o", output, code=1)
    rows = [[cell.strip() for cell in line.split("│")[1:-1]] for line in printed.splitlines() if "│" in line]
    here = {row[2]: row for row in rows if row[1] == "checkpoint"}
    assert here["vanilla"][3:6] == ["2", "0", "10"] and here["vanilla"][6].startswith("0:")
    assert [row[6:] for row in rows if row[1] == "some-model"] == [["unknown", "model on the Hub"]] * 3
    refused = {row[2]: row[7] for row in rows if row[1] == "flat"}
    assert refused["vanilla"] == "" and refused["rose-second"].startswith("refused: recipe rose-second")
    assert "18 cells, 0 finished" in printed and "The time of 8 cells cannot be measured here" in printed
    assert not output.exists()


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
    assert "Difference from vanilla on the same examples" in printed  # one seed
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


@pytest.mark.parametrize("file", EXPERIMENTS, ids=lambda file: file.stem)
def test_every_experiment_that_is_shipped_can_be_planned(
    file: Path, rosewood: Rosewood, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(outlook, "seconds_per_step", lambda cell: 1.0)
    printed = rosewood("compare", file, "--plan", "--output", tmp_path)
    experiment = read_experiment(file)
    cells = len(experiment.recipes) * len(experiment.tasks) * len(experiment.models) * len(experiment.seeds)
    assert f"{cells} cells, 0 finished" in printed
    assert not list(tmp_path.iterdir())
