"""What a guard calls suspicious, and what that is worth against an attack that knows it."""

import numpy as np
import pytest
import torch
from datasets import Dataset
from scipy.special import softmax
from sklearn.covariance import MinCovDet
from sklearn.decomposition import PCA
from transformers import BertForSequenceClassification, PreTrainedTokenizerFast

from rosewood.attacks.runner.api import attack
from rosewood.attacks.runner.scores import Scores
from rosewood.defences.guarded import Guarded, Guarding, detection
from rosewood.defences.runner.wrap import wrap
from rosewood.errors import RunError
from rosewood.words.lexicon import Lexicon
from tiny_attack import sentences
from tiny_defences import logits, wrapped

Model, Tokenizer = BertForSequenceClassification, PreTrainedTokenizerFast


@pytest.mark.parametrize("by", ["frequency", "density", "energy"])
def test_the_threshold_lets_through_all_but_the_false_alarms(by: str, model: Model, tokenizer: Tokenizer) -> None:
    guarded = wrapped(model, tokenizer, f"guarded:{by}", false_alarms=0.25)
    rows = [(text,) for text in sentences(40, seed=5)][::5]  # those that were kept apart
    answers = logits(guarded, guarded.tokenizer, rows)
    assert answers.shape == (8, 3)
    assert (answers.argmax(axis=1) == 2).mean() <= 0.25
    np.testing.assert_allclose(answers[:, :2], logits(model, tokenizer, rows), atol=1e-4)
    assert guarded.config.id2label[2] == "suspicious"


def test_rare_words_become_frequent_synonyms(model: Model, tokenizer: Tokenizer) -> None:
    texts = ["good film"] * 20 + ["odd film"]
    lexicon = Lexicon.of({"odd": ["strange", "good"], "good": ["odd"], "new": ["film", "good"]})
    guarded = wrap(model, tokenizer, Guarded(rare=0.1), texts=texts, lexicon=lexicon)
    assert guarded.learnt["known"]["replacement"] == {"odd": "good", "new": "film"}
    shield = guarded.shield
    assert isinstance(shield, Guarding)
    found = shield.scores([("Odd film",), ("good film",)], guarded.base())[1]
    before, after = (softmax(logits(model, tokenizer, [(text,)])[0]) for text in ("Odd film", "Good film"))
    assert found == pytest.approx([before.max() - after[before.argmax()], 0], abs=1e-5)


def test_density_is_the_distance_to_the_predicted_class(model: Model, tokenizer: Tokenizer) -> None:
    guarded = wrapped(model, tokenizer, "guarded:density", dimensions=4)
    shield = guarded.shield
    assert isinstance(shield, Guarding)
    texts = sentences(40, seed=5)

    def features(text: str) -> np.ndarray:
        with torch.inference_mode():
            return model.bert(**tokenizer(text, return_tensors="pt")).pooler_output[0].double().numpy()

    fit = [text for place, text in enumerate(texts) if place % 5]
    reduced = PCA(4, random_state=0).fit(np.stack([features(text) for text in fit]))
    points = reduced.transform(np.stack([features(text) for text in fit]))
    classes = logits(model, tokenizer, [(text,) for text in fit]).argmax(axis=1)
    for text in sentences(6, seed=8):
        label = int(logits(model, tokenizer, [(text,)]).argmax())
        own = points[classes == label]
        robust = MinCovDet(random_state=0).fit(own if len(own) > 8 else points)
        expected = robust.mahalanobis(reduced.transform([features(text)]))
        np.testing.assert_allclose(shield.scores([(text,)], guarded.base())[1], expected, rtol=1e-2)


def test_detection_compares_clean_and_attacked_texts(model: Model, tokenizer: Tokenizer) -> None:
    guarded = wrapped(model, tokenizer, "guarded:energy")
    shield = guarded.shield
    assert isinstance(shield, Guarding)
    texts = sentences(30)
    scores = shield.scores([(text,) for text in texts], guarded.base())[1]
    ordered = [text for _, text in sorted(zip(scores, texts, strict=True))]
    above = float((np.sort(scores)[20:] > guarded.learnt["threshold"]).mean())
    assert detection(guarded, ordered[:20], ordered[20:]) == (1.0, 0.0, pytest.approx(above))
    assert detection(guarded, ordered[20:], ordered[:20]).auroc == 0
    with pytest.raises(RunError, match="needs a guarded model"):
        detection(wrapped(model, tokenizer, "corrected"), texts, texts)


def test_detection_of_a_guard_behind_a_front_end_is_of_the_texts_that_the_guard_reads(
    model: Model, tokenizer: Tokenizer
) -> None:
    chain = wrapped(model, tokenizer, "corrected+guarded:energy", language="none")
    corrected, guard = chain.shield.front[0], chain.shield.last
    assert isinstance(guard, Guarding)
    clean = sentences(20)
    attacked = [text.replace("e", "\u0435") for text in clean]  # Cyrillic, which the front end takes back
    assert attacked != clean and [corrected.read(each) for each in attacked] == [corrected.read(each) for each in clean]
    found = detection(chain, clean, attacked)
    assert found.auroc == pytest.approx(0.5) and found.caught == found.false_alarms
    scores = guard.scores([(corrected.read(text),) for text in clean], chain.base())[1]
    assert found.false_alarms == float((scores > chain.learnt["parts"][1]["threshold"]).mean())


def test_a_suspicious_text_has_not_fooled_the_model() -> None:
    scores = Scores(np.array([[2.0, 1, 0], [1, 2, 3], [1, 3, 2], [0, 1, 5]]), label=0, refusal=2)
    assert scores.wrong.tolist() == [False, False, True, False]
    assert scores.right.tolist() == [True, False, False, False]
    assert scores.values.tolist() == [1, 1, -1, 4]


def test_an_attack_must_get_past_the_guard(model: Model, tokenizer: Tokenizer) -> None:
    guarded = wrapped(model, tokenizer, "guarded:energy", false_alarms=0.3)
    texts = sentences(30)
    labels = logits(model, tokenizer, [(text,) for text in texts]).argmax(axis=1).tolist()
    data = Dataset.from_dict({"text": texts, "label": labels})
    plain = attack(model, tokenizer, data, "typos", progress=False)
    aware = attack(guarded, guarded.tokenizer, data, "typos", progress=False)
    broken = [example for example in aware.examples if example.status == "broken"]
    assert broken and len(broken) < sum(example.status == "broken" for example in plain.examples)
    answers = logits(guarded, guarded.tokenizer, [(str(example.adversarial),) for example in broken]).argmax(axis=1)
    assert all(answer not in (2, example.label) for answer, example in zip(answers, broken, strict=True))
    flagged = logits(guarded, guarded.tokenizer, [(text,) for text in texts]).argmax(axis=1) == 2
    assert aware.summary.counts["wrong"] == flagged.sum()  # a false alarm is no right answer
