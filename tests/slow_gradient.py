"""The gradient attack: one example, one text and one edit at a time, plain loops, no engine."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from random import Random

import numpy as np
import torch
from transformers import BertForSequenceClassification, PreTrainedTokenizerBase

from rosewood.words import noise
from slow_attacks import Logits

Slope = Callable[[list[str], int, str], float]
Edit = tuple[int, str]
Words = Sequence[str]


def slope_of(model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerBase, label: int) -> Slope:
    """What a word in some place would add to the margin of a text of words between spaces, to first order."""

    @cache
    def vectors_and_gradient(*words: str) -> tuple[torch.Tensor, torch.Tensor, list[list[int]]]:
        model.eval()
        pieces = [tokenizer(word, add_special_tokens=False)["input_ids"] for word in words]
        ids = [tokenizer.cls_token_id, *(i for piece in pieces for i in piece), tokenizer.sep_token_id]
        vectors = model.get_input_embeddings().weight[ids].detach().requires_grad_()
        logits = model(inputs_embeds=vectors[None]).logits[0]
        (logits[label] - max(logits[i] for i in range(len(logits)) if i != label)).backward()
        assert vectors.grad is not None
        return vectors.detach(), vectors.grad, pieces

    def slope(words: list[str], at: int, other: str) -> float:
        vectors, gradient, pieces = vectors_and_gradient(*words)
        start, count = 1 + sum(len(piece) for piece in pieces[:at]), len(pieces[at])
        new = model.get_input_embeddings().weight[tokenizer(other, add_special_tokens=False)["input_ids"]].detach()
        # Each new token as often as the word has tokens, then as many in a row for each place as there are new ones.
        fine = new.repeat_interleave(count, dim=0).reshape(count, len(new), -1).mean(dim=1)
        places = slice(start, start + count)
        return float(((fine - vectors[places]) * gradient[places]).sum())

    return slope


def believed(
    words: Words, edits: list[Edit], slopes: list[float], asked: dict[tuple[str, ...], float]
) -> list[tuple[float, float]]:
    """Mean and spread of the effect of each edit: ridge regression around the slopes, by its normal equations."""
    spreads = []
    for (i, _), slope in zip(edits, slopes, strict=True):
        own = [other for (at, _), other in zip(edits, slopes, strict=True) if at == i]
        spreads.append(0.3 + 0.5 * abs(slope) + (sum(other**2 for other in own) / len(own)) ** 0.5)
    precision = np.diag([1 / spread**2 for spread in spreads])
    right = precision @ np.array(slopes)
    for text, change in asked.items():
        row = np.array([float(text[i] == other != words[i]) for i, other in edits])
        precision += np.outer(row, row) / 0.5**2
        right += row * change / 0.5**2
    covariance = np.linalg.inv(precision)
    return list(zip(covariance @ right, np.diag(covariance) ** 0.5, strict=True))


def with_edits(words: Words, edits: list[Edit]) -> tuple[str, ...]:
    changed = list(words)
    for i, other in edits:
        changed[i] = other
    return tuple(changed)


def most_hopeful(edits: list[Edit], hoped: list[float]) -> list[tuple[float, Edit]]:
    """The best edit of each word, the best word first; only those that should help, or the best of all."""
    best: dict[int, tuple[float, Edit]] = {}
    for value, edit in zip(hoped, edits, strict=True):
        if edit[0] not in best or value < best[edit[0]][0]:
            best[edit[0]] = value, edit
    ordered = sorted(best.values(), key=lambda each: each[0])
    return [each for each in ordered if each[0] < 0] or ordered[:1]


def misspelt(words: Words, rng: Random) -> list[list[str]]:
    """Five slips of each kind for each word of three letters or more, the first letter left as it is."""
    options: list[list[str]] = []
    for word in words:
        found: list[str] = []
        for kind in ("swap", "drop", "insert", "neighbour_key", "homoglyph") if len(word) >= 3 else ():
            for _ in range(5):
                other = getattr(noise, kind)(word, rng, 1)
                if other != word and other not in found:
                    found.append(other)
        options.append(found)
    return options


def slow_gradient(
    logits: Logits,
    slope: Slope,
    words: list[str],
    label: int,
    options: Sequence[Sequence[str]],
    cost: float,
    width: int = 1,
) -> list[str] | None:
    """The words that fool the model, trimmed, or None; `options[i]` may replace word i."""
    edits = [(i, other) for i, found in enumerate(options) for other in found]
    if len(edits) <= 3:
        for edit in edits:
            tried = list(with_edits(words, [edit]))
            if logits(tried).argmax() != label:
                return tried
        return None

    def margin(text: Words) -> float:
        found = logits(list(text))
        return float(found[label] - max(found[i] for i in range(len(found)) if i != label))

    unit = margin(words) / 3
    asked: dict[tuple[str, ...], float] = {}  # what each text that was asked for adds to the value
    waiting: list[tuple[str, ...]] = []  # those without a gradient
    base: Words = words
    sums, gradients, passes = np.zeros(len(edits)), 0, 0
    while gradients == 0 or passes + 3 * (1 + width) <= width * cost * (1 + len(words) + len(edits)) ** 0.5:
        for number, (i, other) in enumerate(edits):
            # From the original word to the other one, along the gradient at the text so far.
            forth = 0.0 if base[i] == other else slope(list(base), i, other)
            back = 0.0 if base[i] == words[i] else slope(list(base), i, words[i])
            sums[number] += (forth - back) / unit
        gradients, passes = gradients + 1, passes + 3
        for _ in range(3):
            effects = believed(words, edits, list(sums / gradients), asked)
            new: dict[tuple[str, ...], list[Edit]] = {}
            for level in range(8):
                chosen = [edit for _, edit in most_hopeful(edits, [mean - level / 4 * wide for mean, wide in effects])]
                text = with_edits(words, chosen)
                if text not in asked:
                    new.setdefault(text, chosen)
                if len(new) == width:
                    break
            if not new:
                break
            passes += len(new)
            for text, chosen in new.items():
                asked[text] = margin(text) / unit - 3
                if logits(list(text)).argmax() != label:

                    def worth(kept: list[Edit], slopes: list[float] = list(sums / gradients)) -> list[float]:  # noqa: B006
                        found = dict(zip(edits, believed(words, edits, slopes, asked), strict=True))
                        return [found[edit][0] for edit in kept]

                    def still_wrong(text: tuple[str, ...]) -> bool:
                        asked[text] = margin(text) / unit - 3
                        return bool(logits(list(text)).argmax() != label)

                    return trimmed(words, chosen, worth, still_wrong)
                waiting.append(text)
        if not waiting:
            return None
        base = min(waiting, key=lambda each: asked[each])
        waiting.remove(tuple(base))
    return None


def trimmed(
    words: list[str],
    edits: list[Edit],
    worth: Callable[[list[Edit]], list[float]],
    still_wrong: Callable[[tuple[str, ...]], bool],
) -> list[str]:
    """With fewer of the edits, if eight questions find that they suffice."""
    needed: list[Edit] = []
    most = len(edits)
    for _ in range(8):
        values = dict(zip(edits, worth(edits), strict=True))
        weakest = sorted((edit for edit in edits if edit not in needed), key=lambda edit: -values[edit])
        value = 3 + sum(values.values())
        back: list[Edit] = []
        for edit in weakest:
            value -= values[edit]
            if value < 0:
                back.append(edit)
        back = (back or weakest[:1])[: min(most, len(edits) - 1)]
        if not back:
            break
        fewer = [edit for edit in edits if edit not in back]
        if still_wrong(with_edits(words, fewer)):
            edits, most = fewer, 2 * len(back)
        elif len(back) == 1:
            needed += back
        else:
            most = len(back) // 2
    return list(with_edits(words, edits))
