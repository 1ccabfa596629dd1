"""Evaluation results as the Hub reads them, and uploads against a Hub that is not there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from huggingface_hub import parse_eval_result_entries
from huggingface_hub.errors import HfHubHTTPError, LocalTokenNotFoundError

from reported_runs import write_run
from rosewood.errors import RunError
from rosewood.report import hub
from rosewood.report.hub import card_of, write_card
from rosewood.results import Evaluation


def on_the_hub(folder: Path) -> None:
    """Let the clean set of a run come from the Hub."""
    file = folder / "evaluation.json"
    evaluation = Evaluation.load(file)
    sets = [each.model_copy(update={"source": "hub: stanford/sst sst2 test"}) if each.role == "clean" else each
            for each in evaluation.sets]  # fmt: skip
    evaluation.model_copy(update={"sets": sets}).save(file)


def test_results_on_data_sets_of_the_hub_are_files_beside_the_card(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", "rose")
    on_the_hub(folder)
    files = write_card(folder, card_of(folder))
    assert {file.parent for file in files} == {folder / "model" / ".eval_results"}
    (clean,) = [each for each in Evaluation.load(folder / "evaluation.json").sets if each.role == "clean"]
    found = [entry for file in files for entry in parse_eval_result_entries(yaml.safe_load(file.read_text()))]
    assert {(entry.dataset_id, entry.task_id) for entry in found} == {("stanford/sst", "sst2")}
    by_notes = {entry.notes: entry.value for entry in found}
    assert by_notes == {
        f"clean, {clean.examples} examples": pytest.approx(clean.accuracy, abs=1e-4),
        "accuracy under pwws on own test, 10 examples": 0.3,
    }


def test_what_is_not_on_the_hub_has_no_file_and_old_files_go(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", "rose")
    old = folder / "model" / ".eval_results" / "rosewood-old.yaml"
    kept = old.with_name("theirs.yaml")
    old.parent.mkdir(parents=True)
    old.write_text("[]")
    kept.write_text("[]")
    assert write_card(folder, card_of(folder)) == []
    assert not old.exists() and kept.exists()


def test_a_card_elsewhere_brings_no_files(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", "rose")
    on_the_hub(folder)
    assert write_card(folder, tmp_path / "card.md") == []
    assert not (tmp_path / ".eval_results").exists()


class StubApi:
    """Remembers what it is asked to do, or refuses."""

    asked: list[tuple[str, dict[str, Any]]]
    error: Exception | None = None

    def create_repo(self, name: str, **options: Any) -> str:
        self.asked.append((name, options))
        return f"https://hub.test/{name}"

    def upload_folder(self, **options: Any) -> None:
        if self.error is not None:
            raise self.error
        self.asked.append(("upload", options))


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> type[StubApi]:
    stub = type("Stub", (StubApi,), {"asked": []})
    monkeypatch.setattr(hub, "HfApi", stub)
    return stub


def test_push_uploads_the_model_and_nothing_else(tmp_path: Path, api: type[StubApi]) -> None:
    folder = write_run(tmp_path / "run", "rose")
    write_card(folder, card_of(folder))
    assert hub.push_run(folder, "me/rose", private=True, message="First") == "https://hub.test/me/rose"
    upload = {"repo_id": "me/rose", "folder_path": folder / "model", "commit_message": "First"}
    assert api.asked == [("me/rose", {"private": True, "exist_ok": True}), ("upload", upload)]


def test_push_asks_for_a_card_and_a_run(tmp_path: Path, api: type[StubApi]) -> None:
    folder = write_run(tmp_path / "run", "rose")
    with pytest.raises(RunError, match=r"has no model card.*rosewood card"):
        hub.push_run(folder, "me/rose")
    with pytest.raises(RunError, match=r"not a run of Rosewood"):
        hub.push_run(tmp_path, "me/rose")
    assert not api.asked


REFUSED = HfHubHTTPError("403 Forbidden\nmore", response=httpx.Response(403, request=httpx.Request("POST", "http://x")))


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (LocalTokenNotFoundError("no token"), "needs a token to upload: hf auth login"),
        (REFUSED, "the Hub refused the upload to me/rose: 403 Forbidden"),
        (ConnectionError("no network"), "the Hub refused the upload to me/rose: no network"),
    ],
)
def test_what_the_hub_says_is_a_sentence(tmp_path: Path, api: type[StubApi], error: Exception, message: str) -> None:
    folder = write_run(tmp_path / "run", "rose")
    write_card(folder, card_of(folder))
    api.error = error
    with pytest.raises(RunError, match=message):
        hub.push_run(folder, "me/rose")
