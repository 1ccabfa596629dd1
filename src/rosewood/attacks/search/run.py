"""Attack a model: the public entry, from data to a result with figures."""

from __future__ import annotations

import time
from collections.abc import Iterator

from datasets import ClassLabel, Dataset
from tqdm import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rosewood.attacks.search.attempt import Attempt, key
from rosewood.attacks.search.engine import run
from rosewood.attacks.search.resources import Encoder, LanguageModel, Resources, Tagger
from rosewood.attacks.search.summary import summarize
from rosewood.data.lexicon import Lexicon
from rosewood.data.words import Words
from rosewood.errors import DataError, RunError, closest
from rosewood.protocol import Attack
from rosewood.recipe import build_component
from rosewood.results import AttackedExample, AttackResult
from rosewood.scoring import Scorer, evaluating, label_columns


def attack(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    data: Dataset,
    attack: str | Attack,
    *,
    lexicon: Lexicon | None = None,
    language_model: LanguageModel | None = None,
    tagger: Tagger | None = None,
    encoder: Encoder | None = None,
    field: str | None = None,
    seed: int = 0,
    batch_size: int = 64,
    max_length: int = 128,
    max_queries: int | None = None,
    max_seconds: float | None = None,
    progress: bool = True,
) -> AttackResult:
    """Change words of one text of each example until the model is wrong, and say how often that works.

    `data` has the texts, then the integer `label`, as `load_split` gives it; `attack` is a name (its settings are then
    the default ones) or an attack with settings. `field` is the text to change, by default the last one: the
    hypothesis of a pair.

    Examples run together in full batches, and each draws its random numbers from the seed and its own texts: batch
    size, order and number of examples change nothing but, rarely, the choice between scores that agree to five
    decimals. `max_queries` bounds the texts scored for one example; a question that would exceed it is not asked.
    After `max_seconds` the attack stops: as examples are taken in random order, those begun are a fair sample, and
    the summary bounds what the unfinished ones could change. That makes it a quick estimate for model selection.
    """
    chosen = build_component("attack", attack) if isinstance(attack, str) else attack
    assert isinstance(chosen, Attack)
    resources = Resources(lexicon, language_model, tagger, encoder)
    scorer = Scorer(model, tokenizer, max_length, batch_size)
    fields, columns = _checked(data, scorer)
    field = fields[-1] if field is None else field
    problems = chosen.lacks(resources)
    if field not in fields:
        problems.append(f"there is no text {field!r} to attack: {closest(field, fields)}")
    if max_queries is not None and max_queries < 1:
        problems.append(f"max_queries must be at least 1, got {max_queries}")
    if max_seconds is not None and max_seconds <= 0:
        problems.append(f"max_seconds must be more than 0, got {max_seconds}")
    if problems:
        raise RunError("\n".join(problems))

    def attempts() -> Iterator[Attempt]:
        rows = [dict(zip(fields, texts, strict=True)) for texts in zip(*(data[f][:] for f in fields), strict=True)]
        labels = data["label"][:]
        for row in sorted(range(len(rows)), key=lambda row: (key(seed, rows[row]), row)):
            texts = rows[row]
            end = scorer.visible(tuple(texts.values()), fields.index(field))
            words = Words.split(texts[field], chosen.word_pattern(), tokenizer.all_special_tokens, end)
            yield Attempt(chosen, row, texts, field, words, labels[row], resources, seed, max_queries)

    began = time.monotonic()
    deadline = None if max_seconds is None else began + max_seconds
    # The bar appears on a terminal only, and only for work of more than 2 s.
    bar = tqdm(total=len(data), desc=chosen.name, unit="example", delay=2, disable=None if progress else True)
    examples: list[AttackedExample] = []
    with bar, evaluating(model):
        for example in run(attempts(), scorer, columns, deadline):
            examples.append(example)
            bar.update()
    seconds = time.monotonic() - began
    if not examples:
        raise RunError(f"no example was scored within max_seconds {max_seconds}: allow more time.")
    examples.sort(key=lambda example: example.row)
    return AttackResult(
        model=model.name_or_path or type(model).__name__,
        attack=chosen.name,
        settings=chosen.settings(),
        lexicon=lexicon.fingerprint if lexicon else None,
        field=field,
        seed=seed,
        max_length=max_length,
        max_queries=max_queries,
        max_seconds=max_seconds,
        seconds=seconds,
        summary=summarize(examples, len(data) - len(examples)),
        examples=examples,
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
    return names[: names.index("label")], columns
