"""A step with NaN or infinity moves nothing, is counted, and in the end named."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from transformers import TrainerCallback

from every_recipe import every_recipe
from rosewood.errors import RunError
from rosewood.objectives import consistency
from rosewood.training.trainer import RobustTrainer
from tiny import Recording, TinyData, arguments, differing, tiny_bert, weights
from two_processes import in_two_processes
from uncached import uncached

BAD_STEP = 3
STEPS = 8  # LP-FT's second stage begins with the fifth
NAN = float("nan")


class Poisoned(Recording):
    """A trainer whose model yields NaN in some steps, counted from 1."""

    bad_steps: tuple[int, ...] = (BAD_STEP,)

    def compute_loss(self, model: nn.Module, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        loss, outputs = super().compute_loss(model, inputs, *args, **kwargs)
        if self.state.global_step + 1 in self.bad_steps:
            outputs["logits"] = outputs["logits"] * NAN
            loss = loss * NAN
        return loss, outputs


class Snapshots(TrainerCallback):
    """Everything that a step could advance, after each step."""

    def __init__(self) -> None:
        self.trainer: Any = None
        self.taken: list[dict[str, Tensor]] = []
        self.rates: list[float] = []

    def on_step_end(self, *args: Any, **kwargs: Any) -> None:
        trainer = self.trainer
        optimizer = {
            f"optimizer.{i}.{key}": value.clone()
            for i, state in enumerate(trainer.optimizer.state.values())
            for key, value in state.items()
        }
        recipe = {key: value.clone() for key, value in trainer._engine.state_dict().items()}
        self.taken.append(weights(trainer.model) | optimizer | recipe)
        self.rates.append(trainer._get_learning_rate())


def poisoned(recipe: Any, directory: Path, bad_steps: tuple[int, ...] = (BAD_STEP,), **settings: Any) -> Any:
    limit = settings.pop("max_skipped_steps", 10)
    snapshots = Snapshots()
    trainer = Poisoned(
        model=tiny_bert(),
        args=arguments(directory, **({"max_steps": STEPS} | settings)),
        train_dataset=TinyData(),
        recipe=recipe,
        history_file=directory / "history.jsonl",
        max_skipped_steps=limit,
        callbacks=[snapshots],
    )
    trainer.bad_steps = bad_steps
    snapshots.trainer = trainer
    return trainer, snapshots


@pytest.mark.filterwarnings("ignore:step 3 is skipped")
@pytest.mark.parametrize("name", every_recipe())
def test_a_skipped_step_advances_nothing(name: str, tmp_path: Path) -> None:
    trainer, snapshots = poisoned(uncached(name), tmp_path)
    trainer.train()
    before, skipped, after = snapshots.taken[BAD_STEP - 2 : BAD_STEP + 1]
    assert not list(differing(before, skipped))
    assert list(differing(skipped, after)), "and the next step moves again"
    assert all(value.isfinite().all() for value in snapshots.taken[-1].values())
    assert trainer.state.global_step == STEPS, "the step is counted as done"
    assert snapshots.rates[BAD_STEP - 1] == snapshots.rates[BAD_STEP - 2], "the learning rate waits"
    assert snapshots.rates[BAD_STEP] < snapshots.rates[BAD_STEP - 1]
    records = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records if "skipped" in record] == [BAD_STEP]
    assert len(records) == STEPS
    assert records[BAD_STEP - 1]["terms"]["ce"] == "nan"
    logged = [value for entry in trainer.state.log_history for key, value in entry.items() if key.startswith("loss_")]
    assert logged, "terms are logged"
    assert all(value == value for value in logged), "without the step that was skipped"


class Poisonous(torch.utils.data.Dataset):
    """Batches of four, the third of which, if wanted, comes with a token that the model cannot take."""

    def __init__(self, bad: bool) -> None:
        data = TinyData(size=24)
        rows = [dict(data[i]) for i in range(24)]
        if bad:
            for row in (odd := copy.deepcopy(rows[:4])):
                row["input_ids"][0] = 0
            rows[8:8] = odd
        self.rows = rows

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, i: int) -> dict[str, Tensor]:
        return self.rows[i]


class Picky(nn.Module):
    """Wraps a model's word embeddings: token 0 has no number."""

    def __init__(self, inner: nn.Embedding) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, ids: Tensor) -> Tensor:
        found = self.inner(ids)
        return found * torch.ones_like(found[..., :1]).masked_fill((ids == 0).unsqueeze(-1), NAN)


@pytest.mark.filterwarnings("ignore:step 3 is skipped")
@pytest.mark.parametrize("recipe", ["vanilla", "rose-second", "ptwd"])
@pytest.mark.parametrize("max_grad_norm", [1.0, 0.0])
def test_the_weights_are_those_of_a_run_without_the_step(recipe: str, max_grad_norm: float, tmp_path: Path) -> None:
    results = []
    for bad in (True, False):
        model = tiny_bert(dropout=0.0)
        model.bert.embeddings.word_embeddings = Picky(model.bert.embeddings.word_embeddings)  # type: ignore[assignment]
        start = weights(model)
        RobustTrainer(
            model=model,
            args=arguments(
                tmp_path,
                max_steps=7 if bad else 6,
                train_sampling_strategy="sequential",
                lr_scheduler_type="constant",
                max_grad_norm=max_grad_norm,
            ),
            train_dataset=Poisonous(bad),
            recipe=recipe,
            max_skipped_steps=1,
        ).train()
        results.append(weights(model))
    assert not list(differing(*results))
    assert list(differing(results[0], start)), "they did move"


def diseased(kind: str, step: int) -> Callable[[Tensor, Tensor], Tensor]:
    """A KL that is NaN, or whose gradient alone is, from the given call on."""
    calls = 0

    def measure(first: Tensor, second: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        if calls < step:
            return consistency.symmetric_kl(first, second)
        if kind == "value":
            return consistency.symmetric_kl(first, second) * NAN
        return (first - first).abs().sum().sqrt()  # 0, with the gradient 0 / 0

    return measure


@pytest.mark.filterwarnings("ignore:step . is skipped")
@pytest.mark.parametrize("limit", [0, 2])
@pytest.mark.parametrize("max_grad_norm", [1.0, 0.0])
def test_the_limit_names_the_term_and_the_parameter(
    limit: int, max_grad_norm: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(consistency.MEASURES, "symmetric", diseased("value", step=3))
    trainer, snapshots = poisoned("r-drop", tmp_path, (), max_skipped_steps=limit, max_grad_norm=max_grad_norm)
    # Without the embeddings, so that naming it is not naming the first parameter of all.
    for name, parameter in trainer.model.named_parameters():
        parameter.requires_grad_(not name.startswith("bert.embeddings"))
    with pytest.raises(RunError) as error:
        trainer.train()
    row = f"{limit + 1} steps in a row" if limit else "one step"
    assert f"NaN or infinity in {row} (max_skipped_steps={limit}), at last in step {limit + 3}" in str(error.value)
    assert "the term dropout_kl is nan (of ce " in str(error.value)
    first = "bert.encoder.layer.0.attention.self.query.weight"
    assert f"the first parameter with such a gradient is {first}." in str(error.value)
    assert len(snapshots.taken) == limit + 2
    assert not list(differing(snapshots.taken[1], snapshots.taken[-1]))
    assert all(value.isfinite().all() for value in weights(trainer.model).values())


def test_a_parameter_is_named_although_clipping_spreads_the_nan(tmp_path: Path) -> None:
    trainer, _ = poisoned("vanilla", tmp_path, (), max_skipped_steps=0)
    late = "bert.encoder.layer.1.output.dense.bias"
    dict(trainer.model.named_parameters())[late].register_hook(lambda gradient: gradient * NAN)
    with pytest.raises(RunError, match=rf"the terms are finite \(ce .*\), their gradient is not; .* is {late}\."):
        trainer.train()


@pytest.mark.filterwarnings("ignore:step . is skipped")
def test_a_gradient_that_is_only_read_is_watched_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from rosewood.selections import rose

    monkeypatch.setattr(rose, "symmetric_kl", diseased("gradient", step=2))
    trainer, snapshots = poisoned("rose-first", tmp_path, (), max_skipped_steps=1)
    with pytest.raises(RunError, match=r"2 steps in a row .* the terms are finite"):
        trainer.train()
    assert not list(differing(snapshots.taken[0], snapshots.taken[1]))


@pytest.mark.filterwarnings("ignore:step . is skipped")
def test_only_steps_in_a_row_count_against_the_limit(tmp_path: Path) -> None:
    trainer, _ = poisoned("vanilla", tmp_path, (2, 3, 5, 6), max_skipped_steps=2, max_steps=7)
    trainer.train()
    assert trainer.state.global_step == 7


def test_a_skipped_step_is_warned_of(tmp_path: Path) -> None:
    trainer, _ = poisoned("vanilla", tmp_path)
    with pytest.warns(UserWarning, match=r"step 3 is skipped, nothing moves: the term ce is nan \(of ce nan\)"):
        trainer.train()


def test_a_limit_below_zero_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="max_skipped_steps: expected a whole number from 0 on, got -1"):
        poisoned("vanilla", tmp_path, max_skipped_steps=-1)


class Scaler(torch.amp.GradScaler):
    """A loss scaler on the CPU, which is enough for what it decides."""

    def __init__(self) -> None:
        super().__init__("cpu", init_scale=1024.0)


@pytest.mark.parametrize("what", ["gradient", "loss"])
def test_the_loss_scaler_skips_by_itself_and_uncounted(what: str, tmp_path: Path) -> None:
    """Overflowing gradients are how it finds its scale; a loss that is not finite is not."""
    trainer, snapshots = poisoned("vanilla", tmp_path, (BAD_STEP,) if what == "loss" else (), max_skipped_steps=0)
    trainer.accelerator.scaler = Scaler()
    if what == "gradient":
        parameter = trainer.model.classifier.bias
        parameter.register_hook(lambda g: g * (float("inf") if trainer.state.global_step + 1 == BAD_STEP else 1))
        trainer.train()
        assert not list(differing(*snapshots.taken[BAD_STEP - 2 : BAD_STEP]))
        assert trainer.accelerator.scaler.get_scale() == 512.0
        assert snapshots.rates[BAD_STEP - 1] == snapshots.rates[BAD_STEP - 2]
    else:
        with pytest.raises(RunError, match="the term ce is nan"):
            trainer.train()


def poisoned_in_one(rank: int, folder: Path) -> dict[str, Any]:
    """Only the second process meets a NaN; then its newest checkpoint is damaged, and both resume."""
    settings: dict[str, Any] = {"save_strategy": "steps", "save_steps": 2}
    trainer, snapshots = poisoned("rose-ensemble", folder, (BAD_STEP,) if rank == 1 else (), **settings)
    trainer.train()
    if rank == 0:
        (folder / f"checkpoint-{STEPS}" / "optimizer.pt").write_bytes(b"")
    trainer.accelerator.wait_for_everyone()
    resumed, _ = poisoned("rose-ensemble", folder, (), **settings)
    resumed.train(resume_from_checkpoint=True)
    return {"taken": snapshots.taken, "resumed": weights(resumed.model)}


def test_two_processes_skip_together_and_resume_from_the_same_checkpoint(tmp_path: Path) -> None:
    first, second = in_two_processes(poisoned_in_one, tmp_path, tmp_path)
    for one, other in zip(first["taken"], second["taken"], strict=True):
        assert not list(differing(one, other))
    before, skipped, after = first["taken"][BAD_STEP - 2 : BAD_STEP + 1]
    assert not list(differing(before, skipped))
    assert list(differing(skipped, after))
    for result in (first, second):
        end = {name: first["taken"][-1][name] for name in result["resumed"]}
        assert not list(differing(end, result["resumed"]))
    assert (tmp_path / f"_damaged-checkpoint-{STEPS}").is_dir()
    records = [json.loads(line) for line in (tmp_path / "history.jsonl").read_text().splitlines()]
    assert [record["step"] for record in records if "skipped" in record] == [BAD_STEP]
