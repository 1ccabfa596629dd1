"""No pickle of a stranger is ever loaded, wherever it lies."""

from __future__ import annotations

import io
import json
import shutil
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from rosewood.data.files import read_file
from rosewood.data.loading import read_hub, task_from_files
from rosewood.data.tasks import HubSource, load_task
from rosewood.errors import DataError, RosewoodError, RunError
from rosewood.models.averaging import average
from rosewood.models.open import load_classifier, load_pretrained
from rosewood.recipe import load_recipe
from rosewood.results import RunInfo
from rosewood.training.callbacks import Interrupted, SaveAndStop
from rosewood.training.checkpoint import CHECKSUMS, damage, seal
from rosewood.training.checkpoint_trainer import STATE_FILE
from rosewood.training.run import Plan, resume_run, start_run
from rosewood.training.trainer import RobustTrainer
from tiny import TinyData, arguments, tiny_bert
from tiny_text import save_tiny_checkpoint

LOADERS: dict[str, Callable[[Path], Any]] = {
    "train": lambda folder: load_pretrained(str(folder), load_task("reviews"), seed=0),
    "evaluate": lambda folder: load_classifier(str(folder)),
}


def as_torch_file(bomb: bytes) -> bytes:
    """The zip archive that torch.save writes, with this pickle in it."""
    sink = io.BytesIO()
    torch.save({"weight": torch.ones(1)}, sink)
    changed = io.BytesIO()
    with zipfile.ZipFile(sink) as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            new.writestr(name, bomb if name.endswith("data.pkl") else old.read(name))
    return changed.getvalue()


@pytest.fixture(params=["bare pickle", "torch archive"])
def planted(request: pytest.FixtureRequest, bomb: bytes) -> bytes:
    return bomb if request.param == "bare pickle" else as_torch_file(bomb)


def test_the_archive_is_one_that_torch_opens(bomb: bytes, marker: Path) -> None:
    """Without this the tests below could pass because the file is no good."""
    torch.load(io.BytesIO(as_torch_file(bomb)), weights_only=False).close()
    assert marker.exists()
    marker.unlink()


# Weights.


@pytest.mark.parametrize("loader", LOADERS)
def test_weights_without_safetensors_are_refused(loader: str, planted: bytes, tmp_path: Path) -> None:
    folder = save_tiny_checkpoint(tmp_path / "checkpoint")
    (folder / "model.safetensors").unlink()
    (folder / "pytorch_model.bin").write_bytes(planted)
    with pytest.raises(RunError, match=r"load"):
        LOADERS[loader](folder)


@pytest.mark.parametrize("loader", LOADERS)
def test_weights_beside_safetensors_are_ignored(loader: str, planted: bytes, tmp_path: Path) -> None:
    folder = save_tiny_checkpoint(tmp_path / "checkpoint")
    (folder / "pytorch_model.bin").write_bytes(planted)
    (folder / "training_args.bin").write_bytes(planted)
    model, _ = LOADERS[loader](folder)
    assert model.config.num_labels == 2


@pytest.mark.parametrize("loader", LOADERS)
def test_a_pickle_called_safetensors_is_refused(loader: str, planted: bytes, tmp_path: Path) -> None:
    folder = save_tiny_checkpoint(tmp_path / "checkpoint")
    (folder / "model.safetensors").write_bytes(planted)
    with pytest.raises(RunError, match=r"load"):
        LOADERS[loader](folder)


@pytest.mark.parametrize("loader", LOADERS)
def test_shards_and_adapters_that_are_pickles_are_refused(loader: str, planted: bytes, tmp_path: Path) -> None:
    folder = save_tiny_checkpoint(tmp_path / "checkpoint")
    base = shutil.copytree(folder, tmp_path / "base")
    (folder / "model.safetensors").unlink()
    (folder / "shard.bin").write_bytes(planted)
    index = {"metadata": {"total_size": 1}, "weight_map": {"classifier.weight": "shard.bin"}}
    for name in ("pytorch_model.bin.index.json", "model.safetensors.index.json"):
        (folder / name).write_text(json.dumps(index))
        with pytest.raises(RunError, match=r"load"):
            LOADERS[loader](folder)
        (folder / name).unlink()
    adapter = {"base_model_name_or_path": str(base), "peft_type": "LORA", "task_type": "SEQ_CLS", "r": 2}
    (folder / "adapter_config.json").write_text(json.dumps(adapter | {"target_modules": ["query"]}))
    (folder / "adapter_model.bin").write_bytes(planted)
    with pytest.raises(RunError, match=r"load"):
        LOADERS[loader](folder)


def test_averaging_reads_safetensors_only(planted: bytes, tmp_path: Path) -> None:
    for name in ("a", "b"):
        run = tmp_path / name
        save_tiny_checkpoint(run / "model")
        (run / "model" / "pytorch_model.bin").write_bytes(planted)
        info = dict.fromkeys(("recipe", "task", "model", "command"), "x") | {"status": "finished"}
        numbers = {"seed": 0, "train_size": None, "validation_size": 1, "max_length": 8, "data_dir": None}
        RunInfo(**info, **numbers, fingerprints={}, training_arguments={}).save(run / "run.json")
        shutil.copy(save_task(tmp_path), run / "task.yaml")
    average([tmp_path / "a", tmp_path / "b"], tmp_path / "c")
    assert not list((tmp_path / "c").rglob("*.bin"))
    (tmp_path / "b" / "model" / "model.safetensors").write_bytes(planted)
    with pytest.raises(RunError, match="cannot be read"):
        average([tmp_path / "a", tmp_path / "b"], tmp_path / "d")


# What a run resumes from.


def save_task(folder: Path) -> Path:
    films = folder / "films.csv"
    films.write_text("text,label\n" + "".join(f"film {chr(97 + i)},{i % 2}\n" for i in range(20)))
    task = folder / "own.yaml"
    sources = "train: {folder: {file: '" + str(films) + "'}}"
    task.write_text(f"name: own\ntitle: Own\ntext: [text]\nlabels: ['0', '1']\nsplits: {{{sources}}}\n")
    return task


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped after its first step, with a selection that has a state to save."""
    folder = tmp_path_factory.mktemp("stopped")
    checkpoint = save_tiny_checkpoint(folder / "checkpoint")
    recipe = load_recipe("mixout")
    task = load_task(save_task(folder))
    plan = Plan(recipe=recipe, task=task, model=str(checkpoint), max_length=8, arguments={"max_steps": 3})
    begin = SaveAndStop.on_train_begin

    def stop_at_once(self: Any, *args: Any, **kwargs: Any) -> None:
        begin(self, *args, **kwargs)
        self._stop(2, None)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Interrupted):
        patch.setattr(SaveAndStop, "on_train_begin", stop_at_once)
        start_run(plan, folder / "run")
    return folder / "run"


@pytest.fixture
def run(interrupted: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(interrupted, tmp_path / "run"))


def checkpoint_of(run: Path) -> Path:
    return run / "checkpoints" / "checkpoint-1"


def plant(checkpoint: Path, name: str, data: bytes) -> None:
    """Put a file into a checkpoint as an attacker would: the checksums, which anybody can compute, fit again."""
    (checkpoint / name).write_bytes(data)
    seal(checkpoint)


def test_the_run_is_one_that_resumes(run: Path) -> None:
    assert resume_run(run).status == "finished"


FILES = ["optimizer.pt", "scheduler.pt", "rng_state.pth", "model.safetensors", STATE_FILE, "trainer_state.json"]


@pytest.mark.parametrize("name", FILES)
def test_a_planted_pickle_ends_the_resuming_in_our_words(name: str, planted: bytes, run: Path) -> None:
    plant(checkpoint_of(run), name, planted)
    with pytest.raises(RunError, match=r"checkpoint-1 (holds a Python object|cannot be read)"):
        resume_run(run)
    assert RunInfo.load(run / "run.json").status == "interrupted"


def test_weights_of_a_checkpoint_that_are_a_pickle(planted: bytes, run: Path) -> None:
    (checkpoint_of(run) / "model.safetensors").unlink()
    plant(checkpoint_of(run), "pytorch_model.bin", planted)
    with pytest.raises(RunError, match="checkpoint-1"):
        resume_run(run)


def test_the_saved_training_arguments_are_never_read(planted: bytes, run: Path) -> None:
    plant(checkpoint_of(run), "training_args.bin", planted)
    assert resume_run(run).status == "finished"


@pytest.mark.parametrize("name", FILES[:3])
def test_the_trainer_by_itself_refuses_them_too(name: str, planted: bytes, tmp_path: Path) -> None:
    def trainer() -> RobustTrainer:
        settings = arguments(tmp_path / "out", max_steps=2, save_strategy="steps", save_steps=1)
        return RobustTrainer(tiny_bert(), settings, train_dataset=TinyData())

    trainer().train()
    plant(tmp_path / "out" / "checkpoint-1", name, planted)
    with pytest.raises(RunError, match="holds a Python object that could run code"):
        trainer().train(resume_from_checkpoint=str(tmp_path / "out" / "checkpoint-1"))


@pytest.mark.parametrize("content", ["[]", "3", '{"xxh3_128": 3}', '{"xxh3_128": [1]}', "{", "\0"])
def test_checksums_that_are_none(content: str, run: Path) -> None:
    (checkpoint_of(run) / CHECKSUMS).write_text(content)
    assert damage(checkpoint_of(run)) == f"{CHECKSUMS} cannot be read"


# Data.


@pytest.mark.parametrize(
    "ending", ["pkl", "pickle", "npy", "npz", "pt", "bin", "csv", "tsv", "json", "jsonl", "parquet"]
)
def test_data_files_that_are_pickles(ending: str, planted: bytes, tmp_path: Path) -> None:
    file = tmp_path / f"rows.{ending}"
    file.write_bytes(planted)
    with pytest.raises(DataError):
        read_file(file)
    with pytest.raises(DataError):
        task_from_files(file, text_columns=["text"])


def test_numpy_files_with_objects(tmp_path: Path) -> None:
    file = tmp_path / "rows.npy"
    np.save(file, np.array([{"text": "a"}], dtype=object), allow_pickle=True)
    with pytest.raises(DataError, match="unknown file ending"):
        read_file(file)


def test_parquet_with_a_python_type(bomb: bytes, tmp_path: Path) -> None:
    """Old versions of pyarrow unpickled the type that such a column names."""
    field = pa.field(
        "text",
        pa.string(),
        metadata={"ARROW:extension:name": "arrow.py_extension_type", "ARROW:extension:metadata": bomb},
    )
    table = pa.table([pa.array(["a", "b"])], schema=pa.schema([field]))
    pq.write_table(table, tmp_path / "rows.parquet")
    assert read_file(tmp_path / "rows.parquet").columns == {"text": ["a", "b"]}


@pytest.mark.parametrize("name", ["evil.py", "train.pkl"])
def test_a_local_dataset_with_a_script_or_a_pickle(
    name: str, marker: Path, bomb: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "evil"
    folder.mkdir()
    (folder / name).write_bytes(bomb if name.endswith("pkl") else f"open({str(marker)!r}, 'w')".encode())
    with pytest.raises(RosewoodError, match="cannot be loaded"):
        read_hub(HubSource(dataset=str(folder), split="train"), "use a file")
