"""RobustTrainer with the recipe `vanilla` is transformers.Trainer, bit for bit."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils.data import IterableDataset
from transformers import (
    BertConfig,
    BertForQuestionAnswering,
    EarlyStoppingCallback,
    Trainer,
    TrainerCallback,
    TrainerControl,
    TrainerState,
    TrainingArguments,
)

from rosewood.errors import RecipeError
from rosewood.recipe import load_recipe
from rosewood.training.trainer import RobustTrainer
from tiny import TinyData, arguments, differing, tiny_bert, trained, weights


def halved_loss(outputs: Any, labels: torch.Tensor, num_items_in_batch: torch.Tensor | int | None = None) -> Any:
    # Summed over the batch and normalised over the accumulated ones, as a compute_loss_func has to.
    total = torch.nn.functional.cross_entropy(outputs["logits"], labels, reduction="sum")
    return 0.5 * total / (len(labels) if num_items_in_batch is None else num_items_in_batch)


def both(directory: Path, options: dict[str, Any] | None = None, **settings: Any) -> tuple[Trainer, RobustTrainer]:
    """The two trainers after the same ten steps."""
    trainers: list[Any] = []
    for cls in (Trainer, RobustTrainer):
        torch.manual_seed(3)
        trainer = cls(
            model=tiny_bert(dtype=torch.float32),
            args=arguments(directory / cls.__name__, **settings),
            train_dataset=TinyData(),
            eval_dataset=TinyData(size=16, seed=1),
            **(options or {}),
        )
        trainer.model_accepts_loss_kwargs = False
        trainer.train()
        trainers.append(trainer)
    return trainers[0], trainers[1]


CASES: dict[str, dict[str, Any]] = {
    "nothing": {},
    "accumulation": {"gradient_accumulation_steps": 4},
    "a short last accumulation": {"gradient_accumulation_steps": 3, "max_steps": 8},
    "clipping": {"max_grad_norm": 0.01},
    "no clipping": {"max_grad_norm": 0.0},
    "bf16": {"bf16": True},
    "gradient checkpointing": {"gradient_checkpointing": True},
    "bf16, checkpointing, accumulation": {
        "bf16": True,
        "gradient_checkpointing": True,
        "gradient_accumulation_steps": 2,
    },
    "label smoothing": {"label_smoothing_factor": 0.2, "gradient_accumulation_steps": 2},
    "unfused": {"optim": "adamw_torch"},
    "another optimiser": {"optim": "sgd"},
}


@pytest.mark.parametrize("settings", CASES.values(), ids=CASES.keys())
def test_vanilla_is_the_trainer(settings: dict[str, Any], tmp_path: Path) -> None:
    plain, robust = both(tmp_path, **settings)
    assert not list(differing(weights(plain.model), weights(robust.model)))
    assert list(differing(weights(tiny_bert(dtype=torch.float32)), weights(robust.model)))
    losses = [[record["loss"] for record in t.state.log_history if "loss" in record] for t in (plain, robust)]
    assert losses[0] == losses[1]


@pytest.mark.parametrize("accumulation", [1, 3])
def test_a_custom_loss_function(accumulation: int, tmp_path: Path) -> None:
    plain, robust = both(tmp_path, {"compute_loss_func": halved_loss}, gradient_accumulation_steps=accumulation)
    assert not list(differing(weights(plain.model), weights(robust.model)))


def test_the_published_training_arguments_of_vanilla_change_nothing_by_themselves(tmp_path: Path) -> None:
    args = arguments(tmp_path)
    RobustTrainer(model=tiny_bert(), args=args, recipe="vanilla")
    assert args.to_dict() == arguments(tmp_path).to_dict()


class Watcher(TrainerCallback):
    """Counts the events of a run."""

    def __init__(self) -> None:
        self.events: list[str] = []

    def on_pre_optimizer_step(self, *args: Any, **kwargs: Any) -> None:
        self.events.append("pre_optimizer_step")

    def on_step_end(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.events.append("step_end")

    def on_evaluate(self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.events.append("evaluate")


def test_early_stopping_callbacks_and_best_model(tmp_path: Path) -> None:
    class Rising:
        """A metric that is best at the second evaluation."""

        def __init__(self) -> None:
            self.values = iter([0.1, 0.9, 0.2, 0.3, 0.4])

        def __call__(self, predictions: Any) -> dict[str, float]:
            return {"quality": next(self.values)}

    results = []
    for cls in (Trainer, RobustTrainer):
        watcher = Watcher()
        trainer = cls(
            model=tiny_bert(dtype=torch.float32),
            args=arguments(
                tmp_path / cls.__name__,
                eval_strategy="steps",
                save_strategy="steps",
                eval_steps=2,
                save_steps=2,
                load_best_model_at_end=True,
                metric_for_best_model="quality",
                greater_is_better=True,
            ),
            train_dataset=TinyData(),
            eval_dataset=TinyData(size=16, seed=1),
            compute_metrics=Rising(),
            callbacks=[watcher, EarlyStoppingCallback(early_stopping_patience=2)],
        )
        trainer.train()
        assert trainer.state.global_step == 8, "patience 2 after the best evaluation at step 4"
        assert Path(str(trainer.state.best_model_checkpoint)).name == "checkpoint-4"
        results.append((watcher.events, weights(trainer.model)))
    assert results[0][0] == results[1][0]
    assert not list(differing(results[0][1], results[1][1])), "the best weights are loaded back"


def test_a_model_without_logits_trains_with_vanilla(tmp_path: Path) -> None:
    class Spans(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return 16

        def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
            ids = torch.arange(8) + i
            return {"input_ids": ids, "start_positions": torch.tensor(1), "end_positions": torch.tensor(2)}

    config = BertConfig(vocab_size=50, hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16)
    results = []
    for cls in (Trainer, RobustTrainer):
        torch.manual_seed(0)
        trainer = cls(
            model=BertForQuestionAnswering(config), args=arguments(tmp_path, max_steps=2), train_dataset=Spans()
        )
        trainer.model_accepts_loss_kwargs = False
        trainer.train()
        results.append(weights(trainer.model))
    assert not list(differing(*results))


def test_a_loss_that_is_not_finite_is_logged_not_a_crash(tmp_path: Path) -> None:
    def infinite(outputs: Any, labels: torch.Tensor, num_items_in_batch: Any = None) -> torch.Tensor:
        return torch.nn.functional.cross_entropy(outputs["logits"], labels) + float("inf")

    for cls in (Trainer, RobustTrainer):
        trainer = cls(
            model=tiny_bert(),
            args=arguments(tmp_path, max_steps=4, logging_steps=2),
            train_dataset=TinyData(),
            compute_loss_func=infinite,
        )
        trainer.train()
        assert trainer.state.global_step == 4


def test_training_twice_goes_on_with_one_record_a_step(tmp_path: Path) -> None:
    trainer = trained("rose-second", tmp_path, max_steps=3, history_file=tmp_path / "history.jsonl")
    trainer.train()
    assert len((tmp_path / "history.jsonl").read_text().splitlines()) == 3
    assert len(trainer.masks) == 6


REFUSALS: list[tuple[dict[str, Any], str]] = [
    ({"optim": "sgd"}, "masks AdamW's update, which optim=sgd has not"),
    (
        {"gradient_checkpointing": True, "gradient_checkpointing_kwargs": {"use_reentrant": True}},
        "reentrant checkpointing cannot give",
    ),
]


@pytest.mark.parametrize(("settings", "message"), REFUSALS)
def test_rose_refuses_what_it_cannot_mask(settings: dict[str, Any], message: str, tmp_path: Path) -> None:
    with pytest.raises(RecipeError, match=message):
        RobustTrainer(model=tiny_bert(), args=arguments(tmp_path, **settings), recipe="rose-second")


def test_rose_refuses_a_foreign_optimiser(tmp_path: Path) -> None:
    model = tiny_bert()
    with pytest.raises(RecipeError, match="brings its own AdamW: leave out `optimizers`"):
        RobustTrainer(
            model=model,
            args=arguments(tmp_path),
            recipe="rose-second",
            optimizers=(torch.optim.SGD(model.parameters(), lr=0.1), None),
        )


def test_the_old_hf_form_without_a_selection(tmp_path: Path) -> None:
    """`optimizer_form=hf` is a property of the optimiser, not of ROSE."""
    forms = {
        form: weights(trained(load_recipe("vanilla", {"optimizer_form": form}), tmp_path, max_steps=3).model)
        for form in ("torch", "hf")
    }
    assert list(differing(forms["torch"], forms["hf"]))


class Padded(TinyData):
    """The last three tokens of every text are padding."""

    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        example = super().__getitem__(i)
        example["attention_mask"][-3:] = 0
        return example


class Unmasked(Padded):
    def __getitem__(self, i: int) -> dict[str, torch.Tensor]:
        return {key: value for key, value in super().__getitem__(i).items() if key != "attention_mask"}


def test_an_absent_attention_mask_lets_the_model_attend_to_padding(tmp_path: Path) -> None:
    absent = load_recipe("advembed", {"attention_mask": "absent"})
    without = trained(absent, tmp_path, data=Padded(), max_steps=3)
    expected = weights(trained("advembed", tmp_path, data=Unmasked(), max_steps=3).model)
    assert not list(differing(weights(without.model), expected))
    assert list(differing(weights(trained("advembed", tmp_path, data=Padded(), max_steps=3).model), expected))
    assert without.evaluate(Padded())["eval_loss"] == without.evaluate(Unmasked())["eval_loss"]


class Stream(IterableDataset):
    """Examples that come one after the other; nobody knows how many."""

    def __iter__(self) -> Iterator[dict[str, torch.Tensor]]:
        data = TinyData()
        return (data[i] for i in range(len(data)))


def test_a_stream_of_training_data(tmp_path: Path) -> None:
    trainers: list[Any] = []
    for cls in (Trainer, RobustTrainer):
        torch.manual_seed(3)
        trainers.append(cls(model=tiny_bert(), args=arguments(tmp_path, max_steps=5), train_dataset=Stream()))
        trainers[-1].train()
    assert not list(differing(weights(trainers[0].model), weights(trainers[1].model)))
