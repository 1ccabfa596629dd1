"""A run with a synonym recipe: which lexicon it takes, which words it replaces, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from transformers import TrainingArguments

from rosewood.data.examples import tokenize
from rosewood.data.loading import task_from_files
from rosewood.errors import DataError, RecipeError, RunError
from rosewood.recipe import build_recipe, load_recipe, recipe_names
from rosewood.results import RunInfo
from rosewood.training.plan import WordChanges
from rosewood.training.run import Plan, resume_run, start_run
from rosewood.training.trainer import RobustTrainer
from rosewood.words.alignment import SUBSTITUTES, with_substitutes
from rosewood.words.changes import with_changes
from rosewood.words.constraints import Substituting
from rosewood.words.lexicon import Lexicon
from tiny_text import save_tiny_checkpoint, tiny_classifier, tiny_tokenizer

WORDS = {"good": ["nice", "fine"], "film": ["movie"]}


def lexicon_file(folder: Path, words: dict[str, list[str]], name: str = "words.json") -> Path:
    (folder / name).write_text(json.dumps(words), encoding="utf-8")
    return folder / name


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    rows = [f"a {'good' if i % 2 else 'bad'} film {'abcdefgh'[i % 8]},{i % 2}" for i in range(20)]
    (tmp_path / "train.csv").write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    changes = {"perturbation.steps": 1, "perturbation.lexicon": str(lexicon_file(tmp_path, WORDS))}
    return Plan(
        recipe=load_recipe("adv-base", changes),
        task=task_from_files(tmp_path / "train.csv", None, text_columns=["text"], label_column="label"),
        model=str(save_tiny_checkpoint(tmp_path / "tiny")),
        max_length=24,
        arguments={"max_steps": 2, "per_device_train_batch_size": 4},
    )


def terms(run: Path) -> list[dict[str, float]]:
    return [json.loads(line)["terms"] for line in (run / "history.jsonl").read_text().splitlines()]


def test_the_lexicon_decides_what_a_run_computes(plan: Plan, tmp_path: Path) -> None:
    info = start_run(plan, tmp_path / "one")
    assert info.fingerprints["lexicon"] == Lexicon.of(WORDS).fingerprint
    other = lexicon_file(tmp_path, {"good": ["nice"], "film": ["show"]}, "other.json")
    start_run(
        plan.model_copy(update={"recipe": load_recipe(plan.recipe, {"perturbation.lexicon": str(other)})}),
        tmp_path / "other",
    )
    one, two = terms(tmp_path / "one")[0], terms(tmp_path / "other")[0]
    assert one["ce"] == two["ce"] and one["synonym_hull_kl"] != two["synonym_hull_kl"] > 0


def test_a_lexicon_that_has_changed_is_noticed_on_resuming(plan: Plan, tmp_path: Path) -> None:
    info = start_run(plan, tmp_path / "run")
    info.model_copy(update={"status": "interrupted"}).save(tmp_path / "run" / "run.json")
    lexicon_file(tmp_path, {**WORDS, "bad": ["awful"]})
    with pytest.raises(RunError, match="the lexicon data has changed"):
        resume_run(tmp_path / "run")
    assert RunInfo.load(tmp_path / "run" / "run.json").status == "interrupted"


def test_a_recipe_that_replaces_no_words_needs_no_lexicon() -> None:
    assert WordChanges.of(load_recipe("vanilla"), None, None) is None
    assert WordChanges.of(load_recipe("rose-ensemble"), "typos", None) is None


def test_stages_must_agree_on_how_texts_are_aligned(plan: Plan) -> None:
    parts = {key: value for key, value in plan.recipe.to_dict().items() if key in ("objective", "perturbation")}

    def of(*slots: int) -> WordChanges | None:
        stages = [{"share": 0.5, **parts, "perturbation": parts["perturbation"] | {"slots": each}} for each in slots]
        raw = {"name": "mine", "title": "Mine", "summary": "Two stages.", "stages": stages}
        return WordChanges.of(build_recipe(raw), None, None)

    assert of(4, 4) is not None
    with pytest.raises(RunError, match="mine: texts are aligned with their substitutes once, for all stages"):
        of(10, 4)


def test_an_attack_takes_the_lexicon_of_the_recipe(plan: Plan, tmp_path: Path) -> None:
    found = WordChanges.of(plan.recipe, "pwws", None)
    assert found is not None and found.lexicon.fingerprint == Lexicon.of(WORDS).fingerprint
    (tmp_path / "wordsub").mkdir()
    lexicon_file(tmp_path / "wordsub", {"a": ["b"]}, "counterfitted_neighbors.json")
    chosen = WordChanges.of(load_recipe("vanilla"), "pwws", str(tmp_path))
    assert chosen is not None and not chosen.perturbations and chosen.lexicon.name == "counter-fitted"


def test_an_unknown_lexicon_is_refused_before_anything_starts(plan: Plan, tmp_path: Path) -> None:
    recipe = load_recipe(plan.recipe, {"perturbation.lexicon": "rogt"})
    with pytest.raises(DataError, match=r"unknown lexicon 'rogt'.*roget"):
        start_run(plan.model_copy(update={"recipe": recipe}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(("field", "side"), [(None, 1), ("hypothesis", 1), ("premise", 0)])
def test_of_a_pair_one_text_changes(field: str | None, side: int, tmp_path: Path) -> None:
    rows = "premise,hypothesis,label\n" + "a good film,a good film,1\nno good,a film,0\n"
    (tmp_path / "pairs.csv").write_text(rows, encoding="utf-8")
    columns = ["premise", "hypothesis"]
    task = task_from_files(tmp_path / "pairs.csv", tmp_path / "pairs.csv", text_columns=columns, label_column="label")
    data = Dataset.from_dict({"premise": ["a good film"], "hypothesis": ["a good film"], "label": [1]})
    changes: dict[str, Any] = {"perturbation.lexicon": str(lexicon_file(tmp_path, WORDS)), "perturbation.field": field}
    words = WordChanges.of(load_recipe("adv-base", changes), None, None)
    assert words is not None
    tokenizer = tiny_tokenizer()
    aligned = words.aligned(tokenize(data, task, tokenizer, 32), data, task, tokenizer, 32)
    assert set(aligned.column_names) >= {"input_ids", "token_type_ids", "labels", SUBSTITUTES}
    assert not {"premise", "hypothesis"} & set(aligned.column_names)
    types = aligned[0]["token_type_ids"]
    assert {types[place] for place in aligned[0][SUBSTITUTES]["place"]} == {side}


@pytest.mark.parametrize(("text", "known"), [("хороший фильм", False), ("a good film", True)])
def test_training_texts_of_another_language_are_warned_of(
    plan: Plan, text: str, known: bool, recwarn: pytest.WarningsRecorder
) -> None:
    words = WordChanges.of(plan.recipe, None, None)
    assert words is not None
    rows, tokenizer = Dataset.from_dict({"text": [text] * 3, "label": [0, 1, 0]}), tiny_tokenizer()
    words.aligned(tokenize(rows, plan.task, tokenizer, 24), rows, plan.task, tokenizer, 24)
    said = [str(each.message) for each in recwarn if "has substitutes for only 0.0% of the words" in str(each.message)]
    assert bool(said) is not known


def test_words_replaced_for_real_and_mistyped_come_with_the_run(plan: Plan, tmp_path: Path) -> None:
    changes = {"perturbation.of.0.lexicon": str(lexicon_file(tmp_path, WORDS)), "perturbation.of.0.share": 1.0}
    recipe = load_recipe("augment", changes)
    words = WordChanges.of(recipe, None, None)
    assert words is not None and [each.name for each in words.perturbations] == ["substitution", "typing"]
    info = start_run(plan.model_copy(update={"recipe": recipe}), tmp_path / "run")
    assert info.fingerprints["lexicon"] == Lexicon.of(WORDS).fingerprint
    assert all(step["mixture_kl"] >= 0 for step in terms(tmp_path / "run"))


def test_mistyping_needs_no_lexicon(plan: Plan, tmp_path: Path) -> None:
    recipe = load_recipe("a2t", {"perturbation": {"name": "typing", "share": 1.0}})
    info = start_run(plan.model_copy(update={"recipe": recipe}), tmp_path / "run")
    assert "lexicon" not in info.fingerprints and len(terms(tmp_path / "run")) == 2


@pytest.mark.parametrize(
    ("second", "words"),
    [
        ({"name": "synonym_hull", "lexicon": "b.json"}, "a run has one lexicon"),
        ({"name": "substitution", "lexicon": "a.json", "choices": 3}, "give substitution the same field, lexicon"),
    ],
)
def test_what_is_prepared_once_must_be_the_same_in_all_stages(second: dict[str, Any], words: str) -> None:
    first = {"name": "substitution", "lexicon": "a.json"}
    stages = [{"share": 0.5, "objective": "consistency", "perturbation": each} for each in (first, second)]
    with pytest.raises(RunError, match=words):
        WordChanges.of(build_recipe({"name": "mine", "stages": stages}), None, None)


SENTENCES = [f"a {'good' if i % 2 else 'bad'} film {'very ' * i}good" for i in range(8)]


def encoded(**more: Any) -> Dataset:
    rows = Dataset.from_dict({"sentence": SENTENCES, "labels": [0, 1] * 4})
    return rows.map(lambda each: tiny_tokenizer()(each["sentence"], truncation=True, **more), batched=True)


def trainer(data: Dataset, tokenizer: Any, where: Path, recipe: str, **more: Any) -> RobustTrainer:
    changes = {"perturbation.lexicon": str(lexicon_file(where, WORDS))} if recipe in ("a2t", "adv-base") else {}
    settings = TrainingArguments(str(where), max_steps=3, seed=7, learning_rate=1e-3, report_to="none", use_cpu=True)
    given = {"recipe": load_recipe(recipe, changes), "processing_class": tokenizer, "train_dataset": data}
    return RobustTrainer(tiny_classifier(), settings, **given, **more)


def weights(found: RobustTrainer) -> dict[str, Any]:
    found.train()
    return dict(found.model.state_dict())


@pytest.mark.parametrize("cut", [{}, {"max_length": 7}])
@pytest.mark.parametrize("recipe", ["a2t", "adv-base"])
def test_a_trainer_that_knows_the_texts_prepares_them_as_one_would_by_hand(
    recipe: str, cut: dict[str, int], tmp_path: Path
) -> None:
    tokenizer, surface = tiny_tokenizer(), Substituting(Lexicon.of(WORDS)).surface
    data = encoded(**cut)
    longest = max(len(ids) for ids in data["input_ids"])
    own = weights(trainer(data, tokenizer, tmp_path, recipe, text_columns=["sentence"]))
    if recipe == "a2t":
        data = with_changes(data, tokenizer, "substitution", surface, ["sentence"], max_length=longest)
    else:
        data = with_substitutes(data, tokenizer, surface, ["sentence"], max_length=longest)
    by_hand = weights(trainer(data, tokenizer, tmp_path, recipe))
    assert all(own[name].equal(by_hand[name]) for name in by_hand)
    plain = weights(trainer(encoded(**cut), tokenizer, tmp_path, "vanilla"))
    assert any(not own[name].equal(plain[name]) for name in plain)


@pytest.mark.parametrize("recipe", [name for name in recipe_names() if load_recipe(name).columns()])
def test_every_recipe_that_changes_words_trains_on_texts_that_the_trainer_prepares(recipe: str, tmp_path: Path) -> None:
    found = trainer(encoded(), tiny_tokenizer(), tmp_path, recipe, text_columns=["sentence"])
    assert set(found.recipe.columns()) <= set(found.train_dataset.column_names)
    assert found.train().global_step == 3


def test_texts_that_nothing_reads_stay_as_they_are(tmp_path: Path) -> None:
    data = encoded()
    assert trainer(data, None, tmp_path, "r-drop", text_columns=["sentence"]).train_dataset is data


def test_texts_that_cannot_be_prepared_are_refused(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="recipe a2t changes words: give their tokenizer"):
        trainer(encoded(), None, tmp_path, "a2t", text_columns=["sentence"])
    with pytest.raises(DataError, match="expected tokenized data that still have their texts; text is missing"):
        trainer(encoded(), tiny_tokenizer(), tmp_path, "a2t", text_columns=["text"])
    padded = encoded(padding="max_length", max_length=20)
    with pytest.raises(DataError, match="without padding"):
        trainer(padded, tiny_tokenizer(), tmp_path, "a2t", text_columns=["sentence"])
    with pytest.raises(RecipeError, match=r"text_columns=\['text'\], or add the column 'substitution_changes'"):
        trainer(encoded(), tiny_tokenizer(), tmp_path, "a2t")
