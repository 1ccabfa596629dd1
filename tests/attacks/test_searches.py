"""The ideas of each attack that the oracles do not cover: constraints, order, budgets of edits."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from datasets import Dataset
from transformers import BertForSequenceClassification, PreTrainedTokenizerFast

from rosewood.attacks.genetic import Genetic
from rosewood.attacks.pwws import Pwws
from rosewood.attacks.search.importance import by_importance
from rosewood.attacks.search.questions import Scores, Target
from rosewood.attacks.search.resources import Resources
from rosewood.attacks.search.ties import first_lowest, highest_first, lower
from rosewood.attacks.textfooler import TextFooler
from rosewood.attacks.typos import Typos
from rosewood.data.encoder import SentenceEncoder
from rosewood.data.lexicon import Lexicon
from rosewood.data.trigram import Trigram
from rosewood.data.words import Words
from rosewood.results import AttackResult
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


def test_importance_adds_what_the_new_class_gains_on_a_flip() -> None:
    search = by_importance(target("one two three", logits=[2.0, 0.0, 1.0]))
    question = next(search)
    assert question.candidates == [("", "two", "three"), ("one", "", "three"), ("one", "two", "")]
    logits = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 3.0], [2.0, 0.0, 1.0]])
    with pytest.raises(StopIteration) as end:
        search.send(Scores(logits, 0))
    assert list(end.value.value) == [1, 0, 2]


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


def test_the_first_letter_only_on_request(model: BertForSequenceClassification, single: Dataset, run: Run) -> None:
    changes = [c for e in run(model, single, Typos(first_letter=True)).examples for c in e.changes]
    assert any(change.before[0] != change.after[0] for change in changes)


def test_numbers_get_no_typos() -> None:
    assert list(Typos().search(target("1998 10 to"))) == []


def test_pwws_can_leave_out_what_does_not_help(model: BertForSequenceClassification, single: Dataset, run: Run) -> None:
    every, helpful = run(model, single, Pwws()), run(model, single, Pwws(replace_without_gain=False))
    assert every.summary.counts["broken"] >= helpful.summary.counts["broken"]
    assert sum(e.queries for e in helpful.examples) < sum(e.queries for e in every.examples)


def test_ties_go_to_the_first() -> None:
    assert first_lowest(np.array([0.3, 0.100004, 0.1, 0.2])) == 1
    assert first_lowest(np.array([0.3, 0.1001, 0.1])) == 2
    assert list(highest_first(np.array([-1e-8, 1e-8, 0.5, 0.500001, 0.7]))) == [4, 2, 3, 0, 1]
    assert lower(0.1, 0.2) and not lower(0.2 - 1e-6, 0.2)


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
