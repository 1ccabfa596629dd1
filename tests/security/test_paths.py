"""Nothing is written outside a run directory, whatever names and links say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rosewood.cli.train import file_name
from rosewood.data.tasks import load_task
from rosewood.errors import RecipeError, RunError
from rosewood.recipe import build_recipe, load_recipe
from rosewood.results import Metrics, RunInfo
from rosewood.training.run import Plan, resume_run, start_run
from tiny_text import save_tiny_checkpoint

EVIL = [
    "../../up",
    "/etc/x",
    "..",
    ".",
    "a/../../b",
    "C:\\x",
    "a\0b",
    "\n",
    "~",
    "-rf",
    "x" * 5000,
    "ü\u202e/",
    "\ud800",
]
TASK = """
name: {name}
title: Own
text: [text]
labels: [{label}, good]
splits:
  train: {{folder: {{file: {file}, label_values: {{0: {label}, 1: good}}}}}}
  test: {{folder: {{file: {file}, label_values: {{0: {label}, 1: good}}}}}}
  {set}: {{role: shift, folder: {{file: {file}, label_values: {{0: {label}, 1: good}}}}}}
"""


def everything_below(folder: Path) -> set[Path]:
    return {path.relative_to(folder) for path in folder.rglob("*")}


@pytest.fixture
def films(tmp_path: Path) -> Path:
    file = tmp_path / "films.csv"
    file.write_text("text,label\n" + "".join(f"film {chr(97 + i)},{i % 2}\n" for i in range(20)))
    return file


@pytest.fixture
def plan(tmp_path: Path, films: Path) -> Plan:
    """A run whose recipe, task, label, evaluation set and tokenizer have names that climb out of every folder."""
    checkpoint = save_tiny_checkpoint(tmp_path / "checkpoint", ("../../../label", "good"))
    quoted = {name: json.dumps(f"../../../{name}") for name in ("name", "label", "set")}
    (tmp_path / "own.yaml").write_text(TASK.format(file=films, **quoted))
    recipe = build_recipe({"name": "../../recipe"})
    task = load_task(tmp_path / "own.yaml")
    return Plan(recipe=recipe, task=task, model=str(checkpoint), max_length=8, arguments={"max_steps": 1})


@pytest.mark.parametrize("name", EVIL, ids=ascii)
def test_a_default_output_is_one_folder_in_runs(name: str, tmp_path: Path) -> None:
    chosen = file_name(f"{name}-{name}-seed0")
    assert chosen.endswith("seed0")
    (tmp_path / "runs" / chosen).mkdir(parents=True)
    assert everything_below(tmp_path) == {Path("runs"), Path("runs") / chosen}


def test_names_that_climb_stay_inside(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rosewood.cli.evaluate import evaluate_one

    home = tmp_path / "deep" / "inside" / "here"
    home.mkdir(parents=True)
    monkeypatch.chdir(home)
    before = everything_below(tmp_path)
    start_run(plan, Path("run"))
    evaluate_one("run", None, None, None, 8, 0.3, 0)
    new = everything_below(tmp_path) - before
    assert new
    assert all(path.is_relative_to("deep/inside/here/run") for path in new)


def test_names_of_chat_templates_stay_inside(plan: Plan, tmp_path: Path) -> None:
    """transformers writes every template of a tokenizer under a name that the checkpoint chose."""
    file = Path(plan.model) / "tokenizer_config.json"
    templates = [{"name": "default", "template": "x"}, {"name": "../../../../escaped", "template": "x"}]
    file.write_text(json.dumps(json.loads(file.read_text()) | {"chat_template": templates}))
    run = tmp_path / "a" / "b" / "run"
    assert start_run(plan, run).status == "finished"
    assert not list(tmp_path.rglob("escaped*"))


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000])
def test_an_output_that_no_folder_can_have(name: str, plan: Plan, tmp_path: Path) -> None:
    with pytest.raises(RunError, match="cannot be written"):
        start_run(plan, tmp_path / name)


def test_an_output_below_a_file(plan: Plan, films: Path) -> None:
    with pytest.raises(RunError, match=r"films\.csv is not a folder that you may write to"):
        start_run(plan, films / "run")


# Links.


def test_overwriting_removes_links_and_leaves_what_they_point_to(plan: Plan, tmp_path: Path) -> None:
    run, precious = tmp_path / "run", tmp_path / "precious"
    start_run(plan, run)
    precious.mkdir()
    (precious / "thesis.tex").write_text("years of work")
    for name in ("model", "checkpoints", "metrics.json", "history.jsonl", "recipe.yaml", "new"):
        target = precious / "thesis.tex" if "." in name else precious
        if (run / name).is_dir():
            (run / name).rename(tmp_path / "old")
        (run / name).unlink(missing_ok=True)
        (run / name).symlink_to(target)
    assert start_run(plan, run, overwrite=True).status == "finished"
    assert everything_below(precious) == {Path("thesis.tex")}
    assert (precious / "thesis.tex").read_text() == "years of work"
    assert not [path for path in run.rglob("*") if path.is_symlink()]


@pytest.mark.parametrize("name", ["checkpoints", "model", "history.jsonl", "history.tmp", "deep/er"])
def test_a_run_with_links_is_not_resumed(name: str, plan: Plan, tmp_path: Path) -> None:
    run, outside = tmp_path / "run", tmp_path / "outside"
    start_run(plan, run)
    info = RunInfo.load(run / "run.json")
    info.model_copy(update={"status": "interrupted"}).save(run / "run.json")
    outside.mkdir()
    link = run / name
    if link.exists():
        link.rename(tmp_path / "moved")
    link.parent.mkdir(exist_ok=True)
    link.symlink_to(outside)
    with pytest.raises(RunError, match=f"{link.name} is a link, and a run writes nowhere but into its own directory"):
        resume_run(run)
    assert not everything_below(outside)


def test_an_output_that_is_a_link_is_refused(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    (tmp_path / "run").symlink_to(tmp_path / "outside")
    with pytest.raises(RunError, match="is a link: name the folder that it points to"):
        start_run(plan, tmp_path / "run", overwrite=True)
    assert not everything_below(tmp_path / "outside")


def test_results_replace_links(tmp_path: Path) -> None:
    outside = tmp_path / "outside.json"
    outside.write_text("keep")
    (tmp_path / "metrics.json").symlink_to(outside)
    metrics = Metrics(steps=1, epochs=1.0, train_loss=0.5, validation_accuracy=0.5, validation_loss=0.7)
    metrics.save(tmp_path / "metrics.json")
    assert outside.read_text() == "keep"
    assert Metrics.load(tmp_path / "metrics.json") == metrics


def test_overwrite_spares_what_only_looks_like_a_run(plan: Plan, tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "run.json").write_text('{"scripts": {"test": "make"}}')
    (folder / "thesis.tex").write_text("years of work")
    with pytest.raises(RunError, match="is not a valid RunInfo"):
        start_run(plan, folder, overwrite=True)
    assert (folder / "thesis.tex").read_text() == "years of work"


# Settings of a stranger.


@pytest.mark.parametrize("name", ["push_to_hub", "hub_model_id", "hub_token", "report_to", "trackio_space_id"])
def test_neither_a_recipe_nor_a_run_publishes_anything(name: str, plan: Plan, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=f"training.{name}: a recipe cannot send anything anywhere"):
        build_recipe({"training": {name: "x"}})
    start_run(plan, tmp_path / "run")
    file = tmp_path / "run" / "run.json"
    info = json.loads(file.read_text())
    info |= {"status": "interrupted", "training_arguments": info["training_arguments"] | {name: "x"}}
    file.write_text(json.dumps(info))
    with pytest.raises(RecipeError, match=f"training.{name}: a recipe cannot send anything anywhere"):
        resume_run(tmp_path / "run")


def test_a_run_cannot_send_its_checkpoints_elsewhere(plan: Plan, tmp_path: Path) -> None:
    start_run(plan, tmp_path / "run")
    file = tmp_path / "run" / "run.json"
    info = json.loads(file.read_text())
    info |= {"status": "interrupted", "training_arguments": {"output_dir": str(tmp_path / "elsewhere")}}
    file.write_text(json.dumps(info))
    with pytest.raises(RunError, match=r"training.output_dir \(use --output\)"):
        resume_run(tmp_path / "run")
    assert load_recipe(tmp_path / "run" / "recipe.yaml").name == "../../recipe"
    assert not (tmp_path / "elsewhere").exists()
