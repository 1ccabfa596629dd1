"""The robustness evaluation of one model: load every set, run each distinct text once, measure."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rosewood.attacks.runner.api import attack, choose_attack
from rosewood.attacks.runner.attack import Attack
from rosewood.attacks.runner.search import Resources
from rosewood.data.own import is_data_file, own_task
from rosewood.data.suites import Suite, load_suite
from rosewood.data.tasks import Task
from rosewood.errors import DataError, RunError
from rosewood.evaluation.files import predictions_file, predictions_path, save_evaluation
from rosewood.evaluation.measure import Measured, means, measure, measure_several, word_frequency
from rosewood.evaluation.metrics import anomaly_results, anomaly_sets, missing_anomaly_sets
from rosewood.evaluation.predict import Answers, PredictionCache, answer, checkpoint_fingerprint
from rosewood.evaluation.sets import (
    EvaluationPlan,
    LoadedSet,
    load_planned,
    load_sets,
    plan_of_suite,
    plan_of_task,
    reference_texts,
)
from rosewood.models.defended import Defended, forwards_of
from rosewood.models.scoring import check_loaded, label_columns, longest_text, reads_alike, text_length, unnamed
from rosewood.results import Evaluation, LiveAttack, MissingSet, TestFile
from rosewood.results.work_folder import held
from rosewood.words.language_models import SentenceEncoder, Trigram
from rosewood.words.lexicon import Lexicon

if TYPE_CHECKING:
    from rosewood.data.own import Rows


CACHE = "cache"
_UNLABELLED = ("anomaly", "reference")
_PATIENCE = 60.0  # seconds: another evaluation is quickly written


def evaluate(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    suite: str | Path | Suite | Task | Rows,
    data_dir: str | Path | None = None,
    size: int | None = None,
    batch_size: int = 64,
    max_length: int | None = None,
    typo_rate: float | None = None,
    seed: int = 0,
    *,
    task: str | None = None,
    text_columns: Sequence[str] | None = None,
    label_column: str | None = None,
    groups: Sequence[str] = (),
    attacks: Sequence[str] = (),
    attack_examples: int = 100,
    output: str | Path | None = None,
    fresh: bool = False,
    progress: bool = True,
) -> Evaluation:
    """Evaluate a classifier on a suite, on the evaluation sets of a task, or on own data.

    Own data are a datasets.Dataset, a pandas DataFrame, a list of dicts, or the path of a CSV, TSV, JSON Lines or
    Parquet file. Their labels are names or numbers of the model's outputs. They are measured clean and under every kind
    of noise. On a suite or a task, the model must have the labels of the suite, in any order. A set that is not
    available is listed as missing, with the reason.

    Args:
        model: a classifier, as transformers loads it.
        tokenizer: its tokenizer.
        suite: a suite or a task by name, YAML file or object; or own data.
        data_dir: the data folder; by default the one that ROSEWOOD_DATA names.
        size: at most that many examples of each set.
        batch_size: texts that the model sees at once; no figure depends on it.
        max_length: texts are cut after that many tokens; by default the suite's length, or else the tokenizer's
            `model_max_length`, which a run sets to its own.
        typo_rate: puts typos into that share of the words of a task's test set, in place of the task's noise.
        seed: of the noise, of samples and of attacks.
        task: of a suite over several tasks, the one whose sets are taken.
        text_columns: of own data, where they are not called `text`.
        label_column: of own data, where it is not called `label` or `labels`.
        groups: columns of the data to show the accuracy by.
        attacks: names of attacks to run on the clean set.
        attack_examples: how many examples of it they take.
        output: a folder for evaluation.json, the predictions and a cache of them.
        fresh: compute everything again, whatever the cache has.
        progress: whether a terminal shows a bar.

    Returns:
        The figures of every set; `rosewood.results.Evaluation` has all fields.

    Raises:
        RunError: the model and the labels of the data do not fit.
        DataError: data are there and cannot be used.

    Example:
        >>> rows = [{"text": "a fine film", "label": "positive"}, {"text": "a dull film", "label": "negative"}]
        >>> evaluate(model, tokenizer, rows).sets[0].examples
        2
    """
    check_loaded(model, tokenizer)
    plan = _plan(suite, task, typo_rate, model, text_columns, label_column)
    columns = _columns(model, plan)
    if plan.multi_label and attacks:
        raise RunError(f"{plan.name} has several labels per text: attack it with rosewood attack, not here")
    armed = prepared_attacks(attacks, plan, data_dir)
    longest = longest_text(model, tokenizer)
    if max_length is None and plan.suite is None:
        max_length = text_length(model, tokenizer)
    loaded, missing = load_sets(plan, data_dir, size, seed, groups, max_length, longest)
    labelled = [each for each in loaded if each.planned.role not in _UNLABELLED]
    if not labelled:
        raise _nothing_usable(plan, missing)

    reference = reference_texts(plan, data_dir)
    frequency = None if reference is None else word_frequency(reference)
    checkpoint = checkpoint_fingerprint(model, tokenizer)
    cache = PredictionCache(Path(output) / CACHE, checkpoint, fresh) if output is not None else None
    involved = anomaly_sets(loaded, plan.inside)
    if isinstance(model, Defended):  # it reads several copies of a text, and has no one vector of it
        involved = [each for each in involved if each.planned.role != "reference"]
    missing += missing_anomaly_sets(loaded, plan.inside)
    answers = answer(
        model,
        tokenizer,
        (question for each in [*labelled, *involved] for question in each.questions),
        () if isinstance(model, Defended) else (question for each in involved for question in each.questions),
        batch_size,
        cache,
        progress,
    )
    measured = []
    for each in labelled:
        logits = answers.logits(each.questions)[:, columns]
        if plan.multi_label:
            measured.append(measure_several(each, logits, frequency, seed))
        else:
            measured.append(measure(each, logits, plan, frequency, seed))
    if not isinstance(model, Defended):  # a defence may read more of a text than its tokens
        measured = [_marked(found, each, tokenizer) for found, each in zip(measured, labelled, strict=True)]
    results, anomalies = [each.result for each in measured], anomaly_results(involved, answers)
    evaluation = Evaluation(
        model=model.name_or_path or type(model).__name__,
        task=plan.name,
        suite=plan.suite,
        labels=_output_names(model, plan, columns),
        checkpoint=checkpoint,
        size=size,
        seed=seed,
        max_length=max_length or min(plan.max_length, longest),
        typo_rate=_typo_rate(plan),
        multi_label=plan.multi_label,
        forwards=forwards_of(model),
        test_file=_test_file(suite, plan, label_column),
        sets=results,
        missing=missing,
        anomalies=anomalies,
        means=means(results, anomalies, missing),
        attacks=run_attacks(model, tokenizer, armed, labelled, data_dir, attack_examples, batch_size, seed),
    )
    if output is not None:
        path = predictions_path(Path(output), evaluation.suite, evaluation.task)
        with held(Path(output), patience=_PATIENCE):  # the files of two evaluations must not be mixed
            _write_predictions(path, plan, labelled, measured, loaded, answers, columns)
            save_evaluation(evaluation, Path(output))
    return evaluation


def _marked(found: Measured, loaded: LoadedSet, tokenizer: PreTrainedTokenizerBase) -> Measured:
    """The figures of a set; those of a noise that changes no token say so."""
    if loaded.noiseless is None or not reads_alike(tokenizer, loaded.noiseless, loaded.rows, loaded.max_length):
        return found
    return found._replace(result=found.result.model_copy(update={"unseen": True}))


def _plan(
    suite: str | Path | Suite | Task | Rows,
    task: str | None,
    typo_rate: float | None,
    model: PreTrainedModel,
    text_columns: Sequence[str] | None,
    label_column: str | None,
) -> EvaluationPlan:
    if isinstance(suite, Task):
        return plan_of_task(suite, typo_rate)
    if isinstance(suite, Suite):
        return plan_of_suite(suite, task)
    if isinstance(suite, str | Path) and not is_data_file(suite):
        return plan_of_suite(load_suite(suite), task)
    return plan_of_task(own_task(suite, model.config, text_columns, label_column), typo_rate)


def _typo_rate(plan: EvaluationPlan) -> float | None:
    """The share of words with typos, where those are the noise of a task; 0 for none."""
    if plan.suite is not None or any(each.role == "noise" and each.name != "typos" for each in plan.sets):
        return None
    return next((each.noise.strength for each in plan.sets if each.noise), 0.0)


def _test_file(suite: object, plan: EvaluationPlan, label_column: str | None) -> TestFile | None:
    if not is_data_file(suite):
        return None
    task = plan.sets[0].task
    assert task is not None
    return TestFile(file=str(Path(str(suite)).resolve()), text_columns=task.text, label_column=label_column)


def _columns(model: PreTrainedModel, plan: EvaluationPlan) -> list[int]:
    """The model's output for each label; on a suite, outputs without names are not guessed at."""
    if plan.suite is not None and unnamed(model.config):
        raise RunError(
            f"the outputs of the model have no names, and the suite {plan.suite} has the labels "
            f"{', '.join(plan.labels)}. Say which output is which: --labels {','.join(plan.labels)} (in the order of "
            "the outputs), or id2label in the model's config.json."
        )
    kind = getattr(model.config, "problem_type", None)
    if plan.multi_label and kind in ("single_label_classification", "regression"):
        raise RunError(
            f"the labels of {plan.name} are lists, and the model gives every text one label (problem_type {kind}): "
            "evaluate a model for several labels per text, or give the data one label each"
        )
    if not plan.multi_label and kind == "multi_label_classification":
        raise RunError(
            f"the model is for several labels per text (problem_type {kind}), and {plan.name} has one label per text: "
            "write its labels as lists"
        )
    return label_columns(model.config, plan.labels)


def _output_names(model: PreTrainedModel, plan: EvaluationPlan, columns: Sequence[int]) -> dict[str, str]:
    names = cast(dict[int, str], model.config.id2label)
    return {label: names[column] for label, column in zip(plan.labels, columns, strict=True)}


def _nothing_usable(plan: EvaluationPlan, missing: Sequence[MissingSet]) -> DataError:
    kind = "task" if plan.suite is None else "suite"
    reasons = "\n".join(dict.fromkeys(each.reason for each in missing))
    return DataError(f"no evaluation set of {kind} {plan.suite or plan.name} can be used:\n{reasons}")


def _label_text(label: Any, names: Sequence[str]) -> str:
    """A label as predictions have it: its name, or the names of several as a JSON list."""
    if np.ndim(label) == 0:
        return names[label]
    return json.dumps([name for name, has in zip(names, label, strict=True) if has])


def _write_predictions(
    path: Path,
    plan: EvaluationPlan,
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
            labels, predicted = (
                [_label_text(label, names) for label in side] for side in (each.labels, found.predicted)
            )
            file.write(each.planned.name, logits, labels, predicted, found.groups)
        for each in loaded:
            if each.planned.role == "anomaly" and each.questions[0] in answers:
                logits = answers.logits(each.questions)[:, columns]
                predicted = [plan.labels[column] for column in logits.argmax(axis=1)]
                file.write(each.planned.name, logits, [None] * len(logits), predicted, each.columns)


def prepared_attacks(
    names: Sequence[str], plan: EvaluationPlan, data_dir: str | Path | None
) -> list[tuple[Attack, Resources]]:
    """The attacks with all they need; what is not available is an error before any work."""
    return [_prepared(name, plan, data_dir) for name in names]


def run_attacks(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    attacks: Sequence[tuple[Attack, Resources]],
    sets: Sequence[LoadedSet],
    data_dir: str | Path | None,
    examples: int,
    batch_size: int,
    seed: int,
) -> list[LiveAttack]:
    """Each attack on the same sample of the clean set."""
    clean = next((each for each in sets if each.planned.role == "clean"), None)
    if not attacks or clean is None:
        return []
    data = load_planned(clean.planned, data_dir, examples, seed)
    results = []
    for chosen, resources in attacks:
        result = attack(
            model,
            tokenizer,
            data,
            chosen,
            lexicon=resources.lexicon,
            language_model=resources.language_model,
            encoder=resources.encoder,
            masked_lm=resources.masked_lm,
            seed=seed,
            batch_size=batch_size,
            max_length=clean.max_length,
        )
        results.append(LiveAttack.reported(result, result.attack, of=clean.planned.name))
    return results


def _prepared(name: str, plan: EvaluationPlan, data_dir: str | Path | None) -> tuple[Attack, Resources]:
    chosen = choose_attack(name)
    needed = chosen.needs()
    resources = Resources(
        lexicon=Lexicon.named(None, data_dir) if "lexicon" in needed else None,
        language_model=_language_model(plan, data_dir) if "language_model" in needed else None,
        encoder=SentenceEncoder.load() if "encoder" in needed else None,
    )
    problems = chosen.lacks(resources)
    if problems:
        raise RunError("\n".join(problems))
    return chosen, resources


def _language_model(plan: EvaluationPlan, data_dir: str | Path | None) -> Trigram | None:
    """A language model of the reference texts, if there are some."""
    texts = reference_texts(plan, data_dir)
    return None if texts is None else Trigram.fit(texts)
