"""Texts put together from the tokens of their words are what the tokenizer makes of the changed texts."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import DataCollatorWithPadding, PreTrainedTokenizerFast

from rosewood.errors import DataError
from rosewood.words.alignment import SubstituteCollator
from rosewood.words.changes import collate_changes, column_of, with_changes
from rosewood.words.noise import SLIPS, Misspelling
from rosewood.words.text import Words, spliced
from tiny_text import tiny_tokenizer

COLUMN = column_of("substitution")
TEXTS = [
    "A good film, well-made; and good.",
    "film",
    "bad",
    "(good)  good!",
    "the cat's film is not as good as film no. 5",
    "",
]
LEXICON = {
    "good": ["nice", "fine", "film"],
    "film": ["movie", "a", "cinema"],
    "well-made": ["neat"],
    "cat's": ["dogs"],
    "is": ["was"],
}


def surface(words: Any) -> list[tuple[str, ...]]:
    return [tuple(LEXICON.get(word.lower(), ())) for word in words]


def prepared(
    texts: list[str], tokenizer: PreTrainedTokenizerFast, max_length: int = 64, **settings: Any
) -> tuple[Dataset, dict[str, Any]]:
    encoded = tokenizer(texts, truncation=True, max_length=max_length)
    data = Dataset.from_dict({**encoded, "text": texts})
    found = with_changes(data, tokenizer, "substitution", surface, ["text"], max_length=max_length, **settings)
    rows = [{key: value for key, value in row.items() if key != "text"} for row in found]
    return found, SubstituteCollator(DataCollatorWithPadding(tokenizer), {COLUMN: collate_changes})(rows)


def changed_text(text: str, picks: dict[int, int]) -> str:
    """The text with the word of each number changed to its substitute of that number."""
    words = Words.split(text)
    return words.join(
        [LEXICON[word.lower()][picks[at]] if at in picks else word for at, word in enumerate(words.words)]
    )


def rebuilt(batch: dict[str, Any], picks: torch.Tensor) -> list[list[int]]:
    real = batch["attention_mask"].bool()
    found = spliced(batch["input_ids"], real, batch[COLUMN], picks, padding=0)
    assert not found.ids[~found.real].any()
    return [ids[mask].tolist() for ids, mask in zip(found.ids, found.real, strict=True)]


@pytest.mark.parametrize("side", ["right", "left"])
@pytest.mark.parametrize("seed", range(5))
def test_spliced_tokens_are_those_of_the_changed_text(side: str, seed: int) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.padding_side = side
    _, batch = prepared(TEXTS, tokenizer)
    changes = batch[COLUMN]
    rng = Random(seed)
    picks = torch.full_like(changes["row"], -1)
    texts, number = [], 0
    for text in TEXTS:
        chosen = {}
        for at, word in enumerate(Words.split(text).words):
            if word.lower() in LEXICON:
                if rng.random() < 0.6:
                    chosen[at] = rng.randrange(len(LEXICON[word.lower()]))
                    picks[number] = changes["first"][number] + chosen[at]
                number += 1
        texts.append(changed_text(text, chosen))
    assert number == len(picks)
    assert rebuilt(batch, picks) == tokenizer(texts)["input_ids"]


def test_nothing_picked_changes_nothing() -> None:
    tokenizer = tiny_tokenizer()
    _, batch = prepared(TEXTS, tokenizer)
    assert rebuilt(batch, torch.full_like(batch[COLUMN]["row"], -1)) == tokenizer(TEXTS)["input_ids"]


def test_a_text_never_becomes_longer_than_it_may() -> None:
    tokenizer = tiny_tokenizer()
    text = "good " * 6  # a token each; "nice" has four
    _, batch = prepared([text, "film good"], tokenizer, max_length=14)  # 8 tokens, so room for 6 more
    changes = batch[COLUMN]
    assert changes["room"].tolist() == [6, 10]
    first, second = rebuilt(batch, changes["first"])
    assert first == tokenizer("nice nice good good good good")["input_ids"]
    assert second == tokenizer("movie nice")["input_ids"]
    to_film = torch.where(changes["row"] == 0, changes["first"] + 2, -1)  # as long as "good"
    assert rebuilt(batch, to_film)[0] == tokenizer("film " * 6)["input_ids"]


def test_of_a_pair_one_text_changes_and_keeps_its_type() -> None:
    tokenizer = tiny_tokenizer()
    one, two = ["a good film"], ["film good"]
    data = Dataset.from_dict({**tokenizer(one, two), "one": one, "two": two})
    for field, expected in (("one", ("a nice movie", "film good")), (None, ("a good film", "movie nice"))):
        found = with_changes(data, tokenizer, "substitution", surface, ["one", "two"], field)
        rows = [{key: value for key, value in row.items() if key not in ("one", "two")} for row in found]
        batch = SubstituteCollator(DataCollatorWithPadding(tokenizer), {COLUMN: collate_changes})(rows)
        changes = batch[COLUMN]
        got = spliced(batch["input_ids"], batch["attention_mask"].bool(), changes, changes["first"], 0)
        whole = tokenizer(*([each] for each in expected))
        assert got.ids.tolist() == whole["input_ids"]
        assert batch["token_type_ids"].gather(1, got.place).tolist() == whole["token_type_ids"]


def test_as_many_choices_as_asked_for_and_unknown_tokens_only_on_demand() -> None:
    tokenizer = tiny_tokenizer()
    found, _ = prepared(["good"], tokenizer, choices=2)
    assert found[0][COLUMN]["choices"] == [2]
    data = Dataset.from_dict({**tokenizer(["good"]), "text": ["good"]})
    for unknown, count in ((False, []), (True, [1])):
        odd = with_changes(data, tokenizer, "typing", lambda words: [("gооd",)], ["text"], unknown=unknown)
        assert odd[0][column_of("typing")]["choices"] == count


def test_texts_of_other_tokens_are_refused() -> None:
    tokenizer = tiny_tokenizer()
    data = Dataset.from_dict({"input_ids": [[2, 5, 3]], "text": ["good"]})
    with pytest.raises(DataError, match="token ids of the data are not those of their texts"):
        with_changes(data, tokenizer, "substitution", surface, ["text"])


def test_misspelt_forms_are_the_same_everywhere_and_of_every_kind() -> None:
    spelling = Misspelling(forms=16, seed=3)
    first, short, again = spelling.surface(["Wonderful", "no", "Wonderful"])
    assert first == again == Misspelling(forms=16, seed=3).surface(["Wonderful"])[0]
    assert first != Misspelling(forms=16, seed=4).surface(["Wonderful"])[0]
    assert short == () and "Wonderful" not in first and 8 < len(first) <= 16
    assert all(form[:1].lower() == "w" for form in first)
    assert set(Misspelling(["drop"], forms=30).surface(["film"])[0]) == {"fil", "flm", "fim"}


@pytest.mark.parametrize(("kind", "longer"), [("double", 1), ("invisible", 1), ("recase", 0)])
def test_slips_that_no_noise_had(kind: str, longer: int) -> None:
    rng = np.random.default_rng(0)
    for _ in range(20):
        other = SLIPS[kind]("film", Random(int(rng.integers(1000))), 1)
        assert len(other) == 4 + longer and other != "film"
        if kind == "double":
            assert "".join(dict.fromkeys(other)) == "film"
        if kind == "invisible":
            assert other.replace(next(letter for letter in other if letter not in "film"), "") == "film"
        if kind == "recase":
            assert other.lower() == "film"
