"""The parameters that a selection chooses among, those with pre-trained values, and modules trained beside a model.

The optimiser, clipping, the mean over processes, sharding and checkpoints see modules beside a model; selections and
other anchors do not.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from transformers.pytorch_utils import Conv1D

from rosewood.errors import RecipeError, RunError
from rosewood.models.adapters import encoder, low_rank_changes
from rosewood.protocol import ATTACHED, Batch, Call, Masks, Run, Tether, is_attached
from rosewood.tensors.gradients import LossScale, slopes
from rosewood.tensors.shards import average_, divided, flat_like, part, parts, replaced, stacked_norms


def block_prefixes(model: nn.Module) -> list[str]:
    """Name prefixes of the repeated blocks: the outermost module lists of the encoder (or of a decoder-only model).

    In an encoder-decoder model only the encoder counts. Nested lists belong to the outermost one.
    """
    root = model
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        root = model.get_encoder()  # type: ignore[operator]
    inside = {id(module) for module in root.modules()}
    prefixes: list[str] = []
    for name, module in model.named_modules():
        nested = any(name.startswith(prefix) for prefix in prefixes)
        if isinstance(module, nn.ModuleList) and id(module) in inside and not nested:
            prefixes.append(f"{name}.")
    return prefixes


def candidate_names(model: nn.Module, pattern: str | None = None, biases: bool = False) -> list[str]:
    """Trainable parameters inside the repeated blocks, with or without biases, or those whose name matches `pattern`.

    On BERT and RoBERTa the rule equals the official codes': ROSE's without biases ("layer" and "weight" in the name),
    Child-Tuning's and RoAST's with them ("layer" in the name). Unlike those, it also works where blocks are called
    otherwise, and leaves out embeddings, pooler, final norm and head.

    Args:
        model: a model, or an encoder.
        pattern: a regular expression; parameters whose whole name or part of it matches are the candidates.
        biases: whether biases are candidates too.

    Returns:
        The names, in the order of the model.

    Raises:
        RecipeError: there is no such parameter, or the pattern is not a regular expression.

    Example:
        >>> candidate_names(model)[0]
        'bert.encoder.layer.0.attention.self.query.weight'
    """
    named = model.named_parameters()
    names = [name for name, parameter in named if parameter.requires_grad and not is_attached(name)]
    if pattern is not None:
        return _matching(names, pattern, type(model).__name__)
    prefixes = tuple(block_prefixes(model))
    inside = [name for name in names if name.startswith(prefixes)]
    chosen = inside if biases else [name for name in inside if "bias" not in name.rsplit(".", 1)[-1]]
    if not chosen:
        raise RecipeError(
            f"{type(model).__name__} has no trainable parameter inside repeated blocks (an nn.ModuleList), so there "
            "is nothing to select among. Name the candidates by a regular expression: --set selection.parameters=..."
        )
    return chosen


def candidates_by_name(names: Iterable[str], pattern: str | None = None) -> list[str]:
    """The candidates where only names are known: weights inside numbered modules that have modules of their own.

    `bert.encoder.layer.0.output.dense.weight` is one, `classifier.0.weight` is not. Beside an encoder, the blocks of a
    decoder do not count. On the usual architectures these are the names that `candidate_names` finds.
    """
    names = list(names)
    if pattern is not None:
        return _matching(names, pattern, "this model")
    inside = [name for name in names if re.search(r"(?:^|\.)\d+\.\w+\.", name)]
    halves = [set(name.split(".")) & {"encoder", "decoder"} for name in inside]
    both = {"encoder"} in halves and {"decoder"} in halves
    chosen = [name for name, half in zip(inside, halves, strict=True) if not (both and "decoder" in half)]
    chosen = [name for name in chosen if "bias" not in name.rsplit(".", 1)[-1]]
    if not chosen:
        raise RecipeError(
            "none of the parameters is a weight inside repeated blocks (named like encoder.layer.0.dense.weight), so "
            f"there is nothing to select among. The names look like {', '.join(names[:3])}. Name the candidates by a "
            "regular expression: parameters=..."
        )
    return chosen


def _matching(names: list[str], pattern: str, model: str) -> list[str]:
    try:
        chosen = [name for name in names if re.search(pattern, name)]
    except re.error as error:
        raise RecipeError(f"selection.parameters: {pattern!r} is not a regular expression: {error}") from None
    if not chosen:
        raise RecipeError(
            f"no trainable parameter of {model} matches {pattern!r}; its names look like {', '.join(names[:3])}"
        )
    return chosen


def present_masks(names: Sequence[str], masks: Sequence[Tensor], gradients: Container[str]) -> Masks:
    """The masks of those parameters that have a gradient in this step."""
    present = [(name, mask) for name, mask in zip(names, masks, strict=True) if name in gradients]
    return Masks([name for name, _ in present], [mask for _, mask in present])


class SquaredGradients:
    """Sums of squared gradients for the elements of some parameters.

    Child-Tuning and RoAST divide the sum by the number of batches; what they do with it, ranks and quantiles, does
    not change by that, so it is left out.
    """

    def __init__(self, parameters: Sequence[nn.Parameter], loss_scale: LossScale | None = None) -> None:
        self._parameters = list(parameters)
        self._loss_scale = loss_scale
        self.sums = flat_like(parts(self._parameters))

    def add(self, gradients: Sequence[Tensor | None], factor: Tensor | None = None) -> None:
        """Add the squares of `factor` times the gradients, one a parameter; a missing gradient is zero."""
        known = [(piece, part(g)) for piece, g in zip(self.sums.pieces, gradients, strict=True) if g is not None]
        if not known:
            return
        pieces, found = map(list, zip(*known, strict=True))
        if factor is not None:
            found = list(torch._foreach_mul(found, factor))
        torch._foreach_addcmul_(pieces, found, found)

    def add_pass(
        self, call: Call, model: nn.Module, steps: Iterable[Sequence[Batch]], clip_each_norm: float | None = None
    ) -> None:
        """One pass over the data with the task's loss; each optimiser step counts with the square of its gradient.

        `clip_each_norm` clips every parameter's gradient on its own. With several processes a step has the batches
        of all of them. A step with NaN or infinity does not count: it would be all that counts.
        """
        left_out = 0
        for batches in steps:
            gradients = self._mean_gradients(call, model, batches)
            average_(gradients)
            if not stacked_norms(gradients).isfinite().all():
                left_out += 1
                continue
            self.add(gradients if clip_each_norm is None else _each_clipped(gradients, clip_each_norm))
        if left_out:
            warnings.warn(f"NaN or infinity in {left_out} steps of the pass before training: left out", stacklevel=2)

    def _mean_gradients(self, call: Call, model: nn.Module, batches: Sequence[Batch]) -> list[Tensor]:
        """This process's share of the gradients of the mean over all predictions of a step."""
        total: list[Tensor] = []
        count = torch.zeros((), dtype=torch.float64, device=self._parameters[0].device)
        trainable = [p for p in model.parameters() if p.requires_grad]
        for batch in batches:
            # The bare model: a wrapper for several processes would wait for a backward that never comes.
            output = call(batch, model)
            loss = output.loss * output.prediction_count()
            found = slopes(loss, self._parameters, self._loss_scale, trainable)
            total = list(torch._foreach_add(total, found)) if total else found
            count += output.prediction_count()
        average_([count])
        return list(torch._foreach_div(total, max(count.item(), 1.0)))


def _each_clipped(gradients: list[Tensor], limit: float) -> list[Tensor]:
    """What torch.nn.utils.clip_grad_norm_ does to a single tensor, for each of them."""
    factors = (limit / (stacked_norms(gradients) + 1e-6)).clamp(max=1.0)
    return list(torch._foreach_mul(parts(gradients), list(factors.unbind())))


_WRAPPED = re.compile(r"\.(base_layer|modules_to_save\.[^.]+)(?=\.)")


def pretrained_names(model: nn.Module) -> list[str]:
    """Trainable parameters of the base model: everything but the task's head, which starts from random numbers.

    The factors of a LoRA adapter are left out: only their product, which starts from 0, has a pre-trained value.
    """
    below = encoder(model)
    inside = {id(parameter) for parameter in (model if below is None else below).parameters()}
    factors = {name for change in low_rank_changes(model) for name in change.factors}
    trainable = [(name, p) for name, p in model.named_parameters() if p.requires_grad and not is_attached(name)]
    return [name for name, p in trainable if id(p) in inside and name not in factors]


def values_in(model: nn.Module, origin: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The values of the encoder's parameters in another encoder, by their names here; what that lacks is left out."""
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    below = encoder(model)
    found: dict[str, Tensor] = {}
    for inner, parameter in (model if below is None else below).named_parameters():
        # PEFT puts layers of its own around some, and keeps the original of a module that it trains as a whole.
        key = _WRAPPED.sub("", inner)
        if key not in origin or ".original_module." in inner:
            continue
        if origin[key].shape != parameter.shape:
            raise RunError(
                f"the pre-trained model does not fit the model that is trained: {key} has the shape "
                f"{tuple(origin[key].shape)} there and {tuple(parameter.shape)} here. Name the model that this one was "
                "fine-tuned from"
            )
        device = "cpu" if parameter.is_meta else parameter.device
        found[names[id(parameter)]] = origin[key].detach().to(device, parameter.dtype)
    if not found:
        raise RunError(
            "the pre-trained model has no weight in common with the model that is trained: name the model that this "
            "one was fine-tuned from"
        )
    return found


def linear_weight_names(model: nn.Module, names: Sequence[str] | None = None) -> dict[str, int]:
    """Those of the pre-trained parameters that are weights of linear layers, and which of their axes is the input.

    `names` are the parameters to choose from, all trainable ones of the base model by default.
    """
    # GPT-2 calls its linear layers Conv1D and stores their weights as (in, out).
    layers = {f"{n}.weight": 0 if isinstance(m, Conv1D) else 1 for n, m in model.named_modules() if _is_linear(m)}
    return {name: layers[name] for name in (pretrained_names(model) if names is None else names) if name in layers}


def _is_linear(module: nn.Module) -> bool:
    return isinstance(module, nn.Linear | Conv1D)


class PretrainedTether(Tether):
    """Knows some parameters and their pre-trained values; a factor of a LoRA adapter has the value 0.

    The values are not part of a checkpoint, because a run that resumes loads the same pre-trained model again;
    their norms are, and those of the weights below a LoRA adapter, so that another model is noticed.
    """

    def __init__(self, run: Run, names: list[str]) -> None:
        self.names = names
        parameters = dict(run.model.named_parameters())
        self.parameters = [parameters[name] for name in names]
        changes = low_rank_changes(run.model)
        factors = {name for change in changes for name in change.factors}
        values = {**run.frozen, **run.pretrained}
        self.pretrained = [
            torch.zeros_like(p) if name in factors else divided(values[name], p)
            for name, p in zip(names, self.parameters, strict=True)
        ]
        below = [parameters[change.base].detach() for change in changes if change.base in parameters]
        # Quantised weights have no norm.
        self._known = self.pretrained + [w for w in (*below, *run.frozen.values()) if w.is_floating_point()]

    def state_dict(self) -> dict[str, Tensor]:
        return {"pretrained_norms": self._norms()}

    def _norms(self) -> Tensor:
        return stacked_norms(self._known) if self._known else torch.zeros(0)

    def load_state_dict(self, state: Mapping[str, Tensor]) -> None:
        saved, found = state["pretrained_norms"], self._norms()
        if saved.shape != found.shape or not torch.allclose(saved, found, rtol=1e-4):
            raise RunError(
                "the checkpoint belongs to a run that started from other pre-trained weights: resume with a trainer "
                "that is given the same pre-trained model as the first time, not the checkpoint's"
            )


class LentWeights:
    """Lends a model other values for some of its parameters, so that a teacher needs no body of its own."""

    def __init__(self, model: nn.Module, parameters: Sequence[Tensor]) -> None:
        self._model, self._parameters = model, list(parameters)
        self._modules = list(model.modules())  # walking through a model takes milliseconds

    @contextmanager
    def lent(self, values: Sequence[Tensor], training: bool = False) -> Iterator[None]:
        """Inside, the parameters have these values, and dropout is on only while `training`; then all is as before."""
        modes = [module.training for module in self._modules]
        self._model.train(training)
        try:
            with replaced(self._model, self._parameters, parts(values)):
                yield
        finally:
            for module, mode in zip(self._modules, modes, strict=True):
                module.training = mode


def attach(model: nn.Module, modules: Mapping[str, nn.Module]) -> None:
    """Make modules parts of the model, by the names of their owners."""
    for owner, module in modules.items():
        model.add_module(f"{ATTACHED}{owner}", module)


def detach(model: nn.Module) -> None:
    """Give the model back without any of them."""
    for name in [name for name, _ in model.named_children() if is_attached(name)]:
        delattr(model, name)


def attached(model: nn.Module, owner: str) -> nn.Module:
    """The module that `attach` was given for this owner."""
    return model.get_submodule(f"{ATTACHED}{owner}")
