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
    logits: Logits, slope: Slope, words: list[str], label: int, surface: dict[str, list[str]], cost: float
) -> list[str] | None:
    """The words that fool the model, or None: a beam of one text, trimmed."""
    options = [surface.get(word, []) for word in words]
    count = sum(map(len, options))
    if count <= 3:
        for i, found in enumerate(options):
            for other in found:
                tried = [*words[:i], other, *words[i + 1 :]]
                if logits(tried).argmax() != label:
                    return tried
        return None

    def margin(text: list[str]) -> float:
        found = logits(text)
        return float(found[label] - max(found[i] for i in range(len(found)) if i != label))

    base, seen, passes = list(words), [list(words)], 0
    known: list[dict[tuple[int, str], float]] = []
    while not known or passes + 4 <= cost * (1 + len(words) + count):
        passes += 4
        # From the original word to the other one, along the gradient at the text so far.
        known.append({})
        for i, found in enumerate(options):
            back = 0.0 if base[i] == words[i] else slope(base, i, words[i])
            for other in found:
                known[-1][i, other] = (0.0 if base[i] == other else slope(base, i, other)) - back
        best = []
        for i, found in enumerate(options):
            means = [sum(each[i, other] for each in known) / len(known) for other in found]
            if found:
                best.append((min(means), i, found[means.index(min(means))]))
        best.sort(key=lambda each: each[0])
        chosen = [each for each in best if each[0] < 0] or best[:1]

        def first(count: int, chosen: list = chosen) -> list[str]:
            changed = list(words)
            for _, i, other in chosen[:count]:
                changed[i] = other
            return changed

        everything = first(len(chosen))
        if everything in seen:
            return None
        seen.append(everything)
        if logits(everything).argmax() != label:
            few, many = 0, len(chosen)
            rate = (margin(everything) - margin(words)) / sum(value for value, _, _ in chosen)
            left, guess = margin(words), 0
            while left >= 0 and guess < many:
                left += rate * chosen[guess][0]
                guess += 1
            for _ in range(2):
                if many - few > 1:
                    guess = min(max(guess, few + 1), many - 1)
                    if logits(first(guess)).argmax() != label:
                        many = guess
                    else:
                        few = guess
                    guess = (few + many) // 2
            return first(many)
        base = everything
    return None
