"""CheckpointedTrainer: the Hugging Face Trainer, with checkpoints that are whole or not there."""

from __future__ import annotations

import json
from contextlib import nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from accelerate.utils import broadcast_object_list
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import Trainer, TrainerState
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import PREFIX_CHECKPOINT_DIR, rotate_checkpoints

from rosewood.errors import RunError
from rosewood.results.files import UNFINISHED, staged, staged_path
from rosewood.tensors.shards import are_divided
from rosewood.training.checkpoint import (
    CHECKSUMS,
    NoGoodCheckpointError,
    checkpoints,
    damage,
    explained,
    good_or_older,
    newest_good,
    reading,
    seal,
)

STATE_FILE = "rosewood.safetensors"


@dataclass(frozen=True)
class LossSoFar:
    """What the Trainer has added up since a step: the loss until its last log, and the loss since."""

    since: int
    logged_step: int
    logged: float
    unlogged: float

    def save(self, file: Path) -> None:
        file.write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def load(cls, file: Path) -> LossSoFar | None:
        """None from a checkpoint without one, of another version or number of processes."""
        if not file.exists():
            return None
        found = json.loads(file.read_text(encoding="utf-8"))
        return cls(int(found["since"]), int(found["logged_step"]), float(found["logged"]), float(found["unlogged"]))


class CheckpointedTrainer(Trainer):
    """A Trainer whose checkpoints survive a kill and a full disk, and are checked before a run goes on from one."""

    model: Any  # these three get wrapped, and then have more than transformers declares
    optimizer: Any
    lr_scheduler: Any
    _writing_checkpoint = False
    _resumed_loss: LossSoFar | None = None
    _loss_since: int | None = None
    _last_step_done = False

    def _own_state(self) -> dict[str, Tensor]:
        """What a checkpoint keeps beside the Trainer's own; all processes ask for it."""
        return {}

    def _load_own_state(self, state: dict[str, Tensor]) -> None:
        """Take back what `_own_state` gave."""

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> Any:
        self._loss_since, self._last_step_done = None, False
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

    def _maybe_log_save_evaluate(
        self, tr_loss: Tensor, grad_norm: Any, model: nn.Module, trial: Any, epoch: float, *args: Any, **settings: Any
    ) -> None:
        """As the Trainer, but the checkpoint of an epoch's last step waits for the end of the epoch.

        The Trainer comes here after each step and again at the end of an epoch, where it may evaluate. A run resumed
        from the last step would begin the next epoch at once: without that evaluation, and with other random numbers,
        because every pass over data draws one.
        """
        self._last_step_done = self.state.epoch == epoch + 1 and not self._last_step_done
        waits = self._last_step_done and self.control.should_save
        if waits:
            self.control.should_save = False
        super()._maybe_log_save_evaluate(tr_loss, grad_norm, model, trial, epoch, *args, **settings)
        if waits:
            self.control.should_save = True

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
        # Left out if the model is divided: gathering it would wait for the other processes.
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
        self._loss_so_far().save(Path(output_dir) / self._loss_file())

    # The mean loss of a whole run: the Trainer begins to add up again wherever it resumes.

    def _loss_file(self) -> str:
        return f"loss-{self.args.process_index}.json"  # each process has its own

    def _loss_so_far(self) -> LossSoFar:
        since = self._take_up_loss()
        return LossSoFar(since, self._globalstep_last_logged, self._total_loss_scalar, self._tr_loss.item())

    def _take_up_loss(self) -> int:
        """Go on adding from the checkpoint's sums, which the Trainer has set to zero; the step that they count from."""
        if self._loss_since is None:
            self._loss_since = self.state.global_step
        found, self._resumed_loss = self._resumed_loss, None
        if found is not None:
            self._loss_since, self._globalstep_last_logged = found.since, found.logged_step
            self._total_loss_scalar = found.logged
            self._tr_loss = torch.full_like(self._tr_loss, found.unlogged)
        return self._loss_since

    def _run_epoch(self, *args: Any, **settings: Any) -> None:
        self._take_up_loss()
        if self.state.global_step >= self.state.max_steps:
            # Killed after its last checkpoint: only the end of the epoch is missing, and the Trainer would do a step.
            self.control.should_training_stop = True
            settings["num_update_steps_per_epoch"] = 0
        super()._run_epoch(*args, **settings)

    def _finalize_training(self, *args: Any, **kwargs: Any) -> Any:
        self._take_up_loss()  # of a checkpoint after the last step
        result = super()._finalize_training(*args, **kwargs)
        return result._replace(training_loss=result.metrics["train_loss"])

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "train_loss" in logs and self._loss_since is not None:
            logs["train_loss"] = self._total_loss_scalar / max(self.state.global_step - self._loss_since, 0.001)
        super().log(logs, start_time)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        with reading(resume_from_checkpoint):
            TrainerState.load_from_json(str(Path(resume_from_checkpoint) / TRAINER_STATE_NAME))  # comes next
            super()._load_from_checkpoint(resume_from_checkpoint, model)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        self._resumed_loss = None
        with reading(checkpoint):
            super()._load_optimizer_and_scheduler(checkpoint)
            if checkpoint is not None:
                file = Path(checkpoint) / STATE_FILE
                state = load_file(file) if file.exists() else {}  # safetensors has no device cpu:0
                self._load_own_state({key: value.to(self.args.device) for key, value in state.items()})
                self._resumed_loss = LossSoFar.load(Path(checkpoint) / self._loss_file())

    def _load_scaler(self, checkpoint: str | None) -> None:
        with reading(checkpoint):
            super()._load_scaler(checkpoint)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        with reading(checkpoint):
            super()._load_rng_state(checkpoint)
