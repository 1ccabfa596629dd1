"""What a recipe cannot do with the training arguments it is given: refused before any work starts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import torch
from torch import nn
from torch.distributed.fsdp import FSDPModule
from transformers import TrainingArguments
from transformers.training_args import OptimizerNames

from rosewood.dynamics.record import Watch
from rosewood.errors import RecipeError, RunError
from rosewood.recipe import Recipe
from rosewood.tensors.distributed import together
from rosewood.words.alignment import SUBSTITUTES

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
            f"recipe {recipe.name} replaces words, and the training data do not say by which: add the column "
            f"{missing[0]!r} with rosewood.{adds}"
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
