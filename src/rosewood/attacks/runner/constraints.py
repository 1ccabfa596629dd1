"""What a changed text must satisfy, in every attack; the model never scores a text that does not.

A constraint is one small class here: its fields are its settings, and `allows` says of each candidate whether it may
be asked for. Searches leave out what `Target.allowed` leaves out, and the runner counts no success that is not allowed.

Whether an edit keeps the meaning, as far as figures can tell: a record of each edit, and which edits pass a filter.

Most published attacks change what a text says (Hauser et al., "BERT is Robust!", 2021; Morris et al., "Reevaluating
Adversarial Examples in Natural Language", 2020), and a model that follows the new meaning is then not wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from rosewood.config.attack_options import FIRST, MeaningFilter
from rosewood.config.strict_yaml import checked_settings
from rosewood.errors import RunError, closest
from rosewood.results import AttackedExample
from rosewood.words.constraints import around, is_stop_word, similarities

if TYPE_CHECKING:
    from rosewood.attacks.runner.search import Candidate, Resources
    from rosewood.config.settings import AttackSettings
    from rosewood.words.constraints import Encoder
    from rosewood.words.text import Words

Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class Constraint:
    """A rule for changed texts."""

    def __post_init__(self) -> None:
        values, problems = checked_settings(type(self), asdict(self))
        if problems:
            raise RunError("\n".join(f"constraint {self.name}.{name}: {problem}" for name, problem in problems))
        for name, value in values.items():
            object.__setattr__(self, name, value)

    @property
    def name(self) -> str:
        return next(name for name, kind in CONSTRAINTS.items() if kind is type(self))

    def needs(self) -> dict[str, str]:
        """The resources that it needs; to each a sentence that says why."""
        return {}

    def allows(self, text: Words, candidates: Sequence[Candidate], last: Candidate, resources: Resources) -> Bools:
        """Which candidates may be asked for, `(candidates,)`; `last` are the words that a search goes on from."""
        raise NotImplementedError


@dataclass(frozen=True)
class WordsShare(Constraint):
    """Only so many of the words change."""

    at_most: Annotated[float, Field(gt=0, le=1)]
    """Share of the words of the text; one word is always allowed."""

    def allows(self, text: Words, candidates: Sequence[Candidate], last: Candidate, resources: Resources) -> Bools:
        most = max(1, int(self.at_most * len(text.words)))
        return np.array([len(changed(text.words, each)) <= most for each in candidates], dtype=bool)


@dataclass(frozen=True)
class StopWords(Constraint):
    """Words such as "the" and "not" stay as they are."""

    def allows(self, text: Words, candidates: Sequence[Candidate], last: Candidate, resources: Resources) -> Bools:
        fixed = {at for at, word in enumerate(text.words) if is_stop_word(word)}
        return np.array([fixed.isdisjoint(changed(text.words, each)) for each in candidates], dtype=bool)


@dataclass(frozen=True)
class PartOfSpeech(Constraint):
    """A changed word keeps the part of speech that it has in the original text."""

    noun_verb_swap: bool = False
    """Whether a noun may also become a verb, and a verb a noun, as in TextFooler's code."""

    def needs(self) -> dict[str, str]:
        return {
            "tagger": "the constraint part_of_speech needs a tagger: pass one as tagger=, such as EnglishTagger.load()"
        }

    def allows(self, text: Words, candidates: Sequence[Candidate], last: Candidate, resources: Resources) -> Bools:
        assert resources.tagger is not None
        tags, tagger = resources.tagger(text.words), resources.tagger
        return np.array([self._keeps(text.words, tags, each, tagger(each)) for each in candidates], dtype=bool)

    def _keeps(self, words: Candidate, tags: Sequence[str], after: Candidate, new: Sequence[str]) -> bool:
        alike = {"NOUN", "VERB"} if self.noun_verb_swap else set()
        return all(tags[at] == new[at] or {tags[at], new[at]} <= alike for at in changed(words, after))


@dataclass(frozen=True)
class Similarity(Constraint):
    """The sentence vector of the changed text stays near that of the original, or of the text one step before."""

    at_least: Annotated[float, Field(ge=-1, le=1)]
    """Cosine."""
    to: Literal["original", "last"] = "original"
    window: Annotated[int, Field(ge=1)] | None = None
    """Compare so many words around each change; a text of fewer words is then not compared, as in TextFooler's code."""

    def needs(self) -> dict[str, str]:
        return {"encoder": "the constraint similarity needs a sentence encoder: pass one, as SentenceEncoder.load()"}

    def allows(self, text: Words, candidates: Sequence[Candidate], last: Candidate, resources: Resources) -> Bools:
        assert resources.encoder is not None
        if not candidates:
            return np.zeros(0, dtype=bool)
        before = text.words if self.to == "original" else last
        if self.window is not None:
            return self._near_in_windows(before, candidates, self.window, resources.encoder)
        return np.asarray(
            similarities(resources.encoder, [text.join(each) for each in (before, *candidates)]) >= self.at_least
        )

    def _near_in_windows(
        self, before: Candidate, candidates: Sequence[Candidate], window: int, encoder: Encoder
    ) -> Bools:
        near = np.ones(len(candidates), dtype=bool)
        for first in range(len(before) - window + 1):
            seen = slice(first, first + window)
            own = [
                i
                for i, each in enumerate(candidates)
                if any(around(at, len(before), window) == seen for at in changed(before, each))
            ]
            if own:
                texts = [" ".join(words[seen]) for words in (before, *(candidates[i] for i in own))]
                near[own] &= similarities(encoder, texts) >= self.at_least
        return near


@dataclass(frozen=True)
class Fluency(Constraint):
    """A causal language model finds the changed text not much more surprising than the original."""

    at_most: Annotated[float, Field(gt=0)]
    """How many times the perplexity of a token may be that of the original."""

    def needs(self) -> dict[str, str]:
        return {
            "causal_lm": "the constraint fluency needs a causal language model: pass one, such as "
            'causal_lm=CausalLM.load("HuggingFaceTB/SmolLM2-135M"), on the command line --causal-lm'
        }

    def allows(self, text: Words, candidates: Sequence[Candidate], last: Candidate, resources: Resources) -> Bools:
        assert resources.causal_lm is not None
        costs = resources.causal_lm.surprise([text.join(each) for each in (text.words, *candidates)])
        return np.asarray(costs[1:] - costs[0] <= np.log(self.at_most))


CONSTRAINTS: dict[str, type[Constraint]] = {
    "words_share": WordsShare,
    "stop_words": StopWords,
    "part_of_speech": PartOfSpeech,
    "similarity": Similarity,
    "fluency": Fluency,
}


def constraint(name: str, settings: Any = None) -> Constraint:
    """A constraint by its name, with its settings or with the value of its first one.

    Args:
        name: one of `CONSTRAINTS`.
        settings: a mapping, in which `value` means the first setting, or a plain value:
            `constraint("similarity", 0.8)` is `constraint("similarity", {"at_least": 0.8})`.

    Raises:
        RunError: there is no such constraint or setting, or a value is out of its range.
    """
    kind = CONSTRAINTS.get(name.replace("-", "_"))
    if kind is None:
        raise RunError(f"there is no constraint {name!r}: {closest(name, list(CONSTRAINTS))}")
    if settings is None:
        settings = {}
    elif not isinstance(settings, dict):
        settings = {FIRST: settings}
    first = next(iter(kind.__dataclass_fields__), FIRST)
    if FIRST in settings and first not in settings:
        settings = {first if key == FIRST else key: value for key, value in settings.items()}
    try:
        return kind(**settings)
    except TypeError:
        known, given = (", ".join(names) or "none" for names in (kind.__dataclass_fields__, settings))
        raise RunError(f"the constraint {name} has the settings: {known}; got {given}") from None


def constraints_of(settings: AttackSettings) -> tuple[Constraint, ...]:
    """The constraints that settings name."""
    return tuple(constraint(name, own) for name, own in settings.constraints.items())


def changed(before: Candidate, after: Candidate) -> set[int]:
    """The places of the words that differ."""
    return {at for at, (one, other) in enumerate(zip(before, after, strict=True)) if one != other}


def edit_quality(example: AttackedExample, field: str, resources: Resources) -> dict[str, Any]:
    """What there is to say of the edit of a broken example, as entries of its record."""
    assert example.adversarial is not None
    texts = [example.texts[field], example.adversarial]
    found: dict[str, Any] = {"words_share": changed_share(example)}
    if resources.encoder is not None:
        found["similarity"] = float(similarities(resources.encoder, texts)[0])
    if resources.causal_lm is not None:
        before, after = resources.causal_lm.surprise(texts)
        found["perplexity_ratio"] = float(np.exp(after - before))
    if resources.antonyms:
        found["antonyms"] = [
            (change.before, new)
            for change in example.changes
            for new in change.after.split()
            if frozenset((change.before.lower(), new.lower())) in resources.antonyms
        ]
    return found


def changed_share(example: AttackedExample) -> float:
    """The share of the words of a text that changed."""
    return min(1.0, len(example.changes) / max(1, example.words))


def verdicts(example: AttackedExample, conditions: MeaningFilter) -> dict[str, bool | None]:
    """Whether an edit satisfies each condition; None where its record does not tell."""
    share, alike, ratio = changed_share(example), example.similarity, example.perplexity_ratio
    found: dict[str, bool | None] = {}
    if conditions.words is not None:
        found["words"] = share <= conditions.words
    if conditions.similarity is not None:
        found["similarity"] = None if alike is None else alike >= conditions.similarity
    if conditions.fluency is not None:
        found["fluency"] = None if ratio is None else ratio <= conditions.fluency
    if not conditions.antonyms:
        found["antonyms"] = None if example.antonyms is None else not example.antonyms
    return found


def in_words(conditions: MeaningFilter) -> str:
    """The conditions of a filter, as a caption names them."""
    parts = []
    if conditions.words is not None:
        parts.append(f"at most {100 * conditions.words:g} % of the words change")
    if conditions.similarity is not None:
        parts.append(f"the cosine is at least {conditions.similarity:g}")
    if conditions.fluency is not None:
        parts.append(f"the perplexity is at most {conditions.fluency:g} times the original's")
    if not conditions.antonyms:
        parts.append("no word is replaced by a known antonym")
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if len(parts) > 1 else parts)
