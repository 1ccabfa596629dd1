"""An evaluation runs every set of a task, names those it could not run, and refuses the wrong model."""

import json
import os
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest
import torch
from sklearn.metrics import accuracy_score, log_loss
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertForSequenceClassification,
    PreTrainedTokenizerFast,
)

from held_elsewhere import held_elsewhere
from rosewood.data.embedded import embedded_model
from rosewood.data.loading import load_split
from rosewood.data.tasks import Task, build_task, load_task
from rosewood.errors import DataError, RunError
from rosewood.evaluation.evaluate import evaluate
from rosewood.evaluation.predict import predict
from rosewood.results import Evaluation
from rosewood.results.work_folder import HeldError
from rosewood.words.noise import noisy

Make = Callable[..., BertForSequenceClassification]
LABELS = ["negative", "positive"]


def write(path: Path, rows: int, seed: int) -> None:
    rng = Random(seed)
    sentences = [" ".join("".join(rng.choices("abcdef", k=5)) for _ in range(6)) for _ in range(rows)]
    lines = [json.dumps({"text": text, "label": rng.choice(LABELS)}) for text in sentences]
    path.write_text("\n".join(lines))


def make_task(**splits: str) -> Task:
    """A task whose splits, given as name=role, are files of their own name in the data folder."""
    raw = {name: {"role": role, "folder": {"file": f"{name}.jsonl"}} for name, role in splits.items()}
    return build_task({"name": "toy", "title": "Toy", "text": ["text"], "labels": LABELS, "splits": raw}, "toy")


@pytest.fixture
def task() -> Task:
    return make_task(
        train="train", validation="validation", test="test", books="shift", trick="adversarial", lost="shift"
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for seed, name in enumerate(("test", "books", "trick")):
        write(tmp_path / f"{name}.jsonl", rows=40, seed=seed)
    return tmp_path


def test_runs_every_set_and_lists_the_missing(
    make_model: Make, tokenizer: PreTrainedTokenizerFast, task: Task, folder: Path
) -> None:
    evaluation = evaluate(make_model(), tokenizer, task, folder)
    assert [(each.name, each.role, each.examples) for each in evaluation.sets] == [
        ("test", "clean", 40),
        ("books", "shift", 40),
        ("trick", "adversarial", 40),
        ("typos", "noise", 40),
    ]
    (lost,) = evaluation.missing
    assert (lost.name, lost.role) == ("lost", "shift")
    assert "lost.jsonl: no such file" in lost.reason
    evaluation.save(folder / "evaluation.json")
    assert Evaluation.load(folder / "evaluation.json") == evaluation


def test_figures_are_those_of_the_predictions(
    make_model: Make, tokenizer: PreTrainedTokenizerFast, task: Task, folder: Path
) -> None:
    model = make_model()
    evaluation = evaluate(model, tokenizer, task, folder, typo_rate=0.5, seed=3)
    clean = load_split(task, "test", folder)
    for name, dataset in {"test": clean, "typos": noisy(clean, ["text"], "typos", 0.5, 3)}.items():
        (found,) = [each for each in evaluation.sets if each.name == name]
        logits = torch.from_numpy(predict(model, tokenizer, dataset, ["text"])).double()
        labels = dataset["label"][:]
        assert found.accuracy == accuracy_score(labels, logits.argmax(dim=1))
        assert found.nll == pytest.approx(log_loss(labels, logits.softmax(dim=1).numpy()), abs=1e-9)
        assert found.interval[0] < found.accuracy < found.interval[1]


def test_a_rate_of_zero_leaves_typos_out(
    make_model: Make, tokenizer: PreTrainedTokenizerFast, task: Task, folder: Path
) -> None:
    names = [each.name for each in evaluate(make_model(), tokenizer, task, folder, typo_rate=0).sets]
    assert "test" in names and "typos" not in names


def test_settings_are_kept_and_size_is_obeyed(
    make_model: Make, tokenizer: PreTrainedTokenizerFast, task: Task, folder: Path
) -> None:
    evaluation = evaluate(
        make_model(), tokenizer, task, folder, size=7, max_length=9, typo_rate=0.1, seed=5, batch_size=3
    )
    assert {each.examples for each in evaluation.sets} == {7}
    assert (evaluation.size, evaluation.max_length, evaluation.typo_rate, evaluation.seed) == (7, 9, 0.1, 5)


def test_labels_in_another_order_give_the_same_figures(
    make_model: Make, tokenizer: PreTrainedTokenizerFast, task: Task, folder: Path
) -> None:
    straight, turned = make_model(("negative", "positive")), make_model(("positive", "negative"))
    with torch.no_grad():
        turned.classifier.weight.copy_(straight.classifier.weight.flip(0))
        turned.classifier.bias.copy_(straight.classifier.bias.flip(0))
    first = evaluate(straight, tokenizer, task, folder).sets
    second = evaluate(turned, tokenizer, task, folder).sets
    assert [each.accuracy for each in first] == [each.accuracy for each in second]
    np.testing.assert_allclose([each.nll for each in first], [each.nll for each in second], atol=1e-6)


@pytest.mark.parametrize("names", [("bad", "good"), ("a", "b", "c")])
def test_the_wrong_model_is_refused_before_any_work(
    make_model: Make, tokenizer: PreTrainedTokenizerFast, task: Task, folder: Path, names: tuple[str, ...]
) -> None:
    model = make_model(names)
    model.register_forward_pre_hook(lambda *_: pytest.fail("the model ran"))
    with pytest.raises(RunError, match="the model"):
        evaluate(model, tokenizer, task, folder)


def test_without_its_test_set_the_typos_are_missing_too(
    make_model: Make, tokenizer: PreTrainedTokenizerFast, task: Task, folder: Path
) -> None:
    (folder / "test.jsonl").unlink()
    evaluation = evaluate(make_model(), tokenizer, task, folder)
    assert [each.name for each in evaluation.sets] == ["books", "trick"]
    assert [each.name for each in evaluation.missing] == ["test", "lost", "typos"]


def test_nothing_to_evaluate_on_is_an_error(
    make_model: Make, tokenizer: PreTrainedTokenizerFast, task: Task, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=r"no evaluation set of task toy can be used:\n.*test\.jsonl: no such file"):
        evaluate(make_model(), tokenizer, task, tmp_path)
    with pytest.raises(DataError, match="task toy has no test, shift or adversarial split"):
        evaluate(make_model(), tokenizer, make_task(train="train"), tmp_path)


def test_settings_are_checked_before_any_work(
    make_model: Make, tokenizer: PreTrainedTokenizerFast, task: Task, folder: Path
) -> None:
    model = make_model()
    model.register_forward_pre_hook(lambda *_: pytest.fail("the model ran"))
    with pytest.raises(RunError, match="typo_rate is a share of words, from 0 to 1; got 30"):
        evaluate(model, tokenizer, task, folder, typo_rate=30)
    with pytest.raises(DataError, match=r"task toy has a split called typos, .*: rename the split"):
        evaluate(model, tokenizer, make_task(test="test", typos="shift"), folder)


@pytest.mark.data
def test_real_sets_through_a_real_model() -> None:
    if not os.environ.get("ROSEWOOD_DATA"):
        pytest.skip("ROSEWOOD_DATA does not name the data folder")
    try:
        folder = embedded_model()
    except DataError as error:
        pytest.skip(str(error))
    torch.manual_seed(0)
    model = AutoModelForSequenceClassification.from_pretrained(folder, num_labels=2)
    evaluation = evaluate(model, AutoTokenizer.from_pretrained(folder), load_task("sst2"), size=50)
    assert not evaluation.missing
    assert {each.role for each in evaluation.sets} == {"clean", "shift", "adversarial", "noise"}


def test_an_evaluation_does_not_write_where_somebody_works(
    make_model: Make,
    tokenizer: PreTrainedTokenizerFast,
    task: Task,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("rosewood.evaluation.evaluate._PATIENCE", 0.1)
    with held_elsewhere(folder / "run") as number, pytest.raises(HeldError, match=f"process {number} on "):
        evaluate(make_model(), tokenizer, task, folder, output=folder / "run")
    assert not list((folder / "run").glob("*.json")) and not list((folder / "run").glob("*.parquet"))
    evaluate(make_model(), tokenizer, task, folder, output=folder / "run")
    assert not (folder / "run" / ".lock").exists()
