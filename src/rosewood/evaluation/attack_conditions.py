"""What decides the figures of an attack beside the model: attacks compare only where all of it is equal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from rosewood.results import AttackReport, Evaluation, LiveAttack

Conditions = Mapping[str, Any]
"""By name, settings of the attack among them."""
_DECIDES_NOTHING = {"model", "fingerprint", "lexicon_name", "versions", "created", "seconds", "summary", "settings"}


def conditions_of(report: AttackReport) -> Conditions:
    """Those of an attack that was kept."""
    plain = report.model_dump(mode="json", exclude=_DECIDES_NOTHING)
    return plain | {"examples": report.summary.examples} | _settings(report.settings)


def conditions_of_live(live: LiveAttack, evaluation: Evaluation) -> Conditions:
    """Those of an attack in an evaluation, as far as it tells."""
    plain = {
        "attack": live.attack,
        "task": evaluation.task,
        "of": live.of,
        "lexicon": live.lexicon,
        "searches": live.searches,
        "data": [each.data for each in evaluation.sets if each.name == live.of],
        "seed": evaluation.seed,
        "examples": live.summary.examples,
    }
    return plain | _settings(live.settings)


def identity_of(conditions: Conditions) -> str:
    """Equal for equal conditions."""
    return json.dumps(conditions, sort_keys=True)


def told_apart(several: Sequence[Conditions]) -> list[str]:
    """For each of some conditions the values that not all of them share."""
    names = dict.fromkeys(name for each in several for name in each)
    differing = [name for name in names if len({identity_of({name: each.get(name)}) for each in several}) > 1]
    return [", ".join(f"{name}={json.dumps(each.get(name))}" for name in differing) for each in several]


def _settings(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {f"settings.{name}": value for name, value in settings.items()}
