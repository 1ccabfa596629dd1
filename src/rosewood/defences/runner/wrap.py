"""Put a defence around a classifier that is trained already: one in memory, or a run or checkpoint on disk."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, get_args, get_type_hints

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rosewood.config.registry import component
from rosewood.data.loading import load_split
from rosewood.data.tasks import Task, load_task
from rosewood.defences.chain import Chain
from rosewood.errors import RecipeError, RunError
from rosewood.models.defended import Defence, Defended, Material
from rosewood.models.open import open_run
from rosewood.models.scoring import Row, Scorer, label_columns, text_length
from rosewood.recipe import build_component
from rosewood.results import RunInfo
from rosewood.results.files import new_folder
from rosewood.words.lexicon import Lexicon

TRAIN_EXAMPLES = 5000
"""Training texts that a defence learns from, at most."""


def choose_defence(name: str, settings: Mapping[str, Any] | None = None) -> Defence:
    """A defence by its name: `corrected`, `smoothed:mask`, where the second part is its setting `by`, or a chain.

    A chain is written with `+` between its parts, as `corrected+encoded`. Each setting goes to the parts that have it.
    """
    given = dict(settings or {})
    parts = name.split("+")
    if len(parts) == 1:
        return _single(name, given)
    owned = [{key: given[key] for key in _settings_of(part) & given.keys()} for part in parts]
    unknown = sorted(given.keys() - {key for own in owned for key in own})
    if unknown:
        raise RecipeError(f"no part of {name} has a setting {unknown[0]!r}")
    return Chain(tuple(_single(part, own) for part, own in zip(parts, owned, strict=True)))


def _single(name: str, given: dict[str, Any]) -> Defence:
    name, _, kind = name.partition(":")
    if kind:
        if "by" not in _settings_of(name):
            raise RecipeError(f"the defence {name} has one kind only: write {name}, not {name}:{kind}")
        given = {"by": kind} | given
    chosen = build_component("defence", name, given)
    assert isinstance(chosen, Defence)
    return chosen


def _settings_of(name: str) -> set[str]:
    return {each.name for each in fields(component("defence", name.partition(":")[0]))}  # type: ignore[arg-type]


def kinds_of(name: str) -> dict[str, Defence]:
    """Every kind of a defence as `--with` takes it, with its usual settings."""
    kinds = get_args(get_type_hints(component("defence", name)).get("by"))
    found = [choose_defence(f"{name}:{kind}") for kind in kinds] or [choose_defence(name)]
    return {title_of(each): each for each in found}


def title_of(defence: Defence) -> str:
    """The defence as `--with` takes it."""
    if isinstance(defence, Chain):
        return "+".join(map(title_of, defence.of))
    return ":".join([defence.name, *filter(None, [defence.settings().get("by")])])


def wrap(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    defence: str | Defence = "smoothed:mask",
    *,
    texts: Sequence[str | Row] = (),
    labels: Sequence[int] = (),
    lexicon: Lexicon | None = None,
    **settings: Any,
) -> Defended:
    """Put a defence around a classifier.

    Args:
        model: A classifier of one label per text.
        tokenizer: Its tokenizer.
        defence: A name such as `smoothed:mask`, whose settings are then `settings`, or a defence with its settings.
        texts: Training texts, or pairs of them, for defences that learn from some.
        labels: Their labels, as numbers of the model's outputs.
        lexicon: Words that may replace each other, for `smoothed:substitute`, `encoded` and `guarded:frequency`.

    Returns:
        A model whose `tokenizer` belongs to it. Both work where the classifier and its tokenizer did.

    Raises:
        RunError: The defence lacks something, or the model cannot be wrapped.

    Example:
        >>> from transformers import pipeline
        >>> wrapped = wrap(model, tokenizer, "smoothed:mask", copies=4)
        >>> classify = pipeline("text-classification", model=wrapped, tokenizer=wrapped.tokenizer)
        >>> answers = classify(["A fine film."])
        >>> {answer["label"] for answer in answers} <= {"negative", "positive"}
        True
    """
    chosen = choose_defence(defence, settings) if isinstance(defence, str) else defence
    if not isinstance(chosen, Defence):
        raise RunError(f"a defence is a name or an object such as Smoothed(), got {chosen!r}")
    if isinstance(model, Defended):
        raise RunError(
            f"the model has a defence already, {title_of(model.defence)}: wrap the run that it was made from, or "
            "model.inner"
        )
    if getattr(model.config, "problem_type", None) == "multi_label_classification":
        raise RunError("the model is for several labels per text, and defences need one label per text")
    material = Material(
        [(text,) if isinstance(text, str) else tuple(text) for text in texts],
        labels,
        None if lexicon is None else lexicon.entries,
    )
    lacking = [why for field, why in chosen.needs().items() if not getattr(material, field)]
    if lacking:
        raise RunError("\n".join(lacking))
    base = Scorer(model.eval(), tokenizer, text_length(model, tokenizer))
    return Defended(model, tokenizer, chosen, chosen.learn(base, material)).eval()


def wrap_run(
    run: str | Path,
    output: str | Path,
    defence: Defence,
    *,
    task: str | Task | None = None,
    data_dir: str | Path | None = None,
    lexicon: str | None = None,
    train_examples: int = TRAIN_EXAMPLES,
    trust_remote_code: bool = False,
) -> Defended:
    """Write a run, or checkpoint, with a defence around its model; training data are read only if the defence asks."""
    source, target = Path(run), Path(output)
    if target.exists():
        raise RunError(f"{target} exists already: choose another --output")
    opened = open_run(run, [str(run)] if trust_remote_code else [])
    folder = data_dir or opened.data_dir
    needed = defence.needs()
    texts: list[Row] = []
    labels: list[int] = []
    if "texts" in needed:
        sample: tuple[int | None, int] = (train_examples, 0)
        if defence.reads_all:
            sample = (opened.info.train_size, opened.info.seed) if opened.info and task is None else (None, 0)
        texts, labels = _training_texts(_task(source, task, opened.info), folder, sample, opened.model)
    words = Lexicon.named(lexicon, folder) if "substitutes" in needed else None
    wrapped = wrap(opened.model, opened.tokenizer, defence, texts=texts, labels=labels, lexicon=words)
    _write(wrapped, source, target, opened.info)
    return wrapped


def _task(source: Path, task: str | Task | None, info: RunInfo | None) -> Task:
    if isinstance(task, Task):
        return task
    if task is None and info is None:
        raise RunError(
            f"{source} is a checkpoint and does not say what it was trained on: name its training data with "
            "--train-file, or its task with --task"
        )
    return load_task(task if task is not None else source / "task.yaml")


def _training_texts(
    task: Task, data_dir: str | Path | None, sample: tuple[int | None, int], model: PreTrainedModel
) -> tuple[list[Row], list[int]]:
    size, seed = sample
    rows = load_split(task, "train", data_dir, size, seed)
    columns = label_columns(model.config, task.labels)
    texts = list(zip(*(rows[field][:] for field in task.text), strict=True))
    return texts, [columns[label] for label in rows["label"][:]]


def _write(wrapped: Defended, source: Path, target: Path, info: RunInfo | None) -> None:
    with new_folder(target) as folder:
        wrapped.save_pretrained(folder / "model" if info else folder)
        if info is not None:
            shutil.copy(source / "task.yaml", folder)
            named = f"{info.recipe}+{title_of(wrapped.defence)}"
            info.model_copy(update={"recipe": named}).save(folder / "run.json")
