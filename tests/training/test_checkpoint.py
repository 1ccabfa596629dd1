"""A checkpoint is whole or not there; a damaged one is noticed and the one before it used."""

import errno
import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import TrainerCallback

from rosewood.errors import RunError
from rosewood.training import checkpoint_trainer
from rosewood.training.checkpoint import CHECKSUMS, NoGoodCheckpointError, checkpoints, damage
from rosewood.training.trainer import RobustTrainer
from tiny import TinyData, arguments, differing, tiny_bert, trained, weights

SAVING: dict[str, Any] = {"save_strategy": "steps", "save_steps": 2, "max_steps": 6}


def run(directory: Path, recipe: str = "smart", resume: Any = None, **settings: Any) -> RobustTrainer:
    return trained(recipe, directory, tiny_bert(dtype=torch.float32), resume=resume, **(SAVING | settings))


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, torch.Tensor]:
    return weights(run(tmp_path_factory.mktemp("whole")).model)


def truncate(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def flip_one_bit(file: Path) -> None:
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 1
    file.write_bytes(content)


def test_every_file_of_a_checkpoint_has_a_checksum(tmp_path: Path) -> None:
    run(tmp_path)
    assert [path.name for path in checkpoints(tmp_path)] == ["checkpoint-6", "checkpoint-4", "checkpoint-2"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["checkpoint-2", "checkpoint-4", "checkpoint-6"]
    for checkpoint in checkpoints(tmp_path):
        sums = json.loads((checkpoint / CHECKSUMS).read_text())["xxh3_128"]
        assert set(sums) == {file.name for file in checkpoint.iterdir()} - {CHECKSUMS}
        assert {"model.safetensors", "optimizer.pt", "rosewood.safetensors", "trainer_state.json"} <= set(sums)
        assert damage(checkpoint) is None


DAMAGES: list[tuple[str, Any, str]] = [
    ("model.safetensors", truncate, "model.safetensors does not have the checksum it was written with"),
    ("optimizer.pt", flip_one_bit, "optimizer.pt does not have the checksum it was written with"),
    ("rosewood.safetensors", Path.unlink, "rosewood.safetensors is missing"),
    (CHECKSUMS, truncate, "checksums.json cannot be read"),
    (CHECKSUMS, Path.unlink, "checksums.json is missing"),
]


@pytest.mark.parametrize(("file", "harm", "problem"), DAMAGES, ids=[f"{file}-{f.__name__}" for file, f, _ in DAMAGES])
def test_a_damaged_checkpoint_is_not_used_but_the_one_before_it(
    file: str, harm: Any, problem: str, tmp_path: Path, whole: dict[str, torch.Tensor]
) -> None:
    run(tmp_path)
    harm(tmp_path / "checkpoint-6" / file)
    with pytest.warns(UserWarning) as warned:
        found = run(tmp_path, resume=True)
    expected = f"checkpoint-6 is damaged: {problem}; resuming from {tmp_path / 'checkpoint-4'} instead"
    assert any(expected in str(warning.message) for warning in warned)
    assert found.state.global_step == 6
    assert not list(differing(whole, weights(found.model)))
    assert damage(tmp_path / "checkpoint-6") is None, "it was written again"
    assert (tmp_path / "_damaged-checkpoint-6").is_dir()


def test_a_damaged_checkpoint_that_was_named_falls_back_too(tmp_path: Path, whole: dict[str, torch.Tensor]) -> None:
    run(tmp_path)
    truncate(tmp_path / "checkpoint-4" / "optimizer.pt")
    with pytest.warns(UserWarning, match=r"checkpoint-4 is damaged: .* resuming from .*checkpoint-2 instead"):
        found = run(tmp_path, resume=str(tmp_path / "checkpoint-4"))
    assert not list(differing(whole, weights(found.model)))


def test_without_a_good_checkpoint_nothing_starts(tmp_path: Path) -> None:
    with pytest.raises(NoGoodCheckpointError, match="there is no checkpoint in"):
        run(tmp_path, resume=True)
    run(tmp_path, save_steps=6)
    truncate(tmp_path / "checkpoint-6" / "model.safetensors")
    with pytest.raises(RunError, match=r"checkpoint-6 is damaged: model\.safetensors does not have the checksum"):
        run(tmp_path, resume=True)
    assert (tmp_path / "checkpoint-6").is_dir(), "what might be rescued stays where it is"
    with pytest.raises(NoGoodCheckpointError, match=r"there is no checkpoint .*checkpoint-7"):
        run(tmp_path, resume=str(tmp_path / "checkpoint-7"))


def test_a_checkpoint_without_checksums_is_used_if_it_is_named(tmp_path: Path, whole: dict[str, torch.Tensor]) -> None:
    run(tmp_path)
    (tmp_path / "checkpoint-4" / CHECKSUMS).unlink()
    with pytest.warns(UserWarning, match="checkpoint-4 has no checksums.json: it is used as it is, unchecked"):
        found = run(tmp_path, resume=str(tmp_path / "checkpoint-4"))
    assert not list(differing(whole, weights(found.model)))


def test_the_older_checkpoint_goes_only_when_the_newer_is_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with save_total_limit=1; and each file is synced under its other name before it gets its own."""
    events: list[tuple[str, Any]] = []
    fsync, rename, rotate = os.fsync, Path.rename, checkpoint_trainer.rotate_checkpoints

    def recorded_fsync(handle: int) -> None:
        events.append(("sync", Path(f"/proc/self/fd/{handle}").readlink()))
        fsync(handle)

    def recorded_rename(path: Path, target: Any) -> Path:
        events.append(("rename", path))
        return rename(path, target)

    def recorded_rotation(folder: str, *args: Any, **kwargs: Any) -> None:
        good = [path.name for path in checkpoints(Path(folder)) if damage(path) is None]
        events.append(("rotate", good))
        rotate(folder, *args, **kwargs)

    monkeypatch.setattr(os, "fsync", recorded_fsync)
    monkeypatch.setattr(Path, "rename", recorded_rename)
    monkeypatch.setattr(checkpoint_trainer, "rotate_checkpoints", recorded_rotation)
    run(tmp_path, save_total_limit=1)
    assert [seen for kind, seen in events if kind == "rotate"] == [
        *(["checkpoint-2"], ["checkpoint-4", "checkpoint-2"], ["checkpoint-6", "checkpoint-4"])
    ]
    first = events[: events.index(("rotate", ["checkpoint-2"]))]
    staged = tmp_path / "_unfinished" / "checkpoint-2"
    renamed = first.index(("rename", staged))
    synced = {path for kind, path in first[:renamed] if kind == "sync"}
    sums = json.loads((tmp_path / "checkpoint-6" / CHECKSUMS).read_text())["xxh3_128"]
    assert {staged, staged / CHECKSUMS, *(staged / name for name in sums)} <= synced
    assert ("sync", tmp_path) in first[renamed:]


def test_the_best_checkpoint_is_known_by_its_last_name_and_checked_before_it_is_loaded(tmp_path: Path) -> None:
    settings: dict[str, Any] = {"eval_strategy": "steps", "eval_steps": 2, "load_best_model_at_end": True} | SAVING

    class Harm(TrainerCallback):
        def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if harmful and state.global_step == 6:
                flip_one_bit(Path(str(state.best_model_checkpoint)) / "model.safetensors")

    for harmful in (False, True):
        trainer = RobustTrainer(
            model=tiny_bert(dtype=torch.float32),
            args=arguments(tmp_path, **settings),
            train_dataset=TinyData(),
            eval_dataset=TinyData(size=16, seed=1),
            callbacks=[Harm()],
        )
        if harmful:
            with pytest.raises(RunError, match=r"the best checkpoint, .*, is damaged: model\.safetensors does not"):
                trainer.train()
            continue
        trainer.train()
        best = Path(str(trainer.state.best_model_checkpoint))
        assert best.parent == tmp_path
        assert best.is_dir()
        state = json.loads((tmp_path / "checkpoint-6" / "trainer_state.json").read_text())
        assert state["best_model_checkpoint"] == str(best)


@pytest.mark.parametrize("failing", ["torch.save", "safetensors"])
def test_a_full_disk_keeps_the_last_good_checkpoint_and_says_how_to_go_on(
    failing: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: dict[str, torch.Tensor]
) -> None:
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    save = torch.save

    def no_room(content: Any, path: Any, *args: Any, **kwargs: Any) -> None:
        if "checkpoint-4" in str(path):
            Path(path).write_bytes(b"half of it")
            raise full
        save(content, path, *args, **kwargs)

    if failing == "torch.save":
        monkeypatch.setattr(torch, "save", no_room)
    else:
        store = checkpoint_trainer.save_file
        monkeypatch.setattr(
            checkpoint_trainer,
            "save_file",
            lambda tensors, path: no_room(tensors, path) if "checkpoint-4" in str(path) else store(tensors, path),
        )
    with pytest.raises(RunError) as error:
        run(tmp_path)
    message = str(error.value)
    assert f"the checkpoint of step 4 could not be written to {tmp_path}: No space left on device." in message
    size = sum(file.stat().st_size for file in (tmp_path / "checkpoint-2").iterdir())
    assert f"It takes about {size / 1e6:.2f} MB; " in message
    assert f"The last good checkpoint is kept, {tmp_path / 'checkpoint-2'}: make room and go on" in message
    assert [path.name for path in tmp_path.iterdir()] == ["checkpoint-2"]
    monkeypatch.undo()
    assert not list(differing(whole, weights(run(tmp_path, resume=True).model)))


def test_a_full_disk_before_the_first_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_room(*args: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(checkpoint_trainer, "seal", no_room)
    with pytest.raises(RunError, match="There is no earlier checkpoint: make room and start again"):
        run(tmp_path)
    assert not list(tmp_path.iterdir())


def test_an_error_that_is_not_the_disks_stays_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: Any) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(checkpoint_trainer, "seal", broken)
    with pytest.raises(RuntimeError, match="a bug"):
        run(tmp_path)


def test_a_history_that_cannot_be_written_does_not_hide_the_first_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = RobustTrainer(
        model=tiny_bert(),
        args=arguments(tmp_path, max_steps=4, logging_steps=2),
        train_dataset=TinyData(),
        history_file=tmp_path / "missing" / "history.jsonl",
    )
    with pytest.raises(RunError, match=r"cannot write .*history.jsonl: No such file or directory"):
        trainer.train()

    class Bug(TrainerCallback):
        def on_step_end(self, *args: Any, **kwargs: Any) -> None:
            raise ZeroDivisionError

    trainer.add_callback(Bug())
    with pytest.raises(ZeroDivisionError):
        trainer.train()
