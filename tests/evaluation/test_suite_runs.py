"""A suite runs each distinct text once, says what is missing, and its figures are those of the predictions."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import numpy as np
import pyarrow.parquet as pq
import pytest
import torch
from sklearn.metrics import roc_auc_score
from tokenizers import normalizers
from transformers import BertForSequenceClassification, PreTrainedTokenizerFast

from rosewood.data.loading import load_split
from rosewood.data.suites import Suite
from rosewood.errors import AbsentError, DataError, RunError
from rosewood.evaluation.evaluate import evaluate
from rosewood.evaluation.metrics import merged, predicted_labels
from rosewood.evaluation.predict import predict
from rosewood.results import Evaluation, Role
from rosewood.words.lexicon import Lexicon
from tiny_suite import LABELS, NLI, tiny_suite, write, write_files

Make = Callable[..., BertForSequenceClassification]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_files(tmp_path)


@pytest.fixture
def model(make_model: Make) -> BertForSequenceClassification:
    return make_model(tuple(LABELS))


def test_a_noise_that_changes_no_token_is_marked(
    model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast, folder: Path
) -> None:
    def unseen() -> list[str]:
        return [each.name for each in evaluate(model, tokenizer, tiny_suite(), folder).sets if each.unseen]

    assert unseen() == ["case 0.2", "case 0.8"]
    tokenizer.backend_tokenizer.normalizer = normalizers.BertNormalizer(lowercase=False)
    assert unseen() == []


def texts_seen(model: BertForSequenceClassification) -> list[tuple[int, ...]]:
    seen: list[tuple[int, ...]] = []

    def note(_: object, args: tuple, batch: dict) -> None:
        rows = zip(batch["input_ids"].tolist(), batch["attention_mask"].tolist(), strict=True)
        seen.extend(tuple(i for i, real in zip(ids, mask, strict=True) if real) for ids, mask in rows)

    model.register_forward_pre_hook(note, with_kwargs=True)
    return seen


def test_every_perspective_and_what_is_missing(
    model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast, folder: Path
) -> None:
    evaluation = evaluate(model, tokenizer, tiny_suite(), folder)
    assert (evaluation.suite, evaluation.task) == ("tiny", "tiny")
    assert [(each.name, each.role) for each in evaluation.sets] == [
        ("held_out", "clean"),
        ("books", "shift"),
        ("poems", "shift"),
        ("tricks", "adversarial"),
        ("typos 0.2", "noise"),
        ("typos 0.8", "noise"),
        ("case 0.2", "noise"),
        ("case 0.8", "noise"),
    ]
    assert [(each.name, each.role) for each in evaluation.missing] == [("lost", "shift"), ("archived", "adversarial")]
    assert evaluation.missing[1].reason == "it is in an archive"
    assert {each.score for each in evaluation.anomalies} == {"max_softmax", "energy", "mahalanobis"}
    means = {each.name: each for each in evaluation.means}
    books = next(each for each in evaluation.sets if each.name == "books")
    # `poems` is not of the published suite, `lost` is and is missing: the mean is over 1 of 2 sets and says so.
    assert means["shift"].value == books.accuracy
    assert (means["shift"].sets, means["shift"].missing) == (["books"], ["lost"])
    assert means["adversarial"].missing == ["archived"]
    tricks = next(each for each in evaluation.sets if each.name == "tricks")
    assert {group.group for group in tricks.groups if group.kind == "method"} == {"swap", "drop"}
    assert {group.kind for group in books.groups} == {"class", "length", "negation", "rare words"}
    assert sum(point.examples for point in books.reliability) == books.examples == 40
    assert books.source == "folder: books.jsonl" and books.max_length == 40
    evaluation.save(folder / "evaluation.json")
    assert Evaluation.load(folder / "evaluation.json") == evaluation


def test_each_distinct_text_runs_once(
    model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast, folder: Path
) -> None:
    (folder / "poems.jsonl").write_text((folder / "books.jsonl").read_text())
    seen = texts_seen(model)
    evaluate(model, tokenizer, tiny_suite(noise=None), folder)
    assert len(seen) == len(set(seen)) == 60 + 50 + 40 + 40 + 30


def test_auroc_is_that_of_the_logits(
    model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast, folder: Path
) -> None:
    suite = tiny_suite(noise=None)
    evaluation = evaluate(model, tokenizer, suite, folder)
    parts = [load_split(*suite.task_of(name), folder) for name in ("held_out", "recipes")]
    logits = [torch.from_numpy(predict(model, tokenizer, part, ["text"], max_length=40)).double() for part in parts]
    truth = [0] * 50 + [1] * 30
    scores = -torch.cat(logits).softmax(dim=1).amax(dim=1)
    found = {each.score: each.auroc for each in evaluation.anomalies}
    assert found["max_softmax"] == pytest.approx(roc_auc_score(truth, scores))
    assert found["energy"] == pytest.approx(roc_auc_score(truth, -torch.cat(logits).logsumexp(dim=1)))


def test_a_second_evaluation_reads_the_cache_and_fresh_does_not(
    model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast, folder: Path, tmp_path: Path
) -> None:
    output = tmp_path / "run"
    first = evaluate(model, tokenizer, tiny_suite(), folder, output=output)
    seen = texts_seen(model)
    second = evaluate(model, tokenizer, tiny_suite(), folder, output=output)
    assert seen == []
    assert second.model_copy(update={"created": first.created}) == first
    # Other examples: only what is new is run, for the same figures as without a cache.
    write(folder / "books.jsonl", 45, seed=2)
    third = evaluate(model, tokenizer, tiny_suite(), folder, output=output)
    assert len(seen) == 5
    alone = evaluate(model, tokenizer, tiny_suite(), folder)
    assert third.sets[1].accuracy == alone.sets[1].accuracy and third.anomalies == alone.anomalies
    seen.clear()
    evaluate(model, tokenizer, tiny_suite(), folder, output=output, fresh=True)
    assert len(seen) > 300
    # Other weights: nothing of the old ones counts, or is kept.
    with torch.no_grad():
        model.classifier.bias.add_(torch.tensor([5.0, -5.0]))
    moved = evaluate(model, tokenizer, tiny_suite(), folder, output=output)
    assert moved.checkpoint != first.checkpoint and moved.sets[0].accuracy != first.sets[0].accuracy
    assert [path.name for path in (output / "cache").iterdir()] == [f"predictions-{moved.checkpoint}.safetensors"]


def test_a_damaged_cache_counts_as_none(
    model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast, folder: Path, tmp_path: Path
) -> None:
    output = tmp_path / "run"
    first = evaluate(model, tokenizer, tiny_suite(), folder, output=output)
    (file,) = (output / "cache").iterdir()
    file.write_bytes(file.read_bytes()[:100])
    assert evaluate(model, tokenizer, tiny_suite(), folder, output=output).sets == first.sets


def test_a_cache_that_leads_out_of_the_run_is_not_used(
    model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast, folder: Path, tmp_path: Path
) -> None:
    elsewhere, output = tmp_path / "elsewhere", tmp_path / "run"
    elsewhere.mkdir()
    (elsewhere / "predictions-of-mine.safetensors").write_text("precious")
    output.mkdir()
    (output / "cache").symlink_to(elsewhere)
    evaluate(model, tokenizer, tiny_suite(noise=None), folder, output=output)
    assert [path.name for path in elsewhere.iterdir()] == ["predictions-of-mine.safetensors"]


def test_predictions_stand_in_a_parquet_file(
    model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast, folder: Path, tmp_path: Path
) -> None:
    evaluation = evaluate(model, tokenizer, tiny_suite(), folder, output=tmp_path / "run")
    rows = pq.read_table(tmp_path / "run" / "predictions-tiny.parquet").to_pylist()
    for each in evaluation.sets:
        own = [row for row in rows if row["set"] == each.name]
        assert [row["row"] for row in own] == list(range(each.examples))
        assert np.mean([row["label"] == row["prediction"] for row in own]) == each.accuracy
        assert all(LABELS[int(np.argmax(row["logits"]))] == row["prediction"] for row in own)
    assert {row["label"] for row in rows if row["set"] == "recipes"} == {None}
    assert dict(next(row for row in rows if row["set"] == "tricks")["groups"])["method"] in ("swap", "drop")
    assert not [path for path in (tmp_path / "run").iterdir() if path.name.startswith(".")]


def test_without_the_inside_set_there_are_no_anomalies_and_without_reference_no_features(
    model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast, folder: Path
) -> None:
    (folder / "training.jsonl").unlink()
    evaluation = evaluate(model, tokenizer, tiny_suite(), folder)
    assert {each.score for each in evaluation.anomalies} == {"max_softmax", "energy"}
    assert "training" in [each.name for each in evaluation.missing]
    (folder / "held_out.jsonl").unlink()
    evaluation = evaluate(model, tokenizer, tiny_suite(), folder)
    assert evaluation.anomalies == []
    assert {each.role for each in evaluation.missing} == {*get_args(Role)}
    recipes = next(each for each in evaluation.missing if each.name == "recipes")
    assert recipes.reason == "the set that it is compared with is missing: held_out"


def test_a_set_too_small_to_be_scaled_is_not_dropped_in_silence(
    model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast, folder: Path
) -> None:
    write(folder / "books.jsonl", 9, seed=2)
    means = {each.name: each for each in evaluate(model, tokenizer, tiny_suite(noise=None), folder).means}
    assert means["ece"].sets == ["held_out", "books", "tricks"] and means["ece"].missing == ["lost", "archived"]
    assert means["held_out_ece"].sets == ["held_out", "tricks"]
    assert means["held_out_ece"].missing == ["lost", "archived", "books"]


def test_three_way_models_on_two_way_sets(make_model: Make, tokenizer: PreTrainedTokenizerFast, tmp_path: Path) -> None:
    two = ["entailment", "not_entailment"]
    write(tmp_path / "mnli.jsonl", 40, seed=0, labels=NLI)
    write(tmp_path / "hans.jsonl", 60, seed=1, labels=two)
    suite = Suite.model_validate(
        {
            "name": "nli",
            "title": "NLI",
            "text": ["text"],
            "labels": NLI,
            "merge": {"not_entailment": ["neutral", "contradiction"]},
            "sets": {
                "mnli": {"role": "clean", "title": "MNLI", "folder": {"file": "mnli.jsonl"}},
                "hans": {"role": "shift", "title": "HANS", "folder": {"file": "hans.jsonl"}, "labels": two},
            },
        }
    )
    model = make_model(("CONTRADICTION", "Neutral", "entailment"))  # names in any case, in any order
    evaluation = evaluate(model, tokenizer, suite, tmp_path)
    hans = load_split(*suite.task_of("hans"), tmp_path)
    logits = predict(model, tokenizer, hans, ["text"])
    expected = [int(row.argmax() != 2) == label for row, label in zip(logits, hans["label"][:], strict=True)]
    assert evaluation.sets[1].accuracy == np.mean(expected)
    assert evaluation.labels == {"entailment": "entailment", "neutral": "Neutral", "contradiction": "CONTRADICTION"}
    with pytest.raises(RunError, match="the model has 2 outputs, the task 3 labels"):
        evaluate(make_model(tuple(two)), tokenizer, suite, tmp_path)


def test_merging_counts_predictions_and_adds_probabilities() -> None:
    # Neutral and contradiction together are the more probable, but entailment is what was predicted.
    chances = np.array([[0.4, 0.3, 0.3], [0.2, 0.7, 0.1]])
    assert predicted_labels(np.log(chances), [[0], [1, 2]]).tolist() == [0, 1]
    np.testing.assert_allclose(merged(chances, [[0], [1, 2]]), [[0.4, 0.6], [0.2, 0.8]])


def test_outputs_without_names_are_not_guessed_at(
    make_model: Make, tokenizer: PreTrainedTokenizerFast, folder: Path
) -> None:
    with pytest.raises(RunError, match=r"the outputs of the model have no names.*--labels negative,positive"):
        evaluate(make_model(), tokenizer, tiny_suite(), folder)


def test_bad_data_are_an_error_before_any_work(
    model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast, folder: Path
) -> None:
    seen = texts_seen(model)
    (folder / "books.jsonl").write_text("")
    with pytest.raises(DataError, match=r"books\.jsonl: the file is empty"):
        evaluate(model, tokenizer, tiny_suite(), folder)
    write(folder / "books.jsonl", 5, seed=0, labels=["great"])
    with pytest.raises(DataError, match=r"books\.jsonl, line 1: unknown label 'great'"):
        evaluate(model, tokenizer, tiny_suite(), folder)
    write(folder / "books.jsonl", 5, seed=0)
    with pytest.raises(DataError, match="no set has a column 'methd' to group by: did you mean method"):
        evaluate(model, tokenizer, tiny_suite(), folder, groups=["methd"])
    assert seen == []


def test_users_group_by_any_column(
    model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast, folder: Path
) -> None:
    write(folder / "books.jsonl", 40, seed=2, shop=["north", "south"])
    evaluation = evaluate(model, tokenizer, tiny_suite(noise=None), folder, groups=["shop"])
    books = next(each for each in evaluation.sets if each.name == "books")
    shops = [group for group in books.groups if group.kind == "shop"]
    assert {group.group for group in shops} == {"north", "south"}
    assert sum(group.examples for group in shops) == 40


def test_words_are_rare_in_all_of_the_reference_however_few_are_evaluated(
    model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast, folder: Path
) -> None:
    lines = (folder / "books.jsonl").read_text().splitlines()
    (folder / "training.jsonl").write_text("\n".join(lines * 5) + "\n")  # every word of books five times
    sets = dict(tiny_suite().sets)
    sets["training"] = sets["training"].model_copy(update={"sample": 10})
    suite = tiny_suite(noise=None).model_copy(update={"sets": sets})
    for size in (None, 20):
        books = evaluate(model, tokenizer, suite, folder, size=size).sets[1]
        assert [group.group for group in books.groups if group.kind == "rare words"] == ["none"]


def test_a_suite_over_tasks_takes_the_sets_of_one(
    make_model: Make, tokenizer: PreTrainedTokenizerFast, tmp_path: Path
) -> None:
    with pytest.raises(RunError, match=r"measures a model on its own task, one of sst2, rte, qnli, qqp; got snli"):
        evaluate(make_model(), tokenizer, "glue-adv", tmp_path, task="snli")
    with pytest.raises(RunError, match=r"got none\. Name the task of the model with --task"):
        evaluate(make_model(), tokenizer, "glue-adv", tmp_path)
    glue = tmp_path / "glue" / "RTE"
    glue.mkdir(parents=True)
    rows = [
        f"{i}\ta good film {'abc'[i % 3]}\ta film {i}\t{'entailment' if i % 2 else 'not_entailment'}" for i in range(30)
    ]
    (glue / "dev.tsv").write_text("\n".join(["index\tsentence1\tsentence2\tlabel", *rows]) + "\n")
    model = make_model(("entailment", "not_entailment"))
    evaluation = evaluate(model, tokenizer, "glue-adv", tmp_path, task="rte")
    assert (evaluation.suite, evaluation.task) == ("glue-adv", "rte")
    assert [each.name for each in evaluation.sets] == ["rte"]
    assert [each.name for each in evaluation.missing] == ["advglue_rte"]


def test_live_attacks(model: BertForSequenceClassification, tokenizer: PreTrainedTokenizerFast, folder: Path) -> None:
    evaluation = evaluate(model, tokenizer, tiny_suite(noise=None), folder, attacks=["typos"], attack_examples=6)
    (found,) = evaluation.attacks
    assert (found.attack, found.of, found.summary.examples) == ("typos", "held_out", 6)
    assert found.summary.robust_accuracy <= found.summary.clean_accuracy
    assert found.lexicon is None


def test_live_attacks_with_words(
    model: BertForSequenceClassification,
    tokenizer: PreTrainedTokenizerFast,
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The lexicon is the one that `rosewood attack` takes by default, and is named in the output."""

    def absent(_: Path) -> Lexicon:
        raise AbsentError("not installed")

    monkeypatch.setattr(Lexicon, "roget", absent)
    seen = texts_seen(model)
    with pytest.raises(AbsentError, match="not installed"):
        evaluate(model, tokenizer, tiny_suite(), folder, attacks=["pwws"])
    assert seen == []
    data = shutil.copytree(folder, tmp_path / "data")
    (data / "wordsub").mkdir()
    (data / "wordsub" / "counterfitted_neighbors.json").write_text('{"good": ["bad"]}')
    (found,) = evaluate(model, tokenizer, tiny_suite(noise=None), data, attacks=["pwws"], attack_examples=6).attacks
    assert (found.lexicon_name, found.lexicon) == ("counter-fitted", Lexicon.counter_fitted(data).fingerprint)
