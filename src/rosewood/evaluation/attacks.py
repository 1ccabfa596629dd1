"""Attacks on the very model that is evaluated, on its clean set."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rosewood.attacks.runner.api import attack, choose_attack
from rosewood.attacks.runner.attack import Attack
from rosewood.attacks.runner.example import Resources
from rosewood.errors import RunError
from rosewood.evaluation.sets import EvaluationPlan, LoadedSet, load_planned, reference_texts
from rosewood.results import LiveAttack
from rosewood.words.language_models import SentenceEncoder, Trigram
from rosewood.words.lexicon import Lexicon


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
    """Of the reference texts, if there are some."""
    texts = reference_texts(plan, data_dir)
    return None if texts is None else Trigram.fit(texts)
