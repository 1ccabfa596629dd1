"""Runs from disk: what may be compared, on which examples, and where a run began."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model

from rosewood.config.settings import Lora
from rosewood.errors import RunError
from rosewood.lab.losses import RunLosses
from rosewood.models.open import load_pretrained
from tiny_losses import LABELS, MakeRun, scattered
from tiny_text import tiny_classifier


def test_all_runs_get_the_same_examples(make_run: MakeRun) -> None:
    losses = RunLosses([make_run("a", 1), make_run("b", 2)], size=12)
    first, second = losses.of("a"), losses.of("b")
    assert first.data == second.data and first.examples == second.examples == 12
    assert first.fingerprint != second.fingerprint
    assert losses.source == "films, test, 12 examples"


def test_the_start_is_the_pretrained_encoder_with_the_head_of_the_runs_seed(make_run: MakeRun, tmp_path: Path) -> None:
    run = make_run("a", 1)
    losses = RunLosses([run], size=8)
    started = losses.at_the_start().model.state_dict()
    expected, _ = load_pretrained(str(tmp_path / "pretrained"), losses._task, seed=1)
    assert all(torch.equal(tensor, started[name]) for name, tensor in expected.state_dict().items())


def test_a_lora_run_is_measured_with_its_adapter_merged(make_run: MakeRun) -> None:
    run = make_run("a", 1, lora=Lora(rank=2, alpha=4))
    adapted = get_peft_model(tiny_classifier(LABELS), LoraConfig(task_type="SEQ_CLS", r=2, target_modules="all-linear"))
    merged = scattered(adapted, 1).merge_and_unload()
    merged.save_pretrained(run / "model")
    found = RunLosses([run, make_run("b", 2)], size=8).of("a").model
    for name, tensor in merged.state_dict().items():
        assert torch.equal(found.state_dict()[name], tensor), name


def test_runs_that_cannot_be_compared_are_refused(make_run: MakeRun) -> None:
    run = make_run("a", 1)
    more = make_run("b", 2, labels=("bad", "good", "so"))
    with pytest.raises(
        RunError, match=r"b cannot be compared with .*a: it has other labels \(bad, good, so, not bad, g"
    ):
        RunLosses([run, more])
    other = make_run("c", 2)
    config = json.loads((other / "model" / "config.json").read_text())
    config["architectures"] = ["RobertaForSequenceClassification"]
    (other / "model" / "config.json").write_text(json.dumps(config))
    with pytest.raises(RunError, match=r"is another architecture \(RobertaForSequenceClassification, not BertForSeq"):
        RunLosses([run, other])
    with pytest.raises(RunError, match=r"is not finished \(interrupted\): continue it with rosewood train --output"):
        RunLosses([run, make_run("d", 2, status="interrupted")])
    with pytest.raises(RunError, match="got one twice"):
        RunLosses([run, run])
    with pytest.raises(RunError, match=r"model is not a run of Rosewood \(no run\.json\): expected the --output of a"):
        RunLosses([run, run / "model"])
    with pytest.raises(RunError, match=r"elsewhere does not exist: expected the --output of a finished rosewood train"):
        RunLosses([run, run / "elsewhere"])


def test_runs_of_the_same_name_are_distinguished(make_run: MakeRun) -> None:
    losses = RunLosses([make_run("one/vanilla", 1), make_run("two/vanilla", 2)], size=8)
    first, second = losses.folders
    assert first.endswith("one-vanilla") and second.endswith("two-vanilla")


def test_no_run_is_called_like_the_model_that_runs_start_from(make_run: MakeRun) -> None:
    losses = RunLosses([make_run("pre-trained", 1), make_run("b", 2)], size=8)
    first, second = losses.folders
    assert first.endswith("-pre-trained") and second.endswith("-b")
