"""What the Hugging Face Hub reads: the model card of a run, its results as files, and the upload."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from html import escape
from pathlib import Path

import yaml
from huggingface_hub import EvalResult, HfApi, ModelCard, ModelCardData
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, LocalTokenNotFoundError, OfflineModeIsEnabled
from jinja2 import Environment, PackageLoader, StrictUndefined

from rosewood.comparison.attack_tables import attacked
from rosewood.comparison.runs import load_runs
from rosewood.comparison.table import half_width, percent
from rosewood.data.tasks import Task, load_task
from rosewood.errors import RunError
from rosewood.evaluation.measure import MEASURED
from rosewood.models.names import models
from rosewood.models.open import run_info
from rosewood.report.sections.attacks import attack_table
from rosewood.report.sections.hardening import changes_grid, tried_grid
from rosewood.report.sections.training import commands, saved_defence
from rosewood.report.subject import ReportedRun, Subject, right_on, short_name, subject_of, verdict
from rosewood.results import HARDENING, Average, Hardening, RunInfo, SetResult, write
from rosewood.results.evaluation import described, guessed_sets, is_guessing
from rosewood.results.grid import Grid, to_markdown

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


HUB_NAMES = {"minilm": "sentence-transformers/all-MiniLM-L6-v2"}
"""Models that have another name here."""


def write_card(folder: Path, path: Path, suite: str | None = None) -> list[Path]:
    """Write the card of a run, which the Hub's own parser must read first.

    Beside the model there are also files with evaluation results, which are returned. The card of a model that
    `rosewood harden` has found says how.
    """
    about, task = _read(folder, suite)
    text = str(_card(about, task))
    if (folder / HARDENING).exists():
        text = f"{text.rstrip()}\n\n{_how_it_was_hardened(Hardening.load(folder / HARDENING))}"
    ModelCard(text)
    write(path, text)
    if path != card_of(folder):
        return []
    return write_results(path.parent, result_files(about.runs[0], task))


def _how_it_was_hardened(state: Hardening) -> str:
    """What was measured before and after, what else was tried, and the commands that make the winner again."""
    tables = "\n\n".join(_table(grid) for grid in (changes_grid(state), tried_grid(state)))
    again = _fenced("\n".join(map(_without_folders, state.reproduce.splitlines())), "")
    return f"## How it was hardened\n\n{_plain(state.sentence)}\n\n{tables}\n\n{again}\n"


def card_of(folder: Path) -> Path:
    """Where the card of a run belongs: beside its model."""
    return folder / "model" / "README.md"


def model_card(folder: Path, suite: str | None = None) -> ModelCard:
    """The card of a run from its evaluation on a suite, or the latest."""
    return _card(*_read(folder, suite))


def _read(folder: Path, suite: str | None) -> tuple[Subject, Task]:
    if not (folder / "run.json").exists():
        raise RunError(f"{folder} is not a run of Rosewood (no run.json): a card describes how a model was trained.")
    return subject_of(load_runs([folder], suite)), load_task(folder / "task.yaml")


def _card(about: Subject, task: Task) -> ModelCard:
    (run,) = about.runs
    assert run.info is not None
    front = _front_matter(run, run.info, task).to_yaml()
    return ModelCard(f"---\n{front}\n---\n\n{_body(about, run, run.info, task)}")


def _front_matter(run: ReportedRun, info: RunInfo, task: Task) -> ModelCardData:
    hub = task.splits["train"].hub if "train" in task.splits else None
    return ModelCardData(
        base_model=_on_hub(info.model),
        datasets=[hub.dataset] if hub is not None else None,
        eval_results=list(_results(run, task.name)),
        library_name="transformers",
        metrics=["accuracy"],
        model_name=f"{run.model}-{task.name}-{run.method}",
        pipeline_tag="text-classification",
        tags=["rosewood", "robustness", run.method],
    )


def _on_hub(model: str) -> str | None:
    """The name of a model on the Hub; a folder has none."""
    return None if Path(model).is_absolute() else HUB_NAMES.get(model, model)


def _results(run: ReportedRun, task: str) -> Iterator[EvalResult]:
    """Accuracies on clean, shifted and adversarial sets, and under attack."""
    for each in run.evaluated.evaluation.sets:
        if each.role in MEASURED:
            yield _result(each.name, _dataset(each), f"Accuracy ({each.role})", each.accuracy, each.interval)
    for attack in attacked([run.evaluated]):
        found = attack.summary
        if not found.attacked:
            continue
        metric = f"Accuracy under {attack.title}"
        yield _result(task, _slug(task), metric, found.robust_accuracy, found.robust_interval)


def _result(name: str, dataset: str, metric: str, value: float, interval: tuple[float, float]) -> EvalResult:
    return EvalResult(
        task_type="text-classification",
        dataset_type=dataset,
        dataset_name=name,
        metric_type="accuracy",
        metric_name=metric,
        metric_value=round(value, 4),
        metric_args={"interval_95": [round(end, 4) for end in interval]},
    )


def _dataset(each: SetResult) -> str:
    """Its name on the Hub, if that is where it came from."""
    return each.source.removeprefix("hub: ").split(" ")[0] if each.source.startswith("hub: ") else _slug(each.name)


def _slug(name: str) -> str:
    return re.sub(r"[^\w.-]+", "-", name).strip("-.") or "data"


def _body(about: Subject, run: ReportedRun, info: RunInfo, task: Task) -> str:
    environment = Environment(  # Markdown, where the filter `plain` keeps text from being markup
        loader=PackageLoader("rosewood.report"), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    environment.filters["plain"] = _plain
    environment.filters["fenced"] = _fenced
    tables = [grid for title, grid in about.tables.items() if title != "Attacks"]  # those of the evaluation alone
    return environment.get_template("card.md").render(
        name=f"{run.model}-{task.name}-{run.method}",
        base=_on_hub(info.model) or run.model,
        run=run,
        info=info,
        task=task,
        recipe=yaml.safe_load(run.recipe) if run.recipe else {},
        trained_on=_trained_on(info),
        made_of=_made_of(run.evaluated.folder),
        arguments=yaml.safe_dump(info.training_arguments, sort_keys=False),
        sentence=f"{right_on(about, run.method)}.",
        remarks=verdict(about).remarks,
        tables=[_table(grid) for grid in [*tables, attack_table(attacked([run.evaluated]), [run])] if grid is not None],
        limits=list(_limits(run, info)),
        wrapped=saved_defence(run.evaluated.folder) is not None,
        commands="\n".join(map(_without_folders, commands(run))),
    )


def _trained_on(info: RunInfo) -> str:
    """How many examples there were; runs before these were counted know only what they were limited to."""
    train = info.examples.get("train", info.train_size)
    validation = info.examples.get("validation")
    return (
        f"{'All' if train is None else train} training examples, "
        f"{f'at most {info.validation_size}' if not info.examples else validation or 'none'} for validation"
    )


def _made_of(folder: Path) -> str:
    """The runs that an averaged model was made of."""
    if not (folder / "average.json").exists():
        return ""
    return ", ".join(f"{each.recipe} (seed {each.seed})" for each in Average.load(folder / "average.json").runs)


def _without_folders(command: str) -> str:
    """A command in which an absolute path is its last part: the folders of a machine are nobody's business."""
    parts = (word.rpartition("=") for word in shlex.split(command))
    return shlex.join(f"{name}{sign}{short_name(value)}" for name, sign, value in parts)


def _table(grid: Grid) -> str:
    return escape(to_markdown(grid), quote=False)


def _plain(text: object) -> str:
    """Text in which Markdown and HTML find nothing to read."""
    return re.sub(r"([\\`*_\[\]#|])", r"\\\1", escape(" ".join(str(text).split()), quote=False))


def _fenced(text: str, language: str) -> str:
    """A block of code, within a fence that the text does not contain."""
    longest = max((len(found) for found in re.findall(r"`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}"


def _limits(run: ReportedRun, info: RunInfo) -> Iterator[str]:
    """What the figures say against the model, worst first."""
    evaluation = run.evaluated.evaluation
    if is_guessing(evaluation):
        yield (
            f"It is at guessing: {described(guessed_sets(evaluation))}. It has not learnt the task, and what it keeps "
            "under noise or attack is not robustness."
        )
    for each in attacked([run.evaluated]):
        found = each.summary
        if not found.attacked:
            share = percent(found.changeable_words or 0)
            yield f"It was not attacked by {each.title}, which could change only {share} % of the words."
            continue
        left, before = percent(found.robust_accuracy), percent(found.clean_accuracy)
        yield f"Under {each.title} its accuracy falls from {before} to {left} % ({found.examples} examples)."
    measured = [each for each in evaluation.sets if each.role in MEASURED]
    worst = min(measured, key=lambda each: each.accuracy, default=None)
    if worst is not None and len(measured) > 1:
        accuracy = f"{percent(worst.accuracy)} {half_width(worst.interval)}"
        yield f"It is least accurate on {worst.name} ({worst.role}): {accuracy} %."
    for clean in measured:
        if clean.role == "clean" and clean.worst is not None:
            accuracy = f"{percent(clean.worst.accuracy)} {half_width(clean.worst.interval)}"
            yield f"Its worst group of {clean.name} is {clean.worst.kind}: {clean.worst.group}, with {accuracy} %."
    sure = max(measured, key=lambda each: each.ece, default=None)
    if sure is not None:
        worst_of = "Where it is worst, on" if len(measured) > 1 else "On"
        gap = percent(sure.ece)
        yield f"{worst_of} {sure.name}, its confidence differs from its accuracy by {gap} points on average."
    yield from (f"Not measured: {lacking.name} ({lacking.reason})" for lacking in evaluation.missing if lacking.counted)
    yield from (f"{noted.name}: {noted.note}" for noted in evaluation.sets if noted.note)
    if info.model in models() and models()[info.model].note:
        yield f"The base model: {models()[info.model].note}."
    if info.training_arguments:
        yield f"One training run with seed {info.seed}: another seed gives other figures."
