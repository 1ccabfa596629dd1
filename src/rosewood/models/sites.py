"""Where a perturbation reaches into a model: the word embeddings, the encoder's input, every feed-forward output.

One implementation serves every architecture that keeps its layers in an nn.ModuleList. Whatever is changed here is
also changed when gradient checkpointing runs a layer again, long after the context manager was left.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any, Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.modules.dropout import _DropoutNd
from torch.overrides import TorchFunctionMode
from torch.utils.hooks import RemovableHandle
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.pytorch_utils import Conv1D

from rosewood.errors import RunError
from rosewood.models.adapters import virtual_token_problems
from rosewood.models.parameters import block_prefixes
from rosewood.protocol import Batch
from rosewood.tensors.draws import forked
from rosewood.tensors.shards import break_off

Change = Callable[[Tensor], Tensor]  # (batch, tokens, hidden) -> the same
LayerChange = Callable[[int, Tensor, Tensor], Tensor]  # layer, output, attention (batch, heads, queries, keys)
Place = Literal["encoder", "words"]


def real_tokens(batch: Batch) -> Tensor:
    """True where a token is not padding, `(batch, tokens)`."""
    mask = batch.get("attention_mask")
    return torch.ones_like(batch["input_ids"], dtype=torch.bool) if mask is None else mask.bool()


def word_embedding(model: nn.Module) -> nn.Module:
    """The word embedding of the part that reads the input: the encoder's in an encoder-decoder model."""
    reader: Any = model
    if getattr(getattr(model, "config", None), "is_encoder_decoder", False):
        reader = reader.get_encoder()
    named: nn.Module = reader.get_input_embeddings()
    # T5 names a module that it never calls; the encoder has its own with the same weights.
    inside = _owner(model).modules() if block_prefixes(model) else ()
    return next((module for module in inside if getattr(module, "weight", None) is named.weight), named)


def _weight(module: nn.Module) -> Tensor:
    assert isinstance(module.weight, Tensor)
    return module.weight


def encoder_blocks(model: nn.Module) -> nn.ModuleList:
    """The repeated blocks of the part that reads the input."""
    blocks = model.get_submodule(block_prefixes(model)[0].removesuffix("."))
    assert isinstance(blocks, nn.ModuleList)
    return blocks


def _owner(model: nn.Module) -> nn.Module:
    """The module around the repeated blocks."""
    return model.get_submodule(block_prefixes(model)[0].removesuffix(".").rpartition(".")[0])


def site_problems(model: nn.Module, place: Place, user: str) -> list[str]:
    """Sentences that say why `user` cannot reach a place of the model; none if it can."""
    name = type(model).__name__
    try:
        word_embedding(model)
    except (AttributeError, NotImplementedError):
        return [f"{user} changes embeddings, and {name} has no get_input_embeddings() that would say where they are"]
    if place == "encoder" and not block_prefixes(model):
        return [
            f"{user} changes the encoder's input, and {name} has no repeated blocks (an nn.ModuleList) that would say "
            "where it is: choose a perturbation of the word embeddings (at=words)"
        ]
    return virtual_token_problems(model, user)


class Site:
    """A place of a model where each token has a vector.

    `words` are the word vectors, before positions are added, where a forward first looks them up. `encoder` is the
    input of the encoder: words and positions, normalised and dropped out. That is what the module around the blocks
    is given, or, if that one looks up the words itself (GPT-2, Llama, T5, XLNet, ModernBERT), the first block.
    """

    def __init__(self, place: Place, model: nn.Module) -> None:
        # Walking through a model takes milliseconds, so everything is looked up once.
        self._model, self._flip = model, _flipper(model)
        self._words = word_embedding(model)
        self._entrance: nn.Module | None = None
        if place == "encoder":
            owner = _owner(model)
            self._entrance = encoder_blocks(model)[0] if self._words in set(owner.modules()) else owner

    @property
    def dtype(self) -> torch.dtype:
        return _weight(self._words).dtype

    @property
    def width(self) -> int:
        """The size of the vectors; for the encoder's input, the model runs up to there on one made-up token."""
        if self._entrance is None:
            return _weight(self._words).shape[-1]
        device = next(self._model.parameters()).device
        token = torch.zeros(1, 1, dtype=torch.long, device=device)
        with torch.no_grad(), forked(device):
            return self.reached(lambda: self._model(input_ids=token)).shape[-1]

    def reached(self, forward: Callable[[], Any]) -> Tensor:
        """What a forward of the model computes here; it goes no further."""
        try:
            with self.changed(_stop):
                forward()
        except _Arrived as arrived:
            break_off(self._model)
            return arrived.hidden
        raise RunError(f"{type(self._model).__name__} never reaches the place where its encoder's input should be")

    @contextmanager
    def changed(self, change: Change) -> Iterator[None]:
        """Inside, what the model computes here is replaced by `change` of it, once per forward."""
        first = _FirstCall()

        def changed(hidden: Tensor) -> Tensor:
            return self._flip(change(self._flip(hidden)))

        def words(module: nn.Module, args: Any, output: Tensor) -> Tensor:
            return changed(output) if first.now() else output

        def encoder(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            if args:
                return function(changed(args[0]), *args[1:], **kwargs)
            return function(**kwargs | {"hidden_states": changed(kwargs["hidden_states"])})

        with _uncompiled(), _hooked(self._model.register_forward_pre_hook(first.begin)):
            if self._entrance is None:
                with _hooked(self._words.register_forward_hook(words)):
                    yield
            else:
                with _within(self._entrance, lambda: encoder if first.now() else _plainly):
                    yield


class FeedForwards:
    """The outputs of the feed-forward networks of all layers, before residual and norm.

    Attention weights are seen only with eager attention: `model.set_attn_implementation("eager")` comes first.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model, self._flip = model, _flipper(model)
        found = [(block, _feed_forward(model, block)) for block in encoder_blocks(model)]
        self._networks = [(block, network) for block, network in found if network is not None]

    @contextmanager
    def changed(self, change: LayerChange) -> Iterator[None]:
        """Inside, each output is replaced by `change` of it, and the dropout that would follow is skipped.

        `change` gets the number of the layer, the output, and that layer's attention weights before their dropout.
        """
        layer = _Counter()

        def begin(network: _FeedForward) -> Runner:
            return partial(_ffn_changed, network, self._flip, partial(change, layer.next()))

        with _uncompiled(), ExitStack() as stack:
            stack.enter_context(_hooked(self._model.register_forward_pre_hook(layer.begin)))
            for block, network in self._networks:
                stack.enter_context(_within(block, partial(begin, network)))
            yield


def ffn_problems(model: nn.Module, user: str) -> list[str]:
    """Sentences that say why `FeedForwards` cannot change this model; none if it can."""
    name = type(model).__name__
    if not block_prefixes(model):
        return [f"{user} changes every layer, and {name} has no repeated blocks (an nn.ModuleList)"]
    if not hasattr(model, "set_attn_implementation"):
        return [f"{user} reads attention weights, and {name} is not a transformers model that can return them"]
    if any(_feed_forward(model, block) is None for block in encoder_blocks(model)):
        return [
            f"{user} changes the output of each layer's feed-forward network, and the layers of {name} have no linear "
            "module that leads from another size back to the hidden size"
        ]
    return virtual_token_problems(model, user)


def _stop(hidden: Tensor) -> Tensor:
    raise _Arrived(hidden)


class _Arrived(Exception):  # noqa: N818 - no error: the forward has gone as far as it was meant to
    def __init__(self, hidden: Tensor) -> None:
        self.hidden = hidden


Runner = Callable[..., Any]  # takes the function of a block and its arguments, and runs it


@contextmanager
def _within(block: nn.Module, begin: Callable[[], Runner]) -> Iterator[None]:
    """Run every call of a module through the runner that `begin` gives for it.

    A checkpointed block is repeated in the backward pass, when nothing of this is in place any more; so the runner
    becomes part of the function that the checkpoint keeps, and only `begin` is called once.
    """
    checkpointed = isinstance(block, GradientCheckpointingLayer) and block.gradient_checkpointing and block.training
    name = "_gradient_checkpointing_func" if checkpointed else "forward"
    own, original = name in vars(block), getattr(block, name)

    def checkpoint(function: Callable[..., Any], *args: Any) -> Any:
        return original(partial(begin(), function), *args)

    def forward(*args: Any, **kwargs: Any) -> Any:
        return begin()(original, *args, **kwargs)

    setattr(block, name, checkpoint if checkpointed else forward)
    try:
        yield
    finally:
        delattr(block, name)
        if own:
            setattr(block, name, original)


def _plainly(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return function(*args, **kwargs)


class _FeedForward(NamedTuple):
    """The module that ends a feed-forward network, and the dropouts of which one may follow."""

    projection: nn.Module
    dropouts: list[nn.Module]


def _feed_forward(model: nn.Module, block: nn.Module) -> _FeedForward | None:
    """The last linear module of a block that leads from another size to the hidden size, as modules are defined."""
    hidden = model.config.hidden_size  # type: ignore[union-attr]
    last = None
    for name, module, linear in _linear_modules(block):
        sizes = linear.weight.shape if isinstance(linear, Conv1D) else linear.weight.shape[::-1]
        last = (name, module) if sizes[1] == hidden and sizes[0] != hidden else last
    if last is None:
        return None
    around = [block]
    for part in last[0].split(".")[:-1]:
        around.append(around[-1].get_submodule(part))
    dropouts = [child for parent in around for child in parent.children() if isinstance(child, _DropoutNd)]
    return _FeedForward(last[1], list(dict.fromkeys(dropouts)))


def _linear_modules(block: nn.Module) -> Iterator[tuple[str, nn.Module, nn.Linear | Conv1D]]:
    """Name, module and linear layer; the two differ where an adapter wraps a layer and adds to its output."""
    around: list[str] = []
    for name, module in block.named_modules():
        linear = getattr(module, "base_layer", module)
        if isinstance(linear, nn.Linear | Conv1D) and not any(name.startswith(prefix) for prefix in around):
            yield name, module, linear
            around += [f"{name}."] if linear is not module else []


def _ffn_changed(
    network: _FeedForward,
    flip: Change,
    change: Callable[[Tensor, Tensor], Tensor],
    function: Callable[..., Any],
    *args: Any,
    **kwargs: Any,
) -> Any:
    """Run a block with the output of its feed-forward network changed and the dropout after that left out."""
    attention = _Attention()
    follows = False

    def replace(module: nn.Module, inputs: Any, output: Tensor) -> Tensor:
        nonlocal follows
        follows = True
        return flip(change(flip(output), attention.weights))

    def skip(module: nn.Module, inputs: tuple[Tensor], output: Tensor) -> Tensor:
        nonlocal follows
        follows, skipped = False, follows
        return inputs[0] if skipped else output

    hooks = [dropout.register_forward_hook(skip) for dropout in network.dropouts]
    with attention, _hooked(network.projection.register_forward_hook(replace), *hooks):
        return function(*args, **kwargs)


class _Attention(TorchFunctionMode):
    """Sees the attention weights of a layer where they are made: by its only softmax, before any dropout.

    What attention modules return differs by architecture, and has gone through dropout.
    """

    def __init__(self) -> None:
        super().__init__()
        self._weights: Tensor | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "") == "softmax":
            self._weights = result.detach()
        return result

    @property
    def weights(self) -> Tensor:
        if self._weights is None:
            raise RunError(
                "a layer has shown no attention weights before its feed-forward network: it needs eager attention, "
                'model.set_attn_implementation("eager")'
            )
        return self._weights


class _FirstCall:
    """Whether something happens for the first time in a forward of the model."""

    def __init__(self) -> None:
        self._seen = False

    def begin(self, *_: Any) -> None:
        self._seen = False

    def now(self) -> bool:
        seen, self._seen = self._seen, True
        return not seen


class _Counter:
    """Counts the layers of a forward; a block that is shared by several layers (ALBERT) is counted every time."""

    def __init__(self) -> None:
        self._done = 0

    def begin(self, *_: Any) -> None:
        self._done = 0

    def next(self) -> int:
        self._done += 1
        return self._done - 1


def _flipper(model: nn.Module) -> Change:
    """Swaps the first two axes where an architecture has (tokens, batch, hidden) inside."""
    tokens_first = getattr(getattr(model, "config", None), "model_type", "") == "xlnet"
    return (lambda hidden: hidden.transpose(0, 1)) if tokens_first else (lambda hidden: hidden)


def _uncompiled() -> AbstractContextManager[None]:
    """Inside, torch.compile is off: what was compiled before does not notice a hook that comes later."""
    return torch.compiler.set_stance("force_eager")


@contextmanager
def _hooked(*hooks: RemovableHandle) -> Iterator[None]:
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()
