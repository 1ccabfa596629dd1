"""Where a run sends its figures while it trains: the integrations of transformers, by name."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from transformers import TrainerCallback
from transformers.integrations import integration_utils as integrations

from rosewood.errors import RunError, closest

TENSORBOARD = "tensorboard"
PACKAGES = {"azure_ml": "azureml-sdk", "comet_ml": "comet-ml"}
"""What an integration's package is called, where that is not its name."""


def check_report_to(names: Sequence[str]) -> None:
    """Refuse what transformers does not know, and what needs a package that is not installed."""
    known = sorted(integrations.INTEGRATION_TO_CALLBACK)
    for name in names:
        if name not in known:
            raise RunError(f"--report-to {name}: there is no such integration; {closest(name, known)}")
        if name not in integrations.get_available_reporting_integrations() and name != "flyte":
            package = PACKAGES.get(name, name)
            raise RunError(f"--report-to {name} needs a package that is not installed: pip install {package}")


def reporters(names: Sequence[str], output: Path) -> list[TrainerCallback]:
    """The callbacks of these integrations."""
    found = []
    for name in names:
        callback = integrations.INTEGRATION_TO_CALLBACK[name]()
        if name == TENSORBOARD and callback.logging_dir is None:
            # By default within the Trainer's own folder, which a finished run has no more.
            callback.logging_dir = str(output.resolve() / TENSORBOARD)
        found.append(callback)
    return found
