"""RobustTrainer: the Hugging Face Trainer, running any recipe. The only file that knows the Trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import SequentialLR
from transformers import Trainer, get_scheduler
from transformers.training_args import OptimizerNames

from rosewood.errors import RecipeError
from rosewood.protocol import Batch, Masks, Output, Progress, Readings, Run, Selector
from rosewood.recipe import Recipe, Stage, load_recipe
from rosewood.training.gradients import TOTAL, Gradients
from rosewood.training.history import History
from rosewood.training.length_groups import LengthGroupedSampler
from rosewood.training.masked_adamw import MaskedAdamW

ADAMW = (OptimizerNames.ADAMW_TORCH, OptimizerNames.ADAMW_TORCH_FUSED)


class StageRun(NamedTuple):
    """A stage under way: its parts, their runtime objects, and the optimiser steps it spans."""

    stage: Stage
    selector: Selector
    first_step: int
    steps: int


class RobustTrainer(Trainer):
    """A Trainer with a recipe; everything else is passed on to transformers.Trainer unchanged.

    With the recipe `vanilla` it is the Trainer, bit for bit, except that gradient accumulation gives the mean over
    the accumulated batches also for classification models (transformers 5.22 multiplies their loss by the number
    of accumulation steps).

    `history_file` names a JSON Lines file that gets one record per optimiser step.
    """

    def __init__(
        self,
        *args: Any,
        recipe: str | Path | Recipe = "vanilla",
        history_file: str | Path | None = None,
        **kwargs: Any,
    ) -> None:
        self.recipe = load_recipe(recipe)
        self.model: Any
        self.optimizer: Any
        self.lr_scheduler: Any
        super().__init__(*args, **kwargs)
        self.model_accepts_loss_kwargs = False
        self.recipe.check_model(self.model)
        self._check_optimizer()
        self.history = History(None if history_file is None else Path(history_file))
        self._stages: list[StageRun] = []
        self._gradients: Gradients | None = None
        self._grad_norm: Tensor | None = None
        self._sums: dict[str, Tensor] = {}

    # What the Trainer builds before it trains.

    def _check_optimizer(self) -> None:
        if not self._needs_masked_adamw():
            return
        if self.optimizer is not None or self.optimizer_cls_and_kwargs is not None:
            raise RecipeError(
                f"recipe {self.recipe.name} masks the optimiser's update and brings its own AdamW: leave out "
                "`optimizers` and `optimizer_cls_and_kwargs`, and set betas, epsilon and decay in TrainingArguments"
            )
        if self.args.optim not in ADAMW:
            raise RecipeError(
                f"recipe {self.recipe.name} masks AdamW's update, which optim={self.args.optim.value} has not: use "
                "optim=adamw_torch_fused or adamw_torch"
            )
        checkpointing: Any = self.args.gradient_checkpointing_kwargs or {}
        if self.args.gradient_checkpointing and checkpointing.get("use_reentrant"):
            raise RecipeError(
                f"recipe {self.recipe.name} reads single gradients, which reentrant checkpointing cannot give: use "
                'gradient_checkpointing_kwargs={"use_reentrant": False}'
            )

    def _needs_masked_adamw(self) -> bool:
        freezes = any(stage.selection.masked == "freeze" for stage in self.recipe.all_stages())
        return freezes or self.recipe.optimizer_form == "hf"

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        if self.optimizer is None:
            if self._needs_masked_adamw():
                _, settings = self.get_optimizer_cls_and_kwargs(self.args, self.model)
                settings["form"] = self.recipe.optimizer_form
                self.optimizer_cls_and_kwargs = (MaskedAdamW, settings)
            self.optimizer = super().create_optimizer(model)
            self.optimizer.register_step_pre_hook(self._before_optimizer_step)
        return self.optimizer

    def create_scheduler(
        self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None
    ) -> torch.optim.lr_scheduler.LRScheduler:
        self._start_stages(num_training_steps)
        self._gradients = Gradients(self.model, self.accelerator.backward, self._scale_loss)
        if len(self._stages) == 1 or self.lr_scheduler is not None:
            return super().create_scheduler(num_training_steps, optimizer)
        # Each stage has its own warm-up and decay.
        optimizer = self.optimizer if optimizer is None else optimizer
        schedules = [
            get_scheduler(
                self.args.lr_scheduler_type,
                optimizer=optimizer,
                num_warmup_steps=self.args.get_warmup_steps(stage.steps),
                num_training_steps=stage.steps,
                scheduler_specific_kwargs=self.args.lr_scheduler_kwargs,  # type: ignore[arg-type]
            )
            for stage in self._stages
        ]
        self.lr_scheduler = SequentialLR(optimizer, schedules, [stage.first_step for stage in self._stages[1:]])
        self._created_lr_scheduler = True
        return self.lr_scheduler

    def _start_stages(self, total_steps: int) -> None:
        self._stages = []
        done, share = 0, 0.0
        for stage in self.recipe.all_stages():
            share += stage.share
            end = round(total_steps * share)
            selector = stage.selection.start(Run(self.model, end - done))
            self._stages.append(StageRun(stage, selector, done, end - done))
            done = end

    def _get_train_sampler(self, train_dataset: Any = None) -> torch.utils.data.Sampler | None:
        dataset: Any = self.train_dataset if train_dataset is None else train_dataset
        if self.args.train_sampling_strategy == "group_by_length" and "length" in getattr(dataset, "column_names", ()):
            # The Trainer's own sampler draws from the global generator, so a resumed epoch sees another order.
            batch = self.args.train_batch_size * self.args.gradient_accumulation_steps
            return LengthGroupedSampler(dataset["length"], batch, self.args.data_seed or self.args.seed)
        return super()._get_train_sampler(train_dataset)

    # One step.

    def _stage_run(self) -> StageRun:
        current = self._stages[0]
        for stage in self._stages[1:]:
            if self.state.global_step >= stage.first_step:
                current = stage
        return current

    def _progress(self, run: StageRun) -> Progress:
        return Progress(self.state.global_step - run.first_step, run.steps)

    def _scale_loss(self, loss: Tensor) -> Tensor:
        return loss if self.accelerator.scaler is None else self.accelerator.scaler.scale(loss)

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        assert self._gradients is not None, "training_step runs inside train()"
        model.train()
        inputs = self._prepare_inputs(inputs)
        run = self._stage_run()
        at = self._progress(run)
        if at.step == 0 and run.first_step > 0:
            self.optimizer.state.clear()  # a stage starts with a fresh optimiser

        def call(batch: Batch) -> Output:
            return self._forward(model, batch, num_items_in_batch)

        loss = torch.zeros((), device=self.args.device)
        for result in run.stage.objective.run(call, inputs):
            terms = result.terms + run.selector.probe(call, inputs, result, at)
            reads = run.selector.reads(terms, at)
            loss = loss + self._gradients.add(terms, reads, self.current_gradient_accumulation_steps)
            for term in terms:
                share = term.value.detach() / self.current_gradient_accumulation_steps
                self._sums[term.name] = self._sums.get(term.name, 0) + share
        if self.accelerator.sync_gradients:
            self._gradients.finish()
        return loss

    def _forward(self, model: nn.Module, batch: Batch, num_items_in_batch: Tensor | int | None) -> Output:
        with self.compute_loss_context_manager():
            # A copy, because compute_loss may take the labels out of the batch.
            loss, outputs = self.compute_loss(
                model, dict(batch), return_outputs=True, num_items_in_batch=num_items_in_batch
            )
        if self.args.n_gpu > 1:
            loss = loss.mean()
        if self.compute_loss_func is not None:
            # A custom loss is already normalised over the accumulated batches; undo the division that follows.
            loss = loss * self.current_gradient_accumulation_steps
        return Output(loss, outputs["logits"] if isinstance(outputs, dict) else outputs[1])

    def _get_grad_norm(self, model: nn.Module, grad_norm: Any = None) -> Any:
        norm = super()._get_grad_norm(model, grad_norm)
        self._grad_norm = torch.as_tensor(norm)
        return norm

    def _clip_factor(self) -> Tensor:
        """What clip_grad_norm_ multiplied the gradients by."""
        norm = torch.ones(()) if self._grad_norm is None else self._grad_norm
        if not self.args.max_grad_norm:
            return torch.ones_like(norm)
        return (self.args.max_grad_norm / (norm + 1e-6)).clamp(max=1.0)

    def _before_optimizer_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        """Select, right before the weights move: a step that the loss scaler skips never gets here."""
        assert self._gradients is not None
        run = self._stage_run()
        names = {name: p for name, p in self.model.named_parameters() if p.grad is not None}
        clip = self._clip_factor()
        scaler = self.accelerator.scaler
        readings = Readings(
            gradients=self._gradients.readings(),
            factors=self._gradients.factors(clip, 1.0 if scaler is None else scaler.get_scale()),
            clip=clip,
            momentum={n: optimizer.state[p]["exp_avg"] for n, p in names.items() if "exp_avg" in optimizer.state[p]},
            beta1=optimizer.param_groups[0].get("betas", (0.9,))[0],
            at=self._progress(run),
        )
        masks = run.selector.masks(readings)
        if run.stage.selection.masked == "freeze":
            assert isinstance(optimizer, MaskedAdamW)
            optimizer.multipliers = {} if masks is None else _multipliers(masks, names)
        elif masks is not None:
            gradients = [readings.gradients[TOTAL][name] for name in masks.names]
            values = list(masks.values.unbind()) if isinstance(masks.values, Tensor) else masks.values
            torch._foreach_mul_(gradients, values)
        self._record(run)
        self._gradients.clear()

    # What is written down.

    def _record(self, run: StageRun) -> None:
        values = {
            "epoch": self.state.epoch,
            "learning_rate": self._get_learning_rate(),
            "grad_norm": self._grad_norm,
            "terms": self._sums,
        }
        self.history.record(self.state.global_step + 1, values | run.selector.log())
        self._sums = {}

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs:
            records = self.history.flush()
            logs = logs | _averages(records)
        super().log(logs, start_time)

    def _inner_training_loop(self, *args: Any, **kwargs: Any) -> Any:
        try:
            return super()._inner_training_loop(*args, **kwargs)
        finally:
            self.history.flush()

    def _init_training_state(self, *args: Any, **kwargs: Any) -> Any:
        result = super()._init_training_state(*args, **kwargs)
        self.history.rewind(self.state.global_step)
        self._sums = {}
        return result


def _multipliers(masks: Masks, parameters: dict[str, nn.Parameter]) -> dict[Tensor, float | Tensor]:
    # One transfer of a few hundred numbers per step; the price of freezing whole tensors without touching them.
    values = masks.values.tolist() if isinstance(masks.values, Tensor) else masks.values
    return {parameters[name]: value for name, value in zip(masks.names, values, strict=True)}


def _averages(records: list[dict[str, Any]]) -> dict[str, float]:
    """The mean of every term and of the kept share since the last log."""
    if not records:
        return {}
    terms = {f"loss_{name}": [r["terms"][name] for r in records if name in r["terms"]] for name in records[0]["terms"]}
    terms["kept_share"] = [r["kept_share"] for r in records if "kept_share" in r]
    return {name: sum(values) / len(values) for name, values in terms.items() if values}
