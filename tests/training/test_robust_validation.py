"""The epoch that stays most accurate under attack is the one that is kept, and only validation data are attacked."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from datasets import Dataset
from safetensors.torch import load_file
from torch import Tensor

from rosewood.attacks.runner.api import choose_attack
from rosewood.data.loading import task_from_files
from rosewood.errors import DataError, RecipeError, RunError
from rosewood.recipe import load_recipe
from rosewood.results import Metrics
from rosewood.training import callbacks
from rosewood.training.callbacks import TrainingProgress
from rosewood.training.run import Interrupted, Plan, resume_run, start_run
from rosewood.words.lexicon import Lexicon
from tiny_text import save_tiny_checkpoint, tiny_classifier, tiny_tokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz"


def write(file: Path, kind: str, count: int) -> Path:
    rows = [f"{kind} {'good' if i % 2 else 'bad'} film {LETTERS[i % 26]},{i % 2}" for i in range(count)]
    file.write_text("\n".join(["text,label", *rows]) + "\n", encoding="utf-8")
    return file


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    lexicon = tmp_path / "lexicon.json"
    lexicon.write_text(json.dumps({"good": ["nice", "fine"], "film": ["movie"], "bad": ["awful"]}), encoding="utf-8")
    files = [write(tmp_path / f"{kind}.csv", kind, n) for kind, n in (("train", 24), ("eval", 12), ("test", 12))]
    task = task_from_files(files[0], files[1], text_columns=["text"], label_column="label", test_file=files[2])
    return Plan(
        recipe=load_recipe("adv-base", {"perturbation.steps": 2, "perturbation.lexicon": str(lexicon)}),
        task=task,
        model=str(save_tiny_checkpoint(tmp_path / "tiny")),
        max_length=24,
        select_by="pwws",
        select_examples=6,
        arguments={"num_train_epochs": 4.0, "per_device_train_batch_size": 8, "learning_rate": 1e-3},
    )


class Scripted:
    """An attack whose outcome is known; remembers the weights that it saw and the texts that it was given."""

    def __init__(self, *shares: float) -> None:
        self._shares: Iterator[float] = iter(shares)
        self.weights: list[dict[str, Tensor]] = []
        self.data: list[Dataset] = []

    def __call__(self, model: Any, tokenizer: Any, data: Dataset, attack: Any, **settings: Any) -> Any:
        torch.rand(7)  # what an attack draws does not change the training
        self.weights.append({name: value.clone() for name, value in model.state_dict().items()})
        self.data.append(data)
        return SimpleNamespace(robust_accuracy=next(self._shares), clean_accuracy=1.0, attacked=True)


def attacked_by(script: Scripted, monkeypatch: pytest.MonkeyPatch) -> Scripted:
    monkeypatch.setattr(callbacks, "robust_accuracy", script)
    return script


def kept(run: Path) -> dict[str, Tensor]:
    return load_file(run / "model" / "model.safetensors")


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return all(torch.equal(one[name], other[name]) for name in one)


def test_the_most_robust_epoch_is_kept(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = attacked_by(Scripted(0.2, 0.9, 0.9, 0.4), monkeypatch)
    start_run(plan, tmp_path / "run")
    found = kept(tmp_path / "run")
    assert [same(found, weights) for weights in script.weights] == [False, True, False, False]
    metrics = Metrics.load(tmp_path / "run" / "metrics.json")
    assert metrics.robust_validation_accuracy == 0.9 and metrics.validation_accuracy is not None
    assert metrics.steps == 12, "all epochs are trained"


def test_only_validation_data_are_attacked(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = attacked_by(Scripted(0.1, 0.2, 0.3, 0.4), monkeypatch)
    start_run(plan, tmp_path / "run")
    texts = [text for data in script.data for text in data["text"]]
    assert len(texts) == 4 * 12 and {text.split()[0] for text in texts} == {"eval"}


def test_early_stopping_looks_at_the_same_figure(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = attacked_by(Scripted(0.5, 0.4, 0.3), monkeypatch)  # a fourth would be one too many
    start_run(plan.model_copy(update={"early_stopping": 2}), tmp_path / "run")
    assert Metrics.load(tmp_path / "run" / "metrics.json").steps == 9
    assert same(kept(tmp_path / "run"), script.weights[0])


def test_an_attack_leaves_training_as_it_was(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    start_run(plan.model_copy(update={"select_by": None}), tmp_path / "plain")
    attacked_by(Scripted(0.1, 0.2, 0.3, 0.4), monkeypatch)
    start_run(plan, tmp_path / "selected")
    assert (tmp_path / "plain/history.jsonl").read_text() == (tmp_path / "selected/history.jsonl").read_text()
    assert same(kept(tmp_path / "plain"), kept(tmp_path / "selected"))


@pytest.mark.parametrize(("recipe", "step"), [("adv-base", 4), ("rift", 4), ("rift", 6)])
def test_resumed_from_another_folder_it_is_the_uninterrupted_run(
    recipe: str, step: int, plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Three steps an epoch: Ctrl-C inside the second, or at its end; the first epoch, already saved, is the best."""
    assert plan.recipe.perturbation is not None
    changes = {f"perturbation.{name}": plan.recipe.perturbation.settings()[name] for name in ("steps", "lexicon")}
    plan = plan.model_copy(update={"recipe": load_recipe(recipe, changes)})
    attacked_by(Scripted(0.9, 0.2, 0.3, 0.4), monkeypatch)
    start_run(plan, tmp_path / "whole")

    def pressed(self: Any, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == step:
            os.kill(os.getpid(), signal.SIGINT)

    attacked_by(Scripted(0.9, 0.2, 0.3, 0.4), monkeypatch)
    with monkeypatch.context() as there:
        there.setattr(TrainingProgress, "on_step_end", pressed)
        there.chdir(tmp_path)
        with pytest.raises(Interrupted):
            start_run(plan, Path("broken"))
    resume_run(tmp_path / "broken")
    assert same(kept(tmp_path / "whole"), kept(tmp_path / "broken"))
    assert (tmp_path / "whole/history.jsonl").read_text() == (tmp_path / "broken/history.jsonl").read_text()
    one, other = (Metrics.load(tmp_path / run / "metrics.json") for run in ("whole", "broken"))
    assert one.robust_validation_accuracy == other.robust_validation_accuracy == 0.9
    assert one.validation_loss == other.validation_loss


def test_a_real_attack_measures(plan: Plan, tmp_path: Path) -> None:
    start_run(plan.model_copy(update={"select_examples": 12}), tmp_path / "run")
    metrics = Metrics.load(tmp_path / "run" / "metrics.json")
    assert metrics.robust_validation_accuracy is not None and metrics.validation_accuracy is not None
    assert metrics.robust_validation_accuracy <= metrics.validation_accuracy


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"select_by": "genetic"}, r"^genetic cannot select.*language model.*pwws and typos can"),
        ({"select_by": "textfooler"}, r"^textfooler cannot select.*encoder.*pwws and typos can"),
        ({"select_by": "pwsw"}, r"unknown attack 'pwsw'.*pwws"),
        ({"arguments": {"fsdp": True}}, r"fsdp"),
    ],
    ids=["genetic", "textfooler", "unknown", "fsdp"],
)
def test_what_cannot_select_is_refused(changes: dict[str, Any], message: str, plan: Plan, tmp_path: Path) -> None:
    with pytest.raises((RunError, RecipeError, DataError), match=message):
        start_run(plan.model_copy(update={**changes}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_an_epoch_at_guessing_is_not_the_most_robust(
    plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model that always answers the same keeps its half of the examples under any attack."""
    script = attacked_by(Scripted(0.2, 0.5, 0.3, 0.5), monkeypatch)
    guessing = iter([False, True, False, True])
    monkeypatch.setattr(callbacks, "guesses", lambda metrics: next(guessing))
    start_run(plan, tmp_path / "run")
    assert [same(kept(tmp_path / "run"), weights) for weights in script.weights] == [False, False, True, False]
    metrics = Metrics.load(tmp_path / "run" / "metrics.json")
    assert metrics.robust_validation_accuracy == 0.3 and metrics.attacked_validation_accuracy == 1.0


def test_validation_texts_of_another_language_are_warned_of() -> None:
    model, tokenizer = tiny_classifier(), tiny_tokenizer()
    data = Dataset.from_dict({"text": ["хороший фильм"] * 4, "label": [0, 1, 0, 1]})
    lexicon = Lexicon.of({"good": ["fine"]})
    watcher = callbacks.RobustValidation(data, tokenizer, choose_attack("pwws"), lexicon, None, 4, 24)
    state = SimpleNamespace(is_world_process_zero=True, log_history=[{}])
    metrics: dict[str, float] = {}
    with pytest.warns(UserWarning, match=r"pwws could change only 0\.0% of the words of the validation texts"):
        watcher.on_evaluate(None, state, None, metrics=metrics, model=model)
    assert callbacks.METRIC in metrics
