"""Attacks give the texts that slow, independent transcriptions of the papers and their code give."""

import os
from collections.abc import Callable, Sequence
from random import Random
from typing import Literal

import numpy as np
import pytest
from datasets import Dataset
from transformers import BertForSequenceClassification, PreTrainedTokenizerFast

from rosewood.attacks.bae import Bae
from rosewood.attacks.bert_attack import BertAttack
from rosewood.attacks.genetic import Genetic
from rosewood.attacks.gradient import Gradient
from rosewood.attacks.imperceptible import Imperceptible
from rosewood.attacks.pwws import Pwws
from rosewood.attacks.runner.example import generator
from rosewood.attacks.textbugger import TextBugger
from rosewood.attacks.textfooler import TextFooler
from rosewood.attacks.typos import Typos
from rosewood.data.loading import load_split
from rosewood.data.tasks import load_task
from rosewood.results import AttackedExample, AttackResult
from rosewood.words.language_models import MaskedLM
from rosewood.words.lexicon import Lexicon
from slow_attacks import (
    Logits,
    Speaker,
    one_at_a_time,
    slow_bae,
    slow_bert_attack,
    slow_evolution,
    slow_genetic,
    slow_imperceptible,
    slow_pwws,
    slow_textbugger,
    slow_textfooler,
    slow_typos,
)
from slow_gradient import misspelt, slope_of, slow_gradient
from tiny_attack import ENTRIES, predicted

Run = Callable[..., AttackResult]


def same(example: AttackedExample, expected: list[str] | None) -> None:
    assert example.adversarial == (None if expected is None else " ".join(expected))
    assert example.status == ("robust" if expected is None else "broken")


def compare(result: AttackResult, slow: Callable[[AttackedExample], list[str] | None]) -> None:
    assert len(result.examples) == 30
    for example in result.examples:
        if example.status != "wrong":
            same(example, slow(example))
    # The comparison means something only if both outcomes occur.
    assert result.summary.counts["broken"] >= 5 and result.summary.counts["robust"] >= 3


@pytest.mark.parametrize("scores", ["margin", "probability"])
def test_pwws(
    model: BertForSequenceClassification,
    tokenizer: PreTrainedTokenizerFast,
    single: Dataset,
    run: Run,
    scores: Literal["margin", "probability"],
) -> None:
    logits = one_at_a_time(model, tokenizer)
    compare(
        run(model, single, Pwws(exact_case=True, split_at_spaces=True, scores=scores)),
        lambda example: slow_pwws(logits, example.texts["text"].split(), example.label, ENTRIES, scores),
    )


@pytest.mark.parametrize(
    "settings", [Gradient(), *(Gradient(max_cost=cost) for cost in (0.01, 20.0)), Gradient(beam_width=3)], ids=str
)
def test_gradient(
    model: BertForSequenceClassification,
    tokenizer: PreTrainedTokenizerFast,
    single: Dataset,
    run: Run,
    settings: Gradient,
) -> None:
    logits = one_at_a_time(model, tokenizer)

    def slow(example: AttackedExample) -> list[str] | None:
        words, slope = example.texts["text"].split(), slope_of(model, tokenizer, example.label)
        options = [ENTRIES.get(word, []) for word in words]
        return slow_gradient(logits, slope, words, example.label, options, settings.max_cost, settings.beam_width)

    compare(run(model, single, settings), slow)


def test_gradient_on_letters(
    model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast, single: Dataset, run: Run
) -> None:
    logits = one_at_a_time(model, tokenizer)
    for example in run(model, single, Gradient(edits="characters")).examples:
        if example.status != "wrong":
            words, slope = example.texts["text"].split(), slope_of(model, tokenizer, example.label)
            same(example, slow_gradient(logits, slope, words, example.label, misspelt(words, drawing(example)), 4.0))


def slow(
    logits: Logits,
    example: AttackedExample,
    field: str,
    settings: Genetic,
    seed: int,
    options: list[list[str]] | None = None,
) -> list[str] | None:
    words = example.texts[field].split()
    return slow_genetic(
        logits,
        words,
        example.label,
        options or [ENTRIES.get(word, []) for word in words],
        generator(seed, example.texts),
        settings.population,
        settings.generations,
        settings.fitness,
        settings.parent_floor,
        settings.check_last_generation,
    )


@pytest.mark.parametrize(("check_last", "fitness"), [(True, "margin"), (False, "margin"), (True, "probability")])
def test_genetic_on_single_texts(
    model: BertForSequenceClassification,
    tokenizer: PreTrainedTokenizerFast,
    single: Dataset,
    run: Run,
    check_last: bool,
    fitness: Literal["margin", "probability"],
) -> None:
    settings = Genetic(
        population=5, generations=2, min_log_ratio=None, check_last_generation=check_last, fitness=fitness
    )
    logits = one_at_a_time(model, tokenizer)
    compare(run(model, single, settings, seed=3), lambda example: slow(logits, example, "text", settings, 3))


@pytest.mark.parametrize("fitness", ["margin", "probability", "raw-margin"])
def test_genetic_on_pairs(
    model3: BertForSequenceClassification,
    tokenizer: PreTrainedTokenizerFast,
    pairs: Dataset,
    run: Run,
    fitness: Literal["margin", "probability", "raw-margin"],
) -> None:
    settings = Genetic(population=5, generations=2, min_log_ratio=None, fitness=fitness, parent_floor=1e-4)
    compare(
        run(model3, pairs, settings),
        lambda example: slow(
            one_at_a_time(model3, tokenizer, [example.texts["premise"]]), example, "hypothesis", settings, 0
        ),
    )


def drawing(example: AttackedExample) -> Random:
    """The random numbers that an attack on letters makes of the example's generator."""
    return Random(int(generator(0, example.texts).integers(2**63)))


def letters_of(texts: Sequence[str]) -> np.ndarray:
    """A sentence encoder that counts letters."""
    return np.array([[text.count(letter) + 0.1 for letter in "abcdefghij"] for text in texts])


@pytest.mark.parametrize("bound", [None, 0.8, 0.95])
def test_textfooler(
    model: BertForSequenceClassification,
    tokenizer: PreTrainedTokenizerFast,
    single: Dataset,
    run: Run,
    bound: float | None,
) -> None:
    logits = one_at_a_time(model, tokenizer)

    def similar(one: list[str], other: list[str]) -> float:
        a, b = letters_of([" ".join(one), " ".join(other)])
        return float(a @ b / np.sqrt((a @ a) * (b @ b)))

    compare(
        run(model, single, TextFooler(min_similarity=bound), encoder=letters_of),
        lambda example: slow_textfooler(
            logits,
            example.texts["text"].split(),
            example.label,
            ENTRIES,
            None if bound is None else similar,
            bound or -1.0,
        ),
    )


@pytest.mark.parametrize("settings", [Typos(), Typos(max_letters=3, max_words_share=0.5, tries=1)], ids=str)
def test_typos(
    model: BertForSequenceClassification,
    tokenizer: PreTrainedTokenizerFast,
    single: Dataset,
    run: Run,
    settings: Typos,
) -> None:
    logits = one_at_a_time(model, tokenizer)
    compare(
        run(model, single, settings),
        lambda example: slow_typos(
            logits,
            example.texts["text"].split(),
            example.label,
            drawing(example),
            settings.max_letters,
            settings.max_words_share,
            settings.tries,
        ),
    )


@pytest.mark.parametrize(
    "settings",
    [
        TextBugger(),
        TextBugger(max_words_share=0.5, neighbours=1, tries=2),
        TextBugger(max_words_share=1.0, neighbours=50, tries=0),
    ],
    ids=str,
)
def test_textbugger(
    model: BertForSequenceClassification,
    tokenizer: PreTrainedTokenizerFast,
    single: Dataset,
    run: Run,
    settings: TextBugger,
) -> None:
    logits = one_at_a_time(model, tokenizer)
    compare(
        run(model, single, settings),
        lambda example: slow_textbugger(
            logits,
            example.texts["text"].split(),
            example.label,
            ENTRIES,
            drawing(example),
            settings.max_words_share,
            settings.neighbours,
            settings.tries,
        ),
    )


# With 20 edits it goes around the words more than once.
@pytest.mark.parametrize("settings", [Imperceptible(1), *(Imperceptible(most, tries=1) for most in (4, 20))], ids=str)
def test_imperceptible(
    model: BertForSequenceClassification,
    tokenizer: PreTrainedTokenizerFast,
    single: Dataset,
    run: Run,
    settings: Imperceptible,
) -> None:
    logits = one_at_a_time(model, tokenizer)
    compare(
        run(model, single, settings),
        lambda example: slow_imperceptible(
            logits,
            example.texts["text"].split(),
            example.label,
            drawing(example),
            settings.max_edits,
            settings.tries,
        ),
    )


def test_imperceptible_by_evolution(
    model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast, single: Dataset, run: Run
) -> None:
    settings = Imperceptible(max_edits=2, strategy="evolution", population=4, generations=2)
    logits = one_at_a_time(model, tokenizer)
    compare(
        run(model, single, settings),
        lambda example: slow_evolution(
            logits, example.texts["text"].split(), example.label, generator(0, example.texts), 2, 4, 2
        ),
    )


@pytest.mark.parametrize("scores", ["margin", "probability"])
def test_imperceptible_by_evolution_on_pairs(
    model3: BertForSequenceClassification,
    tokenizer: PreTrainedTokenizerFast,
    pairs: Dataset,
    run: Run,
    scores: Literal["margin", "probability"],
) -> None:
    settings = Imperceptible(max_edits=2, strategy="evolution", population=4, generations=2, scores=scores)
    compare(
        run(model3, pairs, settings),
        lambda example: slow_evolution(
            one_at_a_time(model3, tokenizer, [example.texts["premise"]]),
            example.texts["hypothesis"].split(),
            example.label,
            generator(0, example.texts),
            2,
            4,
            2,
            scores,
        ),
    )


@pytest.mark.parametrize("settings", [BertAttack(candidates=4, combinations=5), BertAttack(6, 3, 0.2)], ids=str)
def test_bert_attack(
    model: BertForSequenceClassification,
    tokenizer: PreTrainedTokenizerFast,
    single: Dataset,
    run: Run,
    masked_lm: MaskedLM,
    settings: BertAttack,
) -> None:
    logits = one_at_a_time(model, tokenizer)
    speaker = Speaker(masked_lm.model, masked_lm.tokenizer)
    compare(
        run(model, single, settings),
        lambda example: slow_bert_attack(
            logits,
            example.texts["text"].split(),
            example.label,
            speaker,
            settings.candidates,
            settings.combinations,
            settings.max_words_share,
        ),
    )


@pytest.mark.parametrize(("form", "candidates"), [("R", 5), ("I", 3), ("R/I", 2), ("R+I", 1)])
def test_bae(
    model: BertForSequenceClassification,
    tokenizer: PreTrainedTokenizerFast,
    single: Dataset,
    run: Run,
    masked_lm: MaskedLM,
    form: Literal["R", "I", "R/I", "R+I"],
    candidates: int,
) -> None:
    logits = one_at_a_time(model, tokenizer)
    speaker = Speaker(masked_lm.model, masked_lm.tokenizer)
    compare(
        run(model, single, Bae(form, candidates, min_similarity=None)),
        lambda example: slow_bae(logits, example.texts["text"].split(), example.label, speaker, candidates, form),
    )


def test_the_seed_matters(model: BertForSequenceClassification, single: Dataset, run: Run) -> None:
    settings = Genetic(population=5, generations=2, min_log_ratio=None)
    one, two, again = (
        [example.adversarial for example in run(model, single, settings, seed=seed).examples] for seed in (0, 1, 0)
    )
    assert one == again != two


def test_generators_differ_by_seed_and_text() -> None:
    draws = [generator(seed, {"text": text}).random() for seed in (0, 1) for text in ("a", "b")]
    assert len(np.unique(draws)) == 4


@pytest.mark.data
@pytest.mark.skipif("ROSEWOOD_DATA" not in os.environ, reason="needs ROSEWOOD_DATA")
def test_real_sentences_and_substitutes(
    model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast, run: Run
) -> None:
    """RIFT's setting: tokenized text, words as they are written, the counter-fitted neighbours."""
    # The tiny tokenizer spells: short sentences, so that none is cut.
    texts = sorted(load_split(load_task("sst2"), "test")["sentence"][:], key=len)[100:130]
    data = Dataset.from_dict({"text": texts, "label": predicted(model, tokenizer, texts)})
    lexicon = Lexicon.counter_fitted()
    logits = one_at_a_time(model, tokenizer)
    pwws = run(model, data, Pwws(exact_case=True, split_at_spaces=True), lexicon=lexicon)
    settings = Genetic(True, True, population=4, generations=2, min_log_ratio=None)
    genetic = run(model, data, settings, lexicon=lexicon)
    for one, two in zip(pwws.examples, genetic.examples, strict=True):
        words = one.texts["text"].split()
        options = [list(lexicon.substitutes(word)) for word in words]
        same(one, slow_pwws(logits, words, one.label, dict(zip(words, options, strict=True))))
        same(two, slow(logits, two, "text", settings, 0, options))
    assert pwws.summary.counts["broken"] >= 5 and genetic.summary.counts["broken"] >= 5
