"""What the trainer refuses before any work starts: data that it cannot read, arguments that a recipe cannot have."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from itertools import islice
from typing import Any

import numpy as np
import torch
from datasets import Dataset, IterableDataset
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule
from transformers import DataCollatorWithPadding, TrainingArguments, default_data_collator
from transformers.training_args import OptimizerNames

from rosewood.dynamics.record import Watch
from rosewood.errors import DataError, RecipeError, RunError
from rosewood.models.modes import IGNORED
from rosewood.recipe import Recipe
from rosewood.tensors.shards import together
from rosewood.training.sampling import LABEL_COLUMNS
from rosewood.words.alignment import SUBSTITUTES, SubstituteCollator

LOOKED_AT = 100  # examples, to see whether they are equally long
TOKENIZE = 'data.map(lambda rows: tokenizer(rows["text"], truncation=True), batched=True)'


def check_given(given: Mapping[str, Any], watches: Any, max_skipped_steps: Any) -> None:
    """Refuse what is of the wrong type; `given` are the arguments of the Trainer by name."""
    found = []
    model, arguments = given.get("model"), given.get("args")
    if model is not None and not isinstance(model, nn.Module):
        found.append(
            f"model: expected a model, got {_kind(model)}: load it first, for example with "
            "AutoModelForSequenceClassification.from_pretrained"
        )
    if arguments is not None and not isinstance(arguments, TrainingArguments):
        found.append(f"args: expected transformers.TrainingArguments, got {_kind(arguments)}")
    if not isinstance(watches, Sequence) or not all(isinstance(each, Watch) for each in watches):
        found.append(
            f"watches: expected a list of watches such as DriftWatch('dynamics') of rosewood.dynamics.drift, "
            f"got {watches!r}"
        )
    if not isinstance(max_skipped_steps, int) or max_skipped_steps < 0:
        found.append(f"max_skipped_steps: expected a whole number from 0 on, got {max_skipped_steps!r}")
    if found:
        raise RunError("\n".join(found))


def check_kind(data: Any, name: str, several: bool = False) -> None:
    """Refuse data that are not examples in a sequence or stream; `several` allows a mapping of such data."""
    expected = "expected tokenized examples: a datasets.Dataset, a torch Dataset or a list of mappings"
    if isinstance(data, Mapping):
        if several:
            for key, each in data.items():
                check_kind(each, f"{name}[{key!r}]")
            return
        splits = data and all(isinstance(each, Dataset | IterableDataset) for each in data.values())
        way = f"choose data[{next(iter(data))!r}]" if splits else "datasets.Dataset.from_dict makes a table of columns"
        raise DataError(f"{name}: {expected}; got {_kind(data)}: {way}")
    if hasattr(data, "iloc"):
        raise DataError(f"{name}: {expected}; got {_kind(data)}: datasets.Dataset.from_pandas(data), then tokenize it")
    if isinstance(data, str | bytes) or not (hasattr(data, "__getitem__") or hasattr(data, "__iter__")):
        raise DataError(f"{name}: {expected}; got {_kind(data)}")


def check_training_data(data: Any, collator: Any, model: nn.Module, labels: Sequence[str]) -> None:
    """Refuse examples that the model cannot read or learn from; `labels` are the names of what its loss needs, if any.

    What a collator of one's own makes of them is not known, so they are looked at only if it is one of the Trainer's.
    """
    if data is None:
        raise DataError("there is nothing to train on: give RobustTrainer a train_dataset")
    if not hasattr(data, "__len__") or not hasattr(data, "__getitem__"):
        return  # a stream, which may not be read twice
    if len(data) == 0:
        raise DataError("train_dataset has no examples")
    collator = collator.inner if isinstance(collator, SubstituteCollator) else collator
    if collator is not default_data_collator and type(collator) is not DataCollatorWithPadding:
        return
    first = _first(data)
    if isinstance(first, Mapping):
        _check_inputs(data, first, model, padded=collator is not default_data_collator)
        if labels and not (set(labels) - {"labels"}) & set(first):  # else an answer's start and end, for example
            _check_labels(data, first, model)
    elif not hasattr(first, "__dict__"):  # which the Trainer's collators read too
        raise DataError(
            f"train_dataset: expected examples that are mappings such as {{'input_ids': [...], 'labels': 1}}, got "
            f"{_kind(first)}: tokenize the texts, for example {TOKENIZE}, or give a data_collator that does"
        )


def _first(data: Any) -> Any:
    with torch.random.fork_rng(devices=[]):  # a Dataset may draw
        try:
            return data[0]
        except (KeyError, NotImplementedError):
            raise DataError(
                f"train_dataset: expected examples numbered from 0 on, and {_kind(data)} has no number 0"
            ) from None


def _check_inputs(data: Any, first: Mapping[str, Any], model: nn.Module, padded: bool) -> None:
    wanted = getattr(model, "main_input_name", "input_ids")
    if wanted not in first and "inputs_embeds" not in first:
        raise DataError(
            f"train_dataset has no column {wanted}, it has {', '.join(map(str, first))}: the model reads tokens, not "
            f"texts. Tokenize them: {TOKENIZE}"
        )
    if wanted == "input_ids" and wanted in first and not padded and isinstance(data, Dataset | list):
        lengths = {len(row[wanted]) for row in islice(data, LOOKED_AT)}
        if len(lengths) > 1:
            raise DataError(
                f"train_dataset has texts of {min(lengths)} to {max(lengths)} tokens, and nothing that pads them: give "
                "RobustTrainer processing_class=tokenizer, or pad when tokenizing"
            )


def _check_labels(data: Any, first: Mapping[str, Any], model: nn.Module) -> None:
    column = next((name for name in LABEL_COLUMNS if name in first), None)
    if column is None:
        raise DataError(
            f"train_dataset has no labels: expected a column {' or '.join(LABEL_COLUMNS)}, it has "
            f"{', '.join(map(str, first))}. Dataset.rename_column gives a column another name"
        )
    config: Any = getattr(model, "config", None)
    of_texts = type(model).__name__.endswith("ForSequenceClassification")
    if of_texts and getattr(config, "problem_type", None) in (None, "single_label_classification"):
        for row, label in enumerate(_labels(data, first, column)):
            _check_class(label, row, config.num_labels, column)


def _labels(data: Any, first: Mapping[str, Any], column: str) -> list[Any]:
    """All labels where that costs little; of a Dataset that makes its examples when asked, that of the first."""
    if isinstance(data, Dataset) and column in data.column_names:
        return list(data.with_format(None)[column][:])
    return [row.get(column) for row in data] if isinstance(data, list) else [first[column]]


def _check_class(label: Any, row: int, classes: int, column: str) -> None:
    single = isinstance(label, np.generic) or (isinstance(label, Tensor) and label.dim() == 0)
    value = label.item() if single else label
    if classes == 1 or isinstance(value, Tensor | np.ndarray | list | tuple):
        return  # a number to predict, or several labels
    whole = isinstance(value, int)
    if whole and (0 <= value < classes or value == IGNORED):
        return
    if isinstance(value, str):
        how = "Dataset.class_encode_column turns names into numbers"
    elif value is None:
        how = "leave out rows without a label"
    elif whole and value >= classes:
        how = f"load the model with num_labels={value + 1}, or number the labels from 0 on"
    else:
        how = "number the labels from 0 on"
    raise DataError(
        f"train_dataset, row {row}: expected in {column} a whole number from 0 to {classes - 1}, because the model has "
        f"{classes} classes (or {IGNORED} for an example that does not count); got {value!r}: {how}"
    )


def _kind(value: Any) -> str:
    kind = type(value)
    name = kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__.split('.')[0]}.{kind.__name__}"
    return f"{name} ({value!r})" if isinstance(value, str) and len(value) < 40 else name


ADAMW = (OptimizerNames.ADAMW_TORCH, OptimizerNames.ADAMW_TORCH_FUSED)


def needs_masked_adamw(recipe: Recipe) -> bool:
    """Whether a recipe brings its own AdamW."""
    freezes = any(stage.selection.masked == "freeze" for stage in recipe.all_stages())
    return freezes or recipe.optimizer_form == "hf"


def check_processes(arguments: TrainingArguments) -> None:
    if together() and arguments.world_size == 1:
        raise RunError(
            "this is one of several processes, but TrainingArguments sees only one, so each would train on all of "
            "the data: without an accelerator, pass use_cpu=True"
        )


def check_fsdp(arguments: TrainingArguments, is_version_2: bool) -> None:
    if not (is_version_2 and hasattr(FSDPModule, "reset_iter_state")):
        raise RunError(
            "of FSDP, rosewood knows version 2 of torch 2.13 or newer: set fsdp_config={'version': 2, ...}, and "
            f"update torch if it is older (this is {torch.__version__})"
        )
    if arguments.torch_compile:
        raise RunError(
            "FSDP and torch_compile together have not been tried (compiling renames the parameters that are "
            "divided): choose one of them"
        )


def check_deepspeed(recipe: Recipe) -> None:
    stages = recipe.all_stages()
    needy = [f"objective {stage.objective.name}" for stage in stages if stage.objective.asks_back(stage)]
    needy += [f"selection {s.selection.name}" for s in stages if s.selection.name != "everything"]
    needy += [f"anchor {anchor.name}" for stage in stages for anchor in stage.anchors]
    if needy:
        raise RecipeError(
            f"recipe {recipe.name}: {' and '.join(dict.fromkeys(needy))} must read or change single gradients "
            "or weights, which DeepSpeed keeps to itself: leave DeepSpeed out, and use FSDP2 (fsdp=True) if the "
            "model is too large for one device"
        )


def check_watches(watches: Sequence[Watch], recipe: Recipe, model: nn.Module, with_deepspeed: bool) -> None:
    found = [problem for watch in watches for problem in watch.problems(recipe, model)]
    if watches and with_deepspeed:
        found.append("watches see the steps of an optimiser, which DeepSpeed keeps to itself: leave one of the two out")
    if found:
        raise RunError("\n".join(found))


def check_gradient_checkpointing(recipe: Recipe, arguments: TrainingArguments) -> None:
    perturbs = any(stage.perturbation is not None for stage in recipe.all_stages())
    checkpointing: Any = arguments.gradient_checkpointing_kwargs or {}
    reentrant = arguments.gradient_checkpointing and checkpointing.get("use_reentrant")
    if reentrant and (perturbs or needs_masked_adamw(recipe)):
        raise RecipeError(
            f"recipe {recipe.name} reads single gradients, which reentrant checkpointing cannot give: use "
            'gradient_checkpointing_kwargs={"use_reentrant": False}'
        )


def check_class_weights(recipe: Recipe, given: bool, arguments: TrainingArguments, another_loss: bool) -> None:
    """Refuse class weights where something else than the model computes the loss too."""
    objectives = {stage.objective.name for stage in recipe.all_stages() if stage.objective.reads_labels}
    others = [f"objective {name}" for name in sorted(objectives)] + (["compute_loss_func"] if another_loss else [])
    others += ["label_smoothing_factor"] if arguments.label_smoothing_factor else []
    if given and others:
        raise RunError(f"class weights and {' and '.join(others)} both compute the loss: leave one of them out")


def check_optimizer(recipe: Recipe, arguments: TrainingArguments, another_is_given: bool) -> None:
    if not needs_masked_adamw(recipe):
        return
    if another_is_given:
        raise RecipeError(
            f"recipe {recipe.name} masks the optimiser's update and brings its own AdamW: leave out "
            "`optimizers` and `optimizer_cls_and_kwargs`, and set betas, epsilon and decay in TrainingArguments"
        )
    if arguments.optim not in ADAMW:
        raise RecipeError(
            f"recipe {recipe.name} masks AdamW's update, which optim={OptimizerNames(arguments.optim).value} "
            "has not: use optim=adamw_torch_fused or adamw_torch"
        )


def check_columns(recipe: Recipe, data: Any) -> None:
    """Training data must say what may replace their words; of streams, the first batch tells."""
    try:
        missing = [name for name in recipe.columns() if name not in data[0]]
    except (IndexError, NotImplementedError, TypeError):
        return
    if missing:
        adds = "with_substitutes" if missing[0] == SUBSTITUTES else "with_changes"
        raise RecipeError(
            f"recipe {recipe.name} replaces words, and the training data do not say by which: name the columns "
            f"of the texts, such as text_columns=['text'], or add the column {missing[0]!r} with rosewood.{adds}"
        )


def check_modules_beside(recipe: Recipe, beside: Collection[str], optimizer_is_given: bool) -> None:
    """Refuse what does not go with modules that these anchors want trained beside the model."""
    if beside and optimizer_is_given:
        raise RecipeError(
            f"recipe {recipe.name} trains modules beside the model, which the given optimiser does not know: leave out "
            "`optimizers` (optimizer_cls_and_kwargs may name another one)"
        )
    for name in beside:
        settings = [a.settings() for stage in recipe.all_stages() for a in stage.anchors if a.name == name]
        if any(other != settings[0] for other in settings):
            raise RecipeError(
                f"recipe {recipe.name}: stages share the modules that anchor {name} trains beside the model, and its "
                "settings differ between them: give it the same in every stage that has it"
            )
