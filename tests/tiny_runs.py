"""What a run says of itself, with as much made up as a test does not care about."""

from __future__ import annotations

from typing import Any

from rosewood.results import RunInfo


def run_info(recipe: str = "vanilla", seed: int = 0, **changes: Any) -> RunInfo:
    made_up: dict[str, Any] = {
        "task": "own",
        "model": "m",
        "data_dir": None,
        "fingerprints": {},
        "train_size": None,
        "validation_size": 1,
        "max_length": 16,
        "training_arguments": {"learning_rate": 1e-4},
        "command": "",
        "status": "finished",
    }
    return RunInfo(recipe=recipe, seed=seed, **made_up | changes)
