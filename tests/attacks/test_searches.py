"""The ideas of each attack that the oracles do not cover: constraints, order, budgets of edits."""

import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
from datasets import Dataset
from transformers import BertForSequenceClassification, PreTrainedTokenizerFast

from rosewood.attacks.genetic import Genetic
from rosewood.attacks.imperceptible import Imperceptible
from rosewood.attacks.pwws import Pwws
from rosewood.attacks.runner.scores import CLEAN_VALUE, NEAR, Measure, Scale, Scores, first_lowest, highest_first, lower
from rosewood.attacks.runner.search import Resources, Target, by_importance
from rosewood.attacks.textbugger import TextBugger
from rosewood.attacks.textfooler import TextFooler
from rosewood.attacks.typos import Typos
from rosewood.errors import RecipeError, RunError
from rosewood.results import AttackResult
from rosewood.words.language_models import SentenceEncoder, Trigram
from rosewood.words.lexicon import Lexicon
from rosewood.words.noise import HOMOGLYPHS
from rosewood.words.text import Words
from tiny_attack import ENTRIES, WORDS, sentences

Run = Callable[..., AttackResult]


def target(text: str, lexicon: Lexicon | None = None, logits: Sequence[float] = (1.0, 0.0)) -> Target:
    clean = Scores(np.array([logits]), 0)
    return Target(Words.split(text), 0, clean, Resources(lexicon), np.random.default_rng(0))


def test_substitutes_take_on_the_case_of_the_word() -> None:
    lexicon = Lexicon.of({"good": ["fine", "nice"], "us": ["we"]})
    text = target("Good good GOOD US bad", lexicon)
    assert Pwws().surface(text) == [("Fine", "Nice"), ("fine", "nice"), ("FINE", "NICE"), ("WE",), ()]
    assert Pwws(exact_case=True).surface(text) == [(), ("fine", "nice"), (), (), ()]


def test_a_constrained_surface_is_part_of_the_free_one() -> None:
    model = Trigram.fit(sentences(300, seed=9))
    lexicon = Lexicon.of(ENTRIES)
    kept = all_ = 0
    for text in sentences(20):
        whole = Target(Words.split(text), 0, Scores(np.zeros((1, 2)), 0), Resources(lexicon, model), None)  # type: ignore[arg-type]
        free = Genetic(min_log_ratio=None).surface(whole)
        bound = Genetic(min_log_ratio=-1.0).surface(whole)
        assert all(set(few) <= set(many) for few, many in zip(bound, free, strict=True))
        kept, all_ = kept + sum(map(len, bound)), all_ + sum(map(len, free))
    assert 0 < kept < all_


def test_importance_by_margin_and_as_published() -> None:
    clean, left_out = [2.0, 0.0, 1.0], np.array([[2.0, 1.0, 1.0], [0.0, 0.0, 3.0], [2.0, 0.0, 1.1], [1.0, 0.0, 0.9]])

    def order(measure: Measure) -> list[int]:
        text = replace(target("one two three four"), clean=Scores(np.array([clean]), 0, measure))
        search = by_importance(text)
        assert next(search).candidates[0] == ("", "two", "three", "four")
        with pytest.raises(StopIteration) as end:
            search.send(Scores(left_out, 0, measure))
        return list(end.value.value)

    assert order("margin") == [1, 3, 2, 0]  # margins 1, -3, 0.9 and 0.1 of 1
    # Without the second word the right class loses 0.62 and the new one gains 0.67; the others lose 0.09, 0.02, 0.20.
    assert order("probability") == [1, 3, 0, 2]


def test_importance_as_published_counts_what_the_new_class_gains() -> None:
    # Left out, the first word costs the right class more, and the second one flips the prediction.
    clean, left_out = [2.0, 1.5, 0.0], np.array([[0.2, 0.1, 0.1], [1.0, 2.0, -1.0]])
    text = replace(target("one two"), clean=Scores(np.array([clean]), 0, "probability"))
    search = by_importance(text)
    next(search)
    scores = Scores(left_out, 0, "probability")
    loss = text.clean.chances[0] - scores.chances
    gain = scores.probabilities[1, 1] - text.clean.probabilities[0, 1]
    assert loss[1] > 0 and (loss[1] + gain > loss[0]) and not scores.wrong[0] and scores.wrong[1]
    with pytest.raises(StopIteration) as end:
        search.send(scores)
    assert list(end.value.value) == [1, 0]


def test_textfooler_prefers_the_most_similar_flip() -> None:
    lexicon = Lexicon.of({"bad": ["poor", "awful", "worse"]})
    vectors = {"bad": [1.0, 0.0], "poor": [0.9, 0.5], "awful": [0.95, 0.3], "worse": [0.0, 1.0]}

    def encoder(texts: Sequence[str]) -> np.ndarray:
        return np.array([vectors[text.split()[-1]] for text in texts])

    whole = Target(
        Words.split("so bad"), 0, Scores(np.array([[1.0, 0.0]]), 0), Resources(lexicon, encoder=encoder), None
    )  # type: ignore[arg-type]
    search = TextFooler(min_similarity=0.8).search(whole)
    assert len(next(search).candidates) == 2
    question = search.send(Scores(np.array([[1.0, 0.0], [0.0, 0.0]]), 0))
    assert question.candidates == [("so", "poor"), ("so", "awful")] and not question.moves  # worse is too far away
    question = search.send(Scores(np.array([[0.0, 1.0], [0.0, 1.0]]), 0))
    assert question.moves and question.candidates == [("so", "awful"), ("so", "poor")]


def test_textfooler_compares_a_window_of_long_texts() -> None:
    seen: list[str] = []
    words = [f"w{i}" for i in range(30)]

    def encoder(texts: Sequence[str]) -> np.ndarray:
        seen.extend(texts)
        return np.ones((len(texts), 2))

    lexicon = Lexicon.of({word: ["x"] for word in words})
    whole = Target(
        Words.split(" ".join(words)), 0, Scores(np.array([[1.0, 0.0]]), 0), Resources(lexicon, encoder=encoder), None
    )  # type: ignore[arg-type]
    search = TextFooler().search(whole)
    next(search)
    losses = np.zeros(30)
    losses[[29, 0, 12]] = [-3.0, -2.0, -1.0]
    search.send(Scores(np.stack([losses, np.full(30, -4.0)], axis=1), 0))
    for _ in range(2):
        search.send(Scores(np.array([[1.0, 0.0]]), 0))
    assert seen[0::2] == [" ".join(words[a : a + 15]) for a in (15, 0, 5)]
    assert seen[1] == " ".join([*words[15:29], "x"])


def test_stop_words_stay() -> None:
    lexicon = Lexicon.of({"the": ["a"], "film": ["movie"]})
    assert TextFooler().surface(target("The film", lexicon)) == [(), ("movie",)]
    assert TextFooler(skip_stop_words=False).surface(target("The film", lexicon)) == [("A",), ("movie",)]


def letters_changed(before: str, after: str) -> int:
    """The edit distance."""
    row = list(range(len(after) + 1))
    for i, a in enumerate(before):
        previous, row[0] = row[0], i + 1
        for j, b in enumerate(after):
            previous, row[j + 1] = row[j + 1], min(row[j + 1] + 1, row[j] + 1, previous + (a != b))
    return row[-1]


@pytest.mark.parametrize("settings", [Typos(), Typos(max_letters=1), Typos(max_words_share=1.0, max_letters=5)])
def test_typos_keep_to_their_budget(
    settings: Typos, model: BertForSequenceClassification, single: Dataset, run: Run
) -> None:
    result = run(model, single, settings)
    broken = [example for example in result.examples if example.status == "broken"]
    assert broken
    for example in broken:
        edits = [letters_changed(change.before, change.after) for change in example.changes]
        assert min(edits) >= 1 and max(edits) <= 2 and sum(edits) <= settings.max_letters
        assert len(edits) <= max(1, int(settings.max_words_share * example.words))
        assert all(len(change.before) >= 3 and change.before[0] == change.after[0] for change in example.changes)


@pytest.mark.parametrize("settings", [TextBugger(), TextBugger(max_edits=1), TextBugger(max_words_share=1.0)], ids=str)
def test_textbugger_keeps_to_its_budget(
    settings: TextBugger, model: BertForSequenceClassification, single: Dataset, run: Run
) -> None:
    broken = [example for example in run(model, single, settings).examples if example.status == "broken"]
    assert broken
    for example in broken:
        assert len(example.changes) <= min(settings.max_edits, max(1, int(settings.max_words_share * example.words)))
        for change in example.changes:
            is_word = change.after in ENTRIES.get(change.before, [])
            assert is_word or 1 <= letters_changed(change.before, change.after) <= 2
            assert is_word or change.after[0] == change.before[0]


def test_textbugger_without_neighbours_needs_no_lexicon(
    model: BertForSequenceClassification, single: Dataset, run: Run
) -> None:
    result = run(model, single, TextBugger(neighbours=0), lexicon=None)
    assert result.summary.counts["broken"] > 3 and result.lexicon is None
    with pytest.raises(RunError, match="textbugger replaces words by those of a lexicon"):
        run(model, single, TextBugger(), lexicon=None)


def test_textbugger_without_bugs_of_letters_has_words_only(
    model: BertForSequenceClassification, single: Dataset, run: Run
) -> None:
    result = run(model, single, TextBugger(max_words_share=1.0, tries=0))
    changes = [change for example in result.examples for change in example.changes]
    assert len(changes) > 10 and all(change.after in ENTRIES[change.before] for change in changes)
    assert [each.changeable for each in result.examples] == [
        each.changeable for each in run(model, single, TextFooler(min_similarity=None)).examples
    ]
    unknown = run(model, single.select(range(1, 4)), TextBugger(tries=0), lexicon=Lexicon.of({"nowhere": ["absent"]}))
    assert [(each.status, each.queries) for each in unknown.examples] == [("robust", 1)] * 3
    with pytest.raises(RecipeError, match="tries=0 and neighbours=0 leave nothing to try"):
        TextBugger(neighbours=0, tries=0)


BACK = {other: letter for letter, other in HOMOGLYPHS.items() if letter.isascii()}


def seen(text: str) -> str:
    """What a reader sees of a text with edits."""
    text = re.sub("[\u200b-\u200d]", "", text)
    text = re.sub(".\x08", "", text)
    text = re.sub("\u202d\u2066\u202e\u2066(.)\u2069\u2066(.)\u2069\u202c\u2069\u202c", r"\2\1", text)
    return "".join(BACK.get(letter, letter) for letter in text)


KINDS = ("invisible", "homoglyphs", "reorderings", "deletions")


def test_imperceptible_as_published_is_told_from_what_it_was_before() -> None:
    """Results from before there was the setting have the same settings."""
    assert "scores" not in Imperceptible().settings()
    assert Imperceptible(scores="probability").settings()["scores"] == "probability"
    with pytest.raises(RecipeError, match="scores"):
        Imperceptible(scores="probabilty")  # type: ignore[arg-type]


@pytest.mark.parametrize("strategy", ["greedy", "evolution"])
@pytest.mark.parametrize("kinds", [KINDS, *((kind,) for kind in KINDS)], ids=" ".join)
def test_imperceptible_edits_cannot_be_seen(
    strategy: Literal["greedy", "evolution"],
    kinds: tuple[str, ...],
    model: BertForSequenceClassification,
    single: Dataset,
    run: Run,
) -> None:
    settings = Imperceptible(
        max_edits=2,
        strategy=strategy,
        population=3,
        **{kind: kind in kinds for kind in KINDS},  # type: ignore[arg-type]
    )
    result = run(model, single, settings)
    broken = [example for example in result.examples if example.status == "broken"]
    # The tokenizer is BERT's, which removes characters of no width before the model sees them.
    assert not broken if kinds == ("invisible",) else len(broken) > 3
    for example in broken:
        assert example.adversarial is not None and seen(example.adversarial) == example.texts["text"]
        added = [letter for letter in example.adversarial if letter in "\u200b\u200c\u200d\b\u202e" or letter in BACK]
        assert 1 <= len(added) <= 2


def test_the_first_letter_only_on_request(model: BertForSequenceClassification, single: Dataset, run: Run) -> None:
    changes = [c for e in run(model, single, Typos(first_letter=True)).examples for c in e.changes]
    assert any(change.before[0] != change.after[0] for change in changes)


def test_numbers_get_no_typos() -> None:
    assert list(Typos().search(target("1998 10 to"))) == []


def test_pwws_can_leave_out_what_does_not_help(model: BertForSequenceClassification, single: Dataset, run: Run) -> None:
    every, helpful = run(model, single, Pwws()), run(model, single, Pwws(replace_without_gain=False))
    assert every.summary.counts["broken"] >= helpful.summary.counts["broken"]
    assert sum(e.queries for e in helpful.examples) < sum(e.queries for e in every.examples)


def test_a_slip_that_flips_is_taken_whichever_label_wins() -> None:
    """Three classes: the slip with the lowest probability of the label need not be the one that flips."""
    text = target("abcdef", logits=[2.0, 1.0, 0.0])
    search = Typos(tries=1).search(text)
    next(search)
    tried = search.send(Scores(np.array([[2.0, 1.0, 0.0]]), 0)).candidates
    logits = np.tile([2.0, 1.0, 0.0], (len(tried), 1))
    logits[1] = [1.0, 0.9, 0.9]  # p 0.36
    logits[2] = [1.0, 1.1, -9.0]  # p 0.48
    question = search.send(Scores(logits, 0))
    assert question.moves and question.candidates == [tried[2]]


def test_values_are_margins_in_units_of_the_original_text() -> None:
    scale = Scale("margin", 1)
    assert scale.scores(np.array([[0.5, 2.0, 0.0]])).values == pytest.approx(CLEAN_VALUE)
    later = scale.scores(np.array([[1.0, 1.5, 0.0], [0.0, 1.0, 4.0]]))
    assert later.values == pytest.approx([1.0, -6.0])
    assert later.chances == pytest.approx(1 / (1 + np.exp([-1.0, 6.0])))
    largest = 4 - (0 + 1 + 4) / 3  # less the mean of its classes
    assert later.near == pytest.approx(NEAR * largest / 0.5) and list(later.wrong) == [False, True]


@pytest.mark.parametrize("factor", [1e-6, 0.05, 20, 1e6])
def test_the_scale_of_the_logits_changes_no_value(factor: float) -> None:
    logits = np.random.default_rng(0).normal(size=(50, 4))
    logits[0, 2] = logits[0].max() + 1
    one, other = Scale("margin", 2), Scale("margin", 2)
    for part in (slice(0, 1), slice(1, 20), slice(20, 50)):
        a, b = one.scores(logits[part]), other.scores(factor * logits[part])
        np.testing.assert_allclose(a.values, b.values, rtol=1e-12)
        assert a.near == pytest.approx(b.near)


def test_published_measures_are_those_of_the_model() -> None:
    logits = np.array([[3.0, 1.0, 0.0], [0.0, 2.0, 1.9]])
    likely = Scale("probability", 0).scores(logits)
    assert likely.chances == pytest.approx(likely.probabilities[:, 0])
    assert Scale("raw-margin", 0).scores(logits).values == pytest.approx([2.0, -2.0])


@pytest.mark.parametrize("clean", [[0.0, 0.0], [2.0, 2.0]])
def test_an_original_text_without_a_margin_has_a_scale(clean: list[float]) -> None:
    scale = Scale("margin", 0)
    assert scale.scores(np.array([clean])).values == [0.0]
    assert np.isfinite(scale.scores(np.array([[1.0, 3.0]])).values).all()


def test_ties_go_to_the_first() -> None:
    assert first_lowest(np.array([0.3, 0.100004, 0.1, 0.2]), 1e-5) == 1
    assert first_lowest(np.array([0.3, 0.1001, 0.1]), 1e-5) == 2
    assert list(highest_first(np.array([-1e-8, 1e-8, 0.5, 0.500001, 0.7]), 1e-5)) == [4, 2, 3, 0, 1]
    assert list(highest_first(np.array([0.1, 0.2, 0.3]), 0.0)) == [2, 1, 0]
    assert list(highest_first(np.array([]), 1e-5)) == []
    assert lower(0.1, 0.2, 1e-5) and not lower(0.2 - 1e-6, 0.2, 1e-5)


def test_ties_at_the_edge_of_a_rounding_step() -> None:
    """0.000005 less or more the noise of a batch: rounding to five decimals would part them."""
    for noise in (1e-9, -1e-9):
        assert list(highest_first(np.array([5e-6 - noise, 5e-6 + noise, 1.0]), 1e-5)) == [2, 0, 1]


def test_genetic_lives_on_text_without_substitutes(
    model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast, run: Run
) -> None:
    plain = Dataset.from_dict({"text": [" ".join(WORDS[1::2][:4]), "..."], "label": [0, 0]})
    assert not set(WORDS[1::2][:4]) & set(ENTRIES)
    for example in run(model, plain, Genetic(min_log_ratio=None)).examples:
        assert example.status in ("robust", "wrong") and example.queries == 1


@pytest.mark.slow
def test_the_sentence_encoder_tells_meaning() -> None:
    vectors = SentenceEncoder.load()(["a good film", "a fine movie", "rain is expected tomorrow in the north"])
    assert np.linalg.norm(vectors, axis=1) == pytest.approx(1, abs=1e-5)
    assert vectors[0] @ vectors[1] > 0.6 > 0.3 > vectors[0] @ vectors[2]
    alone = SentenceEncoder.load()(["a good film"])
    np.testing.assert_allclose(alone[0], vectors[0], atol=1e-5)  # padding does not count
