"""Results on disk survive a round trip, and a file that is not one is refused with its reason."""

import json
import math
from pathlib import Path

import pytest
from pydantic import ValidationError

from rosewood.errors import RunError
from rosewood.results import Evaluation, Metrics, MissingSet, RunInfo, SetResult, files


def evaluation() -> Evaluation:
    clean = SetResult(
        name="test",
        role="clean",
        examples=10,
        accuracy=0.8,
        interval=(0.49, 0.943),
        ece=0.1,
        brier=0.3,
        nll=0.45,
    )
    gone = MissingSet(name="imdb", role="shift", reason="no file imdb/test.jsonl")
    return Evaluation(
        model="m",
        task="sst2",
        size=None,
        seed=0,
        max_length=128,
        typo_rate=0.3,
        sets=[clean],
        missing=[gone],
    )


def run_info() -> RunInfo:
    return RunInfo(
        recipe="rose",
        task="sst2",
        model="m",
        seed=1,
        data_dir=None,
        fingerprints={"train": "ab12"},
        train_size=100,
        validation_size=50,
        max_length=64,
        training_arguments={"learning_rate": 2e-5, "epochs": 3},
        command="rosewood train",
    )


def metrics(train_loss: float = 0.5) -> Metrics:
    return Metrics(steps=3, epochs=1.0, train_loss=train_loss, validation_accuracy=0.9, validation_loss=0.3)


@pytest.mark.parametrize("result", [evaluation(), run_info(), metrics()], ids=lambda r: type(r).__name__)
def test_loads_what_it_saved(result: Evaluation | RunInfo | Metrics, tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "result.json"
    result.save(path)
    assert type(result).load(path) == result
    assert json.loads(path.read_text())["version"] == type(result).newest


def test_a_run_records_the_versions_that_can_change_its_result() -> None:
    info = run_info()
    assert info.status == "running"
    assert set(info.versions) == {"python", "rosewood", "torch", "transformers", "accelerate", "datasets", "peft"}


@pytest.mark.parametrize("loss", [math.nan, math.inf])
def test_a_diverged_loss_stays_standard_json(loss: float, tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    metrics(loss).save(path)

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    json.loads(path.read_text(), parse_constant=refuse)
    assert Metrics.load(path).train_loss == pytest.approx(loss, nan_ok=True)


def test_a_failed_save_keeps_the_old_file_and_leaves_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "metrics.json"
    metrics(0.5).save(path)

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(RunError, match=r"cannot write .*metrics\.json: No space left on device"):
        metrics(0.1).save(path)
    assert Metrics.load(path).train_loss == 0.5
    assert list(tmp_path.iterdir()) == [path]


def test_a_reader_never_sees_half_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "metrics.json"
    metrics(0.5).save(path)
    seen = []
    real = Path.replace

    def watch(source: Path, target: Path) -> None:
        assert source.parent == target.parent
        seen.append((Metrics.load(target).train_loss, Metrics.load(source).train_loss))
        real(source, target)

    monkeypatch.setattr(Path, "replace", watch)
    metrics(0.1).save(path)
    assert seen == [(0.5, 0.1)]


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    with pytest.raises(RunError, match=r"cannot write .*: File exists"):
        metrics().save(tmp_path / "file" / "metrics.json")


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(RunError, match=r"run\.json does not exist. Expected a saved RunInfo"):
        RunInfo.load(tmp_path / "run.json")


def test_a_folder_is_not_a_result(tmp_path: Path) -> None:
    with pytest.raises(RunError, match="cannot read"):
        RunInfo.load(tmp_path)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('{"version": 1, "steps": ', "Invalid JSON"),
        ("[]", "Input should be an object"),
        ("{}", "version: Field required"),
        ('{"version": 1}', "steps: Field required"),
    ],
)
def test_damaged_file(text: str, reason: str, tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    path.write_text(text)
    with pytest.raises(RunError, match=rf"metrics\.json is not a valid Metrics: .*{reason}"):
        Metrics.load(path)


def test_another_kind_of_result_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    run_info().save(path)
    with pytest.raises(RunError, match="damaged or of another kind"):
        Metrics.load(path)


def test_an_evaluation_of_the_first_version_still_loads(tmp_path: Path) -> None:
    path = tmp_path / "evaluation.json"
    first = {
        "version": 1,
        "model": "m",
        "task": "sst2",
        "created": "2026-01-01T00:00:00Z",
        "size": None,
        "seed": 0,
        "max_length": 128,
        "typo_rate": 0.3,
        "sets": [
            {
                "name": "test",
                "role": "clean",
                "examples": 10,
                "accuracy": 0.8,
                "interval": [0.49, 0.943],
                "ece": 0.1,
                "brier": 0.3,
                "nll": 0.45,
            }
        ],
        "missing": [{"name": "imdb", "role": "shift", "reason": "no file"}],
    }
    path.write_text(json.dumps(first))
    loaded = Evaluation.load(path)
    assert (loaded.version, loaded.suite, loaded.sets[0].accuracy, loaded.sets[0].worst) == (1, None, 0.8, None)


def test_a_newer_format_is_refused_whatever_its_fields(tmp_path: Path) -> None:
    path = tmp_path / "metrics.json"
    path.write_text('{"version": 2, "unheard_of": true}')
    with pytest.raises(RunError, match=r"has format version 2; this Rosewood reads up to 1\. Upgrade"):
        Metrics.load(path)


def test_impossible_values_are_refused() -> None:
    with pytest.raises(ValidationError):
        SetResult(name="t", role="clean", examples=0, accuracy=1.2, interval=(0, 1), ece=0, brier=0, nll=0)
