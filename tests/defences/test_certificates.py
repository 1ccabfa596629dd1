"""Certificates against brute force: on short texts of few words, no text within a certified radius changes the answer.

Copies and changed texts are enumerated here on their own, so the share of copies that have a label is exact.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from itertools import combinations, islice, product
from pathlib import Path
from random import Random

import numpy as np
import pytest
from scipy.stats import binom
from transformers import BertForSequenceClassification, PreTrainedTokenizerFast

from rosewood.defences.runner.certify import certified, certify, lower_bound
from rosewood.defences.runner.copies import DeleteNoise, Edit, MaskNoise, SubstituteNoise, TextNoise
from rosewood.errors import RunError
from rosewood.results.attack import Certificate, CertifiedExample
from tiny_attack import sentences

Text = tuple[str, ...]
VOCABULARY = ("a", "b", "c")  # texts are of the first two; the attacker has the third
SYNONYMS = {"a": ["b", "d"], "b": ["a", "d"], "d": ["a", "b", "e"], "c": ["e"], "e": ["c", "d"]}
CERTIFIED = 1000  # texts with a radius above 0


def masked(text: Text, share: float) -> Iterator[tuple[Text, float]]:
    keep = max(1, len(text) - round(share * len(text)))
    chosen = list(combinations(range(len(text)), keep))
    for kept in chosen:
        yield tuple(word if place in kept else "#" for place, word in enumerate(text)), 1 / len(chosen)


def deleted(text: Text, share: float) -> Iterator[tuple[Text, float]]:
    for kept in product((False, True), repeat=len(text)):
        chance = math.prod(1 - share if each else share for each in kept)
        yield tuple(word for word, stays in zip(text, kept, strict=True) if stays), chance


def replaced(text: Text, share: float) -> Iterator[tuple[Text, float]]:
    sets = [[word, *SYNONYMS.get(word, ())] for word in text]
    for copy in product(*sets):
        chance = math.prod(
            share / len(own) + (1 - share) * (new == old) for own, new, old in zip(sets, copy, text, strict=True)
        )
        yield copy, chance


def one_edit(text: Text, kind: Edit) -> Iterator[tuple[Text, int]]:
    """All texts that one edit makes, and how many words it inserts."""
    for place in range(len(text)):
        before, after = text[:place], text[place + 1 :]
        if kind in ("changed", "edited"):
            yield from (((*before, word, *after), 0) for word in VOCABULARY)
        if kind in ("deleted", "edited"):
            yield (*before, *after), 0
    if kind in ("inserted", "edited"):
        for place in range(len(text) + 1):
            yield from (((*text[:place], word, *text[place:]), 1) for word in VOCABULARY)


@cache
def within(text: Text, kind: Edit, radius: int) -> list[Text]:
    """All texts within so many edits, of them at most INSERTED insertions; of synonyms, each word is replaced once.

    In an order that is always the same: classifiers draw their labels when they are asked.
    """
    if kind == "synonyms":
        sets = [[word, *SYNONYMS.get(word, ())] for word in text]
        return [new for new in product(*sets) if sum(a != b for a, b in zip(new, text, strict=True)) <= radius]
    found, latest = {(text, 0)}, {(text, 0)}
    for _ in range(radius):
        made = {(new, so_far + more) for old, so_far in latest for new, more in one_edit(old, kind)}
        latest = {each for each in made if each[1] <= INSERTED} - found
        found |= latest
    return sorted({new for new, _ in found})


def classifier(rng: Random) -> Callable[[Text], int]:
    """Labels of copies at random, mostly 0; where it sees what only an attacker writes, mostly or always 1."""
    right, fooled = rng.choice((0.7, 0.85, 0.95, 1.0)), rng.choice((0.6, 1.0))

    @cache
    def label(copy: Text) -> int:
        if "c" in copy or "e" in copy:
            return int(rng.random() < fooled)
        return int(rng.random() > right)

    return label


NOISES: dict[str, tuple[Callable[[float], TextNoise], Callable[[Text, float], Iterator[tuple[Text, float]]], int]] = {
    "mask": (lambda share: MaskNoise(share, "#"), masked, 5),
    "delete": (DeleteNoise, deleted, 3),
    "substitute": (lambda share: SubstituteNoise(share, SYNONYMS), replaced, 4),
}
SHARES = {"mask": (0.3, 0.6, 0.8), "delete": (0.5, 0.8, 0.9), "substitute": (0.5, 0.8, 1.0)}
INSERTED = 3  # words that are inserted, at most; every other edit is searched as far as its radius goes


def cases(seed: int) -> Iterator[tuple[str, float, Text, Callable[[Text], int]]]:
    rng = Random(seed)
    for number in itertools.count():
        name = list(NOISES)[number % 3]
        words = rng.choices(VOCABULARY[:2], k=rng.randint(1, NOISES[name][2]))
        yield name, rng.choice(SHARES[name]), tuple(words), classifier(Random(rng.random()))


@cache
def chances(name: str, share: float, text: Text) -> dict[Text, float]:
    """All copies of a text; what is the same for all classifiers."""
    found: dict[Text, float] = {}
    for copy, chance in NOISES[name][1](text, share):
        found[copy] = found.get(copy, 0) + chance
    return found


def exact(name: str, share: float, label: Callable[[Text], int]) -> Callable[[Text], float]:
    """The share of all copies of a text that have label 0."""
    return cache(lambda text: sum(chance for copy, chance in chances(name, share, text).items() if label(copy) == 0))


def test_no_certified_text_is_broken_by_exhaustive_search() -> None:
    reached, farther, beyond = (Counter[str]() for _ in range(3))
    searched = 0
    for name, share, text, label in cases(seed=0):
        noise, p = NOISES[name][0](share), exact(name, share, label)
        if p(text) <= 0.5:  # no answer
            continue
        radii = noise.radii((" ".join(text),), p(text))
        for kind, radius in radii.items():
            worst = min(map(p, within(text, kind, radius)))
            assert worst > 0.5, f"{name} {share}: {text} is broken by {radius} words {kind}"
            reached[f"{name} {kind}"] += radius > 0
            farther[f"{name} {kind}"] += radius > 1
            beyond[name] += min(map(p, within(text, kind, radius + 1))) <= 0.5
        searched += max(radii.values()) > 0
        if searched == CERTIFIED:
            break
    # The search finds what it looks for: certificates are there, and just outside of them texts are broken.
    assert len(reached) == 6 and min(reached.values()) > 100, reached
    assert min(farther.values()) > 10, farther
    assert len(beyond) == 3 and min(beyond.values()) > 50, beyond


def test_no_text_that_samples_certify_is_broken() -> None:
    reached = 0
    for number, (name, share, text, label) in enumerate(islice(cases(seed=1), 300)):
        noise, p = NOISES[name][0](share), exact(name, share, label)
        copies = noise.copies((" ".join(text),), 400, np.random.default_rng(number))
        votes = sum(label(tuple(copy.split())) == 0 for (copy,) in copies)
        found = certified(0, (" ".join(text),), 0, 0, votes, 400, 0.999, noise)
        assert found.lower <= p(text) or found.prediction is None
        for kind, radius in found.radii.items():
            assert min(map(p, within(text, kind, radius))) > 0.5  # type: ignore[arg-type]
            reached += radius > 0
    assert reached > 50


@pytest.mark.parametrize("name", list(NOISES))
def test_copies_are_drawn_as_the_theorem_has_it(name: str) -> None:
    make, enumerated, _ = NOISES[name]
    for share in SHARES[name]:
        copies = make(share).copies(("a b a",), 20_000, np.random.default_rng(0))
        drawn = {copy: copies.count((" ".join(copy),)) / 20_000 for copy, _ in enumerated(("a", "b", "a"), share)}
        expected: dict[Text, float] = {}
        for copy, chance in enumerated(("a", "b", "a"), share):
            expected[copy] = expected.get(copy, 0) + chance
        assert drawn == pytest.approx(expected, abs=0.015)
        assert sum(drawn.values()) == pytest.approx(1)


def test_the_radius_of_edits_is_the_closed_form_of_cert_ed() -> None:
    for share in (0.3, 0.6, 0.9):
        for p in np.linspace(0.51, 0.999, 60):
            closed = math.floor(math.log(1.5 - p) / math.log(share))
            radii = DeleteNoise(share).radii(("word " * 30,), float(p))
            assert radii["edited"] == radii["changed"] == closed
            assert min(radii["inserted"], radii["deleted"]) >= closed


def test_the_radius_of_masks_is_the_largest_that_the_inequality_allows() -> None:
    noise = MaskNoise(0.9, "#")
    for words in (1, 10, 40):
        text, kept = ("word " * words,), noise.kept(words)
        for p in (0.6, 0.9, 1.0):
            holds = [p - 1 + math.comb(words - d, kept) / math.comb(words, kept) > 0.5 for d in range(words + 1)]
            assert noise.radii(text, p)["changed"] == max(d for d in range(words + 1) if holds[d])


@pytest.mark.parametrize("confidence", [0.9, 0.999])
def test_the_bound_is_as_likely_wrong_as_it_says(confidence: float) -> None:
    """Clopper and Pearson: the bound is the share at which so many votes or more are just that unlikely."""
    for votes, copies in ((1, 1), (7, 10), (99, 100), (1000, 1000)):
        bound = lower_bound(votes, copies, confidence)
        assert binom.sf(votes - 1, copies, bound) == pytest.approx(1 - confidence)
    assert lower_bound(0, 10, confidence) == 0


Model, Tokenizer = BertForSequenceClassification, PreTrainedTokenizerFast


def test_a_stopped_certification_goes_on(
    model: Model, tokenizer: Tokenizer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from rosewood.defences.runner import certify as module

    texts, labels = sentences(6), [0, 1, 0, 1, 0, 1]
    settings = {"copies": 30, "selection_copies": 5, "confidence": 0.9, "progress": False}
    whole = certify(model, tokenizer, texts, labels, "delete", **settings)  # type: ignore[arg-type]
    asked: list[object] = []
    votes = module._votes

    def until_the_fourth(row: object, *rest: object) -> object:
        if len(asked) == 3:
            raise KeyboardInterrupt
        asked.append(row)
        return votes(row, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(module, "_votes", until_the_fourth)
    with pytest.raises(KeyboardInterrupt):
        certify(model, tokenizer, texts, labels, "delete", output=tmp_path, **settings)  # type: ignore[arg-type]
    monkeypatch.setattr(module, "_votes", lambda row, *rest: (asked.append(row), votes(row, *rest))[1])
    again = certify(model, tokenizer, texts, labels, "delete", output=tmp_path, **settings)  # type: ignore[arg-type]
    assert len(asked) == 6
    assert again.examples == whole.examples
    monkeypatch.setattr(module, "_votes", None)
    assert certify(model, tokenizer, texts, labels, "delete", output=tmp_path, **settings) == again  # type: ignore[arg-type]
    with pytest.raises(RunError, match="other settings"):
        certify(model, tokenizer, texts, labels, "mask", output=tmp_path, **settings)  # type: ignore[arg-type]


def test_abstentions_are_no_right_answers() -> None:
    def example(prediction: int | None, radius: int) -> CertifiedExample:
        radii = {"changed": radius} if prediction is not None else {}
        return CertifiedExample(row=0, label=1, prediction=prediction, words=5, votes=9, lower=0.6, radii=radii)

    found = Certificate(
        model="m", by="mask", share=0.3, copies=10, selection_copies=1, confidence=0.9, seed=0, max_length=16,
        fingerprint="f", seconds=0, examples=[example(1, 0), example(1, 2), example(0, 3), example(None, 0)],
    )  # fmt: skip
    assert found.abstained == 0.25
    assert [found.certified_accuracy("changed", radius) for radius in range(4)] == [0.5, 0.25, 0.25, 0]
    assert found.largest_radius("changed") == 2


def test_settings_out_of_range_are_refused(model: Model, tokenizer: Tokenizer) -> None:
    with pytest.raises(RunError, match="as many texts as labels"):
        certify(model, tokenizer, ["a"], [])
    with pytest.raises(RunError, match="confidence between 0 and 1"):
        certify(model, tokenizer, ["a"], [0], confidence=1.0)
    with pytest.raises(RunError, match="need a lexicon"):
        certify(model, tokenizer, ["a"], [0], "substitute")
