"""A protocol is one YAML file: how a published paper attacks, so that figures can be compared with its own.

It names the paper's attacks with their settings, the lexicon, candidates, constraints, budgets, sample and text length,
with what differs from task to task, and where Rosewood departs from the paper. Whatever the user asks for beside it is
one more deviation. Results carry the protocol's name and all deviations, and tables keep protocols apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rosewood.attacks import PROTOCOLS, protocol_file
from rosewood.attacks.runner.constraints import constraint
from rosewood.config import strict_yaml
from rosewood.config.attack_options import constraint_text
from rosewood.config.registry import files_in
from rosewood.config.settings import AFTERWARDS, AttackSettings, problem_of
from rosewood.errors import RunError
from rosewood.words.lexicon import Lexicon

MERGED = ("set", "constraints")
"""Entries whose parts are set one by one."""
NO_DEVIATION = {*AFTERWARDS, "seed"}


class ProtocolPart(AttackSettings):
    """Settings of `rosewood attack`, as far as a protocol says them."""

    model_config = ConfigDict(validate_by_name=True, validate_by_alias=True)

    changes: dict[str, Any] = Field(default={}, alias="set")
    """Settings of the attack."""
    lexicon: str | None = None
    masked_lm: str | None = None
    examples: Annotated[int, Field(gt=0)] | None = None

    def said(self) -> dict[str, Any]:
        """What it says, by the names of the options."""
        names = self.model_fields_set & ProtocolPart.model_fields.keys()
        return {ProtocolPart.model_fields[name].alias or name: getattr(self, name) for name in names}


class TaskPart(ProtocolPart):
    """What a protocol does otherwise on one task."""

    attacks: dict[str, ProtocolPart] = Field(default={})


class Protocol(ProtocolPart):
    """How a paper attacks."""

    name: str
    title: str
    citation: str
    attacks: dict[str, ProtocolPart] = Field(min_length=1)
    """The paper's attacks, with what they do not share; the first is taken unless another is asked for."""
    tasks: dict[str, TaskPart] = Field(default={})
    """The paper's tasks, with what they do not share."""
    deviations: list[str] = Field(default=[])
    """Where Rosewood departs from the paper; what begins with an attack or a task and a colon is of that one alone."""

    def resolve(self, given: Mapping[str, Any], task: str | None = None) -> Resolved:
        """The settings for a task, with those that were given instead of the protocol's.

        Args:
            given: `attack`, `set`, `lexicon`, `masked_lm`, `examples` and the fields of `AttackSettings`, as far as the
                user gave them.
            task: The name of the task.

        Returns:
            All of these settings, and the deviations from the paper.
        """
        attack = _plain_name(given.get("attack") or next(iter(self.attacks)))
        own = {_plain_name(name): part for name, part in self.attacks.items()}
        here = self.tasks.get(task or "", TaskPart())
        there = {_plain_name(name): part for name, part in here.attacks.items()}
        published: dict[str, Any] = {"set": {}, "constraints": {}}
        for part in (self, own.get(attack), here, there.get(attack)):
            published = _merged(published, _canonical(part.said()) if part else {})
        others = (own.keys() | self.tasks.keys()) - {attack, task}
        deviations = [each for each in self.deviations if each.partition(":")[0] not in others]
        if attack not in own:
            deviations.append(f"attack: {attack} instead of {' or '.join(own)}")
        if self.tasks and task not in self.tasks:
            deviations.append(f"task: {task or 'own data'} instead of {' or '.join(self.tasks)}")
        chosen = _canonical({name: value for name, value in given.items() if name != "attack"})
        deviations += _differing(published, chosen)
        return Resolved({"attack": attack, **_merged(published, chosen)}, tuple(deviations))


class Resolved(NamedTuple):
    """The settings of an attack under a protocol, and where they depart from the paper."""

    values: dict[str, Any]
    deviations: tuple[str, ...]

    def settings(self) -> AttackSettings:
        """Those that every attack has."""
        return AttackSettings.checked({k: v for k, v in self.values.items() if k in AttackSettings.model_fields})


def lexicon_deviations(lexicon: Lexicon | None, max_candidates: int | None) -> tuple[str, ...]:
    """Whether a lexicon has fewer words for a place than a protocol tries."""
    if lexicon is None or max_candidates is None:
        return ()
    most = max(map(len, lexicon.entries.values()), default=0)
    return (f"candidates: {lexicon.name} has at most {most} for a word, not {max_candidates}",) * (
        most < max_candidates
    )


def protocol_names() -> list[str]:
    """The names of the protocols that come with Rosewood, or with packages that extend it."""
    return sorted(files_in(PROTOCOLS))


def load_protocol(name: str | Path) -> Protocol:
    """A protocol by its name or by the path of its YAML file.

    Args:
        name: one of `rosewood list protocols`, or a path that ends in .yaml.

    Raises:
        RunError: there is no such protocol, or its file says something else than a protocol does.

    Example:
        >>> load_protocol("textdefender").max_queries_per_word
        50
    """
    path = protocol_file(name)
    kinds: dict[str, type[BaseModel]] = {"": Protocol, "attacks": ProtocolPart, "tasks": TaskPart}
    try:
        return Protocol.model_validate(strict_yaml.read(path, "a protocol", RunError))
    except ValidationError as error:
        problems = [f"  {problem_of(found, kinds)}" for found in error.errors()]
        raise RunError("\n".join([f"{path} is not a valid protocol:", *problems])) from None


def _plain_name(attack: str) -> str:
    return attack.replace("-", "_")


def _canonical(values: Mapping[str, Any]) -> dict[str, Any]:
    """With constraints in one form, in whichever they were given."""
    if not values.get("constraints"):
        return dict(values)
    rules = [constraint(name, own) for name, own in values["constraints"].items()]
    return {**values, "constraints": {rule.name: asdict(rule) for rule in rules}}


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    parts = {name: {**below.get(name, {}), **above.get(name, {})} for name in MERGED}
    return {**below, **above, **parts}


def _differing(published: Mapping[str, Any], chosen: Mapping[str, Any]) -> list[str]:
    """What was chosen otherwise, in words."""
    found = []
    for name, value in chosen.items():
        if name in MERGED:
            found += [
                f"{constraint_text(key, each)} instead of {_text(published[name].get(key), key)}"
                for key, each in value.items()
                if each != published[name].get(key)
            ]
        elif name not in NO_DEVIATION and value != published.get(name):
            found.append(f"{name}: {_text(value)} instead of {_text(published.get(name))}")
    return found


def _text(value: Any, name: str = "") -> str:
    return "none" if value is None else constraint_text(name, value) if isinstance(value, dict) else str(value)
