"""The robustness evaluation of one model: load every set, run each distinct text once, measure."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import cast

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rosewood.data.suites import Suite, load_suite
from rosewood.data.tasks import Task
from rosewood.errors import DataError, RunError
from rosewood.evaluation.groups import word_frequency
from rosewood.evaluation.live_attacks import prepared_attacks, run_attacks
from rosewood.evaluation.means import means
from rosewood.evaluation.measure import Measured, measure
from rosewood.evaluation.outside import anomaly_results, telling_sets, untold_sets
from rosewood.evaluation.plan import Plan, plan_of_suite, plan_of_task
from rosewood.evaluation.predict import Answers, answer
from rosewood.evaluation.prediction_cache import PredictionCache, checkpoint_fingerprint
from rosewood.evaluation.predictions_file import predictions_file
from rosewood.evaluation.result_files import predictions_path, save_evaluation
from rosewood.evaluation.sets import LoadedSet, load_sets, reference_texts
from rosewood.results import Evaluation, MissingSet
from rosewood.scoring import label_columns, unnamed

CACHE = "cache"
_UNLABELLED = ("anomaly", "reference")


def evaluate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    suite: str | Path | Suite | Task,
    data_dir: str | Path | None = None,
    size: int | None = None,
    batch_size: int = 64,
    max_length: int | None = None,
    typo_rate: float = 0.3,
    seed: int = 0,
    *,
    task: str | None = None,
    groups: Sequence[str] = (),
    attacks: Sequence[str] = (),
    attack_examples: int = 100,
    output: str | Path | None = None,
    fresh: bool = False,
) -> Evaluation:
    """Evaluate a classifier on a suite (by name, YAML file or object), or on the evaluation sets of a task.

    The model must have the labels of the suite, in any order. A set that is not at hand is listed as missing, with the
    reason; data that cannot be used are an error. `size` takes that many examples of each set at most; `task` chooses
    the sets of a suite over several tasks; `groups` are columns of the data to show the accuracy by; `attacks` are run
    live on `attack_examples` examples of the clean set. With `output`, evaluation.json is written there, the same and
    the predictions under the name of the suite, and a cache of predictions, which `fresh` ignores.
    """
    plan = _plan(suite, task, typo_rate)
    columns = _columns(model, plan)
    armed = prepared_attacks(attacks, plan, data_dir)
    longest = tokenizer.model_max_length
    loaded, missing = load_sets(plan, data_dir, size, seed, groups, max_length, longest)
    labelled = [each for each in loaded if each.planned.role not in _UNLABELLED]
    if not labelled:
        raise _nothing_usable(plan, missing)

    reference = reference_texts(plan, data_dir)
    frequency = None if reference is None else word_frequency(reference)
    checkpoint = checkpoint_fingerprint(model, tokenizer)
    cache = PredictionCache(Path(output) / CACHE, checkpoint, fresh) if output is not None else None
    telling = telling_sets(loaded, plan.inside)
    missing += untold_sets(loaded, plan.inside)
    answers = answer(
        model,
        tokenizer,
        (question for each in [*labelled, *telling] for question in each.questions),
        (question for each in telling for question in each.questions),
        batch_size,
        cache,
    )
    measured = [measure(each, answers.logits(each.questions)[:, columns], plan, frequency, seed) for each in labelled]
    results, anomalies = [each.result for each in measured], anomaly_results(telling, answers)
    evaluation = Evaluation(
        model=model.name_or_path or type(model).__name__,
        task=plan.name,
        suite=plan.suite,
        labels=_output_names(model, plan, columns),
        checkpoint=checkpoint,
        size=size,
        seed=seed,
        max_length=max_length or min(plan.max_length, longest),
        typo_rate=typo_rate if plan.suite is None else None,
        sets=results,
        missing=missing,
        anomalies=anomalies,
        means=means(results, anomalies, missing),
        attacks=run_attacks(model, tokenizer, armed, labelled, data_dir, attack_examples, batch_size, seed),
    )
    if output is not None:
        path = predictions_path(Path(output), evaluation.suite, evaluation.task)
        _write_predictions(path, plan, labelled, measured, loaded, answers, columns)
        save_evaluation(evaluation, Path(output))
    return evaluation


def _plan(suite: str | Path | Suite | Task, task: str | None, typo_rate: float) -> Plan:
    if isinstance(suite, Task):
        return plan_of_task(suite, typo_rate)
    return plan_of_suite(suite if isinstance(suite, Suite) else load_suite(suite), task)


def _columns(model: PreTrainedModel, plan: Plan) -> list[int]:
    """The model's output for each label; on a suite, outputs without names are not guessed at."""
    if plan.suite is not None and unnamed(model.config):
        raise RunError(
            f"the outputs of the model have no names, and the suite {plan.suite} has the labels "
            f"{', '.join(plan.labels)}. Say which output is which: --labels {','.join(plan.labels)} (in the order of "
            "the outputs), or id2label in the model's config.json."
        )
    return label_columns(model.config, plan.labels)


def _output_names(model: PreTrainedModel, plan: Plan, columns: Sequence[int]) -> dict[str, str]:
    names = cast(dict[int, str], model.config.id2label)
    return {label: names[column] for label, column in zip(plan.labels, columns, strict=True)}


def _nothing_usable(plan: Plan, missing: Sequence[MissingSet]) -> DataError:
    kind = "task" if plan.suite is None else "suite"
    reasons = "\n".join(dict.fromkeys(each.reason for each in missing))
    return DataError(f"no evaluation set of {kind} {plan.suite or plan.name} can be used:\n{reasons}")


def _write_predictions(
    path: Path,
    plan: Plan,
    labelled: Sequence[LoadedSet],
    measured: Sequence[Measured],
    loaded: Sequence[LoadedSet],
    answers: Answers,
    columns: Sequence[int],
) -> None:
    with predictions_file(path) as file:
        for each, found in zip(labelled, measured, strict=True):
            names = each.planned.labels
            logits = answers.logits(each.questions)[:, columns]
            labels, predicted = [names[label] for label in each.labels], [names[label] for label in found.predicted]
            file.write(each.planned.name, logits, labels, predicted, found.groups)
        for each in loaded:
            if each.planned.role == "anomaly" and each.questions[0] in answers:
                logits = answers.logits(each.questions)[:, columns]
                predicted = [plan.labels[column] for column in logits.argmax(axis=1)]
                file.write(each.planned.name, logits, [None] * len(logits), predicted, each.columns)
