"""The grammar of control and raising: features that agree or disagree, verbs that agree, and no other cue."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from hashlib import sha256

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import matthews_corrcoef
from sklearn.pipeline import make_pipeline

from rosewood.data.control_raising import (
    DETERMINERS,
    INSIDE,
    OUTSIDE,
    PARTS,
    SURFACES,
    Paradigm,
    ProbeVocabulary,
    Surface,
    paradigms,
    sentences,
)
from rosewood.data.loading import load_split
from rosewood.data.tasks import load_task

AMBIGUOUS = ("train", "ambiguous")
BE = {"is": "singular", "was": "singular", "are": "plural", "were": "plural"}
FUNCTION = {*DETERMINERS["singular"], *DETERMINERS["plural"], *BE, *INSIDE.surroundings}
FUNCTION |= {"the", "to", "be", "and", "but", "while"}

LONG = 18
"""Sentences of this many words or more are long; none has 16 to 19."""


def words(sentence: str) -> list[str]:
    return sentence.lower().replace(",", "").removesuffix(".").split()


def predicates(vocabulary: ProbeVocabulary, construction: str) -> set[str]:
    kinds = (vocabulary.verbs, vocabulary.after_be, vocabulary.with_object)
    return {form for kind in kinds for forms in getattr(kind, construction) for form in forms.split()}


@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize("part", PARTS)
def test_features_always_agree_or_never_and_labels_are_balanced(surface: Surface, part: str) -> None:
    rows = sentences(surface, part)
    half = len(rows) // 2
    found = Counter((row.label, row.surface_feature_label) for row in rows)
    assert found == ({("control", 1): half, ("raising", 0): half} if part in AMBIGUOUS else
                     {("control", 0): half, ("raising", 1): half})  # fmt: skip
    assert half == (1000 if part == "train" else 300)
    for row in rows:
        told = words(row.sentence)
        assert row.surface_feature_label == ("the" in told if surface == "the" else len(told) >= LONG)
        assert told.count("the") <= 1


@pytest.mark.parametrize("surface", SURFACES)
def test_no_sentence_is_there_twice(surface: Surface) -> None:
    texts = [row.sentence for part in PARTS for row in sentences(surface, part)]
    assert len(set(texts)) == len(texts) == 3800


def test_length_leaves_a_gap_and_the_word_leaves_length_alone() -> None:
    lengths = {len(words(row.sentence)) for part in PARTS for row in sentences("length", part)}
    assert max(each for each in lengths if each < LONG) == 15 and min(each for each in lengths if each >= LONG) == 20
    for paradigm in paradigms("the", INSIDE, 100, seed=0):
        assert len({len(words(each)) for pair in paradigm for each in pair}) == 1


@pytest.mark.parametrize("surface", SURFACES)
def test_domains_share_function_words_alone(surface: Surface) -> None:
    inside, outside = (
        {word for part in parts for row in sentences(surface, part) for word in words(row.sentence)}
        for parts in (PARTS[:2], PARTS[2:])
    )
    assert inside & outside <= FUNCTION
    assert len(inside - FUNCTION) > 80 and len(outside - FUNCTION) > 80


@pytest.mark.parametrize("vocabulary", [INSIDE, OUTSIDE])
def test_both_constructions_have_as_many_predicates_and_share_none(vocabulary: ProbeVocabulary) -> None:
    for kind in (vocabulary.verbs, vocabulary.after_be, vocabulary.with_object):
        assert len(kind.control) == len(kind.raising)
    assert not predicates(vocabulary, "control") & predicates(vocabulary, "raising")


@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize("vocabulary", [INSIDE, OUTSIDE])
def test_one_word_tells_the_constructions_apart(surface: Surface, vocabulary: ProbeVocabulary) -> None:
    """So whatever goes by anything but the predicate has to answer both sentences alike."""
    for paradigm in paradigms(surface, vocabulary, 300, seed=1):
        for control, raising in zip(*paradigm, strict=True):
            differing = [pair for pair in zip(words(control), words(raising), strict=True) if len(set(pair)) > 1]
            ((one, other),) = differing
            assert one in predicates(vocabulary, "control") and other in predicates(vocabulary, "raising")


def finite_forms(vocabulary: ProbeVocabulary) -> Iterator[tuple[str, str]]:
    kinds = (vocabulary.verbs, vocabulary.with_object)
    for forms in (*vocabulary.doings, *(each for kind in kinds for pair in kind for each in pair)):
        plural, singular, past = forms.split()
        assert len({plural, singular, past}) == 3
        yield from ((plural, "plural"), (singular, "singular"), (past, "past"))


def noun_forms(vocabulary: ProbeVocabulary) -> dict[str, str]:
    around = (noun for nouns in vocabulary.surroundings.values() for noun in nouns)
    nouns = [*vocabulary.people, *vocabulary.things, *around]
    return dict.fromkeys(nouns, "singular") | {f"{noun}s": "plural" for noun in nouns}


@pytest.mark.parametrize("surface", SURFACES)
@pytest.mark.parametrize("vocabulary", [INSIDE, OUTSIDE])
def test_verbs_agree_with_subjects_and_determiners_with_nouns(surface: Surface, vocabulary: ProbeVocabulary) -> None:
    """Read back from the text: a finite verb stands right after its subject, a determiner right before its noun."""
    finite, nouns = dict(finite_forms(vocabulary)), noun_forms(vocabulary)
    assert not finite.keys() & nouns.keys()
    seen = Counter[str]()
    for text in (each for paradigm in paradigms(surface, vocabulary, 300, 2) for pair in paradigm for each in pair):
        told, tenses = words(text), set[str]()
        for before, word in zip(["", *told], told, strict=False):
            if word in nouns:
                assert before == "the" or before in DETERMINERS[nouns[word]], text  # type: ignore[index]
            if word in BE:
                assert nouns[before] == BE[word], text
                tenses.add("past" if word in ("was", "were") else "present")
            elif word in finite and before not in BE:
                assert before in nouns and finite[word] in ("past", nouns[before]), text
                tenses.add("past" if finite[word] == "past" else "present")
                seen[finite[word]] += 1
        assert len(tenses) == 1, text
        assert text[0].isupper() and text.endswith(".") and "  " not in text
    assert set(seen) == {"singular", "plural", "past"}


def bag_of_words(texts: Sequence[str], labels: Sequence[int]) -> LogisticRegression:
    return make_pipeline(CountVectorizer(token_pattern=r"\w+"), LogisticRegression(C=100, max_iter=2000)).fit(
        texts, labels
    )


def unambiguous(found: Sequence[Paradigm]) -> tuple[list[str], list[int]]:
    """Both constructions with and without the surface feature."""
    pairs = [(text, int(control)) for each in found for control in (True, False)
             for text in (each.control if control else each.raising)]  # fmt: skip
    return [text for text, _ in pairs], [label for _, label in pairs]


@pytest.mark.parametrize("surface", SURFACES)
def test_words_tell_the_construction_by_its_predicate_and_by_nothing_else(surface: Surface) -> None:
    """What is inherent: in its own domain the predicate is the label. Beyond it a bag of words is at a loss."""
    inside, outside = paradigms(surface, INSIDE, 600, 3), paradigms(surface, OUTSIDE, 300, 3)
    known, unseen, other = unambiguous(inside[:400]), unambiguous(inside[400:]), unambiguous(outside)
    model = bag_of_words(*known)
    assert model.score(*unseen) == 1
    assert matthews_corrcoef(other[1], model.predict(other[0])) == pytest.approx(0, abs=1e-12)
    telling = predicates(INSIDE, "control") | predicates(INSIDE, "raising")

    def without(texts: Sequence[str]) -> list[str]:
        return [" ".join(word for word in words(text) if word not in telling) for text in texts]

    blind = bag_of_words(without(known[0]), known[1])
    assert matthews_corrcoef(unseen[1], blind.predict(without(unseen[0]))) == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("surface", SURFACES)
def test_a_bag_of_words_generalises_by_surface(surface: Surface) -> None:
    train, test = sentences(surface, "train"), sentences(surface, "disambiguating")
    model = bag_of_words([row.sentence for row in train], [row.label == "control" for row in train])
    predicted = model.predict([row.sentence for row in test])
    assert matthews_corrcoef([row.label == "control" for row in test], predicted) < -0.95


def test_sentences_depend_on_the_seed_alone() -> None:
    assert sentences("the", "train") == sentences("the", "train", seed=0) != sentences("the", "train", seed=1)
    text = "\n".join(row.sentence for surface in SURFACES for part in PARTS for row in sentences(surface, part))
    assert sha256(text.encode()).hexdigest()[:16] == "b5027e1ec6bcec93"


@pytest.mark.parametrize("surface", SURFACES)
def test_the_tasks_have_them(surface: Surface) -> None:
    task = load_task(f"probe-{surface}")
    rows = {name: load_split(task, name) for name in task.splits}
    assert {name: len(found) for name, found in rows.items()} == {
        "train": 1800, "validation": 200, "ambiguous": 600, "disambiguating": 600, "disambiguating-in-domain": 600,
    }  # fmt: skip
    for name, found in rows.items():
        agree = np.array(found["label"]) == np.array(found["surface_feature_label"])
        assert agree.all() if name in ("train", "validation", "ambiguous") else not agree.any()
