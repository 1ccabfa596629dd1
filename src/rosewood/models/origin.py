"""The pre-trained model that a checkpoint comes from, as far as it says: what anchors hold to, and WiSE-FT mixes in."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from huggingface_hub import metadata_load, try_to_load_from_cache

from rosewood.errors import RosewoodError, RunError
from rosewood.models.names import Outline, Shapes, encoder_shapes, resolve_model
from rosewood.results import RunInfo


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
    found = named_origin(model, start)
    return Origin(model, f"the checkpoint itself; {found}") if isinstance(found, str) else found


def named_origin(model: str, start: Outline) -> Origin | str:
    """The base model that a classifier names, if it is on this machine and fits; else why there is none."""
    reasons = []
    for name, where in _named(model):
        try:
            problem = _misfit(encoder_shapes(name, local=True), start.encoder)
        except RosewoodError:
            problem = "it is not on this machine"
        if not problem:
            return Origin(name, f"named in {where}")
        reasons.append(f"{name} is named in {where}, but {problem}")
    return "; ".join(reasons) or "it names no base model"


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
