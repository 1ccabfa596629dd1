"""Which numbers among a model's outputs are predictions, so that no other part asks what the task is."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers.loss.loss_utils import ForCausalLMLoss

from rosewood.models.sites import real_tokens
from rosewood.protocol import Batch, Output

IGNORED = -100  # the label of what a loss does not count, as everywhere in PyTorch and transformers


class Predictions:
    """Reads the outputs of one model; the labels of a batch say what kind of task it is.

    - One label an example: every example is a prediction.
    - One label a token (token classification, masked and causal language models, decoders): every token whose label is
      not -100 is one. In a causal language model position t predicts label t + 1.
    - A number for each of several labels (multi-label classification): every example is a prediction, of as many
      independent yes-or-no distributions as there are labels.

    The model's own loss is a mean over the same predictions.
    """

    def __init__(self, model: nn.Module) -> None:
        self._model = model
        # Labels of a decoder belong to its own tokens, and the padding of the input says nothing about them.
        self._beside_input = not getattr(getattr(model, "config", None), "is_encoder_decoder", False)

    @cached_property
    def _ahead(self) -> bool:
        """Whether each position predicts the label of the next one."""
        return self._beside_input and getattr(self._model, "loss_function", None) is ForCausalLMLoss

    def of(self, loss: Tensor, logits: Tensor, batch: Batch) -> Output:
        """What a pass over the batch has predicted."""
        labels = batch.get("labels")
        if labels is None or logits is None:
            return Output(loss, logits)
        if labels.is_floating_point() and labels.shape == logits.shape:
            # sigmoid(z) is the first of softmax(z, 0).
            return Output(loss, torch.stack([logits, torch.zeros_like(logits)], dim=-1))
        if labels.dim() == 1 or labels.dim() != logits.dim() - 1:
            return Output(loss, logits)
        counted = self._counted(labels)
        # The mean over no token at all is not a number; such a batch adds nothing.
        loss = torch.where(counted.any(), loss, torch.zeros_like(loss))
        return Output(loss, logits, counted, real_tokens(batch) if self._beside_input else torch.ones_like(counted))

    def count(self, batch: Batch) -> Tensor:
        """How many predictions the loss of this batch is a mean over."""
        labels = batch.get("labels")
        if labels is None or labels.is_floating_point() or labels.dim() == 1:
            return torch.tensor(len(next(iter(batch.values()))))
        return self._counted(labels).sum()

    def _counted(self, labels: Tensor) -> Tensor:
        """True where a position's prediction is compared with a label, `(batch, tokens)`."""
        counts = labels != IGNORED
        return functional.pad(counts[:, 1:], (0, 1)) if self._ahead else counts
