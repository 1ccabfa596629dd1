"""Substitutes stand where the words stood, in the tokens that a tokenizer would give them there."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers
from transformers import DataCollatorWithPadding, PreTrainedTokenizerFast

from rosewood.errors import DataError
from rosewood.words.alignment import SUBSTITUTES, SubstituteCollator, stretched, with_substitutes
from rosewood.words.text import Words
from tiny_text import tiny_tokenizer

CORPUS = [
    "a great film with good actors, and the best scenes we have seen",
    'the movie was "awful" (really bad) but the music was fine',
    "they don't like the story's ending; we loved it",
]
SUBSTITUTE = {
    "great": ["good", "best", "bad", "grand"],
    "film": ["movie", "story", "cinema"],
    "movie": ["film", "scene"],
    "awful": ["bad", "fine", "dreadful", "lousy"],
    "bad": ["awful"],
    "music": ["story", "tunes"],
    "don't": ["like", "loved"],
}


def surface(words: Any) -> list[list[str]]:
    return [SUBSTITUTE.get(word.lower(), []) for word in words]


def byte_level() -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.BPE())
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    backend.post_processor = processors.ByteLevel(trim_offsets=False)
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=420, initial_alphabet=alphabet, special_tokens=["<pad>"])
    backend.train_from_iterator(CORPUS * 20, trainer)
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", padding_side="left")


def metaspace() -> PreTrainedTokenizerFast:
    backend = Tokenizer(models.Unigram())
    backend.pre_tokenizer = pre_tokenizers.Metaspace()
    special = ["<pad>", "<unk>", "<s>", "</s>"]
    trainer = trainers.UnigramTrainer(vocab_size=120, unk_token="<unk>", special_tokens=special)
    backend.train_from_iterator(CORPUS * 20, trainer)
    backend.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", 2), ("</s>", 3)]
    )
    return PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", unk_token="<unk>")


TOKENIZERS = {"wordpiece": tiny_tokenizer, "byte-level": byte_level, "metaspace": metaspace}


@pytest.fixture(params=TOKENIZERS)
def tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerFast:
    return TOKENIZERS[request.param]()


def encoded(tokenizer: Any, *columns: list[str], max_length: int = 128) -> Dataset:
    names = ["premise", "text"][-len(columns) :]
    ids = tokenizer(*columns, truncation=True, max_length=max_length)
    return Dataset.from_dict(dict(zip(names, columns, strict=True)) | dict(ids))


def aligned(tokenizer: Any, *columns: list[str], **settings: Any) -> list[dict[str, Any]]:
    data = encoded(tokenizer, *columns, max_length=settings.get("max_length", 128))
    fields = [name for name in ("premise", "text") if name in data.column_names]
    return list(with_substitutes(data, tokenizer, surface, fields, **settings))


def entries_of(example: dict[str, Any], **wanted: int) -> list[dict[str, Any]]:
    columns = example[SUBSTITUTES]
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    return [row for row in rows if all(row[key] == value for key, value in wanted.items())]


def test_a_substitute_of_as_many_tokens_gives_the_text_that_has_it(tokenizer: Any) -> None:
    """The oracle: replace the word in the text and tokenize that."""
    compared = 0
    for text in [*CORPUS, 'Great "film", bad.', "film"]:
        (example,) = aligned(tokenizer, [text], pieces="equal")
        words = Words.split(text)
        for first in {row["first"] for row in entries_of(example)}:
            for slot in {row["slot"] for row in entries_of(example, first=first)}:
                ids = list(example["input_ids"])
                for row in entries_of(example, first=first, slot=slot):
                    assert row["share"] == 1
                    ids[row["place"]] = row["token"]
                changed = [
                    words.join([*words.words[:n], other, *words.words[n + 1 :]])
                    for n, word in enumerate(words.words)
                    for other in SUBSTITUTE.get(word.lower(), [])
                ]
                assert ids in [tokenizer(each)["input_ids"] for each in changed]
                compared += 1
    assert compared >= 5


def test_every_known_word_has_all_its_substitutes(tokenizer: Any) -> None:
    (example,) = aligned(tokenizer, ["a great film with music"])
    slots = {row["first"]: 0 for row in entries_of(example)}
    for row in entries_of(example):
        slots[row["first"]] = max(slots[row["first"]], row["slot"])
    assert sorted(slots.values()) == [2, 3, 4]


def test_only_words_and_substitutes_of_one_token_where_told() -> None:
    # "film" and "good" are the only words of that tokenizer: all others are spelt.
    data = encoded(tiny_tokenizer(), ["a good film"])
    table = {"good": ["film", "nice"], "film": ["good"], "a": ["good", "b"]}
    (single,) = with_substitutes(
        data, tiny_tokenizer(), lambda words: [table.get(w, []) for w in words], ["text"], pieces="single"
    )
    assert [(row["place"], row["slot"], row["share"]) for row in entries_of(single)] == [
        (1, 1, 1.0),
        (1, 2, 1.0),
        (2, 1, 1.0),
        (3, 1, 1.0),
    ]


def test_only_the_named_text_of_a_pair_changes(tokenizer: Any) -> None:
    if tokenizer.padding_side == "left":
        pytest.skip("this tokenizer writes pairs without a border")
    text = "a great film"
    (last,) = aligned(tokenizer, [text], [text])
    (first,) = aligned(tokenizer, [text], [text], field="premise")
    encoding = tokenizer(text, text)
    sides = encoding.sequence_ids(0)
    assert {sides[row["place"]] for row in entries_of(last)} == {1}
    assert {sides[row["place"]] for row in entries_of(first)} == {0}
    assert len(entries_of(last)) == len(entries_of(first)) > 0


def test_a_word_that_is_cut_off_is_left_alone() -> None:
    tokenizer = tiny_tokenizer()
    (whole,) = aligned(tokenizer, ["music"])  # [CLS] m ##u ##s ##i ##c [SEP]
    (cut,) = aligned(tokenizer, ["music"], max_length=5)
    assert entries_of(whole) and not entries_of(cut)


def test_unknown_substitutes_and_repetitions_are_left_out() -> None:
    tokenizer = tiny_tokenizer()
    data = encoded(tokenizer, ["a film"])
    choices = ["Film", "good", "GOOD", "été"]  # the tokenizer has no case and knows no accent it does not strip
    (example,) = with_substitutes(data, tokenizer, lambda words: [[], [*choices, "日本"]], ["text"], pieces="any")
    tokens = {row["slot"]: [] for row in entries_of(example)}
    for row in entries_of(example):
        tokens[row["slot"]].append(row["token"])
    assert list(tokens) == [1, 2]
    assert tokens[1] == tokenizer("good", add_special_tokens=False)["input_ids"]


def test_a_word_has_at_most_so_many_choices() -> None:
    (example,) = aligned(tiny_tokenizer(), ["great"], slots=3)
    assert {row["slot"] for row in entries_of(example)} == {1, 2}


@given(st.integers(1, 7), st.integers(1, 7))
def test_stretching_fills_every_place_and_uses_every_token_alike(count: int, places: int) -> None:
    parts = list(stretched(range(count), places))
    filled, used = np.zeros(places), np.zeros(count)
    for place, token, share in parts:
        assert 0 < share <= 1 + 1e-12
        filled[place] += share
        used[token] += share
    np.testing.assert_allclose(filled, 1)
    np.testing.assert_allclose(used, places / count)
    assert [token for _, token, _ in parts] == sorted(token for _, token, _ in parts)
    if count == places:
        assert parts == [(i, i, 1.0) for i in range(count)]


def test_two_pieces_over_three_places() -> None:
    assert list(stretched([7, 9], 3)) == [(0, 7, 1.0), (1, 7, 0.5), (1, 9, 0.5), (2, 9, 1.0)]


@pytest.mark.parametrize("side", ["right", "left"])
def test_batches_have_the_substitutes_in_their_places(side: str) -> None:
    tokenizer = tiny_tokenizer()
    tokenizer.padding_side = side
    examples = [
        {key: value for key, value in example.items() if key != "text"}
        for example in aligned(tokenizer, ["a great film", "film", "no"])
    ]
    batch = SubstituteCollator(DataCollatorWithPadding(tokenizer))(examples)
    found, ids = batch[SUBSTITUTES], batch["input_ids"]
    count, layers, length = found["tokens"].shape
    assert (count, length) == ids.shape and found["words"].shape == ids.shape
    assert found["shares"].shape == found["slots"].shape == found["tokens"].shape
    assert torch.equal(found["tokens"][found["slots"] == 0], ids[:, None].expand(-1, layers, -1)[found["slots"] == 0])
    assert not found["shares"][found["slots"] == 0].any()
    for row, example in enumerate(examples):
        shift = 0 if side == "right" else length - len(example["input_ids"])
        assert (found["slots"][row] > 0).sum() == len(entries_of(example))
        for entry in entries_of(example):
            at = (row, entry["layer"], entry["place"] + shift)
            assert (found["tokens"][at], found["slots"][at]) == (entry["token"], entry["slot"])
            assert found["words"][row, entry["place"] + shift] == entry["first"] + shift
            assert found["shares"][at] == pytest.approx(entry["share"])


def test_examples_without_substitutes_are_collated_as_ever() -> None:
    tokenizer = tiny_tokenizer()
    plain = [dict(tokenizer("a film")), dict(tokenizer("no"))]
    collate = DataCollatorWithPadding(tokenizer)
    batch = SubstituteCollator(collate)(plain)
    assert {key: value.tolist() for key, value in batch.items()} == {
        key: value.tolist() for key, value in collate(plain).items()
    }


def test_no_progress_bar_for_a_few_texts(capfd: pytest.CaptureFixture[str]) -> None:
    aligned(tiny_tokenizer(), ["a great film"])
    assert capfd.readouterr().err == ""


def test_a_text_without_words_or_without_tokens_has_no_substitutes(tokenizer: Any) -> None:
    for example in aligned(tokenizer, ["", " ", "?!", "..."]):
        assert not entries_of(example)


def test_what_cannot_be_aligned_is_refused() -> None:
    tokenizer = tiny_tokenizer()
    data = encoded(tokenizer, ["a great film with music"])
    with pytest.raises(DataError, match="no text 'txt' whose words could be replaced"):
        with_substitutes(data, tokenizer, surface, ["text"], "txt")
    with pytest.raises(DataError, match="text is missing"):
        with_substitutes(data.remove_columns("text"), tokenizer, surface, ["text"])
    with pytest.raises(DataError, match=r"not those of their texts.*same max_length"):
        with_substitutes(data, tokenizer, surface, ["text"], max_length=4)
    with pytest.raises(DataError, match="use a fast tokenizer"):
        with_substitutes(data, object(), surface, ["text"])  # type: ignore[arg-type]
