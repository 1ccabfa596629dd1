"""Training on encoded texts reads what the front end `encoded` writes."""

from __future__ import annotations

import numpy as np
import pytest
from datasets import Dataset

from rosewood.defences.encoded import Encoded, Encoding
from rosewood.errors import RunError
from rosewood.models.defended import Material
from rosewood.models.scoring import Scorer
from rosewood.perturbations.substitution import Substitution
from rosewood.perturbations.typing import Typing
from rosewood.words.changes import column_of
from rosewood.words.lexicon import Lexicon
from tiny_attack import ENTRIES, sentences
from tiny_text import tiny_classifier, tiny_tokenizer

TEXTS = sentences(30, seed=7)


def tokenized() -> Dataset:
    tokenizer = tiny_tokenizer()
    rows = [{"text": text, **tokenizer(text, truncation=True, max_length=16)} for text in TEXTS]
    return Dataset.from_list([row | {"length": len(row["input_ids"])} for row in rows])


def shield(stop_words: bool = True) -> Encoding:
    defence = Encoded(stop_words=stop_words)
    base = Scorer(tiny_classifier().eval(), tiny_tokenizer(), 16)
    found = defence.start(defence.learn(base, Material([(text,) for text in TEXTS], substitutes=ENTRIES)))
    assert isinstance(found, Encoding)
    return found


@pytest.mark.parametrize("stop_words", [True, False])
def test_texts_are_those_that_the_front_end_writes(stop_words: bool) -> None:
    tokenizer, lexicon = tiny_tokenizer(), Lexicon.of(ENTRIES)
    settings = Substitution(encoded=True, stop_words=stop_words)
    found = settings.prepare(tokenized(), tokenizer, ["text"], 16, lexicon)
    expected = [shield(stop_words).read(text) for text in TEXTS]
    assert found["text"][:] == expected != TEXTS
    assert found["input_ids"][:] == tokenizer(expected, truncation=True, max_length=16)["input_ids"]
    assert found["length"][:] == [len(ids) for ids in found["input_ids"]]


def test_what_may_replace_a_word_is_what_an_attack_can_make_of_it() -> None:
    """Every substitution in a text leaves the encoded text as it is, or is one of the changes that training makes."""
    tokenizer, lexicon, encoding = tiny_tokenizer(), Lexicon.of(ENTRIES), shield()
    found = Substitution(encoded=True, choices=100).prepare(tokenized(), tokenizer, ["text"], 64, lexicon)
    allowed: dict[tuple[int, ...], set[tuple[int, ...]]] = {}
    for row in found:
        changes = {key: np.asarray(value) for key, value in row[column_of("substitution")].items()}
        ends = changes["lengths"].cumsum()
        tokens = [
            tuple(changes["tokens"][end - size : end]) for end, size in zip(ends, changes["lengths"], strict=True)
        ]
        first = 0
        for start, stop, count in zip(changes["start"], changes["stop"], changes["choices"], strict=True):
            allowed.setdefault(tuple(row["input_ids"][start:stop]), set()).update(tokens[first : first + count])
            first += count
    checked = 0
    for word in {word for text in TEXTS for word in text.split() if ENTRIES.get(word)}:
        own, others = tokenizer(encoding.read(word))["input_ids"][1:-1], (encoding.read(each) for each in ENTRIES[word])
        for other in (tokenizer(each)["input_ids"][1:-1] for each in others):
            if other != own and tokenizer.unk_token_id not in other:
                assert tuple(other) in allowed[tuple(own)]
                checked += 1
    assert checked


def test_it_comes_first_in_a_mixture() -> None:
    tokenizer, lexicon = tiny_tokenizer(), Lexicon.of(ENTRIES)
    typed = Typing().prepare(tokenized(), tokenizer, ["text"], 16)
    with pytest.raises(RunError, match="put it first"):
        Substitution(encoded=True).prepare(typed, tokenizer, ["text"], 16, lexicon)
