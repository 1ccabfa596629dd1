"""The gradient attack: one example, one text and one edit at a time, plain loops, no engine."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import torch
from transformers import BertForSequenceClassification, PreTrainedTokenizerBase

from slow_attacks import Logits

Slope = Callable[[list[str], int, str], float]


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


def slow_gradient(
    logits: Logits, slope: Slope, words: list[str], label: int, surface: dict[str, list[str]], rounds: int
) -> list[str] | None:
    """The words that fool the model, or None: a beam of one text, trimmed."""
    options = [surface.get(word, []) for word in words]
    if sum(map(len, options)) <= 3:
        for i, found in enumerate(options):
            for other in found:
                tried = [*words[:i], other, *words[i + 1 :]]
                if logits(tried).argmax() != label:
                    return tried
        return None
    base, seen = list(words), [list(words)]
    for _ in range(rounds):
        best = []
        for i, found in enumerate(options):
            others = [other for other in [words[i], *found] if found and other != base[i]]
            if others:
                values = [slope(base, i, other) for other in others]
                best.append((min(values), i, others[values.index(min(values))]))
        best.sort(key=lambda each: each[0])
        chosen = [each for each in best if each[0] < 0] or best[:1]

        def first(count: int, base: list[str] = base, chosen: list = chosen) -> list[str]:
            changed = list(base)
            for _, i, other in chosen[:count]:
                changed[i] = other
            return changed

        everything = first(len(chosen))
        if everything in seen:
            return None
        seen.append(everything)
        if logits(everything).argmax() != label:
            few, many = 0, len(chosen)
            while many - few > 1:
                middle = (few + many) // 2
                if logits(first(middle)).argmax() != label:
                    many = middle
                else:
                    few = middle
            return first(many)
        base = everything
    return None
