"""RobustTrainer: the Hugging Face Trainer, running any recipe.

Only this file and checkpoint_trainer.py know the Trainer.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from inspect import signature
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from accelerate.utils import DynamoBackend
from rich.progress import track
from torch import Tensor, nn
from torch._functorch import config as functorch_settings
from torch.distributed.fsdp import FSDPModule
from torch.nn.parallel import DistributedDataParallel
from torch.optim.lr_scheduler import SequentialLR
from transformers import Trainer, get_scheduler

from rosewood.dynamics.record import Watch
from rosewood.errors import RunError
from rosewood.models.adapters import encoder
from rosewood.models.modes import Predictions
from rosewood.models.names import encoder_weights
from rosewood.models.parameters import attach, detach, values_in
from rosewood.protocol import Anchor, Batch, Call, Output, Position
from rosewood.recipe import Recipe, load_recipe
from rosewood.results.run import History
from rosewood.tensors.shards import average_, whole
from rosewood.training.callbacks import SkippedSteps, all_finite, first_not_finite
from rosewood.training.checkpoint_trainer import CheckpointedTrainer
from rosewood.training.checks import (
    check_class_weights,
    check_columns,
    check_deepspeed,
    check_fsdp,
    check_given,
    check_gradient_checkpointing,
    check_kind,
    check_modules_beside,
    check_optimizer,
    check_processes,
    check_training_data,
    check_watches,
    needs_masked_adamw,
)
from rosewood.training.engine import Engine
from rosewood.training.masked_adamw import MaskedAdamW
from rosewood.training.plan import warn_of_other_labels, with_words_prepared
from rosewood.training.sampling import WeightedLoss, train_sampler
from rosewood.words.alignment import SubstituteCollator

OWN_FOLDER = "_rosewood"  # the underscore keeps the Trainer's uploads to the Hub away from it


class StepSize(NamedTuple):
    """How large an optimiser step is.

    `items` is what the Trainer tells a custom loss to divide by. `counts` has the predictions of each micro-batch here,
    `total` those of all of them, averaged over the processes; `examples` are those of all processes.
    """

    items: Tensor | int | None
    counts: list[int]
    total: float
    examples: int

    def parts(self, count: int | Tensor) -> float:
        """How many micro-batches with so many predictions would make the step."""
        return max(self.total, 1) / max(int(count), 1)


class RobustTrainer(CheckpointedTrainer):
    """A Trainer with a recipe; everything else is passed on to transformers.Trainer unchanged.

    With the recipe `vanilla` it is the Trainer, bit for bit, except under gradient accumulation. There every term is a
    mean over all predictions of the accumulated batches: over their examples, or, where tokens have labels, over the
    tokens whose label is not -100. So it makes no difference how a batch is cut. (transformers 5.22 does so for causal
    language models; it multiplies the loss of most classification models by the number of accumulation steps.)

    Args:
        recipe: a recipe's name, YAML file or object.
        text_columns: the columns of the training data that hold the texts, one or two. Recipes that change words need
            them, unless the data come from `with_changes` or `with_substitutes`; the others do not read them.
        history_file: a JSON Lines file that gets one record per optimiser step.
        max_skipped_steps: a step whose loss or gradients are not finite is skipped; after so many in a row, the next
            one ends the run.
        watches: look on and write down what they see, such as `rosewood.dynamics.DriftWatch("dynamics")`.
        class_weights: one for each output; they multiply the cross-entropy of the rows of that class.
        pretrained: what anchors tie the encoder to where the model was fine-tuned before: a model, its name, or the
            weights of its encoder. Without it they tie the encoder to the weights as they came.

    Raises:
        RecipeError: the recipe makes no sense with this model or these arguments.
        DataError: the data cannot be trained on.

    Example:
        >>> from datasets import Dataset
        >>> from transformers import TrainingArguments
        >>> texts = ["a good film", "a dull film"]
        >>> data = Dataset.from_dict({**tokenizer(texts), "labels": [1, 0]})
        >>> arguments = TrainingArguments("out", max_steps=2, report_to="none", disable_tqdm=True)
        >>> given = {"train_dataset": data, "processing_class": tokenizer}
        >>> RobustTrainer(model, arguments, recipe="rose-second", **given).train().global_step
        2
    """

    def __init__(
        self,
        *args: Any,
        recipe: str | Path | Recipe = "vanilla",
        text_columns: Sequence[str] | None = None,
        history_file: str | Path | None = None,
        max_skipped_steps: int = 10,
        watches: Sequence[Watch] = (),
        class_weights: Sequence[float] | None = None,
        pretrained: str | nn.Module | Mapping[str, Tensor] | None = None,
        **kwargs: Any,
    ) -> None:
        self.recipe = load_recipe(recipe)
        given = signature(Trainer.__init__).bind_partial(self, *args, **kwargs).arguments
        check_given(given, watches, max_skipped_steps)
        for name in ("train_dataset", "eval_dataset"):
            if given.get(name) is not None:
                check_kind(given[name], name, several=name == "eval_dataset")
        self._weighted_loss = None if class_weights is None else WeightedLoss(class_weights)
        super().__init__(*args, **kwargs)
        self.model_accepts_loss_kwargs = False
        self.recipe.check_model(self.model)
        warn_of_other_labels(self.model, self.train_dataset)
        self._watches = watches
        self._check_arguments()
        if text_columns is not None and self.train_dataset is not None:
            tokenizer: Any = self.processing_class
            seed = self.args.seed
            self.train_dataset = with_words_prepared(self.train_dataset, self.recipe, tokenizer, text_columns, seed)
        self._take_columns()
        writes = history_file is not None and self.is_world_process_zero()
        self.history = History(Path(history_file) if writes else None)  # type: ignore[arg-type]
        self._origin = None if pretrained is None or not self.recipe.needs_pretrained() else _encoder_of(pretrained)
        self._snapshot()
        self._beside = self._modules_beside()
        check_modules_beside(self.recipe, self._beside, self.optimizer is not None)
        self._engine: Engine | None = None
        self._micro_batch = 0
        self._grad_norm: Tensor | None = None
        self._skipped = SkippedSteps(max_skipped_steps)
        self._skipping = False
        self._suspect: str | None = None
        self._unlogged: list[dict[str, Any]] = []

    # What the Trainer builds before it trains.

    def _check_arguments(self) -> None:
        check_processes(self.args)
        if self.is_fsdp_enabled:
            check_fsdp(self.args, self.accelerator.is_fsdp2)
        if self.is_deepspeed_enabled:
            check_deepspeed(self.recipe)
        check_watches(self._watches, self.recipe, self.model, self.is_deepspeed_enabled)
        check_gradient_checkpointing(self.recipe, self.args)
        weighted, another = self._weighted_loss is not None, self.compute_loss_func is not None
        check_class_weights(self.recipe, weighted, self.args, another)
        check_optimizer(self.recipe, self.args, self.optimizer is not None or self.optimizer_cls_and_kwargs is not None)

    def _take_columns(self) -> None:
        """Let what perturbations read and no model takes, such as substitutes of words, come with the batches."""
        self._columns = self.recipe.columns()
        if self._columns:
            check_columns(self.recipe, self.train_dataset)
            self.data_collator: Any = SubstituteCollator(self.data_collator, self._columns)

    def _set_signature_columns_if_needed(self) -> None:
        super()._set_signature_columns_if_needed()
        columns: Any = self._signature_columns
        columns += [name for name in self.recipe.columns() if name not in columns]

    def _snapshot(self) -> None:
        """Keep the weights as they came, before a resumed run replaces them, if an anchor or a watch looks at them.

        Anchors see those of the pre-trained model in their place, if one was given.
        """
        needed = self.recipe.needs_pretrained() or any(watch.needs_pretrained for watch in self._watches)
        named = dict(self.model.named_parameters()) if needed else {}
        self._start = {name: p.detach().clone() for name, p in named.items() if p.requires_grad}
        other = {} if self._origin is None else values_in(self.model, self._origin)
        self._pretrained = self._start | {name: value for name, value in other.items() if name in self._start}
        self._frozen = {name: value for name, value in other.items() if name not in self._start}

    def call_model_init(self, trial: Any = None) -> Any:
        model = super().call_model_init(trial)
        if hasattr(self, "_pretrained"):  # not yet during __init__, which takes its own
            self.model = model
            self._snapshot()
            self._beside = self._modules_beside()
            attach(model, self._beside)
        return model

    def _anchors(self) -> list[Anchor]:
        return [anchor for stage in self.recipe.all_stages() for anchor in stage.anchors]

    def _modules_beside(self) -> dict[str, nn.Module]:
        """New modules that anchors want trained beside the model; stages share those of the same anchor."""
        wanted = {anchor.name: anchor.modules(self.model, self.args.seed) for anchor in self._anchors()}
        return {name: module for name, module in wanted.items() if module is not None}

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        if self.optimizer is None:
            if needs_masked_adamw(self.recipe):
                _, settings = self.get_optimizer_cls_and_kwargs(self.args, self.model)
                settings["form"] = self.recipe.optimizer_form
                self.optimizer_cls_and_kwargs = (MaskedAdamW, settings)
            self.optimizer = super().create_optimizer(model)
        return self.optimizer

    def create_scheduler(
        self, num_training_steps: int, optimizer: torch.optim.Optimizer | None = None
    ) -> torch.optim.lr_scheduler.LRScheduler:
        optimizer = self.optimizer if optimizer is None else optimizer
        self._start_engine(num_training_steps)
        assert self._engine is not None
        lengths = self._engine.stage_lengths()
        if len(lengths) == 1 or self.lr_scheduler is not None:
            return super().create_scheduler(num_training_steps, optimizer)
        # Each stage has its own warm-up and decay.
        schedules = [
            get_scheduler(
                self.args.lr_scheduler_type,
                optimizer=optimizer,
                num_warmup_steps=self.args.get_warmup_steps(steps),
                num_training_steps=steps,
                scheduler_specific_kwargs=self.args.lr_scheduler_kwargs,  # type: ignore[arg-type]
            )
            for steps in lengths
        ]
        borders = [sum(lengths[: i + 1]) for i in range(len(lengths) - 1)]
        self.lr_scheduler = SequentialLR(optimizer, schedules, borders)
        self._created_lr_scheduler = True
        return self.lr_scheduler

    def _start_engine(self, total_steps: int) -> None:
        self._engine = Engine(
            self.recipe,
            self.model,
            total_steps,
            self.args.seed,
            self._pretrained,
            self._backward,
            None if self.accelerator.scaler is None else self.accelerator.scaler.scale,
            Path(self.args.output_dir or ".") / OWN_FOLDER,
            self._watches,
            self._frozen,
            self._start,
        )
        self._micro_batch = 0
        self._predictions = Predictions(self.model)
        bare = getattr(self.optimizer, "optimizer", self.optimizer)  # inside accelerate's wrapper
        if hasattr(bare, "register_step_pre_hook"):  # DeepSpeed's has none
            # Inside the optimiser's own step, so that a step the loss scaler skips selects nothing; a fused kernel
            # would otherwise be called for such a step too.
            bare._step_supports_amp_scaling = False
            hooks = bare.register_step_pre_hook(self._before_optimizer_step), bare.register_step_post_hook(self._after)
            for old in getattr(self, "_hooks", ()):
                old.remove()
            self._hooks = hooks

    def _get_train_sampler(self, train_dataset: Any = None) -> torch.utils.data.Sampler | None:
        # Not of the argument, which has lost the columns that the model does not take.
        own = train_sampler(self.train_dataset, self.args, self._anchors())
        return super()._get_train_sampler(train_dataset) if own is None else own

    # One step.

    def _prepare_inputs(self, inputs: dict[str, Any]) -> dict[str, Any]:
        prepared = super()._prepare_inputs(inputs)
        if self.recipe.attention_mask == "absent":
            prepared = {name: value for name, value in prepared.items() if name != "attention_mask"}
        return prepared

    def get_batch_samples(self, epoch_iterator: Iterator, num_batches: int, device: torch.device) -> Any:
        batches, items = super().get_batch_samples(epoch_iterator, num_batches, device)
        if batches:
            self._size = self._step_size(batches, items)
        return batches, items

    def _step_size(self, batches: list[Batch], items: Tensor | int | None) -> StepSize:
        counts = torch.stack([self._predictions.count(batch) for batch in batches]).to(self.args.device)
        total = counts.sum().double()
        average_([total])  # as gradients are
        examples = sum(len(next(iter(batch.values()))) for batch in batches) * self.args.world_size
        *each, whole_step = [*counts.tolist(), total.item()]
        return StepSize(items, each, whole_step, examples)

    def _moment(self, examples: int = 1, parts: float = 1) -> Position:
        epoch = int((self.state.epoch or 0.0) + 1e-9)
        accumulated = self.current_gradient_accumulation_steps
        return Position(self.state.global_step, epoch, self._micro_batch, accumulated, examples, parts)

    def _backward(self, loss: Tensor) -> None:
        # DeepSpeed would divide by the number of accumulated batches once more.
        options = {"scale_wrt_gas": False} if self.is_deepspeed_enabled else {}
        self.accelerator.backward(loss, **options)

    def training_step(
        self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Tensor | int | None = None
    ) -> Tensor:
        assert self._engine is not None, "training_step runs inside train()"
        model.train()
        wrapper = getattr(model, "_orig_mod", model)  # inside torch.compile's own
        if isinstance(wrapper, FSDPModule):
            # A gradient that waits for the last micro-batch can neither be read nor kept apart.
            wrapper.set_requires_gradient_sync(True)
        inputs = self._prepare_inputs(inputs)
        call = self._call(model)
        if self._engine.enter(self.state.global_step, call, self._training_steps):
            self.optimizer.state.clear()  # a stage starts with a fresh optimiser
        # The engine averages over processes itself: DDP would miss every backward but the first after a forward.
        alone = wrapper.no_sync() if isinstance(wrapper, DistributedDataParallel) else nullcontext()
        with alone:
            parts = self._size.parts(self._size.counts[self._micro_batch])
            loss = self._engine.micro_batch(call, inputs, self._moment(self._size.examples, parts))
        self._micro_batch = 0 if self.accelerator.sync_gradients else self._micro_batch + 1
        if self.accelerator.sync_gradients and self._skipped.may_end_now():
            # Now, because clipping spreads a NaN to the gradients of all parameters.
            self._suspect = first_not_finite(self.model)
        return loss

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Tensor | tuple[Tensor, Any]:
        if self._weighted_loss is None:
            return super().compute_loss(model, inputs, return_outputs, num_items_in_batch)
        loss, outputs = self._weighted_loss(model, inputs)
        return (loss, outputs) if return_outputs else loss

    def _training_steps(self) -> Iterator[list[Batch]]:
        """One pass over the training data, optimiser step by optimiser step, that leaves the random state as it was."""
        size = self._size
        try:
            with torch.random.fork_rng():
                torch.manual_seed(self.args.seed)
                loader = self.get_train_dataloader()
                batches = iter(track(loader, description="importance", disable=not self.is_world_process_zero()))
                while step := list(islice(batches, self.args.gradient_accumulation_steps)):
                    self._size = self._step_size(step, self._get_num_items_in_batch(step, self.args.device))
                    yield [self._prepare_inputs(batch) for batch in step]
        finally:
            self._size = size

    def _call(self, trained: nn.Module) -> Call:
        def call(batch: Batch, model: nn.Module | None = None) -> Output:
            with self.compute_loss_context_manager():
                # A copy, because compute_loss may take the labels out of the batch.
                loss, outputs = self.compute_loss(
                    trained if model is None else model,
                    {name: value for name, value in batch.items() if name not in self._columns},
                    return_outputs=True,
                    num_items_in_batch=self._size.items,
                )
            if self.args.n_gpu > 1:
                loss = loss.mean()
            if self.compute_loss_func is not None:
                # A custom loss is already normalised over the accumulated batches; undo the division to come.
                loss = loss * self._size.parts(self._predictions.count(batch))
            logits: Any = outputs.get("logits") if isinstance(outputs, dict) else outputs[1]
            return self._predictions.of(loss, logits, batch)

        return call

    def _get_grad_norm(self, model: nn.Module, grad_norm: Any = None) -> Any:
        norm = super()._get_grad_norm(model, grad_norm)
        self._grad_norm = whole(torch.as_tensor(norm))
        self._skip_unless_finite()
        return self._grad_norm if isinstance(norm, Tensor) else norm

    def _skip_unless_finite(self) -> None:
        """Leave the optimiser no gradient to step with if the loss or a gradient is not finite."""
        assert self._engine is not None and self._grad_norm is not None
        terms = self._engine.terms()
        watched = list(terms.values())
        if self.accelerator.scaler is None:  # else gradients that overflow are the scaler's business
            watched += [self._grad_norm, *self._engine.read_only_norms().values()]
        # All of it is averaged over processes: they decide alike. The number that comes to the host is what it costs.
        self._skipping = not all_finite(watched)
        if not self._skipping:
            self._skipped.reset()
            return
        self.history.record(self.state.global_step + 1, self._facts() | {"terms": terms, "skipped": True})
        self._skipped.skip(self.state.global_step + 1, terms, self._suspect)
        self.optimizer.zero_grad()

    def _clip_factor(self) -> Tensor:
        """What clip_grad_norm_ multiplied the gradients by."""
        norm = torch.ones(()) if self._grad_norm is None else self._grad_norm
        if not self.args.max_grad_norm:
            return torch.ones_like(norm)
        return (self.args.max_grad_norm / (norm + 1e-6)).clamp(max=1.0)

    def _facts(self) -> dict[str, Any]:
        return {"epoch": self.state.epoch, "learning_rate": self._get_learning_rate(), "grad_norm": self._grad_norm}

    def _before_optimizer_step(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        if self._skipping:
            return
        assert self._engine is not None
        if not self._engine.under_way:  # FSDP2's checkpoints are loaded by way of a step that changes nothing
            return
        scaler = self.accelerator.scaler
        scale = 1.0 if scaler is None else scaler.get_scale()
        seen = self._engine.before_optimizer_step(optimizer, self._moment(), self._clip_factor(), scale)
        self.history.record(self.state.global_step + 1, self._facts() | seen)

    def _after(self, *_: Any) -> None:
        assert self._engine is not None
        if not self._engine.under_way:
            return
        # What accelerate sets when its loss scaler skips a step: the learning rate then waits, as this time it should.
        self.optimizer._is_overflow = self._skipping
        if self._skipping:
            self.optimizer._accelerate_step_called = False
            return
        self._engine.after_optimizer_step(self._moment())

    # What is written down, and read again.

    def _write_records(self) -> list[dict[str, Any]]:
        """Let everything that was recorded reach the disk; returns what is new in the history."""
        for watch in self._watches:
            watch.records.flush()
        return self.history.flush()

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs:
            self._unlogged += self._write_records()
            logs = logs | _averages(self._unlogged)
            self._unlogged = []
        super().log(logs, start_time)

    def _inner_training_loop(self, *args: Any, **kwargs: Any) -> Any:
        try:
            with self._compiled_graphs_kept():
                result = super()._inner_training_loop(*args, **kwargs)
            self._write_records()
            return result
        except BaseException:
            with suppress(RunError):  # the first error is the one to tell
                self._write_records()
            raise
        finally:
            if self._engine is not None:
                self._engine.finish()

    @contextmanager
    def _compiled_graphs_kept(self) -> Iterator[None]:
        """Keep compiled code from giving away memory that a second backward over the same graph needs."""
        compiled = self.accelerator.state.dynamo_plugin.backend != DynamoBackend.NO
        if not compiled or not any(stage.selection.reads_apart(stage) for stage in self.recipe.all_stages()):
            yield
            return
        # The setting is this thread's, so backwards must not run in another one.
        with functorch_settings.patch(donated_buffer=False), torch.autograd.set_multithreading_enabled(False):
            yield

    def _init_training_state(self, *args: Any, **kwargs: Any) -> Any:
        result = super()._init_training_state(*args, **kwargs)
        for records in (self.history, *(watch.records for watch in self._watches)):
            records.rewind(self.state.global_step)
        return result

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        own_loss = self.compute_loss_func is not None or type(self).compute_loss is not RobustTrainer.compute_loss
        labels = () if own_loss or self.can_return_loss else self.label_names
        check_training_data(self.train_dataset, self.data_collator, self.model, labels)
        self._skipped.reset()
        attach(self.model, self._beside)
        try:
            return super().train(resume_from_checkpoint, *args, **kwargs)
        finally:
            detach(self.model)

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        self._unlogged += self._write_records()  # a killed process resumes from here
        super()._save_checkpoint(model, trial)

    def _own_state(self) -> dict[str, Tensor]:
        return {} if self._engine is None else self._engine.state_dict()

    def _load_own_state(self, state: dict[str, Tensor]) -> None:
        if self._engine is not None:
            self._engine.load_state_dict(state)


def _encoder_of(pretrained: str | nn.Module | Mapping[str, Tensor]) -> Mapping[str, Tensor]:
    """The weights below the head of a model, or of one that is to be loaded."""
    if isinstance(pretrained, str):
        return encoder_weights(pretrained)
    if not isinstance(pretrained, nn.Module):
        return pretrained
    below = encoder(pretrained)
    return (pretrained if below is None else below).state_dict()


def _averages(records: list[dict[str, Any]]) -> dict[str, float]:
    """The mean of every term and of the kept share since the last log; skipped steps do not count."""
    records = [record for record in records if "skipped" not in record]
    if not records:
        return {}
    terms = {f"loss_{name}": [r["terms"][name] for r in records if name in r["terms"]] for name in records[0]["terms"]}
    terms["kept_share"] = [r["kept_share"] for r in records if "kept_share" in r]
    return {name: sum(map(float, values)) / len(values) for name, values in terms.items() if values}
