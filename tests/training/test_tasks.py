"""Token classification, multi-label classification and causal language modelling with RobustTrainer."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from transformers import LlamaConfig, LlamaForCausalLM, Trainer

from keyed_draws import keyed_draws
from keyed_dropout import keyed_dropout
from replay import replay, same_weights
from rose_oracle import Oracle, Settings
from rosewood.errors import RecipeError
from rosewood.models.parameters import candidate_names
from rosewood.training.trainer import RobustTrainer
from slow_methods import PaddedData
from tiny import VOCABULARY, Recording, TinyData, arguments, tiny_bert, trained, weights
from tiny_tasks import TASKS, Batch, Task, TextData

every_task = pytest.mark.parametrize("task", TASKS.values(), ids=TASKS.keys())
ACCUMULATED = {"per_device_train_batch_size": 2, "gradient_accumulation_steps": 3, "max_steps": 3, "weight_decay": 0.0}


def inputs(batch: Batch) -> Batch:
    return {key: value for key, value in batch.items() if key != "labels"}


def steps(trainer: Recording) -> list[list[Batch]]:
    """The micro-batches of each optimiser step."""
    batches = [batch for _, batch in trainer.micro_batches]
    return [batches[i : i + 3] for i in range(0, len(batches), 3)]


def total(values: list[Tensor], like: Tensor) -> Tensor:
    """Their sum, also if there are none."""
    return torch.stack(values).sum() if values else like.sum() * 0


@every_task
def test_r_drop_is_a_mean_over_all_predictions_of_a_step(task: Task, tmp_path: Path) -> None:
    trainer = trained("r-drop", tmp_path, model=task.model(), data=task.data(), **ACCUMULATED)
    model = task.model()

    def count(batch: Batch) -> int:
        return len(task.losses(model(**inputs(batch)).logits, batch))

    with torch.no_grad():
        counts = [[count(batch) for batch in step] for step in steps(trainer)]

    def backward(batch: Batch, step: int, micro_batch: int) -> None:
        first, second = model(**inputs(batch)).logits, model(**inputs(batch)).logits
        ce = total(task.losses(first, batch) + task.losses(second, batch), first) / 2
        kl = total(task.divergences(first, second, batch), first)
        ((ce + 0.5 * kl) / sum(counts[step])).backward()

    same_weights(trainer.model, replay(trainer, model, backward, accumulation=3), task.tolerance)
    assert task is TASKS["multi-label"] or any(len(set(numbers)) > 1 for numbers in counts)


class TaskOracle(Oracle):
    """Algorithm 1 with the loss and the divergence of a task."""

    task: Task

    def gradients(self, micro_batches: list[Batch]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
        names, parameters = zip(*self.model.named_parameters(), strict=True)
        ce, kl, count = torch.zeros(()), torch.zeros(()), 0
        for batch in micro_batches:
            passes = [self.model(**inputs(batch)).logits for _ in range(1 if self.settings.variant == "second" else 2)]
            losses = [loss for logits in passes for loss in self.task.losses(logits, batch)]
            ce = ce + total(losses, passes[0]) / len(passes)
            kl = kl + total(self.task.divergences(passes[0], passes[-1], batch), passes[0])
            count += len(losses) // len(passes)
        found = [torch.autograd.grad(loss / count, parameters, retain_graph=True) for loss in (ce, kl)]
        return tuple(dict(zip(names, gradients, strict=True)) for gradients in found)  # type: ignore[return-value]


@every_task
@pytest.mark.parametrize("variant", ["first", "second", "ensemble"])
def test_rose_is_algorithm_1_on_the_loss_of_the_task(variant: str, task: Task, tmp_path: Path) -> None:
    trainer = trained(f"rose-{variant}", tmp_path, model=task.model(), data=task.data(), **ACCUMULATED)
    model = task.model().train()
    oracle = TaskOracle(model, Settings(variant, steps=3, decay=0.0), set(candidate_names(model)), set())
    oracle.task = task
    torch.set_rng_state(trainer.micro_batches[0][0])
    for micro_batches in steps(trainer):
        oracle.step(micro_batches)
    assert [{n: float(masks.get(n, 1)) for n in oracle.candidates} for masks in trainer.masks] == oracle.masks
    assert any(mask < 1 for mask in oracle.masks[-1].values())
    same_weights(trainer.model, model, task.tolerance)


def keyed(recipe: str, task: Task, directory: Path, size: int = 20, **settings: Any) -> Recording:
    model = task.model()
    with keyed_dropout(model), keyed_draws():
        return trained(recipe, directory, model=model, data=task.data(size), **settings)


RECIPES = ["vanilla", "rose-ensemble", "r-drop", "roast", "smart", "advembed", "freelb", "child-tuning-d"]
# They rank single weights, and ranks differ by the rounding of a loss that is always computed in single precision.
RANKING = {("text", "roast"), ("text", "child-tuning-d")}
PAIRS = [(name, recipe) for name in TASKS for recipe in RECIPES if (name, recipe) not in RANKING]


@pytest.mark.parametrize(("name", "recipe"), PAIRS)
def test_batch_6_is_batch_1_with_6_accumulation_steps(name: str, recipe: str, tmp_path: Path) -> None:
    """Some of the six have nothing that counts, the others more or less of it."""
    task = TASKS[name]
    whole = keyed(recipe, task, tmp_path, per_device_train_batch_size=6, max_steps=3)
    parts = keyed(recipe, task, tmp_path, per_device_train_batch_size=1, gradient_accumulation_steps=6, max_steps=3)
    same_weights(parts.model, whole.model, 10 * task.tolerance)
    losses = [{k: v for k, v in t.state.log_history[-1].items() if "loss" in k} for t in (whole, parts)]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert all(0 < loss < 20 for loss in losses[0].values())
    before = weights(task.model())
    assert any((w - before[name]).abs().max() > 1e-4 for name, w in weights(whole.model).items())


@pytest.mark.parametrize("recipe", ["vanilla", "advembed"])
def test_batch_5_is_two_and_two_and_one(recipe: str, tmp_path: Path) -> None:
    """Also for a divergence that is a sum over the examples."""
    task = Task(tiny_bert, PaddedData, *TASKS["multi-label"][2:])
    whole = keyed(recipe, task, tmp_path, 5, per_device_train_batch_size=5, max_steps=2)
    parts = keyed(recipe, task, tmp_path, 5, per_device_train_batch_size=2, gradient_accumulation_steps=3, max_steps=2)
    assert [len(batch["labels"]) for _, batch in parts.micro_batches] == [2, 2, 1] * 2
    same_weights(parts.model, whole.model)


def test_vanilla_is_the_trainer_for_a_causal_language_model(tmp_path: Path) -> None:
    """Which divides by the tokens of all accumulated batches as well."""
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
    found = []
    for cls in (Trainer, RobustTrainer):
        torch.manual_seed(0)
        model = LlamaForCausalLM(LlamaConfig(vocab_size=VOCABULARY, attention_dropout=0.1, **sizes))
        trainer = cls(model=model, args=arguments(tmp_path, **ACCUMULATED), train_dataset=TextData())
        trainer.train()
        found.append(model)
    same_weights(*found, tolerance=1e-6)


@pytest.mark.parametrize("recipe", ["r-drop", "rose-first", "roast", "smart"])
def test_regression_is_refused_where_predictions_are_compared(recipe: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match="BertForSequenceClassification predicts a number"):
        RobustTrainer(model=tiny_bert(num_labels=1), args=arguments(tmp_path), recipe=recipe)


def test_regression_trains_with_what_needs_no_divergence(tmp_path: Path) -> None:
    class Numbers(TinyData):
        def __getitem__(self, i: int) -> Batch:
            return super().__getitem__(i) | {"labels": torch.tensor(i / 64, dtype=torch.float64)}

    trainer = trained("rose-second", tmp_path, model=tiny_bert(num_labels=1), data=Numbers(), max_steps=2)
    assert trainer.state.global_step == 2
