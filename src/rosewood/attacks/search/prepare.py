"""From what a user names to a campaign: everything that can be wrong is found here, before any work."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datasets import ClassLabel, Dataset
from transformers import PretrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from rosewood.attacks.search.campaign import MIN_CHANGEABLE, Campaign
from rosewood.attacks.search.resources import Resources
from rosewood.attacks.search.textattack import TextAttackCampaign, TextAttackRecipe
from rosewood.data.loading import fingerprint, load_split
from rosewood.data.own import TEST, own_task
from rosewood.errors import DataError, RunError, closest
from rosewood.protocol import Attack
from rosewood.recipe import build_component
from rosewood.results import TestFile
from rosewood.scoring import Scorer, label_columns, text_length

if TYPE_CHECKING:
    from rosewood.data.own import Rows

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


def attackable(
    data: Rows | str | Path,
    config: PretrainedConfig,
    text_columns: Sequence[str] | None = None,
    label_column: str | None = None,
) -> Dataset:
    """Data of whatever form as `load_split` gives them; what has that form already stays as it is."""
    if isinstance(data, Dataset) and not text_columns and label_column is None and _is_prepared(data):
        return data
    return load_split(own_task(data, config, text_columns, label_column), TEST)


def file_of(data: object, rows: Dataset, label_column: str | None) -> TestFile | None:
    """Where rows came from, if from a file of the user's own."""
    if not isinstance(data, str | Path):
        return None
    texts = rows.column_names[: rows.column_names.index("label")]
    return TestFile(file=str(Path(data).resolve()), text_columns=texts, label_column=label_column)


def _is_prepared(data: Dataset) -> bool:
    names = data.column_names
    if "label" not in names or names.index("label") not in (1, 2):
        return False
    feature, texts = data.features["label"], names[: names.index("label")]
    if isinstance(feature, ClassLabel):
        return True
    is_number = str(getattr(feature, "dtype", "")).startswith(("int", "uint", "null"))
    return is_number and ("text" not in names or texts == ["text"])


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
    max_length: int | None = None,
    max_queries: int | None = None,
    max_seconds: float | None = None,
    min_changeable: float = MIN_CHANGEABLE,
    task: str | None = None,
    split: str | None = None,
    test_file: TestFile | None = None,
) -> Campaign:
    """A campaign that will not fail for a reason that could have been known."""
    if not isinstance(attack, Attack):
        raise RunError(f"an attack is chosen by a name or an attack such as Pwws(), got {attack!r}")
    if getattr(model.config, "problem_type", None) == "multi_label_classification":
        raise RunError("the model is for several labels a text, and attacks need one label a text")
    max_length = max_length or text_length(model, tokenizer)
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
    if not 0 <= min_changeable <= 1:
        problems.append(f"min_changeable is a share from 0 to 1, got {min_changeable}")
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
        min_changeable=min_changeable,
        task=task,
        split=split,
        test_file=test_file,
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
