"""Certificates of smoothed models: how many words may change before the label of most copies can.

The procedure is that of Cohen et al. (2019): some copies of a text choose a label, other copies bound from below, by
Clopper and Pearson, the share of all copies that have it. Where that bound is above 1/2, the theorem of the noise says
how many words may change; elsewhere there is no answer. A certificate is about the vote over all copies that could be
drawn. It is wrong for a text with probability 1 - confidence at most.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import numpy as np
from scipy.stats import beta
from tqdm import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rosewood.defences.runner.copies import TextNoise, generator, words_of
from rosewood.defences.smoothed import USUAL, Smoothed
from rosewood.errors import RunError
from rosewood.models.defended import Defended, Material, scored
from rosewood.models.modes import evaluating
from rosewood.models.names import model_fingerprint
from rosewood.models.scoring import Row, Scorer, text_length
from rosewood.results.attack import Certificate, CertifiedExample
from rosewood.results.files import fingerprint_of
from rosewood.results.work_folder import RowJournal
from rosewood.words.lexicon import Lexicon

FILE = "certificate.json"


def lower_bound(votes: int, copies: int, confidence: float) -> float:
    """The one-sided bound of Clopper and Pearson: with this confidence, the true share is at least that."""
    return float(beta.ppf(1 - confidence, votes, copies - votes + 1)) if votes else 0.0


def certified(
    row: int, texts: Row, label: int, guess: int, votes: int, copies: int, confidence: float, noise: TextNoise
) -> CertifiedExample:
    """What follows from the votes of some copies for the label that other copies chose."""
    lower = lower_bound(votes, copies, confidence)
    is_certain = lower > 0.5
    return CertifiedExample(
        row=row,
        label=label,
        prediction=guess if is_certain else None,
        words=sum(map(len, words_of(texts))),
        votes=votes,
        lower=lower,
        radii={str(kind): radius for kind, radius in noise.radii(texts, lower).items()} if is_certain else {},
    )


def certify(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    texts: Sequence[str | Row],
    labels: Sequence[int],
    by: Literal["mask", "delete", "substitute"] = "mask",
    *,
    share: float | None = None,
    copies: int = 1000,
    selection_copies: int = 100,
    confidence: float = 0.999,
    lexicon: Lexicon | None = None,
    seed: int = 0,
    max_length: int | None = None,
    batch_size: int = 64,
    output: str | Path | None = None,
    task: str | None = None,
    split: str | None = None,
    progress: bool = True,
) -> Certificate:
    """Certify how many words of each text may change without changing the answer of the smoothed model.

    Args:
        model: A classifier; of one that `rosewood.wrap` made, the classifier inside.
        tokenizer: Its tokenizer.
        texts: Texts, or pairs of them, whose words count together.
        labels: The right answers, as numbers of the model's outputs.
        by: How copies are changed: words masked, deleted or replaced by synonyms.
        share: Of the words that are masked, deleted or drawn again; 0.3, 0.3 and 1 if None.
        copies: How many a bound is computed from; more give larger radii.
        selection_copies: How many others choose the label.
        confidence: Of each text's certificate.
        lexicon: The synonyms, for `substitute`.
        seed: Of the copies; each text has its own.
        max_length: After how many tokens the classifier cuts a copy; what the tokenizer says if None.
        batch_size: Copies that are read at a time.
        output: A folder for certificate.json. A certification that was stopped goes on there.
        task: For the record, the name of the task.
        split: For the record, the split of the task.
        progress: Whether a terminal shows a bar.

    Returns:
        The certificate of every text, and certified accuracies.

    Raises:
        RunError: A setting is out of its range, or the folder holds another certification.

    Example:
        >>> found = certify(model, tokenizer, ["a fine film"], [1], copies=20, selection_copies=5, progress=False)
        >>> len(found.examples)
        1
    """
    if isinstance(model, Defended):
        inside = model.base()
        model, tokenizer = inside.model, inside.tokenizer
    if not texts or len(texts) != len(labels):
        raise RunError(f"expected as many texts as labels, and one at least; got {len(texts)} and {len(labels)}")
    if min(copies, selection_copies) < 1 or not 0 < confidence < 1:
        raise RunError(
            "expected copies and selection_copies of at least 1 and a confidence between 0 and 1, got "
            f"{copies}, {selection_copies} and {confidence}"
        )
    began = time.monotonic()
    base = Scorer(model, tokenizer, max_length or text_length(model, tokenizer), batch_size)
    settings = Smoothed(by=by, share=share)
    entries = None if lexicon is None else lexicon.entries
    if by == "substitute" and not entries:
        raise RunError(settings.needs()["substitutes"])
    noise = settings.noise(settings.learn(base, Material(substitutes=entries)))
    rows = [(text,) if isinstance(text, str) else tuple(text) for text in texts]
    facts = {
        "by": by,
        "share": USUAL[by] if share is None else share,
        "copies": copies,
        "selection_copies": selection_copies,
        "confidence": confidence,
        "seed": seed,
        "max_length": base.max_length,
        "task": task,
        "split": split,
    }
    decides = [facts, rows, list(labels), lexicon and lexicon.fingerprint, model_fingerprint(model, tokenizer)]
    fingerprint = fingerprint_of(decides)
    file = None if output is None else Path(output) / FILE
    if (finished := Certificate.finished(file, fingerprint)) is not None:
        return finished
    journal = RowJournal(file, fingerprint)
    done = journal.begin()
    with evaluating(model):
        for row, own in tqdm(list(enumerate(rows)), desc="certify", unit="text", disable=None if progress else True):
            if row not in done:
                done[row] = [float(each) for each in _votes(own, noise, base, copies, selection_copies, seed)]
                journal.append(row, done[row])
    found = Certificate(
        model=model.name_or_path or type(model).__name__,
        fingerprint=fingerprint,
        seconds=time.monotonic() - began,
        examples=[
            certified(row, own, label, int(done[row][0]), int(done[row][1]), copies, confidence, noise)
            for row, (own, label) in enumerate(zip(rows, labels, strict=True))
        ],
        **facts,  # type: ignore[arg-type]
    )
    if file is not None:
        found.save(file)
        journal.remove()
    return found


def _votes(
    row: Row, noise: TextNoise, base: Scorer, copies: int, selection_copies: int, seed: int
) -> tuple[np.intp, np.intp]:
    """The label that some copies choose, and the votes of the others for it."""
    drawn = noise.copies(row, selection_copies + copies, generator(seed, row, "certify"))
    voted = scored(drawn, base).argmax(axis=1)
    guess = np.bincount(voted[:selection_copies], minlength=base.classes).argmax()
    return guess, (voted[selection_copies:] == guess).sum()
