"""Attacks on models with several labels per text, or a label per word, against slow transcriptions."""

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from datasets import ClassLabel, Dataset, Features, Sequence, Value
from test_engine import ATTACKS, OTHER_FORMS
from transformers import BertForSequenceClassification, BertForTokenClassification, PreTrainedTokenizerFast

from rosewood.attacks import Gradient, Pwws, Typos
from rosewood.attacks.runner.attack import Attack
from rosewood.attacks.runner.cases import EntityType, LabelSet, entities
from rosewood.attacks.runner.replay import replay
from rosewood.attacks.runner.report import diff
from rosewood.errors import DataError, RunError
from rosewood.models.scoring import TokenScorer
from slow_attacks import slow_pwws
from tiny_attack import ENTRIES, sentences
from tiny_text import tiny_classifier

each = pytest.mark.parametrize("method", (ATTACKS | OTHER_FORMS).values(), ids=ATTACKS | OTHER_FORMS)
NAMES = ("O", "B-PER", "I-PER", "B-LOC", "I-LOC")
SCHEME = [(0, 1, 2, 0), (3, 4, 4), (0, 1, 3, 0, 1, 2, 1), (0, 0), (2, 2, 4)]


def breaks_all(method: Attack) -> bool:
    """Whether the attack may leave nothing of a random model: letters and inserted words have few bounds."""
    return method not in (Pwws(), Typos(), Gradient(), ATTACKS["genetic"])


@pytest.fixture
def several() -> BertForSequenceClassification:
    model = tiny_classifier(("comedy", "drama", "horror"))
    model.config.problem_type = "multi_label_classification"
    return model.eval()


@pytest.fixture
def genres(several: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast) -> Dataset:
    """Thirty texts with the labels that the model gives them, but for every tenth."""
    texts = sentences(30)
    with torch.no_grad():
        logits = [several(**tokenizer(text, return_tensors="pt")).logits[0] for text in texts]
    labels = [(each > 0).int().tolist() for each in logits]
    for i in range(0, 30, 10):
        labels[i][i // 10] = 1 - labels[i][i // 10]
    return Dataset.from_dict({"text": texts, "label": labels})


@pytest.fixture
def tagger() -> BertForTokenClassification:
    torch.manual_seed(0)
    config = tiny_classifier(NAMES).config
    return BertForTokenClassification(config).eval()


def tags_of(model: BertForTokenClassification, tokenizer: PreTrainedTokenizerFast, words: list[str]) -> np.ndarray:
    """The logits of the first token of each word, `(words, labels)`."""
    encoded = tokenizer(words, is_split_into_words=True, return_tensors="pt")
    with torch.no_grad():
        logits = model(**encoded).logits[0].double().numpy()
    places = encoded.word_ids(0)
    return np.array([logits[places.index(at)] for at in range(len(words))])


@pytest.fixture
def names(tagger: BertForTokenClassification, tokenizer: PreTrainedTokenizerFast) -> Dataset:
    """Words with the labels that the model gives them, but for the first word of every fifth text."""
    tokens = [text.split() for text in sentences(9)]
    labels = [tags_of(tagger, tokenizer, words).argmax(axis=1).tolist() for words in tokens]
    for i in range(0, 9, 4):
        labels[i][0] = 1 if labels[i][0] in (0, 3, 4) else 3
    return Dataset.from_dict({"tokens": tokens, "ner_tags": labels})


@each
def test_a_text_breaks_where_the_set_of_its_labels_changes(
    method: Attack,
    several: BertForSequenceClassification,
    tokenizer: PreTrainedTokenizerFast,
    genres: Dataset,
    run: Any,
) -> None:
    result = run(several, genres, method)
    counts = result.summary.counts
    assert counts["wrong"] == 3 and counts["broken"] >= 5 and (counts.get("robust", 0) >= 1 or breaks_all(method))
    with torch.no_grad():
        for example in result.examples:
            right = genres["label"][example.row]
            assert [int(i in example.expected) for i in range(3)] == right
            text = example.adversarial or example.texts["text"]
            found = (several(**tokenizer(text, return_tensors="pt")).logits[0] > 0).int().tolist()
            given = example.adversarial_predicted if example.adversarial else example.predicted
            assert found == [int(i in given) for i in range(3)]
            assert (found != right) == (example.status in ("broken", "wrong"))
    assert replay(several, tokenizer, result, progress=False).summary.success_rate == 1.0


def test_pwws_is_that_of_the_label_nearest_to_being_wrong(
    several: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast, genres: Dataset, run: Any
) -> None:
    result = run(several, genres, Pwws(exact_case=True, split_at_spaces=True))
    for example in result.examples:
        right = np.array(genres["label"][example.row])

        def logits(words: list[str], right: np.ndarray = right) -> np.ndarray:
            with torch.no_grad():
                found = several(**tokenizer(" ".join(words), return_tensors="pt")).logits[0].double().numpy()
            return np.array([min(z if y else -z for y, z in zip(right, found, strict=True)), 0.0])

        if example.status != "wrong":
            slow = slow_pwws(logits, example.texts["text"].split(), 0, ENTRIES)
            assert example.adversarial == (None if slow is None else " ".join(slow))


@each
def test_an_entity_breaks_where_its_type_changes(
    method: Attack, tagger: BertForTokenClassification, tokenizer: PreTrainedTokenizerFast, names: Dataset, run: Any
) -> None:
    result = run(tagger, names, method)
    found = [found for labels in names["ner_tags"] for found in entities(labels, NAMES)]
    assert result.summary.examples == len(found) > 12 and result.field == "tokens"
    types = [name[2:] or name for name in NAMES]
    counts = result.summary.counts
    assert counts["broken"] >= 2 and counts["wrong"] >= 2 and (counts.get("robust", 0) >= 2 or breaks_all(method))
    for example, goal in zip(result.examples, found, strict=True):
        assert (example.about_words, example.expected) == (list(goal.places), list(goal.own))
        words = example.texts["tokens"].split()
        for change in example.changes:
            words[change.position] = change.after
        assert example.adversarial in (None, " ".join(words))
        tags = tags_of(tagger, tokenizer, words).argmax(axis=1)[list(goal.places)]
        right = all(types[tag] == types[goal.own[0]] for tag in tags)
        assert right == (example.status not in ("broken", "wrong"))
        assert tags.tolist() == (example.adversarial_predicted if example.adversarial else example.predicted)
    shown = next(example for example in result.examples if example.status == "broken")
    assert " -> " in diff(shown, NAMES).plain
    assert replay(tagger, tokenizer, result, progress=False).summary.success_rate == 1.0


def test_pwws_on_entities(
    tagger: BertForTokenClassification, tokenizer: PreTrainedTokenizerFast, names: Dataset, run: Any
) -> None:
    compared = 0
    known = cache(lambda text: tags_of(tagger, tokenizer, text.split()))
    for example in run(tagger, names, Pwws(exact_case=True)).examples:
        own = {number for number, name in enumerate(NAMES) if name[2:] == NAMES[example.expected[0]][2:]}

        def logits(words: list[str], example: Any = example, own: set[int] = own) -> np.ndarray:
            found = known(" ".join(words))[example.about_words]
            by_word = [max(row[i] for i in own) - max(row[i] for i in range(5) if i not in own) for row in found]
            return np.array([min(by_word), 0.0])

        words = example.texts["tokens"].split()
        # Where the margin is small, whatever breaks the entity leaves a chance of 0, and the order is a tie.
        if example.status != "wrong" and logits(words)[0] > 1:
            slow = slow_pwws(logits, words, 0, ENTRIES)
            assert example.adversarial == (None if slow is None else " ".join(slow))
            compared += 1
    assert compared >= 8


def test_batch_size_and_confidence_change_nothing(
    tagger: BertForTokenClassification,
    several: BertForSequenceClassification,
    names: Dataset,
    genres: Dataset,
    run: Any,
) -> None:
    for model, data in ((tagger, names), (several, genres.select(range(12)))):
        for method in (Pwws(), Gradient()):
            usual = run(model, data, method)
            with torch.no_grad():
                sure = type(model)(model.config)
                sure.load_state_dict(model.state_dict())
                for weight in sure.classifier.parameters():
                    weight.mul_(1000)
            for other in (run(model, data, method, batch_size=3), run(sure, data, method)):
                assert [e.adversarial for e in other.examples] == [e.adversarial for e in usual.examples]


def test_entities_of_labels() -> None:
    def spans(labels: Any, names: Any = NAMES) -> list[tuple[tuple[int, ...], str]]:
        found = entities(labels, names)
        return [(one.places, names[one.own[0]]) for one in found]

    assert [spans(labels) for labels in SCHEME] == [
        [((1, 2), "B-PER")],
        [((0, 1, 2), "B-LOC")],
        [((1,), "B-PER"), ((2,), "B-LOC"), ((4, 5), "B-PER"), ((6,), "B-PER")],
        [],
        [((0, 1), "I-PER"), ((2,), "I-LOC")],
    ]
    assert spans((1, -100, 1)) == [((0,), "B-PER"), ((2,), "B-PER")]
    assert spans((0, 0, 1), ("NOUN", "VERB")) == [((0,), "NOUN"), ((1,), "NOUN"), ((2,), "VERB")]
    assert spans((0, 1, 1), ("o", "PER")) == [((1, 2), "PER")]


def test_margins() -> None:
    answer = torch.tensor([2.0, -1.0, 0.5])
    assert LabelSet((True, False, True)).margin(answer) == 0.5
    assert LabelSet((True, True, True)).outputs(answer.numpy()) == (-1.0, 0.0)
    words = torch.tensor([[0.0, 3.0, 1.0], [2.0, 0.5, 1.0], [torch.nan] * 3])
    entity = EntityType((0, 1), (1, 2), (False, True, True))
    assert entity.margin(words) == -1.0 and entity.predicted(words.numpy()) == (1, 0)
    assert EntityType((0, 2), (1, 2), (False, True, True)).margin(words) == 3.0
    assert EntityType((2,), (1,), (False, True, True)).outputs(words.numpy()) == (0.0, 0.0)


@pytest.mark.parametrize("side", ["left", "right"])
def test_words_are_scored_by_their_first_tokens(
    side: str, tagger: BertForTokenClassification, tokenizer: PreTrainedTokenizerFast
) -> None:
    tokenizer = type(tokenizer)(tokenizer_object=tokenizer.backend_tokenizer, pad_token="[PAD]", padding_side=side)
    texts = [("abc", "film", "de"), ("good",), ("a", "b", "c", "d", "e")]
    encoded = tokenizer([list(text) for text in texts], is_split_into_words=True, padding=True, return_tensors="pt")
    with torch.no_grad():
        wanted = tagger(**encoded).logits.numpy()
    (batch,) = TokenScorer(tagger, tokenizer).batches(texts)
    for row, logits in zip(batch.rows, batch.logits, strict=True):
        places = [encoded.word_ids(row).index(at) for at in range(len(texts[row]))]
        assert np.allclose(logits, wanted[row, places], atol=1e-5)


def test_words_that_are_left_out_have_no_scores(
    tagger: BertForTokenClassification, tokenizer: PreTrainedTokenizerFast
) -> None:
    texts = [("", "abc", "", "de fg", "film", ""), ("abc", "de", "fg", "film")]
    (batch,) = TokenScorer(tagger, tokenizer, max_length=9).batches(texts)
    some, every = (batch.logits[batch.rows.index(row)] for row in (0, 1))
    assert np.isnan(some[[0, 2, 5]]).all() and np.isnan(some[4]).all() and np.isnan(every[3]).all(), "film is cut off"
    assert np.allclose(some[[1, 3]], every[[0, 1]], atol=1e-5)


def test_word_labels_go_by_their_names_and_come_in_files(
    tagger: BertForTokenClassification, names: Dataset, run: Any, tmp_path: Path
) -> None:
    usual = [e.adversarial for e in run(tagger, names, Pwws()).examples]
    rows = [
        {"words": words, "tags": [NAMES[i].lower() for i in labels]}
        for words, labels in zip(names["tokens"], names["ner_tags"], strict=True)
    ]
    assert [e.adversarial for e in run(tagger, rows, Pwws()).examples] == usual
    path = tmp_path / "names.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    assert [e.adversarial for e in run(tagger, path, Pwws()).examples] == usual
    order = ["I-LOC", "O", "B-PER", "B-LOC", "I-PER"]
    features = Features({"tokens": Sequence(Value("string")), "ner_tags": Sequence(ClassLabel(names=order))})
    labels = [[order.index(NAMES[i]) for i in row] for row in names["ner_tags"]]
    shuffled = Dataset.from_dict({"tokens": names["tokens"], "ner_tags": labels}, features=features)
    assert [e.adversarial for e in run(tagger, shuffled, Pwws()).examples] == usual


def test_what_cannot_be_attacked_is_refused(
    tagger: BertForTokenClassification,
    several: BertForSequenceClassification,
    names: Dataset,
    genres: Dataset,
    run: Any,
) -> None:
    with pytest.raises(DataError, match="expected in 'tokens' a list of words and in 'ner_tags' as many labels"):
        run(tagger, [{"tokens": ["a", "b"], "ner_tags": [0]}], Pwws())
    with pytest.raises(DataError, match="the model has no label 'B-ORG'"):
        run(tagger, [{"tokens": ["a"], "ner_tags": ["B-ORG"]}], Pwws())
    with pytest.raises(DataError, match="no words with a label other than O"):
        run(tagger, [{"tokens": ["a"], "ner_tags": ["O"]}], Pwws())
    with pytest.raises(DataError, match="expected a column 'tokens' or 'words'"):
        run(tagger, [{"text": "a", "ner_tags": [0]}], Pwws())
    for model, data in ((tagger, names), (several, genres)):
        with pytest.raises(RunError, match="only where a text has one label"):
            run(model, data, Pwws(scores="probability"))
