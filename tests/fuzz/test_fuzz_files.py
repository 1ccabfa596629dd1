"""Every kind of file that a command reads, damaged: cut, of other types, nested deeply. Refused, or used."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import resources
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import load_file, save_file

from junk import mutated, only_our_errors, scarred
from reported_runs import landscape, watch, write_run
from rosewood.comparison.methods import compared
from rosewood.comparison.runs import load_runs
from rosewood.data.suites import load_suite
from rosewood.data.tasks import load_task
from rosewood.dynamics import WATCHES
from rosewood.dynamics.record import read_seen
from rosewood.errors import RunError
from rosewood.evaluation.predict import PredictionCache, TextQuery, answer
from rosewood.experiments.experiment import read_experiment
from rosewood.models.open import load_classifier, load_pretrained
from rosewood.report.hub import model_card
from rosewood.report.page import page
from rosewood.report.subject import subject_of
from rosewood.results.run import History
from rosewood.results.work_folder import FinishedRow, Journal, RowJournal
from rosewood.words.lexicon import Lexicon
from tiny_experiment import write_experiment
from tiny_text import save_tiny_checkpoint, tiny_classifier, tiny_tokenizer

DEEP = [opening * 20_000 + closing * 20_000 for opening, closing in (("[", "]"), ('{"step": ', "}"))]
OTHERS = [text.encode() for text in (*DEEP, "", "null", "1", '"x"', "[]", "{}", "[1]", '{"step": 1e999}', "\0", "{")]


def damaged(path: Path) -> st.SearchStrategy[bytes]:
    """The bytes of a file after an accident, or with another document in it."""
    good = path.read_bytes()
    kinds = [scarred(good), st.sampled_from(OTHERS)]
    if path.suffix == ".json":
        kinds.append(mutated(json.loads(good)).map(lambda document: json.dumps(document).encode()))
    elif path.suffix == ".jsonl":
        first, *rest = good.splitlines(keepends=True)
        changed = mutated(json.loads(first)).map(lambda record: json.dumps(record).encode() + b"\n")
        kinds += [
            changed.map(lambda line: line + b"".join(rest)),
            st.sampled_from(OTHERS).map(lambda o: o + b"\n" + good),
        ]
    elif path.suffix == ".yaml":
        kinds.append(mutated(yaml.safe_load(good)).map(lambda document: yaml.safe_dump(document).encode()))
    return st.one_of(kinds)


def check_damage(profile: settings, files: list[Path], read: Callable[[], object]) -> None:
    """Damage one of the files after the other, and let `read` read them."""
    assert files
    read()  # while they are good

    @profile
    @given(st.sampled_from(files).flatmap(lambda file: st.tuples(st.just(file), damaged(file))))
    def check(damage: tuple[Path, bytes]) -> None:
        file, content = damage
        good = file.read_bytes()
        file.write_bytes(content)
        try:
            with only_our_errors():
                read()
        finally:
            file.write_bytes(good)

    check()


def files_of(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


@pytest.fixture
def run(tmp_path: Path) -> Path:
    return watch(write_run(tmp_path / "run", "rose"))


def test_what_a_report_reads(profile: settings, run: Path) -> None:
    other = write_run(run.parent / "other")
    landscapes = run.parent / "landscapes"
    for each in (run, other):
        landscape(each.name).save(landscapes / f"{each.name}.json")

    def read() -> None:
        found = load_runs([run, other])
        compared(found, "vanilla")
        page([subject_of(found, "vanilla", landscape=landscapes)], "title")

    check_damage(profile, [*files_of(run), *files_of(landscapes)], read)


def test_what_a_card_reads(profile: settings, run: Path) -> None:
    check_damage(profile, files_of(run), lambda: model_card(run))


def test_records_of_training(profile: settings, run: Path) -> None:
    check_damage(profile, files_of(run / "dynamics"), lambda: [read_seen(run, kind.seen) for kind in WATCHES.values()])
    check_damage(profile, [run / "history.jsonl"], lambda: History(run / "history.jsonl").rewind(3))


def test_checkpoints(profile: settings, tmp_path: Path) -> None:
    folder = save_tiny_checkpoint(tmp_path / "checkpoint")
    task = load_task("sst2")

    def read() -> None:
        model, tokenizer = load_classifier(str(folder))
        with only_our_errors():
            answer(model, tokenizer, [TextQuery(("good film",), 16)], progress=False)
        load_pretrained(str(folder), task, seed=0)

    check_damage(profile, files_of(folder), read)


def test_lexicons_suites_and_experiments(profile: settings, tmp_path: Path) -> None:
    (tmp_path / "words.json").write_text(json.dumps({"good": ["fine", "nice"], "film": ["movie"]}))
    check_damage(profile, [tmp_path / "words.json"], lambda: Lexicon.load(tmp_path / "words.json"))
    experiment = write_experiment(tmp_path)
    check_damage(profile, [experiment, tmp_path / "task.yaml"], lambda: read_experiment(experiment))
    shipped = resources.files("rosewood.data") / "suites" / "reviews.yaml"
    (tmp_path / "suite.yaml").write_text(shipped.read_text(encoding="utf-8"))
    check_damage(profile, [tmp_path / "suite.yaml"], lambda: load_suite(tmp_path / "suite.yaml"))


def test_journals(profile: settings, tmp_path: Path) -> None:
    result = tmp_path / "rows.json"
    RowJournal(result, "f").begin()
    RowJournal(result, "f").append(0, [1.0])
    (tmp_path / "journal-0-0.jsonl").write_text('{"fingerprint": "f", "number": 0, "seconds": 1.0, "examples": []}\n')
    assert FinishedRow.model_validate_json(result.with_suffix(".journal").read_bytes())
    check_damage(profile, [result.with_suffix(".journal")], lambda: RowJournal(result, "f").begin())
    check_damage(profile, [tmp_path / "journal-0-0.jsonl"], lambda: Journal(tmp_path, "f").read())


def test_a_damaged_prediction_cache_is_thrown_away_and_made_again(profile: settings, tmp_path: Path) -> None:
    model, tokenizer = tiny_classifier().eval(), tiny_tokenizer()
    questions = [TextQuery((text,), 16) for text in ("good film", "bad film", "film")]

    def predictions() -> np.ndarray:
        cache = PredictionCache(tmp_path, "f")
        return answer(model, tokenizer, questions, questions, cache=cache, progress=False).logits(questions)

    expected = predictions()
    (file,) = tmp_path.glob("predictions-*.safetensors")
    tensors = load_file(file)

    def other_tensors() -> st.SearchStrategy[dict[str, Any]]:
        def cast(tensor: np.ndarray) -> st.SearchStrategy[np.ndarray]:
            spoilt = np.full_like(tensor, np.nan) if tensor.dtype == np.float32 else tensor[:, :3].copy()
            variants = [
                tensor.astype(np.float64),
                tensor[:1],
                tensor.ravel(),
                tensor[..., None],
                tensor.T.copy(),
                spoilt,
            ]
            return st.sampled_from([tensor, np.zeros((), np.float32), *variants])

        return st.fixed_dictionaries({name: cast(tensor) for name, tensor in tensors.items()})

    def write(damage: bytes | dict[str, np.ndarray]) -> None:
        if isinstance(damage, bytes):
            file.write_bytes(damage)
        else:
            save_file(damage, file)

    good = file.read_bytes()
    header = 8 + int.from_bytes(good[:8], "little")

    @profile
    @given(st.one_of(scarred(good[:header]).map(lambda head: head + good[header:]), other_tensors()))
    def check(damage: bytes | dict[str, np.ndarray]) -> None:
        write(damage)
        assert np.isfinite(predictions()).all()
        file.write_bytes(good)

    check()
    for damage in (b"", good[:-5], {name: tensor.astype(np.float64) for name, tensor in tensors.items()}):
        write(damage)
        assert np.array_equal(predictions(), expected)
        assert load_file(file).keys() == tensors.keys()


def test_a_tokenizer_with_more_words_than_the_model_has_rows(tmp_path: Path) -> None:
    folder = save_tiny_checkpoint(tmp_path / "checkpoint")
    tokenizer = tiny_tokenizer()
    tokenizer.add_tokens(["films", "movies"])
    tokenizer.save_pretrained(folder)
    task = load_task("sst2")
    for load in (lambda: load_classifier(str(folder)), lambda: load_pretrained(str(folder), task, 0)):
        with pytest.raises(RunError, match="counts words up to number 59, and the model has embeddings for 58 words"):
            load()


def test_what_was_found_in_damaged_runs(run: Path) -> None:
    """Each once ended in a traceback."""
    good = {name: (run / name).read_text() for name in ("run.json", "evaluation.json", "recipe.yaml", "history.jsonl")}

    def refused(name: str, content: str, reason: str) -> None:
        (run / name).write_text(content)
        for read in (lambda: subject_of(load_runs([run])), lambda: model_card(run)):
            with pytest.raises(RunError, match=reason):
                read()
        (run / name).write_text(good[name])

    info, evaluation = json.loads(good["run.json"]), json.loads(good["evaluation.json"])
    refused("run.json", json.dumps(info | {"max_length": 0}), "max_length: Input should be greater than or equal to 4")
    refused("evaluation.json", json.dumps(evaluation | {"sets": []}), "is damaged: it has no set")
    refused("recipe.yaml", "- rose\n", "recipe.yaml is not a recipe: expected a mapping, got a list")
    refused("history.jsonl", DEEP[0] + "\n" + good["history.jsonl"], "line 1 of .* is not a step of a training")
