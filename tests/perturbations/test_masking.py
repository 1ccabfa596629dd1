"""Texts with masked words in training are the copies that a smoothed model votes over."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import Dataset

from replay import replay, same_weights
from rosewood.defences.runner.copies import MaskNoise, SubstituteNoise
from rosewood.errors import RecipeError
from rosewood.perturbations.masking import Masking
from rosewood.perturbations.substitution import Substitution
from rosewood.protocol import Run
from rosewood.recipe import load_recipe
from rosewood.words.changes import collate_changes, column_of
from rosewood.words.lexicon import Lexicon
from rosewood.words.text import spliced
from slow_methods import PaddedData
from tiny import tiny_bert, trained
from tiny_text import tiny_tokenizer

TEXT = "a fine film and unfunny"
DRAWS = 3000


def changed(settings: Any, lexicon: Lexicon | None = None, draws: int = DRAWS) -> tuple[Any, Counter[str]]:
    """How often each text comes out of a perturbation, as its tokens are read."""
    tokenizer = tiny_tokenizer()
    data = Dataset.from_list([{"text": TEXT, **tokenizer(TEXT)}])
    rows = settings.prepare(data, tokenizer, ["text"], 32, lexicon)
    ids = torch.tensor(rows["input_ids"])
    column = {key: np.asarray(value) for key, value in rows[0][column_of(settings.name)].items()}
    changes = collate_changes([column] * draws, [{"input_ids": rows[0]["input_ids"]}] * draws, ids.repeat(draws, 1))
    torch.manual_seed(0)
    batch = {"input_ids": ids.repeat(draws, 1), "attention_mask": torch.ones(draws, ids.shape[1], dtype=torch.long)}
    perturber = settings.start(Run(tiny_bert(), 10, None))  # type: ignore[arg-type]
    picks = perturber.picks(None, batch, changes)
    texts = spliced(batch["input_ids"], batch["attention_mask"].bool(), changes, picks, 0)
    return tokenizer, Counter(tokenizer.decode(row[real]) for row, real in zip(texts.ids, texts.real, strict=True))


def as_read(tokenizer: Any, copies: list[tuple[str, ...]]) -> Counter[str]:
    return Counter(tokenizer.decode(tokenizer(text)["input_ids"]) for (text,) in copies)


def alike(found: Counter[str], expected: Counter[str], draws: int = DRAWS) -> None:
    """The same texts, about as often: within 5 standard deviations of a count."""
    common = {text for text, count in (found + expected).items() if count > 20}
    for text in common:
        share = (found[text] + expected[text]) / (2 * draws)
        assert abs(found[text] - expected[text]) < 5 * (2 * draws * share * (1 - share)) ** 0.5, text


@pytest.mark.parametrize("share", [0.3, 0.5, 1.0])
def test_masked_texts_are_drawn_as_the_copies_of_the_smoothed_model(share: float) -> None:
    tokenizer, found = changed(Masking(share=share))
    copies = MaskNoise(share, tokenizer.mask_token or tokenizer.unk_token)
    drawn = copies.copies((TEXT,), DRAWS, np.random.default_rng(0))
    expected = as_read(tokenizer, drawn)
    assert found.keys() == expected.keys()
    alike(found, expected)


def test_words_are_drawn_as_the_copies_with_synonyms() -> None:
    lexicon = Lexicon.of({"fine": ["good", "bad"], "film": ["movie"]})
    tokenizer, found = changed(Substitution(share=1.0, itself=True), lexicon)
    drawn = SubstituteNoise(1.0, lexicon.entries).copies((TEXT,), DRAWS, np.random.default_rng(0))
    expected = as_read(tokenizer, drawn)
    assert found.keys() == expected.keys() and len(found) > 2
    alike(found, expected)


def test_training_on_changed_texts_alone_is_cross_entropy_on_them(tmp_path: Path) -> None:
    trainer = trained(load_recipe("ranmask", {"perturbation.share": 0.9}), tmp_path, data=PaddedData(), max_steps=3)
    seen: list[dict[str, torch.Tensor]] = []
    model = tiny_bert()

    def watched(_: Any, inputs: Any, kwargs: Any, output: Any) -> None:
        seen.append({key: value.clone() for key, value in kwargs.items() if isinstance(value, torch.Tensor)})

    again = tiny_bert()
    again.register_forward_hook(watched, with_kwargs=True)
    trained(load_recipe("ranmask", {"perturbation.share": 0.9}), tmp_path, model=again, data=PaddedData(), max_steps=3)
    assert len(seen) == 3, "one pass per step"
    assert any(
        not torch.equal(each["input_ids"], batch["input_ids"])
        for each, (_, batch) in zip(seen, trainer.micro_batches, strict=True)
    )

    def backward(batch: dict[str, torch.Tensor], step: int, micro_batch: int) -> None:
        torch.rand(len(batch["input_ids"]), 1, 2, batch["input_ids"].shape[1])  # what the perturbation drew
        model(**seen[step]).loss.backward()

    same_weights(trainer.model, replay(trainer, model, backward), 1e-10)


def test_what_cannot_go_with_changed_texts_alone_is_refused() -> None:
    with pytest.raises(RecipeError, match="has no perturbation"):
        load_recipe("ranmask", {"perturbation": None})
    with pytest.raises(RecipeError, match=r"loss=kl compares with a pass over the clean input.*set perturbation\.loss"):
        load_recipe("ranmask", {"perturbation": {"name": "embedding_ascent", "loss": "kl"}})


@pytest.mark.parametrize(("recipe", "wrapper"), [("safer", "smoothed:substitute"), ("ranmask", "smoothed:mask")])
def test_a_recipe_names_the_wrapper_that_it_trains_for(recipe: str, wrapper: str) -> None:
    assert wrapper in load_recipe(recipe).summary
