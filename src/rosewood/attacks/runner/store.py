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


def load_attack(folder: str | Path) -> AttackResult:
    """Read the result of a finished attack, as `rosewood attack` and `attack(folder=...)` leave it.

    Args:
        folder: The folder with `attack.json` and `examples.jsonl`.

    Returns:
        The figures and settings, and what was done to each example.

    Raises:
        RunError: If the folder does not hold a finished attack, or a file is damaged.

    Example:
        >>> result = load_attack("runs/rose/attacks/pwws-test-0f3c9a1e")  # doctest: +SKIP
        >>> [example.adversarial for example in result.examples if example.status == "broken"]  # doctest: +SKIP
    """
    folder = Path(folder)
    return AttackResult(**dict(AttackReport.load(folder / REPORT)), examples=_examples(folder / EXAMPLES))


def _examples(path: Path) -> list[AttackedExample]:
    try:
        return [AttackedExample.model_validate_json(line) for line in path.read_bytes().splitlines()]
    except (OSError, ValidationError) as error:
        raise RunError(f"cannot read {path}: {error}. Delete its folder, and attack again.") from None
