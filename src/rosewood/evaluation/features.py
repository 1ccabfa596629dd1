"""What the last layer of a classifier sees: the features from which it tells the classes."""

from __future__ import annotations

from types import TracebackType
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from transformers import PreTrainedModel

from rosewood.errors import RunError


class HeadInputs:
    """Records the input of the model's last linear layer in every forward pass; one vector an example.

    Decoders score every token, and predict with the last one that is no padding: so it is with their features.
    """

    def __init__(self, model: PreTrainedModel, active: bool = True) -> None:
        self._model = model
        self._active = active
        self._hooks: list[torch.utils.hooks.RemovableHandle] = []
        self._input: Tensor | None = None
        self._mask: Tensor | None = None

    def __enter__(self) -> HeadInputs:
        if self._active:
            layer = output_layer(self._model)
            self._hooks = [
                self._model.register_forward_pre_hook(self._see_batch, with_kwargs=True),
                layer.register_forward_pre_hook(self._see_features),
            ]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for hook in self._hooks:
            hook.remove()

    def latest(self) -> NDArray[np.float32]:
        """The features of the batch that was run last, `(batch, dimensions)`."""
        assert self._input is not None, "no batch has been run"
        found = self._input
        if found.dim() == 3:
            assert self._mask is not None, "the tokenizer gives an attention mask"
            positions = torch.arange(found.shape[1], device=found.device)
            last = (self._mask.to(found.device) * positions).argmax(dim=1)
            found = found[torch.arange(len(found), device=found.device), last]
        array: NDArray[np.float32] = found.float().cpu().numpy()
        return array

    def _see_batch(self, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self._mask = kwargs.get("attention_mask")

    def _see_features(self, module: nn.Module, args: tuple[Tensor, ...]) -> None:
        self._input = args[0].detach()


def output_layer(model: PreTrainedModel) -> nn.Linear:
    """The last linear layer with as many outputs as the model has labels."""
    fitting = [
        module
        for module in model.modules()
        if isinstance(module, nn.Linear) and module.out_features == model.config.num_labels
    ]
    if not fitting:
        raise RunError(
            f"{type(model).__name__} has no linear layer with {model.config.num_labels} outputs, so its features are "
            "not known, which Mahalanobis scores of anomalies need."
        )
    return fitting[-1]
