"""The result of an attack in its folder: `attack.json` with the figures, `examples.jsonl` with a line per example."""

from __future__ import annotations

from pathlib import Path

from pydantic import ValidationError

from rosewood.errors import RunError
from rosewood.results import AttackedExample, AttackReport, AttackResult, write

REPORT = "attack.json"
EXAMPLES = "examples.jsonl"


def save_outcome(result: AttackResult, folder: Path) -> None:
    """Write both files; the report comes last, so that where it is, all is."""
    write(folder / EXAMPLES, "".join(f"{example.model_dump_json()}\n" for example in result.examples))
    facts = {name: value for name, value in result if name != "examples"}
    AttackReport(**facts).save(folder / REPORT)


def load_outcome(folder: str | Path) -> AttackResult:
    """The result of an attack that has come to its end, as `rosewood attack` and `attack(folder=...)` leave it."""
    folder = Path(folder)
    return AttackResult(**dict(AttackReport.load(folder / REPORT)), examples=_examples(folder / EXAMPLES))


def _examples(path: Path) -> list[AttackedExample]:
    try:
        return [AttackedExample.model_validate_json(line) for line in path.read_bytes().splitlines()]
    except (OSError, ValidationError) as error:
        raise RunError(f"cannot read {path}: {error}. Delete its folder, and attack again.") from None
