"""A run directory that two processes write together, also across an callbacks."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from torch import Tensor, distributed
from transformers import TrainingArguments

from rosewood.config.settings import Lora
from rosewood.data.loading import task_from_files
from rosewood.errors import RunError
from rosewood.models.open import load_classifier
from rosewood.recipe import load_recipe
from rosewood.results import RunInfo
from rosewood.training import callbacks
from rosewood.training.run import Interrupted, Plan, resume_run, start_run
from rosewood.training.trainer import RobustTrainer
from sharded import SHARDED, allow_fsdp_on_cpu
from tiny import tiny_bert
from tiny_text import save_tiny_checkpoint
from two_processes import in_two_processes


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    rows = [f"{'good' if i % 3 else 'bad'} film {chr(97 + i % 26)},{'yes' if i % 3 else 'no'}" for i in range(48)]
    file = tmp_path / "rows.csv"
    file.write_text("\n".join(["text,label", *rows]), encoding="utf-8")
    return Plan(
        recipe=load_recipe("rose-ensemble"),
        task=task_from_files(file, None, text_columns=["text"], label_column="label"),
        model=str(save_tiny_checkpoint(tmp_path / "tiny")),
        labels=["no", "yes"],
        arguments={"num_train_epochs": 2.0, "per_device_train_batch_size": 4, "learning_rate": 1e-3},
    )


def whole(rank: int, plan: Plan, output: Path) -> None:
    start_run(plan, output)


def interrupted(rank: int, plan: Plan, output: Path) -> None:
    """Only the second process hears the signal, after three steps."""
    ordinary = callbacks.SaveAndStop.on_step_end

    def on_step_end(self, args, state, control, **rest):  # type: ignore[no-untyped-def]
        self._stopping = rank == 1 and state.global_step == 3
        ordinary(self, args, state, control, **rest)

    callbacks.SaveAndStop.on_step_end = on_step_end
    with pytest.raises(Interrupted):
        start_run(plan, output)
    distributed.barrier()
    callbacks.SaveAndStop.on_step_end = ordinary
    assert RunInfo.load(output / "run.json").status == "interrupted"
    resume_run(output)


def final_weights(output: Path) -> dict[str, Tensor]:
    assert sorted(path.name for path in output.iterdir()) == [
        "history.jsonl",
        "metrics.json",
        "model",
        "recipe.yaml",
        "run.json",
        "task.yaml",
    ]
    return load_file(output / "model" / "model.safetensors")


def test_one_signal_interrupts_both_and_the_resumed_run_ends_alike(plan: Plan, tmp_path: Path) -> None:
    for function in (whole, interrupted):
        (tmp_path / function.__name__).mkdir()
        in_two_processes(function, tmp_path / function.__name__, plan, tmp_path / f"run-{function.__name__}")
    first, second = (final_weights(tmp_path / f"run-{name}") for name in ("whole", "interrupted"))
    assert all(torch.equal(weight, second[name]) for name, weight in first.items())
    histories = [(tmp_path / f"run-{name}" / "history.jsonl").read_text() for name in ("whole", "interrupted")]
    assert len(histories[0].splitlines()) == 10  # 40 examples, 8 a step, two epochs
    assert histories[0] == histories[1]


def divided(rank: int, plan: Plan, output: Path) -> None:
    allow_fsdp_on_cpu()
    start_run(plan, output)


def divided_and_interrupted(rank: int, plan: Plan, output: Path) -> None:
    allow_fsdp_on_cpu()
    interrupted(rank, plan, output)


@pytest.mark.slow
def test_a_divided_adapter_is_resumed_saved_and_merged(plan: Plan, tmp_path: Path) -> None:
    plan = plan.model_copy(update={"lora": Lora(rank=2, alpha=4, dropout=0.0, targets=["all-linear"])})
    plan = plan.model_copy(update={"arguments": plan.arguments | SHARDED})
    for function in (divided, divided_and_interrupted):
        (tmp_path / function.__name__).mkdir()
        in_two_processes(function, tmp_path / function.__name__, plan, tmp_path / f"run-{function.__name__}")
    runs = [tmp_path / "run-divided", tmp_path / "run-divided_and_interrupted"]
    for file in ("model/model.safetensors", "adapter/adapter_model.safetensors"):
        first, second = (load_file(run / file) for run in runs)
        assert all(torch.equal(weight, second[name]) for name, weight in first.items())
    merged, adapted = (load_classifier(str(runs[0] / kind))[0] for kind in ("model", "adapter"))
    for name, weight in merged.named_parameters():
        torch.testing.assert_close(weight, adapted.get_parameter(name), rtol=0, atol=1e-6)
    query = "bert.encoder.layer.0.attention.self.query.weight"
    assert not torch.equal(merged.get_parameter(query), load_file(Path(plan.model) / "model.safetensors")[query])


def test_one_process_has_nobody_to_share_with(plan: Plan, tmp_path: Path) -> None:
    plan = plan.model_copy(update={"arguments": plan.arguments | {"fsdp": True}})
    with pytest.raises(RunError, match="several processes, and this is one alone: start it with torchrun"):
        start_run(plan, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def unaware(rank: int, folder: Path) -> None:
    distributed.init_process_group("gloo")
    arguments = TrainingArguments(str(folder), use_cpu=False, report_to="none")
    arguments.distributed_state = None
    with pytest.raises(RunError, match="pass use_cpu=True"):
        RobustTrainer(model=tiny_bert(), args=arguments)


def test_processes_that_do_not_know_of_each_other_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_two_processes(unaware, tmp_path, tmp_path)
