"""A resumed run is the uninterrupted one: weights bit for bit, and one history."""

from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from transformers import TrainerCallback

from every_recipe import every_recipe
from rosewood.recipe import load_recipe
from rosewood.training.trainer import RobustTrainer
from tiny import Recording, TinyData, arguments, differing, tiny_bert, trained, weights


class Stop(TrainerCallback):
    """An interruption after some steps, as an exception from nowhere."""

    def __init__(self, step: int) -> None:
        self.step = step

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        if state.global_step == self.step:
            raise KeyboardInterrupt


def interrupted(recipe: Any, directory: Path, stop: int, data: Any, **settings: Any) -> None:
    trainer = Recording(
        model=tiny_bert(dtype=torch.float32),
        args=arguments(directory, save_strategy="steps", **settings),
        train_dataset=data,
        recipe=recipe,
        history_file=directory / "history.jsonl",
        callbacks=[Stop(stop)],
    )
    with pytest.raises(KeyboardInterrupt):
        trainer.train()


def compare(recipe: Any, directory: Path, checkpoint: int, stop: int, data: Any, **settings: Any) -> None:
    """Train without a break; train, break off after the checkpoint, resume in a fresh trainer; compare."""
    whole, broken = directory / "whole", directory / "broken"
    for folder in (whole, broken):
        folder.mkdir()
    settings = {"save_steps": checkpoint} | settings
    expected = trained(
        recipe,
        whole,
        model=tiny_bert(dtype=torch.float32),
        data=data,
        history_file=whole / "history.jsonl",
        save_strategy="steps",
        **settings,
    )
    interrupted(recipe, broken, stop, data, **settings)
    # Other weights, so that nothing but the checkpoint can explain the result; anchors, though, ask for the same.
    anchors = [anchor for stage in load_recipe(recipe).all_stages() for anchor in stage.anchors]
    seed = 0 if any(anchor.needs_pretrained for anchor in anchors) else 7
    found = trained(
        recipe,
        broken,
        model=tiny_bert(dtype=torch.float32, seed=seed),
        data=data,
        resume=str(broken / f"checkpoint-{checkpoint}"),
        history_file=broken / "history.jsonl",
        save_strategy="steps",
        **settings,
    )
    assert not list(differing(weights(expected.model), weights(found.model)))
    assert (broken / "history.jsonl").read_text() == (whole / "history.jsonl").read_text()
    steps = expected.state.max_steps
    assert len((whole / "history.jsonl").read_text().splitlines()) == steps
    torch.testing.assert_close(expected.masks[checkpoint:], found.masks, rtol=0, atol=0)
    assert losses(found) == losses(expected)


def losses(trainer: RobustTrainer) -> list[float]:
    """What was logged, and the mean over the run at its end."""
    return [entry[key] for entry in trainer.state.log_history for key in ("loss", "train_loss") if key in entry]


def compare_every_step(recipe: Any, directory: Path, data: Any, **settings: Any) -> None:
    """Train without a break, with a checkpoint after each step; go on from each of them; compare."""
    path = directory / "history.jsonl"
    settings |= {"save_strategy": "steps", "save_steps": 1, "eval_strategy": "epoch", "max_steps": 6}
    settings |= {"data": data, "eval_data": TinyData(size=8, seed=1), "history_file": path}
    whole = trained(recipe, directory, model=tiny_bert(dtype=torch.float32), **settings)
    history = path.read_text()
    for step in (4, 3, 2, 1):  # backwards, since a resumed run writes its own later ones
        resume = str(directory / f"checkpoint-{step}")
        found = trained(recipe, directory, model=tiny_bert(dtype=torch.float32), resume=resume, **settings)
        assert not list(differing(weights(whole.model), weights(found.model))), f"after step {step}"
        assert path.read_text() == history, f"after step {step}"
        assert losses(found) == losses(whole), f"after step {step}"
        assert evaluations(found) == evaluations(whole), f"after step {step}"


def evaluations(trainer: RobustTrainer) -> list[tuple[int, float]]:
    return [(entry["step"], entry["eval_loss"]) for entry in trainer.state.log_history if "eval_loss" in entry]


@pytest.mark.parametrize("recipe", every_recipe())
def test_resumed_is_uninterrupted(recipe: str, tmp_path: Path) -> None:
    # Four steps an epoch: the checkpoint is inside the first, what is lost and done again reaches into the second.
    compare(recipe, tmp_path, checkpoint=2, stop=5, data=TinyData(size=16), max_steps=6)


@pytest.mark.parametrize("recipe", ["vanilla", "roast", "rose-ensemble", "lp-ft", "rift", "smart"])
def test_resumed_after_any_step(recipe: str, tmp_path: Path) -> None:
    """Two steps an epoch, each of which ends with an evaluation."""
    compare_every_step(recipe, tmp_path, TinyData(size=8))


def test_resumed_after_any_step_with_batches_grouped_by_length(tmp_path: Path) -> None:
    settings = {"per_device_train_batch_size": 12, "train_sampling_strategy": "group_by_length"}
    compare_every_step("vanilla", tmp_path, lengths_data(), **settings)


@pytest.mark.parametrize("level", ["tensor", "element"])
def test_resumed_between_two_readings_of_the_risk(level: str, tmp_path: Path) -> None:
    # Read at steps 0, 4, 8; the checkpoint after 6 steps stands between two of them.
    settings = {"objective.passes": 1, "selection.probe_every": 4, "selection.level": level}
    settings |= {"selection.probe_fraction": 0.5} | ({"selection.risk_sketch": 4} if level == "tensor" else {})
    compare(load_recipe("rose-ensemble", settings), tmp_path, checkpoint=6, stop=7, data=TinyData())


def test_resumed_with_an_automatic_threshold(tmp_path: Path) -> None:
    recipe = load_recipe("rose-ensemble", {"selection.keep_quantile": "auto"})
    compare(recipe, tmp_path, checkpoint=2, stop=5, data=TinyData(size=16), max_steps=6)


def test_resumed_in_the_middle_of_the_second_epoch_with_accumulation(tmp_path: Path) -> None:
    # 24 examples, batch 4, 2 accumulation steps: 3 steps an epoch; the checkpoint at 5 is inside epoch 2.
    data = TinyData(size=24)
    compare("rose-ensemble", tmp_path, checkpoint=5, stop=7, data=data, gradient_accumulation_steps=2)


@pytest.mark.parametrize("checkpoint", [3, 4, 6])
def test_the_mean_loss_of_a_resumed_run(checkpoint: int, tmp_path: Path) -> None:
    """Between two logs, at the end of an epoch that is also one of logging, and after the last step."""
    settings: dict[str, Any] = {"save_strategy": "steps", "save_steps": 1, "max_steps": 6, "logging_steps": 4}
    data = TinyData(size=16)
    whole = trained("rose-ensemble", tmp_path, model=tiny_bert(dtype=torch.float32), data=data, **settings)
    assert len(losses(whole)) == 2, "one log, and the end"
    resumed = trained(
        "rose-ensemble",
        tmp_path,
        model=tiny_bert(dtype=torch.float32, seed=7),
        data=data,
        resume=str(tmp_path / f"checkpoint-{checkpoint}"),
        **settings,
    )
    assert resumed.state.global_step == 6
    assert not list(differing(weights(whole.model), weights(resumed.model)))
    assert losses(resumed) == losses(whole)


def lengths_data() -> Dataset:
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(3, 12, (24,), generator=generator).tolist()
    rows = [
        {
            "input_ids": torch.randint(5, 50, (length,), generator=generator).tolist() + [0] * (12 - length),
            "attention_mask": [1] * length + [0] * (12 - length),
            "labels": i % 2,
            "length": length,
        }
        for i, length in enumerate(lengths)
    ]
    return Dataset.from_list(rows)


def test_the_length_column_groups_the_batches(tmp_path: Path) -> None:
    trainer = trained("vanilla", tmp_path, data=lengths_data(), max_steps=6, train_sampling_strategy="group_by_length")
    counts = [batch["attention_mask"].sum(1) for _, batch in trainer.micro_batches]
    assert max(int(count.max() - count.min()) for count in counts) <= 3
    assert int(counts[0].max()) == 11, "the longest comes first"


@pytest.mark.parametrize("recipe", ["vanilla", "rose-ensemble"])
def test_resumed_with_batches_grouped_by_length(recipe: str, tmp_path: Path) -> None:
    compare(
        recipe,
        tmp_path,
        checkpoint=8,  # 6 steps an epoch
        stop=9,
        data=lengths_data(),
        max_steps=14,
        train_sampling_strategy="group_by_length",
    )


def test_the_history_is_on_disk_when_a_checkpoint_is(tmp_path: Path) -> None:
    """A killed process has no `finally`: what the checkpoint has seen must already be written."""
    path = tmp_path / "history.jsonl"
    written = []

    class Reader(TrainerCallback):
        def on_save(self, *args: Any, **kwargs: Any) -> None:
            written.append(len(path.read_text().splitlines()) if path.exists() else 0)

    RobustTrainer(
        model=tiny_bert(),
        args=arguments(tmp_path, save_strategy="steps", save_steps=2, max_steps=4, logging_steps=100),
        train_dataset=TinyData(),
        history_file=path,
        callbacks=[Reader()],
    ).train()
    assert written == [2, 4]
