"""The work on one cell: train, measure after some steps, evaluate, attack, whatever of it has not been done."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import torch
from pydantic import ValidationError
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainerCallback

from rosewood.attacks.runner.api import choose_attack, prepare, resources_for
from rosewood.attacks.runner.constraints import constraints_of
from rosewood.attacks.runner.execute import carry_out
from rosewood.config.settings import AttackSettings
from rosewood.data.loading import load_split
from rosewood.defences.runner.wrap import choose_defence, wrap_run
from rosewood.dynamics.inconsistency import read_inconsistency
from rosewood.evaluation.evaluate import evaluate
from rosewood.evaluation.predict import predict
from rosewood.experiments.cell import RESULT, RUN, Cell, load_cell
from rosewood.experiments.experiment import AttackChoice
from rosewood.experiments.grid import evaluated_task
from rosewood.models.modes import accelerated
from rosewood.models.open import load_pretrained, open_run
from rosewood.models.parameters import pretrained_names
from rosewood.models.scoring import label_columns
from rosewood.results import CellResult, Evaluation, LiveAttack, Metrics, Moment
from rosewood.results.work_folder import LOCK
from rosewood.training.plan import Plan
from rosewood.training.run import finish_run
from rosewood.words.lexicon import Lexicon


def work_on(folder: Path, trusted: Sequence[str] = ()) -> CellResult:
    """Finish the cell in a folder; call it again after a stop or a crash to continue.

    Code that comes with `trusted` models may run.
    """
    cell = load_cell(folder)
    is_trusted = cell.model in trusted
    trained, run = cell.trained(folder), folder / RUN
    plan = cell.plan().model_copy(update={"trust_remote_code": cell.model if is_trusted else None})
    _check_lexicons(cell, plan)
    distance = distance_from_pretrained(plan) if cell.evaluation.at_steps else None
    _take_trained(cell, folder)
    info = finish_run(plan, trained, _watching(cell, plan, trained, distance))
    if cell.wrap is not None and not run.exists():
        defence = choose_defence(cell.wrap.defence, cell.wrap.changes)
        wrap_run(trained, run, defence, lexicon=cell.wrap.lexicon, trust_remote_code=is_trusted)
    opened = open_run(run, [str(run)] if is_trusted else [])
    model, tokenizer = accelerated(opened.model), opened.tokenizer
    evaluation = _evaluated(model, tokenizer, cell, plan, run)
    metrics = Metrics.load(trained / "metrics.json")
    moments = load_moments(trained)
    if cell.evaluation.at_steps:
        moments.append(_end(metrics, evaluation, None if distance is None else distance(model)))
    attacks = [_attacked(model, tokenizer, each, plan, run) for each in cell.attacks]
    result = CellResult(
        fingerprint=cell.fingerprint,
        label=cell.label,
        task=plan.task.name,
        model=cell.model,
        seed=cell.seed,
        steps=metrics.steps,
        validation_accuracy=metrics.validation_accuracy,
        training_seconds=info.seconds,
        data=info.fingerprints,
        evaluation=evaluation.model_copy(update={"attacks": attacks}),
        moments=moments,
        inconsistency=_inconsistency(trained, cell.evaluation.inconsistent_until),
    )
    result.save(folder / RESULT)
    return result


def _take_trained(cell: Cell, folder: Path) -> None:
    """Copy the run of a finished cell that trained the same model, if there is one: a defence needs no other."""
    trained = cell.trained(folder)
    if trained.exists() or cell.evaluation.at_steps:
        return
    for result in sorted(folder.parent.glob(f"*/{RESULT}")):
        try:
            other = load_cell(result.parent)
        except (OSError, ValidationError):  # damaged, or of another version
            continue
        run = other.trained(result.parent)
        if other.training_fingerprint == cell.training_fingerprint and (run / "model").is_dir():
            partial = folder / f"{trained.name}.partial"
            shutil.rmtree(partial, ignore_errors=True)
            measured = ("attacks", "evaluation*.json", "predictions-*.parquet", FOLDER, LOCK)
            shutil.copytree(run, partial, ignore=shutil.ignore_patterns(*measured))
            partial.replace(trained)
            return


def _check_lexicons(cell: Cell, plan: Plan) -> None:
    """Before hours of training: what the defence and the attacks after it will need."""
    replacing = [each for each in cell.attacks if "lexicon" in choose_attack(each.attack, each.changes).needs()]
    names = [each.lexicon for each in replacing]
    if cell.wrap is not None and "substitutes" in choose_defence(cell.wrap.defence, cell.wrap.changes).needs():
        names.append(cell.wrap.lexicon)
    for name in dict.fromkeys(names):
        Lexicon.named(name, plan.data_dir)


def _watching(cell: Cell, plan: Plan, run: Path, distance: Distance | None) -> list[TrainerCallback]:
    """What measures the run while it trains, if that is wanted."""
    chosen = cell.evaluation
    if not chosen.at_steps:
        return []

    def measure(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Evaluation:
        return _evaluated(model, tokenizer, cell, plan, None)

    return [Moments(run, plan, chosen.at_steps, chosen.batch_size, measure, distance)]


def _inconsistency(run: Path, until: Sequence[int]) -> dict[int, float]:
    """The share of predictions that differed between two dropout passes, over those first steps that there were."""
    found = read_inconsistency(run).at(until) if until else {}
    return {step: found[step] for step in until if step in found}


def _end(metrics: Metrics, evaluation: Evaluation, distance: float | None) -> Moment:
    """The last moment, which is the end."""
    assert metrics.validation_accuracy is not None, "moments need a validation split, as the grid has checked"
    return Moment(
        step=metrics.steps,
        validation_accuracy=metrics.validation_accuracy,
        distance=distance,
        step_seconds=None,
        evaluation=evaluation,
    )


def _evaluated(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, cell: Cell, plan: Plan, output: Path | None
) -> Evaluation:
    """Done again if it was interrupted: predictions that were made are in the cache of the output."""
    chosen = cell.evaluation
    return evaluate(
        model,
        tokenizer,
        chosen.suite or evaluated_task(plan.task, chosen.sets),
        data_dir=plan.data_dir,
        size=chosen.size,
        batch_size=chosen.batch_size,
        max_length=plan.max_length if chosen.suite is None else None,
        typo_rate=chosen.typo_rate,
        task=plan.task.name,
        output=output,
    )


def _attacked(
    model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, chosen: AttackChoice, plan: Plan, run: Path
) -> LiveAttack:
    attack, split = choose_attack(chosen.attack, chosen.changes), "test" if "test" in plan.task.splits else "validation"
    campaign = prepare(
        model,
        tokenizer,
        load_split(plan.task, split, plan.data_dir, chosen.examples, chosen.seed),
        attack,
        resources_for(
            attack,
            plan.task,
            plan.data_dir,
            chosen.lexicon,
            chosen.masked_lm,
            chosen.causal_lm,
            constraints_of(chosen),
        ),
        chosen.model_copy(update={"max_length": chosen.max_length or plan.max_length}).only(AttackSettings),
        task=plan.task.name,
        split=split,
        protocol=chosen.protocol,
        deviations=chosen.deviations,
    )
    folder = run / "attacks" / f"{attack.name}-{split}-{campaign.fingerprint[:8]}".replace(":", "-")
    result = carry_out(campaign, folder)
    return LiveAttack.reported(result, chosen.name, of=split)


FOLDER = "moments"
Measure = Callable[[PreTrainedModel, PreTrainedTokenizerBase], Evaluation]
Distance = Callable[[PreTrainedModel], float]


class Moments(TrainerCallback):
    """Measures a run in place after some of its steps; one that is on disk already is not measured again.

    Training goes on as it would without: the random state is left as it was, whether a moment is measured or not.
    """

    def __init__(
        self, run: Path, plan: Plan, steps: Sequence[int], batch_size: int, measure: Measure, distance: Distance | None
    ) -> None:
        self._folder, self._plan, self._steps = run / FOLDER, plan, frozenset(steps)
        self._batch_size, self._measure, self._distance = batch_size, measure, distance
        self._began = 0.0
        self._seconds: list[float] = []

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        self._began = time.monotonic()

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._seconds.append(time.monotonic() - self._began)
        if state.global_step not in self._steps:
            return
        path = self._folder / f"step-{state.global_step:06}.json"
        if not path.exists():
            with torch.random.fork_rng():
                self._moment(state.global_step, kwargs["model"], kwargs["processing_class"]).save(path)
        self._seconds = []

    def _moment(self, step: int, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> Moment:
        return Moment(
            step=step,
            validation_accuracy=self._validation_accuracy(model, tokenizer),
            distance=None if self._distance is None else self._distance(model),
            step_seconds=median(self._seconds) if self._seconds else None,
            evaluation=self._measure(model, tokenizer),
        )

    def _validation_accuracy(self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> float:
        plan = self._plan
        rows = load_split(plan.task, "validation", plan.data_dir, plan.validation_size, seed=0)
        logits = predict(model, tokenizer, rows, plan.task.text, plan.max_length, self._batch_size, progress=False)
        columns = label_columns(model.config, plan.task.labels)
        return float((logits[:, columns].argmax(axis=1) == rows["label"][:]).mean())


def load_moments(run: Path) -> list[Moment]:
    """All that were measured while a run trained, in its order."""
    return [Moment.load(path) for path in sorted((run / FOLDER).glob("step-*.json"))]


def distance_from_pretrained(plan: Plan) -> Distance | None:
    """How far a model of this plan is from the weights it started with; to be made before training, which it seeds.

    None with an adapter, whose layers have other names.
    """
    if plan.lora is not None:
        return None
    model, _ = load_pretrained(plan.model, plan.task, plan.seed, plan.trust_remote_code == plan.model)
    before = {name: model.get_parameter(name).detach() for name in pretrained_names(model)}

    def distance(trained: PreTrainedModel) -> float:
        moved = _norm([trained.get_parameter(name).detach().cpu() - value for name, value in before.items()])
        return moved / _norm(list(before.values()))

    return distance


def _norm(tensors: Sequence[Tensor]) -> float:
    return float(torch.stack([tensor.double().norm() for tensor in tensors]).norm())
