"""A classifier that is trained further keeps the meaning of its outputs."""

from __future__ import annotations

import json
from functools import cache
from itertools import permutations
from pathlib import Path

import numpy as np
import pytest
import torch
from datasets import ClassLabel, Dataset, Features
from numpy.typing import NDArray
from peft import LoraConfig, get_peft_model
from transformers import (
    AutoModelForSequenceClassification,
    BertForSequenceClassification,
    BertModel,
    PreTrainedModel,
)

from rosewood import RobustTrainer
from rosewood.config.settings import Lora
from rosewood.data.loading import load_split, task_from_files
from rosewood.errors import RunError
from rosewood.evaluation.predict import predict
from rosewood.models.names import outline
from rosewood.models.open import load_classifier, load_pretrained
from rosewood.models.scoring import label_columns
from rosewood.recipe import load_recipe
from rosewood.results import Metrics, RunInfo
from rosewood.training.callbacks import Interrupted, SaveAndStop
from rosewood.training.plan import Plan
from rosewood.training.run import check_run, resume_run, settled, start_run
from tiny import TinyData, arguments, tiny_bert
from tiny_text import save_tiny_checkpoint, tiny_classifier, tiny_tokenizer

NAMES = ("numeric", "human", "location")
LETTERS = "abcdefghijklmnopqrstuvwxyz"


TEXTS = [f"{LETTERS[i % 26]} film {LETTERS[i // 26]} {LETTERS[i * 7 % 26]}" for i in range(60)]


def answers(model: PreTrainedModel) -> NDArray[np.float32]:
    return predict(model.eval(), tiny_tokenizer(), Dataset.from_dict({"text": TEXTS}), ["text"], 16)


@cache
def teacher() -> BertForSequenceClassification:
    """A classifier that gives all its answers."""
    model = tiny_classifier(NAMES).eval()
    with torch.no_grad():
        model.classifier.bias.sub_(torch.from_numpy(answers(model).mean(axis=0)))
    return model


def films(folder: Path, names: tuple[str, ...] = NAMES) -> Path:
    """Rows whose label is what the teacher answers, but for every fifth one."""
    found = answers(teacher()).argmax(axis=1)
    assert set(found) == {0, 1, 2}
    labels = [names[(label + (i % 5 == 0)) % 3] for i, label in enumerate(found)]
    rows = [f"{text},{label}" for text, label in zip(TEXTS, labels, strict=True)]
    (folder / "films.csv").write_text("\n".join(["text,label", *rows]) + "\n")
    return folder / "films.csv"


def permuted(folder: Path, order: tuple[int, ...] = (0, 1, 2), names: tuple[str, ...] = NAMES) -> Path:
    """The teacher with its outputs in another order, and their names with them."""
    model = tiny_classifier(tuple(names[i] for i in order))
    with torch.no_grad():
        model.classifier.weight.copy_(teacher().classifier.weight[list(order)])
        model.classifier.bias.copy_(teacher().classifier.bias[list(order)])
    model.save_pretrained(folder)
    tiny_tokenizer().save_pretrained(folder)
    return folder


def still(model: Path, data: Path, **settings: object) -> Plan:
    """One step that moves nothing."""
    task = task_from_files(data, data, text_columns=["text"])
    return Plan(
        recipe=load_recipe("vanilla"),
        task=task,
        model=str(model),
        max_length=16,
        arguments={"max_steps": 1, "learning_rate": 0.0},
        **settings,  # type: ignore[arg-type]
    )


def accuracy(model: Path, data: Path) -> float:
    """Of a checkpoint, by the names of its outputs."""
    task = task_from_files(data, data, text_columns=["text"])
    rows, (classifier, tokenizer) = load_split(task, "validation"), load_classifier(str(model))
    logits = predict(classifier, tokenizer, rows, task.text, 16)[:, label_columns(classifier.config, task.labels)]
    return float((logits.argmax(axis=1) == rows["label"][:]).mean())


@pytest.mark.parametrize("order", list(permutations(range(3))), ids=str)
def test_a_step_at_rate_0_leaves_accuracy_as_it_was(tmp_path: Path, order: tuple[int, ...]) -> None:
    data, model = films(tmp_path), permuted(tmp_path / "model", order)
    before = accuracy(model, data)
    assert before == pytest.approx(0.8)
    start_run(still(model, data), tmp_path / "run")
    assert Metrics.load(tmp_path / "run" / "metrics.json").validation_accuracy == pytest.approx(before)
    assert accuracy(tmp_path / "run" / "model", data) == pytest.approx(before)
    saved = json.loads((tmp_path / "run" / "model" / "config.json").read_text())["id2label"]
    assert list(saved.values()) == [NAMES[i] for i in order], "the checkpoint's order"


def test_an_adapter_keeps_them_too(tmp_path: Path) -> None:
    data, model = films(tmp_path), permuted(tmp_path / "model", (2, 0, 1))
    start_run(still(model, data, lora=Lora(rank=2, alpha=4)), tmp_path / "run")
    assert accuracy(tmp_path / "run" / "model", data) == pytest.approx(0.8)
    assert accuracy(tmp_path / "run" / "adapter", data) == pytest.approx(0.8)
    start_run(still(tmp_path / "run" / "adapter", data), tmp_path / "again")
    assert accuracy(tmp_path / "again" / "model", data) == pytest.approx(0.8), "an adapter is a start too"


def test_upper_and_lower_case_do_not_matter(tmp_path: Path) -> None:
    data = films(tmp_path)
    model = permuted(tmp_path / "model", (1, 2, 0), ("NUMERIC", "Human", "LOCATION"))
    start_run(still(model, data), tmp_path / "run")
    assert accuracy(tmp_path / "run" / "model", data) == pytest.approx(0.8)


def test_outputs_without_names_are_asked_for(tmp_path: Path) -> None:
    data, model = films(tmp_path), permuted(tmp_path / "model", names=("LABEL_0", "LABEL_1", "LABEL_2"))
    expected = (
        r"with 3 outputs \(LABEL_0, LABEL_1, LABEL_2\), and the data has 3 labels \(human, location, numeric\)\. "
        r"Say which output is which: --labels human,location,numeric \(in the order of the outputs\); or start with a "
        r"new head: --new-head"
    )
    with pytest.raises(RunError, match=expected):
        start_run(still(model, data), tmp_path / "run")
    assert not (tmp_path / "run").exists()
    start_run(still(model, data, labels=NAMES), tmp_path / "run")
    assert accuracy(tmp_path / "run" / "model", data) == pytest.approx(0.8)


def test_labels_that_are_numbers_mean_the_outputs_of_these_numbers(tmp_path: Path) -> None:
    data, model = (
        films(tmp_path, ("0", "1", "2")),
        permuted(tmp_path / "model", names=("LABEL_0", "LABEL_1", "LABEL_2")),
    )
    start_run(still(model, data), tmp_path / "run")
    assert accuracy(tmp_path / "run" / "model", data) == pytest.approx(0.8)


@pytest.mark.parametrize(
    ("names", "settings", "expected"),
    [
        (("a", "b", "c"), {}, r"Say which output is which: --labels"),
        (("a", "b"), {}, r"with 2 outputs \(a, b\), .* 3 labels .*\. Give data with the labels of the model, or start"),
        (NAMES, {"labels": ["human", "numeric"]}, "expected 3 names, one for each output of .*, got 2: human, numeric"),
        (NAMES, {"labels": ["human", "numeric", "place"]}, "expected the same names, in the order of the model's outp"),
        (NAMES, {"labels": NAMES, "new_head": True}, "leave one out"),
    ],
)
def test_what_cannot_be_matched_is_refused(
    tmp_path: Path, names: tuple[str, ...], settings: dict[str, object], expected: str
) -> None:
    model = save_tiny_checkpoint(tmp_path / "model", names)
    with pytest.raises(RunError, match=expected):
        check_run(still(model, films(tmp_path), **settings))


def test_a_model_without_a_head_gets_one_without_questions(tmp_path: Path) -> None:
    model = tmp_path / "model"
    classifier = tiny_classifier(NAMES)
    classifier.bert.save_pretrained(model)
    tiny_tokenizer().save_pretrained(model)
    plan, _ = settled(still(model, films(tmp_path)))
    assert plan.task.labels == ["human", "location", "numeric"]
    with pytest.raises(RunError, match="has no classification head: it gets a new one, so leave --labels out"):
        settled(still(model, films(tmp_path), labels=NAMES))


def test_the_weights_decide_whether_there_is_a_head(tmp_path: Path) -> None:
    """Neither the architecture in config.json nor the names of labels do: both may be left over, or left out."""
    fine_tuned, headless = save_tiny_checkpoint(tmp_path / "fine-tuned", NAMES), tmp_path / "headless"
    BertModel.from_pretrained(fine_tuned).save_pretrained(headless)
    for folder, has_head in ((fine_tuned, True), (headless, False)):
        config = json.loads((folder / "config.json").read_text())
        for architectures in (["BertForSequenceClassification"], ["BertModel"], None):
            (folder / "config.json").write_text(json.dumps(config | {"architectures": architectures}))
            assert outline(str(folder)).has_head is has_head


def test_a_new_head_is_new_and_seeded(tmp_path: Path) -> None:
    data, model = films(tmp_path), save_tiny_checkpoint(tmp_path / "model", ("a", "b"))
    plan, _ = settled(still(model, data, new_head=True))
    heads = [load_pretrained(str(model), plan.task, seed, new_head=True)[0] for seed in (0, 0, 1)]
    weights = [head.classifier.weight for head in heads]
    assert weights[0].shape == (3, 16)
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2])
    same = AutoModelForSequenceClassification.from_pretrained(model)
    kept = load_pretrained(str(model), plan.task.model_copy(update={"labels": ["a", "b"]}), 1, new_head=True)[0]
    assert not torch.equal(kept.classifier.weight, same.classifier.weight), "also with as many outputs"
    assert all(torch.equal(*pair) for pair in zip(kept.bert.parameters(), same.bert.parameters(), strict=True))
    info = start_run(plan, tmp_path / "run")
    assert info.new_head
    assert json.loads((tmp_path / "run" / "model" / "config.json").read_text())["id2label"] == {
        "0": "human", "1": "location", "2": "numeric",
    }  # fmt: skip


@pytest.mark.parametrize("settings", [{}, {"labels": NAMES}, {"new_head": True}], ids=str)
def test_an_interrupted_run_resumes_to_the_same_weights(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: dict[str, object]
) -> None:
    names = ("LABEL_0", "LABEL_1", "LABEL_2") if "labels" in settings else NAMES
    plan = still(permuted(tmp_path / "model", (0, 1, 2), names), films(tmp_path), **settings)
    plan.arguments.update(max_steps=6, learning_rate=1e-3, per_device_train_batch_size=8)
    start_run(plan, tmp_path / "whole")

    def stop(self: SaveAndStop, args: object, state: object, control: object, **_: object) -> None:
        if state.global_step == 3:  # type: ignore[attr-defined]
            control.should_save = True  # type: ignore[attr-defined]
        if state.global_step == 4:  # type: ignore[attr-defined]
            raise Interrupted

    with monkeypatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(SaveAndStop, "on_step_end", stop)
        start_run(plan, tmp_path / "stopped")
    resume_run(tmp_path / "stopped")
    for file in ("model/model.safetensors", "model/config.json", "task.yaml"):
        assert (tmp_path / "stopped" / file).read_bytes() == (tmp_path / "whole" / file).read_bytes(), file
    assert RunInfo.load(tmp_path / "stopped" / "run.json").new_head is ("new_head" in settings)


def labelled(names: list[str]) -> Dataset:
    features = Features({"labels": ClassLabel(names=names)})
    rows = TinyData(8)
    data = Dataset.from_dict({"labels": [i % len(names) for i in range(8)]}, features=features)
    return data.add_column("input_ids", [rows[i]["input_ids"].tolist() for i in range(8)])


@pytest.mark.parametrize(
    ("outputs", "names", "warns"),
    [
        (("bad", "good"), ["bad", "good"], False),
        (("BAD", "GOOD"), ["bad", "good"], False),
        (("LABEL_0", "LABEL_1"), ["bad", "good"], False),
        (("good", "bad"), ["bad", "good"], True),
        (("yes", "no"), ["bad", "good"], True),
        (("a", "b", "c"), ["bad", "good"], True),
    ],
)
def test_the_trainer_warns_of_labels_that_disagree(
    tmp_path: Path, recwarn: pytest.WarningsRecorder, outputs: tuple[str, ...], names: list[str], warns: bool
) -> None:
    model = tiny_bert(id2label=dict(enumerate(outputs)), label2id={name: i for i, name in enumerate(outputs)})
    model = get_peft_model(model, LoraConfig(task_type="SEQ_CLS", r=2, target_modules="all-linear"))
    RobustTrainer(model=model, args=arguments(tmp_path), train_dataset=labelled(names))
    said = [str(each.message) for each in recwarn if "id2label" in str(each.message)]
    assert bool(said) is warns
    if warns:
        assert f"the model's outputs are {', '.join(outputs)} (id2label), the labels of the data" in said[0]
