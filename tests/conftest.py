"""Every test runs offline, on one thread, and without the Trainer's chatter."""

import os

# Before anything imports transformers or datasets: they read these once.
os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["HF_DATASETS_DISABLE_PROGRESS_BARS"] = "1"
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

import gc
import warnings
from collections.abc import Iterator

import pytest
import torch
from transformers import PrinterCallback
from transformers.utils import logging

from launcher import without_collections

torch.set_num_threads(1)
logging.set_verbosity_error()
logging.disable_progress_bar()
without_collections()


def pytest_collection_finish() -> None:
    """Half a million imported objects need no look at every collection."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def quiet_trainer(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Trainers print every log record when there is no progress bar; tests read `state.log_history` instead."""
    monkeypatch.setattr(PrinterCallback, "on_log", lambda *args, **kwargs: None)
    with warnings.catch_warnings():
        # transformers 5.22 moves tensors of a pinned loader even on a machine without accelerator.
        warnings.filterwarnings("ignore", message=".*pin_memory.*")
        yield


@pytest.fixture(autouse=True)
def seeded() -> None:
    torch.manual_seed(0)
