"""From what a user names to a campaign: everything that can be wrong is found here, before any work."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf
from typing import Any

from datasets import ClassLabel, Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rosewood.attacks.search.campaign import Campaign
from rosewood.attacks.search.resources import Resources
from rosewood.attacks.search.textattack import TextAttackCampaign, TextAttackRecipe
from rosewood.data.loading import fingerprint
from rosewood.errors import DataError, RunError, closest
from rosewood.protocol import Attack
from rosewood.recipe import build_component
from rosewood.scoring import Scorer, label_columns

FOREIGN = "textattack:"


def choose_attack(name: str, settings: Mapping[str, Any] | None = None) -> Attack:
    """An attack of Rosewood by its name, or a recipe of TextAttack as textattack:RECIPE."""
    if name.startswith(FOREIGN):
        if settings:
            raise RunError(f"{name} has no settings here, got {', '.join(settings)}: recipes of TextAttack are fixed")
        return TextAttackRecipe(name.removeprefix(FOREIGN))
    chosen = build_component("attack", name, settings)
    assert isinstance(chosen, Attack)
    return chosen


def prepare(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    data: Dataset,
    attack: Attack,
    resources: Resources,
    field: str | None = None,
    *,
    seed: int = 0,
    batch_size: int = 64,
    max_length: int = 128,
    max_queries: int | None = None,
    max_seconds: float | None = None,
    task: str | None = None,
    split: str | None = None,
) -> Campaign:
    """A campaign that will not fail for a reason that could have been known."""
    if not isinstance(attack, Attack):
        raise RunError(f"an attack is chosen by a name or an attack such as Pwws(), got {attack!r}")
    scorer = Scorer(model, tokenizer, max_length, batch_size)
    fields, columns = _checked(data, scorer)
    field = fields[-1] if field is None else field
    problems = attack.lacks(resources)
    if field not in fields:
        problems.append(f"there is no text {field!r} to attack: {closest(field, fields)}")
    if max_queries is not None and max_queries < 1:
        problems.append(f"max_queries must be at least 1, got {max_queries}")
    if max_seconds is not None and not 0 < max_seconds < inf:
        problems.append(f"max_seconds must be a number above 0, got {max_seconds}")
    if problems:
        raise RunError("\n".join(problems))
    kind = TextAttackCampaign if isinstance(attack, TextAttackRecipe) else Campaign
    return kind(
        model,
        tokenizer,
        attack,
        resources,
        texts=[dict(zip(fields, texts, strict=True)) for texts in zip(*(data[f][:] for f in fields), strict=True)],
        labels=data["label"][:],
        columns=columns,
        field=field,
        data=fingerprint(data),
        seed=seed,
        batch_size=batch_size,
        max_length=max_length,
        max_queries=max_queries,
        max_seconds=max_seconds,
        task=task,
        split=split,
    )


def _checked(data: Dataset, scorer: Scorer) -> tuple[list[str], list[int]]:
    """The text fields, and the model's outputs in the order of the labels."""
    names = data.column_names
    if "label" not in names or names.index("label") not in (1, 2):
        raise DataError(
            f"an attack needs one or two columns of text and then `label`, as load_split gives; got {', '.join(names)}"
        )
    if len(data) == 0:
        raise DataError("there is nothing to attack: the data have no rows.")
    if scorer.classes < 2:
        raise RunError("the model has a single output; attacks need a classifier of two classes or more.")
    feature = data.features["label"]
    columns = list(range(scorer.classes))
    if isinstance(feature, ClassLabel):
        columns = label_columns(scorer.model.config, feature.names)
    labels = data["label"][:]
    bad = [label for label in labels if not isinstance(label, int) or not 0 <= label < len(columns)]
    if bad:
        raise DataError(f"expected labels from 0 to {len(columns) - 1}, got {bad[0]!r}.")
    fields = names[: names.index("label")]
    for field in fields:
        for row, text in enumerate(data[field]):
            if not isinstance(text, str):
                raise DataError(f"`{field}` must hold texts; row {row} is {text!r}.")
    return fields, columns
