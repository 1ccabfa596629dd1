"""Attack a model: the public entry, from data to a result with figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rosewood.attacks.search.campaign import MIN_CHANGEABLE
from rosewood.attacks.search.carry_out import carry_out
from rosewood.attacks.search.prepare import attackable, choose_attack, file_of, prepare
from rosewood.attacks.search.resources import Encoder, LanguageModel, Resources, Tagger
from rosewood.data.lexicon import Lexicon
from rosewood.protocol import Attack
from rosewood.results import AttackResult

if TYPE_CHECKING:
    from rosewood.data.own import Rows


def attack(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    data: Rows | str | Path,
    attack: str | Attack,
    *,
    text_columns: Sequence[str] | None = None,
    label_column: str | None = None,
    lexicon: Lexicon | None = None,
    language_model: LanguageModel | None = None,
    tagger: Tagger | None = None,
    encoder: Encoder | None = None,
    field: str | None = None,
    seed: int = 0,
    batch_size: int = 64,
    max_length: int | None = None,
    max_queries: int | None = None,
    max_seconds: float | None = None,
    min_changeable: float = MIN_CHANGEABLE,
    folder: str | Path | None = None,
    jobs: int = 1,
    progress: bool = True,
) -> AttackResult:
    """Change words of one text of each example until the model is wrong, and say how often that works.

    `data` are rows with texts and labels: a datasets.Dataset, a pandas DataFrame, a list of dicts, or the path of a
    CSV, TSV, JSON Lines or Parquet file. Labels are names of the model's outputs or their numbers; `text_columns` and
    `label_column` name the columns where they are not `text` and `label` or `labels`. `attack` is a name (its settings
    are then the default ones) or an attack with settings. `field` is the text to change, by default the last one: the
    hypothesis of a pair.

    Examples run together in full batches, and each draws its random numbers from the seed and its own texts: batch
    size, order and number of examples change nothing but, rarely, the choice between scores that are nearly equal.
    `max_queries` bounds the texts scored for one example; a question that would exceed it is not asked.
    After `max_seconds` the attack stops: as examples are taken in random order, those begun are a fair sample, and
    the summary bounds what the unfinished ones could change. That makes it a quick estimate for model selection.

    A lexicon knows no words of another language, and nothing breaks there. Where less than the share `min_changeable`
    of the words could be changed, `summary.attacked` is false, and tables say "not attacked" in place of a figure.

    With a `folder` the attack survives a crash: the same call goes on where it ended, and leaves the same
    `examples.jsonl` as if nothing had happened. `jobs` processes share the examples on the CPUs of this machine;
    those of a torch.distributed program share them too, if all make the call, and all get the whole result.
    """
    rows = attackable(data, model.config, text_columns, label_column)
    campaign = prepare(
        model,
        tokenizer,
        rows,
        choose_attack(attack) if isinstance(attack, str) else attack,
        Resources(lexicon, language_model, tagger, encoder),
        field,
        seed=seed,
        batch_size=batch_size,
        max_length=max_length,
        max_queries=max_queries,
        max_seconds=max_seconds,
        min_changeable=min_changeable,
        test_file=file_of(data, rows, label_column),
    )
    return carry_out(campaign, None if folder is None else Path(folder), jobs, progress)
