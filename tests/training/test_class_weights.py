"""Class weights weigh the cross-entropy of every recipe, exactly, however a batch is cut."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight
from transformers import BertForSequenceClassification

from every_recipe import every_recipe
from rosewood.config.settings import parse_class_weights
from rosewood.errors import RunError
from rosewood.recipe import load_recipe
from rosewood.training.sampling import WeightedLoss, resolved_weights
from tiny import Recording, TinyData, arguments, tiny_bert, weights

WEIGHTS = (0.4, 1.9)


class SlowlyWeighted(BertForSequenceClassification):
    """A model that weighs its own loss, row by row."""

    def forward(
        self, input_ids: Any = None, attention_mask: Any = None, labels: torch.Tensor | None = None, **inputs: Any
    ) -> Any:
        outputs = super().forward(input_ids, attention_mask=attention_mask, **inputs)
        if labels is not None:
            total = torch.zeros((), dtype=outputs.logits.dtype)
            for row, label in enumerate(labels.tolist()):
                scores = outputs.logits[row]
                total = total + WEIGHTS[label] * (scores.exp().sum().log() - scores[label])
            outputs["loss"] = total / len(labels)
            outputs.move_to_end("loss", last=False)
        return outputs


def trained(recipe: str, directory: Path, slow: bool, **settings: Any) -> Recording:
    model = tiny_bert(initializer_range=0.3)
    if slow:
        model.__class__ = SlowlyWeighted
    trainer = Recording(
        model=model,
        args=arguments(directory, max_steps=3, **settings),
        train_dataset=TinyData(size=20),
        recipe=load_recipe(recipe),
        **({} if slow else {"class_weights": WEIGHTS}),
    )
    trainer.train()
    return trainer


@pytest.mark.parametrize("name", every_recipe(but=["label-smoothing", "temperature"]))  # these refuse weights
def test_every_recipe_trains_as_on_a_model_that_weighs_its_own_loss(name: str, tmp_path: Path) -> None:
    settings = {"per_device_train_batch_size": 3, "gradient_accumulation_steps": 2}  # 20 rows: the last batch is short
    ours, oracle = (trained(name, tmp_path / str(slow), slow, **settings) for slow in (False, True))
    assert ours.masks == oracle.masks
    expected = weights(oracle.model)
    for parameter, weight in weights(ours.model).items():
        torch.testing.assert_close(weight, expected[parameter], rtol=0, atol=1e-9)
    assert ours.state.log_history[-1]["train_loss"] == pytest.approx(oracle.state.log_history[-1]["train_loss"])


def test_equal_weights_change_nothing_and_others_do(tmp_path: Path) -> None:
    def run(given: tuple[float, float] | None) -> dict[str, torch.Tensor]:
        trainer = Recording(
            model=tiny_bert(), args=arguments(tmp_path), train_dataset=TinyData(), recipe="vanilla", class_weights=given
        )
        trainer.train()
        return weights(trainer.model)

    plain = run(None)
    for name, weight in run((1.0, 1.0)).items():
        torch.testing.assert_close(weight, plain[name], rtol=0, atol=1e-12)
    assert any(not torch.allclose(weight, plain[name], atol=1e-6) for name, weight in run(WEIGHTS).items())


def test_balanced_weights_are_those_of_scikit_learn() -> None:
    rows = [0] * 7 + [1] * 2 + [2] * 1
    expected = compute_class_weight("balanced", classes=np.arange(3), y=rows)
    assert resolved_weights("balanced", ["a", "b", "c"], rows) == pytest.approx(expected.tolist())


def test_weights_are_relative_and_their_mean_over_the_rows_is_one() -> None:
    rows = [0, 0, 0, 1]
    found = resolved_weights({"b": 30.0, "a": 10.0}, ["a", "b"], rows)
    assert found == pytest.approx(resolved_weights({"a": 1.0, "b": 3.0}, ["a", "b"], rows))
    assert sum(found[row] for row in rows) / len(rows) == pytest.approx(1)
    assert found[1] / found[0] == pytest.approx(3)
    assert all(np.isfinite(resolved_weights("balanced", ["a", "b", "c"], rows)))


def test_what_is_typed() -> None:
    assert parse_class_weights("balanced") == "balanced"
    assert parse_class_weights(" spam=5 , not spam=0.5") == {"spam": 5.0, "not spam": 0.5}
    for bad in ("balance", "spam", "spam=", "spam=x", "spam=0", "spam=-1", "spam=nan", "spam=inf", "=1", ""):
        with pytest.raises(RunError, match="or a number above 0 for each label"):
            parse_class_weights(bad)


def test_what_does_not_go_together(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="class weights name a, c; the labels are a, b: give one number for each"):
        resolved_weights({"a": 1.0, "c": 1.0}, ["a", "b"], [0, 1])
    with pytest.raises(RunError, match="class weights are numbers above 0, got 0, 1"):
        WeightedLoss([0, 1])
    model = tiny_bert()
    for settings, extra, message in (
        ({"label_smoothing_factor": 0.1}, {}, "class weights and label_smoothing_factor both compute the loss"),
        ({}, {"compute_loss_func": lambda *_, **__: 0}, "class weights and compute_loss_func both compute the loss"),
    ):
        given = {"model": model, "train_dataset": TinyData(), "class_weights": WEIGHTS, **extra}
        with pytest.raises(RunError, match=message):
            Recording(args=arguments(tmp_path, **settings), **given)
    trainer = Recording(model=model, args=arguments(tmp_path), train_dataset=TinyData(), class_weights=(1, 2, 3))
    with pytest.raises(RunError, match="there are 3 class weights, and the model has 2 outputs"):
        trainer.train()
    with pytest.raises(RunError, match="class weights need one label per text"):
        WeightedLoss(WEIGHTS)(model, {"labels": torch.zeros(2, 2)})
