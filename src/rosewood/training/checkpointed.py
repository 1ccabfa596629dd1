"""CheckpointedTrainer: the Hugging Face Trainer, with checkpoints that are whole or not there."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

from accelerate.utils import broadcast_object_list
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import Trainer, TrainerState
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, rotate_checkpoints

from rosewood.durable import UNFINISHED, staged, staged_path
from rosewood.errors import RunError
from rosewood.tensors.shards import are_divided
from rosewood.training.checkpoint import (
    CHECKSUMS,
    NoGoodCheckpointError,
    checkpoints,
    damage,
    good_or_older,
    newest_good,
    seal,
)
from rosewood.training.full_disk import explained
from rosewood.training.untrusted import reading

STATE_FILE = "rosewood.safetensors"


class CheckpointedTrainer(Trainer):
    """A Trainer whose checkpoints survive a kill and a full disk, and are checked before a run goes on from one."""

    model: Any  # these three get wrapped, and then have more than transformers declares
    optimizer: Any
    lr_scheduler: Any
    _writing_checkpoint = False

    def _own_state(self) -> dict[str, Tensor]:
        """What a checkpoint keeps beside the Trainer's own; all processes ask for it."""
        return {}

    def _load_own_state(self, state: dict[str, Tensor]) -> None:
        """Take back what `_own_state` gave."""

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        if resume_from_checkpoint is not None and resume_from_checkpoint is not False:
            resume_from_checkpoint = self._good_checkpoint(resume_from_checkpoint)
        return super().train(resume_from_checkpoint, *args, **kwargs)

    def _good_checkpoint(self, wanted: str | Literal[True]) -> str:
        """The path of the checkpoint to resume, which one process looks for and tells the others."""
        answer: list[Any] = [None]
        if self.is_world_process_zero():
            try:
                folder = Path(self.args.output_dir or ".")
                answer[0] = newest_good(folder) if wanted is True else good_or_older(Path(wanted))
            except NoGoodCheckpointError as error:
                answer[0] = error
        broadcast_object_list(answer)
        if isinstance(answer[0], NoGoodCheckpointError):
            raise answer[0]
        return str(answer[0])

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        """As the Trainer, but under another name until all files are written, synced and have checksums."""
        folder = Path(self._get_output_dir(trial))
        place = folder / f"{PREFIX_CHECKPOINT_DIR}-{self.state.global_step}"
        with explained(f"the checkpoint of step {self.state.global_step}", folder, self._checkpoint_size, folder):
            with staged(place) if self.args.should_save else nullcontext():
                self.accelerator.wait_for_everyone()  # the folder exists, and is empty
                self._write_checkpoint(model, trial, place)
                self.accelerator.wait_for_everyone()  # each process has written its part
                if self.args.should_save:
                    seal(staged_path(place))
            self.accelerator.wait_for_everyone()
        if self.args.should_save:
            best = self.state.best_model_checkpoint
            rotate_checkpoints(str(folder), self.args.save_total_limit, best, use_mtime=True)
        if self.args.push_to_hub:
            self._push_from_checkpoint(str(place))

    def _write_checkpoint(self, model: nn.Module, trial: Any, place: Path) -> None:
        self._writing_checkpoint = True
        try:
            super()._save_checkpoint(model, trial)
        finally:
            self._writing_checkpoint = False
        if Path(self.state.best_model_checkpoint or "") == staged_path(place):
            self.state.best_model_checkpoint = str(place)
            if self.args.should_save:
                self.state.save_to_json(str(staged_path(place) / TRAINER_STATE_NAME))

    def _get_output_dir(self, trial: Any) -> str:
        folder = super()._get_output_dir(trial)
        return str(Path(folder) / UNFINISHED) if self._writing_checkpoint else folder

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        if not self._writing_checkpoint:  # the upload goes on in the background: not before the last renaming
            super()._push_from_checkpoint(checkpoint_folder)

    def _checkpoint_size(self) -> int:
        """About how many bytes a checkpoint has: as many as the last one, or weights, optimiser and own state."""
        last = checkpoints(Path(self.args.output_dir or "."))[:1]
        if last:
            return sum(file.stat().st_size for file in last[0].rglob("*"))
        kept = [value for state in self.optimizer.state.values() for value in state.values()]
        # Of a divided model it is left out: gathering would wait for the other processes.
        own = {} if are_divided(self.model.parameters()) else self._own_state()
        tensors = [*self.model.state_dict().values(), *kept, *own.values()]
        return sum(tensor.nbytes for tensor in tensors if isinstance(tensor, Tensor))

    def _load_best_model(self) -> None:
        best = Path(str(self.state.best_model_checkpoint))
        problem = damage(best) if (best / CHECKSUMS).exists() else None
        if problem is not None:
            raise RunError(f"the best checkpoint, {best}, is damaged: {problem}. Train again to have it back.")
        super()._load_best_model()

    def _save_rng_state(self, output_dir: str) -> None:
        super()._save_rng_state(output_dir)
        state = self._own_state()
        if state and self.args.should_save:
            save_file({key: value.contiguous() for key, value in state.items()}, Path(output_dir) / STATE_FILE)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        with reading(resume_from_checkpoint):
            TrainerState.load_from_json(str(Path(resume_from_checkpoint) / TRAINER_STATE_NAME))  # comes next
            super()._load_from_checkpoint(resume_from_checkpoint, model)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        with reading(checkpoint):
            super()._load_optimizer_and_scheduler(checkpoint)
            if checkpoint is not None:
                file = Path(checkpoint) / STATE_FILE
                state = load_file(file) if file.exists() else {}  # safetensors has no device cpu:0
                self._load_own_state({key: value.to(self.args.device) for key, value in state.items()})

    def _load_scaler(self, checkpoint: str | None) -> None:
        with reading(checkpoint):
            super()._load_scaler(checkpoint)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        with reading(checkpoint):
            super()._load_rng_state(checkpoint)
