"""A vote over copies of a text that are changed at random: what an attacker changed is missing from many of them.

Copies have masked words (RanMASK, Zeng et al. 2021), deleted words (CERT-ED, Huang et al. 2024), words replaced by
synonyms (SAFER, Ye et al. 2020), or the network's own dropout. The label of most copies is the answer, or that of the
highest mean probability. Copies are drawn from the seed and the text alone, so the same text gets the same answer in
any batch. A network that never saw such copies loses accuracy on them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import torch
from pydantic import Field
from scipy.special import log_softmax, logsumexp
from torch import nn

from rosewood.defences.runner.copies import DeleteNoise, MaskNoise, SubstituteNoise, TextNoise, generator
from rosewood.errors import RunError
from rosewood.models.defended import Defence, Floats, Learnt, Material, Shield, scored
from rosewood.models.modes import DropoutSetting, dropout_sites, has_dropout
from rosewood.models.scoring import Row, Scorer
from rosewood.tensors.draws import forked
from rosewood.words.text import mask_of

USUAL = {"mask": 0.3, "delete": 0.3, "substitute": 1.0}


@dataclass(frozen=True)
class Smoothed(Defence):
    """A vote over copies of the text with masked, deleted or replaced words, or over passes with dropout."""

    by: Literal["mask", "delete", "substitute", "dropout"] = "mask"
    copies: Annotated[int, Field(ge=1)] = 50
    share: Annotated[float, Field(gt=0, le=1)] | None = None
    """The share of words that are masked, deleted or drawn again, or of units that dropout drops. None: 0.3 of the
    words are masked or deleted, or all are drawn again; dropout is that of the training."""
    combine: Literal["majority", "mean"] = "majority"
    """The label of most copies, which certificates are about, or that of the highest mean probability."""
    seed: Annotated[int, Field(ge=0)] = 0

    def needs(self) -> dict[str, str]:
        if self.by != "substitute":
            return {}
        return {"substitutes": "copies with replaced words need a lexicon: name one with --lexicon"}

    def learn(self, base: Scorer, material: Material) -> Learnt:
        if self.by == "mask":
            return {"mask": mask_of(base.tokenizer, "take copies with deleted words, smoothed:delete")}
        if self.by == "dropout" and not has_dropout(base.model) and self.share is None:
            raise RunError("the model was trained without dropout: say how much to drop with --set share=0.1")
        return {} if self.by != "substitute" else {"substitutes": material.substitutes}

    def noise(self, learnt: Learnt) -> TextNoise:
        """How the words of copies are changed."""
        share = USUAL[self.by] if self.share is None else self.share
        if self.by == "mask":
            return MaskNoise(share, learnt["mask"])
        return DeleteNoise(share) if self.by == "delete" else SubstituteNoise(share, learnt["substitutes"])

    def start(self, learnt: Learnt) -> Shield:
        return Dropping(self) if self.by == "dropout" else Voting(self, self.noise(learnt))

    def forwards(self) -> float:
        return float(self.copies)

    def combined(self, logits: Floats) -> Floats:
        """One answer from those of all copies, `(..., copies, classes)` -> `(..., classes)`."""
        copies, classes = logits.shape[-2:]
        if self.combine == "mean":
            # As logarithms: the probabilities of a sure network are 0 and 1 to the last digit.
            return np.asarray(logsumexp(log_softmax(logits, axis=-1), axis=-2) - np.log(copies))
        votes = (logits.argmax(axis=-1)[..., None] == np.arange(classes)).sum(axis=-2)
        return np.asarray(np.log((votes + 0.5) / (copies + 0.5 * classes)))


class Voting(Shield):
    """Copies of texts with changed words; equal copies are read once."""

    def __init__(self, settings: Smoothed, noise: TextNoise) -> None:
        self.settings, self.noise = settings, noise

    def logits(self, rows: Sequence[Row], base: Scorer) -> Floats:
        count, seed = self.settings.copies, self.settings.seed
        copies = [copy for row in rows for copy in self.noise.copies(row, count, generator(seed, row))]
        return self.settings.combined(scored(copies, base).reshape(len(rows), count, base.classes))


class Dropping(Shield):
    """Passes over the same text with dropout, a text at a time: its random numbers then depend on nothing else."""

    def __init__(self, settings: Smoothed) -> None:
        self.settings = settings

    def logits(self, rows: Sequence[Row], base: Scorer) -> Floats:
        count, device = self.settings.copies, base.model.device
        found = np.empty((len(rows), count, base.classes))
        with dropping(base.model, self.settings.share), forked(device):
            for place, row in enumerate(rows):
                torch.manual_seed(int(generator(self.settings.seed, row).integers(2**63)))
                for batch in base.batches([row] * count):
                    found[place, batch.rows] = batch.logits
        return self.settings.combined(found)


@contextmanager
def dropping(model: nn.Module, share: float | None) -> Iterator[None]:
    """Inside, the dropout of a model works, and nothing else of training mode."""
    before = [(module, module.training) for module, _ in dropout_sites(model)]
    setting = None if share is None else DropoutSetting(model, share)
    try:
        for module, _ in before:
            module.training = True  # of this module alone, not of those inside
        yield
    finally:
        for module, training in before:
            module.training = training
        if setting is not None:
            setting.undo()
