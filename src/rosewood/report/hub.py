"""What the Hugging Face Hub reads beside the card: evaluation results as files, and the upload itself."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

import yaml
from huggingface_hub import HfApi
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalTokenNotFoundError, OfflineModeIsEnabled

from rosewood.comparison.attacks import attacked
from rosewood.data.tasks import Task
from rosewood.errors import RunError
from rosewood.evaluation.measure import MEASURED
from rosewood.models.open import run_info
from rosewood.report.subject import ReportedRun
from rosewood.results import write

FOLDER = ".eval_results"
"""Where the Hub looks for them, in the repository of a model."""


def result_files(run: ReportedRun, task: Task) -> dict[str, str]:
    """Accuracies on data sets of the Hub, clean and under attack, one file each: names and contents.

    The Hub shows them on the page of the model and of the data set. A set that is not on the Hub has none.
    """
    found: dict[str, str] = {}
    places = {each.name: _place(each.name, each.source, task) for each in run.evaluated.evaluation.sets}
    for each in run.evaluated.evaluation.sets:
        place = places[each.name]
        if each.role in MEASURED and place is not None:
            found[_file(each.name)] = _entry(place, each.accuracy, f"{each.role}, {each.examples} examples")
    clean = [places[each.name] for each in run.evaluated.evaluation.sets if each.role == "clean"]
    for attack in attacked([run.evaluated]):
        summary = attack.summary
        if summary.attacked and len(clean) == 1 and clean[0] is not None:
            notes = f"accuracy under {attack.title}, {summary.examples} examples"
            found[_file(f"{task.name} under {attack.title}")] = _entry(clean[0], summary.robust_accuracy, notes)
    return found


def write_results(folder: Path, files: dict[str, str]) -> list[Path]:
    """Write the files beside a card, and take away those of an earlier evaluation that are no more."""
    place = folder / FOLDER
    for old in place.glob("rosewood-*.yaml") if place.is_dir() else ():
        old.unlink()
    for name, text in files.items():
        write(place / name, text)
    return [place / name for name in files]


def _place(name: str, source: str, task: Task) -> dict[str, str] | None:
    """The data set of the Hub that a set is, and which part of it, if it is there."""
    hub = task.splits[name].hub if name in task.splits else None
    if hub is not None:
        return {"id": hub.dataset, "task_id": hub.config or "default"}
    if not source.startswith("hub: "):
        return None
    dataset, *rest = source.removeprefix("hub: ").split(" ")
    return {"id": dataset, "task_id": rest[0] if len(rest) > 1 else "default"}


def _file(name: str) -> str:
    return f"rosewood-{re.sub(r'[^a-z0-9]+', '-', name.lower()).strip('-')}.yaml"


def _entry(place: dict[str, str], value: float, notes: str) -> str:
    return yaml.safe_dump([{"dataset": dict(place), "value": round(value, 4), "notes": notes}], sort_keys=False)


def push_run(folder: Path, name: str, private: bool = False, message: str = "Upload a model") -> str:
    """Upload the model of a finished run, with its card, to a repository that is made if there is none.

    Args:
        folder: the run.
        name: of the repository, such as `my-name/reviews-rose`.
        private: whether a new repository is for its owner alone.
        message: of the commit.

    Returns:
        The address of the repository.

    Raises:
        RunError: the run is not finished or has no card, or the Hub refuses the upload.
    """
    if run_info(folder) is None:
        raise RunError(f"{folder} is not a run of Rosewood (no run.json)")
    model = folder / "model"
    if not (model / "README.md").exists():
        raise RunError(f"{model} has no model card: write one with rosewood card {folder}")
    api = HfApi()
    try:
        address = api.create_repo(name, private=private, exist_ok=True)
        api.upload_folder(repo_id=name, folder_path=model, commit_message=message)
    except LocalTokenNotFoundError as error:
        raise RunError("the Hub needs a token to upload: hf auth login") from error
    except HFValidationError as error:
        raise RunError(f"{name!r} is not a repository name such as my-name/reviews-rose: {error}") from error
    except OfflineModeIsEnabled as error:
        raise RunError("HF_HUB_OFFLINE is set, and an upload needs the network: unset it") from error
    except (HfHubHTTPError, OSError) as error:
        raise RunError(f"the Hub refused the upload to {name}: {_first_line(error)}") from error
    return str(address)


def _first_line(error: Exception) -> str:
    lines: Iterable[str] = (line.strip() for line in str(error).splitlines())
    return next((line for line in lines if line), type(error).__name__)
