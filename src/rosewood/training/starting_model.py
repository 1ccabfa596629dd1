"""The model that a run starts from: what its outputs mean, and which pre-trained model anchors tie it to."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from datasets import ClassLabel
from huggingface_hub import metadata_load, try_to_load_from_cache
from torch import nn
from transformers import PretrainedConfig

from rosewood.errors import RosewoodError, RunError
from rosewood.models.names import Outline, Shapes, encoder_shapes, resolve_model
from rosewood.models.scoring import matching_columns, output_names, unnamed
from rosewood.results import RunInfo
from rosewood.training.plan import Plan


def in_order_of_outputs(plan: Plan, start: Outline) -> Plan:
    """The plan with the labels of its task in the order of the checkpoint's outputs, if it has a trained head.

    A model without one gets a new head, whose outputs have the order of the task.
    """
    if plan.labels is not None and plan.new_head:
        raise RunError("--labels names the outputs that the model has, and --new-head replaces them: leave one out")
    if plan.labels is not None and not start.has_head:
        raise RunError(
            f"--labels names the outputs of a fine-tuned classifier, and {plan.model} has no classification head: "
            "it gets a new one, so leave --labels out"
        )
    if plan.new_head or not start.has_head:
        return plan
    names = _names(plan, start.config)
    columns = matching_columns(names, plan.task.labels)
    if columns is None:
        raise _other_labels(plan, start.config)
    ordered = sorted(plan.task.labels, key=lambda label: columns[plan.task.labels.index(label)])
    if plan.task.multi_label and ordered != plan.task.labels:
        # A vector of 0 and 1 has no names: its places are those of the task's labels, whatever the model's order is.
        raise RunError(
            f"the outputs of {plan.model} are {', '.join(ordered)}, and the labels of the task are "
            f"{', '.join(plan.task.labels)}: with several labels a text both must have one order. Write the labels "
            "in a task file in the order of the outputs, or take a new head: --new-head"
        )
    return plan.model_copy(update={"task": plan.task.model_copy(update={"labels": ordered})})


def warn_of_other_labels(model: nn.Module, data: Any) -> None:
    """Say so where the names of a model's outputs and those of the data's labels disagree, or their order."""
    config, features = getattr(model, "config", None), getattr(data, "features", None) or {}
    feature = features.get("labels") or features.get("label")
    feature = getattr(feature, "feature", feature)  # where each token has a label
    if not isinstance(feature, ClassLabel) or not isinstance(config, PretrainedConfig):
        return
    names, labels = output_names(config), feature.names
    if len(names) == len(labels) and (unnamed(config) or matching_columns(names, labels) == list(range(len(names)))):
        return
    warnings.warn(
        f"the model's outputs are {', '.join(names)} (id2label), the labels of the data are {', '.join(labels)}: "
        "training takes label 0 for output 0, and so on. Give the data the model's order "
        "(dataset.align_labels_with_mapping(model.config.label2id, column)), or the model a new head",
        stacklevel=3,
    )


def _names(plan: Plan, config: PretrainedConfig) -> list[str]:
    if plan.labels is None:
        found = output_names(config)
        numbers = [str(number) for number in range(len(found))]
        # Labels that are the numbers 0, 1, ... mean the outputs of these numbers.
        return numbers if unnamed(config) and sorted(plan.task.labels) == sorted(numbers) else found
    if len(plan.labels) != config.num_labels:
        raise RunError(
            f"--labels names {len(plan.labels)} outputs ({', '.join(plan.labels)}), and {plan.model} has "
            f"{config.num_labels}"
        )
    if matching_columns(plan.labels, plan.task.labels) is None:
        raise RunError(
            f"--labels names {', '.join(plan.labels)}, and the data has the labels {', '.join(plan.task.labels)}: "
            "expected the same names, in the order of the model's outputs"
        )
    return list(plan.labels)


def _other_labels(plan: Plan, config: PretrainedConfig) -> RunError:
    labels, names = plan.task.labels, output_names(config)
    found = (
        f"{plan.model} is a fine-tuned classifier with {config.num_labels} outputs ({', '.join(names)}), and the data "
        f"has {len(labels)} labels ({', '.join(labels)})"
    )
    new_head = "start with a new head: --new-head"
    if config.num_labels != len(labels):
        return RunError(f"{found}. Give data with the labels of the model, or {new_head}")
    return RunError(
        f"{found}. Say which output is which: --labels {','.join(labels)} (in the order of the outputs); or {new_head}"
    )


class Origin(NamedTuple):
    """A pre-trained model, and in a few words why it is taken."""

    name: str
    why: str


def origin_of(model: str, start: Outline, chosen: str | None = None, trust_remote_code: bool = False) -> Origin:
    """The pre-trained model of a run that starts from `model`: the chosen one, or the one that the checkpoint names.

    Only a classifier comes from another model; everything else is pre-trained itself. What a checkpoint names counts if
    it is on this machine and fits, so that training never waits for a download that nobody asked for.
    """
    if chosen == model:
        return Origin(model, "the checkpoint itself, as chosen")
    if chosen is not None:
        problem = _misfit(encoder_shapes(chosen, trust_remote_code), start.encoder)
        if problem:
            raise RunError(
                f"--pretrained {chosen} does not fit {model}: {problem}. Name the model it was fine-tuned from"
            )
        return Origin(chosen, "as chosen")
    if not start.has_head:
        return Origin(model, "the model itself")
    reasons = []
    for name, where in _named(model):
        try:
            problem = _misfit(encoder_shapes(name, local=True), start.encoder)
        except RosewoodError:
            problem = "it is not on this machine"
        if not problem:
            return Origin(name, f"named in {where}")
        reasons.append(f"{name} is named in {where}, but {problem}")
    return Origin(model, f"the checkpoint itself; {'; '.join(reasons) or 'it names no base model'}")


def _misfit(theirs: Shapes, ours: Shapes) -> str:
    common = [name for name in ours if name in theirs]
    differing = [name for name in common if ours[name] != theirs[name]]
    if differing:
        name = differing[0]
        return f"{name} has the shape {theirs[name]} there and {ours[name]} here"
    return "" if common else "they have no weight in common"


def _named(model: str) -> Iterator[tuple[str, str]]:
    """The base models that a checkpoint names, the surest first, and where."""
    path = resolve_model(model)
    own = {model, path, str(Path(path).resolve())}
    for where, read in _SOURCES.items():
        file = _file(path, where)
        try:
            name = None if file is None else read(file)
        except Exception:  # written by others, and no reason not to train
            name = None
        if isinstance(name, str) and name and name not in own:
            yield name, where


def _file(path: str, name: str) -> Path | None:
    if not Path(path).is_dir():
        found = try_to_load_from_cache(path, name)
        return Path(found) if isinstance(found, str) else None
    folder = Path(path).resolve()
    if name == "run.json":  # of the run whose model this is
        folder = folder.parent if folder.name in ("model", "adapter") else folder / "absent"
    return folder / name if (folder / name).is_file() else None


def _of_run(file: Path) -> str:
    info = RunInfo.load(file)
    return info.pretrained or info.model


def _of_card(file: Path) -> str | None:
    base = (metadata_load(file) or {}).get("base_model")
    if isinstance(base, list):  # several are what a merge was made of
        return base[0] if len(base) == 1 else None
    return base


_SOURCES = {
    "run.json": _of_run,
    "adapter_config.json": lambda file: json.loads(file.read_text(encoding="utf-8")).get("base_model_name_or_path"),
    "README.md": _of_card,
    "config.json": lambda file: json.loads(file.read_text(encoding="utf-8")).get("_name_or_path"),
}
