"""Attack a model from Python: choose the attack, find what it needs, check the data, carry it out."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datasets import ClassLabel, Dataset
from rich.console import Console
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from rosewood.attacks import TEXTATTACK, known_attack
from rosewood.attacks.runner.attack import Attack
from rosewood.attacks.runner.cases import Cases, OneLabel, cases_of, word_rows
from rosewood.attacks.runner.constraints import Constraint, constraints_of
from rosewood.attacks.runner.execute import carry_out
from rosewood.attacks.runner.job import Campaign
from rosewood.attacks.runner.protocols import lexicon_deviations
from rosewood.attacks.runner.search import Resources
from rosewood.attacks.runner.textattack import TextAttackCampaign, TextAttackRecipe
from rosewood.config.settings import AttackSettings
from rosewood.data.loading import fingerprint, load_split
from rosewood.data.own import TEST, own_task
from rosewood.data.tasks import Task
from rosewood.errors import RunError, closest
from rosewood.models.defended import is_random
from rosewood.models.modes import evaluating, precision_on
from rosewood.models.scoring import Scorer, TokenScorer, check_loaded, is_for_tokens, text_length
from rosewood.recipe import build_component
from rosewood.results import AttackResult, AttackSummary, TestFile
from rosewood.tensors.shards import is_first
from rosewood.words.constraints import Encoder, EnglishTagger, LanguageModel, Tagger
from rosewood.words.language_models import CausalLM, MaskedLM, SentenceEncoder, Trigram
from rosewood.words.lexicon import Lexicon, antonyms

if TYPE_CHECKING:
    from rosewood.data.own import Rows


def resources_for(
    attack: Attack,
    task: Task | None,
    data_dir: str | Path | None = None,
    lexicon: str | None = None,
    masked_lm: str | None = None,
    causal_lm: str | None = None,
    constraints: Sequence[Constraint] = (),
) -> Resources:
    """The lexicon and language models of these names, a language model of the training texts, an encoder, a tagger.

    Each is there only if the attack or a constraint needs it, or, as antonyms and a causal language model, if records
    can say more with it.
    """
    needed = {*attack.needs(), *(name for each in constraints for name in each.needs())}
    words = Lexicon.named(lexicon, data_dir) if "lexicon" in needed else None
    speaker = None
    if "language_model" in needed:
        if task is None or "train" not in task.splits:
            raise RunError(
                f"the attack {attack.name} learns a language model from training texts, and there are none: "
                "attack a run, name the task of the checkpoint with --task, or choose another attack"
            )
        texts = load_split(task, "train", data_dir)
        with Console(stderr=True, quiet=not is_first()).status("Fitting a language model on the training texts"):
            speaker = Trigram.fit(text for field in task.text for text in texts[field])
    return Resources(
        words,
        speaker,
        EnglishTagger.load() if "tagger" in needed else None,
        encoder=SentenceEncoder.load() if "encoder" in needed else None,
        masked_lm=MaskedLM.load(masked_lm) if masked_lm and "masked_lm" in needed else None,
        causal_lm=CausalLM.load(causal_lm) if causal_lm else None,
        antonyms=antonyms(data_dir),
    )


def choose_attack(name: str, settings: Mapping[str, Any] | None = None) -> Attack:
    """An attack of Rosewood by its name, or a recipe of TextAttack as textattack:RECIPE."""
    if name.startswith(TEXTATTACK):
        if settings:
            raise RunError(f"{name} has no settings here, got {', '.join(settings)}: recipes of TextAttack are fixed")
        return TextAttackRecipe(name.removeprefix(TEXTATTACK))
    chosen = build_component("attack", known_attack(name), settings)
    assert isinstance(chosen, Attack)
    return chosen


def attackable(
    data: Rows | str | Path,
    model: PreTrainedModel,
    text_columns: Sequence[str] | None = None,
    label_column: str | None = None,
) -> Dataset:
    """Data of whatever form as `load_split` gives them; what has that form already stays as it is."""
    config = model.config
    if is_for_tokens(model):
        return word_rows(data, config, text_columns, label_column)
    if isinstance(data, Dataset) and not text_columns and label_column is None and _is_prepared(data):
        return data
    return load_split(own_task(data, config, text_columns, label_column), TEST, multi_label=True)


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
    settings: AttackSettings,
    *,
    labels: Sequence[str] = (),
    task: str | None = None,
    split: str | None = None,
    test_file: TestFile | None = None,
    protocol: str | None = None,
    deviations: Sequence[str] = (),
) -> Campaign:
    """A campaign that will not fail for a reason that could have been known."""
    constraints = constraints_of(settings)
    if not isinstance(attack, Attack):
        raise RunError(f"an attack is chosen by a name or an attack such as Pwws(), got {attack!r}")
    attack = attack.suited_to(model)
    max_length = settings.max_length or text_length(model, tokenizer)
    by_word = is_for_tokens(model)
    scorer = (TokenScorer if by_word else Scorer)(model, tokenizer, max_length, settings.batch_size)
    cases = cases_of(data, scorer, labels)
    field = cases.fields[-1] if settings.field is None else settings.field
    problems = [*attack.lacks(resources), *attack.problems_with(model)]
    if field not in cases.fields:
        problems.append(f"there is no text {field!r} to attack: {closest(field, cases.fields)}")
    problems += _about_answers(attack, settings, scorer, cases)
    if constraints and isinstance(attack, TextAttackRecipe):
        problems.append(f"textattack:{attack.recipe} has constraints of its own: leave out the others")
    for rule in constraints:
        problems += [why for name, why in rule.needs().items() if getattr(resources, name) is None]
    if problems:
        raise RunError("\n".join(problems))
    kind = TextAttackCampaign if isinstance(attack, TextAttackRecipe) else Campaign
    return kind(
        model,
        tokenizer,
        attack,
        resources.limited(settings.max_candidates),
        texts=cases.texts,
        goals=cases.goals,
        columns=cases.columns,
        field=field,
        max_length=max_length,
        data=fingerprint(data),
        constraints=constraints,
        settings=settings.model_copy(
            update={
                "field": field,
                "max_length": max_length,
                "precision": "float32" if attack.exact else precision_on(model, settings.precision),
            }
        ),
        task=task,
        split=split,
        test_file=test_file,
        label_names=cases.label_names,
        protocol=protocol,
        deviations=(*deviations, *(lexicon_deviations(resources.lexicon, settings.max_candidates) if protocol else ())),
    )


def _about_answers(attack: Attack, settings: AttackSettings, scorer: Scorer, cases: Cases) -> Iterator[str]:
    """Why a model that answers in this way, or so many draws of it, cannot be attacked in that way."""
    several = not isinstance(cases.goals[0], OneLabel)
    if several and attack.measure() == "probability":
        yield (
            f"{attack.name} can compare probabilities, as published, only where a text has one label: leave out "
            "scores=probability"
        )
    if isinstance(attack, TextAttackRecipe):
        if several or settings.draws > 1 or settings.precision != "float32":
            yield f"textattack:{attack.recipe} needs one label per text, one draw and float32"
    elif settings.draws > 1:
        words = tuple(cases.texts[0][cases.fields[0]].split()) if isinstance(scorer, TokenScorer) else ()
        with evaluating(scorer.model):
            if not is_random(scorer, words or tuple(cases.texts[0].values())):
                yield f"the model gives a text the same answer each time: leave out --draws {settings.draws}"


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
    masked_lm: MaskedLM | None = None,
    causal_lm: CausalLM | None = None,
    folder: str | Path | None = None,
    jobs: int = 1,
    progress: bool = True,
    **settings: Any,
) -> AttackResult:
    """Change words of one text of each example until the model is wrong, and say how often that works.

    Examples run together in full batches, and each draws its random numbers from the seed and its own texts: batch
    size, order and number of examples change nothing but, rarely, the choice between scores that are nearly equal.
    Where too few words can be changed, because the lexicon does not know the language, `summary.attacked` is false, and
    tables say "not attacked" in place of a figure.

    Args:
        model: a classifier, as transformers loads it.
        tokenizer: its tokenizer.
        data: rows with texts and labels: a datasets.Dataset, a pandas DataFrame, a list of dicts, or the path of a CSV,
            TSV, JSON Lines or Parquet file. Labels are names of the model's outputs or their numbers.
        attack: a name (`rosewood list attacks`), or an attack with settings of its own.
        text_columns: the columns with texts, where they are not called `text`.
        label_column: the column with labels, where it is not called `label` or `labels`.
        lexicon: which words may replace which, for attacks that replace words.
        language_model: scores texts, for attacks that ask for fluent ones.
        tagger: gives parts of speech, for attacks and constraints that keep them.
        encoder: gives sentence vectors, for attacks that keep the meaning, and for the similarity in the results.
        masked_lm: proposes words in their place, for `bert_attack` and `bae`.
        causal_lm: a causal language model, for the constraint `fluency`, and for the fluency in the results.
        folder: keeps the result; the same call goes on there after a crash, and leaves the same files.
        jobs: processes that share the examples. Those of a torch.distributed program share them too, if all make the
            call, and all get the whole result.
        progress: whether to show a bar.
        settings: the fields of `AttackSettings`: `field` (the text to change, by default the last), `seed`,
            `max_length`, `max_queries` and `max_queries_per_word` (spent to the last, slopes aside), `max_seconds`
            (examples are taken in random order, so those begun are a fair sample), `batch_size`, `min_changeable`,
            `max_candidates` (words tried in the place of a word), `constraints` (what every text that is found
            satisfies beside the settings of the attack: `{"words_share": 0.2, "similarity": {"at_least": 0.8}}`),
            `meaning_filter` (the edits that count in `summary.filtered`: `{"words": 0.3, "antonyms": False}`). Known
            antonyms are those of the data folder that ROSEWOOD_DATA names.

    Returns:
        The figures, and what was done to each example.

    Raises:
        RunError: the attack lacks something, or does not work on this model.
        DataError: the data cannot be used.

    Example:
        >>> rows = [{"text": "a fine film", "label": "positive"}, {"text": "a dull film", "label": "negative"}]
        >>> found = attack(model, tokenizer, rows, "typos")
        >>> found.summary.robust_accuracy <= found.summary.clean_accuracy
        True
    """
    check_loaded(model, tokenizer)
    rows = attackable(data, model, text_columns, label_column)
    campaign = prepare(
        model,
        tokenizer,
        rows,
        choose_attack(attack) if isinstance(attack, str) else attack,
        Resources(lexicon, language_model, tagger, encoder, masked_lm, causal_lm, antonyms()),
        AttackSettings.checked(settings),
        test_file=file_of(data, rows, label_column),
    )
    return carry_out(campaign, None if folder is None else Path(folder), jobs, progress)


_attack = attack  # `robust_accuracy` has an argument of that name


def robust_accuracy(
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    data: Rows | str | Path,
    attack: str | Attack = "typos",
    *,
    text_columns: Sequence[str] | None = None,
    label_column: str | None = None,
    examples: int | None = None,
    seconds: float | None = None,
    seed: int = 0,
    **settings: Any,
) -> AttackSummary:
    """A quick estimate, to choose between models or checkpoints: attack a few examples, or for a few seconds.

    Args:
        model: a classifier, as transformers loads it.
        tokenizer: its tokenizer.
        data: those of `attack`: rows in memory, or a file.
        attack: a name, or an attack with settings of its own.
        text_columns: the columns with texts, where they are not called `text`.
        label_column: the column with labels, where it is not called `label` or `labels`.
        examples: at most so many, taken at random; the same ones for every model under one seed.
        seconds: stop after that time.
        seed: of the sample and of the attack.
        settings: whatever else `attack` takes.

    Returns:
        The figures. When time is up, the true figure for the examples that were begun lies between `robust_accuracy`
        and `robust_accuracy_at_most`, and `robust_interval` goes from the low end of the one's 95 % interval to the
        high end of the other's.

    Raises:
        RunError: the attack lacks something, or does not work on this model.
        DataError: the data cannot be used.

    Example:
        >>> rows = [{"text": "a fine film", "label": "positive"}, {"text": "a dull film", "label": "negative"}]
        >>> low, high = robust_accuracy(model, tokenizer, rows, "typos", examples=2).robust_interval
        >>> 0 <= low <= high <= 1
        True
    """
    if examples is not None and examples < 1:
        raise RunError(f"examples must be at least 1, got {examples}")
    check_loaded(model, tokenizer)
    rows = attackable(data, model, text_columns, label_column)
    if examples is not None and examples < len(rows):
        rows = rows.shuffle(seed=seed).select(range(examples))
    return _attack(model, tokenizer, rows, attack, seed=seed, max_seconds=seconds, **settings).summary
