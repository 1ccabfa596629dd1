"""Attacks and defences: what was done to each example, what a wrapped model says of itself, and what is certified."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AwareDatetime, Field, model_validator

from rosewood.config.attack_options import MeaningFilter
from rosewood.config.settings import AttackSettings
from rosewood.results.files import Count, ResultFile, ResultPart, Share, installed_versions, now

COST = "×: so many passes of the network for each text; 1 where no number is given."
Forwards = Annotated[float, Field(gt=0)]
AttackStatus = Literal["wrong", "broken", "robust", "out_of_queries", "out_of_time"]


class ChangedWord(ResultPart):
    """A word that an attack replaced; `position` counts the words of the attacked text from 0."""

    position: Count
    before: str
    after: str  # empty: left out


class AttackedExample(ResultPart):
    """What an attack did to one example.

    `wrong`: the model was wrong before, so nothing was tried. `broken`: it is wrong on `adversarial`. `robust`: the
    search came to its end without success. `out_of_queries`, `out_of_time`: it was cut off before that.
    """

    row: Count  # in the data that were attacked
    status: AttackStatus
    label: Count  # 0 where there are several labels: the outputs are then 0, right, and 1, wrong
    about_words: list[Count] = []  # the words of the entity, where words have labels
    expected: list[Count] = []  # of several labels those that are right: of the text, or of the words of the entity
    predicted: list[Count] = []  # of several labels those that the model gave
    adversarial_predicted: list[Count] = []  # and those that it gives to `adversarial`
    texts: dict[str, str]  # field -> text as it was
    prediction: Count
    probabilities: list[Share]
    broken_by: str | None = None  # which attack of a list did it, for the worst case over several
    adversarial: str | None = None  # the attacked field's text, where the model is wrong on it
    adversarial_prediction: Count | None = None
    adversarial_probabilities: list[Share] | None = None
    words: Count = 0  # of the attacked field, as far as the model sees it
    changeable: Count | None = None  # of these words, those that the attack could change; None if it cannot say
    changes: list[ChangedWord] = []
    aligned: list[tuple[str, str]] = []
    """The attacked field in pieces, words and what is between them, before and after: joined, the two texts."""
    words_share: Share | None = None  # of the words, those that changed
    similarity: float | None = None  # cosine of the sentence vectors of both texts, where there was an encoder
    perplexity_ratio: float | None = None  # of a token, to the original text's, where there was a causal language model
    antonyms: list[tuple[str, str]] | None = None  # words and their known antonyms that replaced them; None: not known
    queries: Count  # texts that the model scored, the original included; repeats are answered from memory


class FilteredAccuracy(ResultPart):
    """Robust accuracy if only edits count that keep the meaning, as far as `meaning_filter` can tell.

    A broken example whose edit does not pass counts as robust. The search did not look for edits that pass, so that
    there may be some where none was found: as a constraint the same condition gives a lower figure.
    """

    conditions: MeaningFilter
    passed: Count  # broken examples whose edit satisfies every condition
    failed: dict[str, Count] = {}  # condition -> edits that do not satisfy it
    unknown: list[str] = []  # conditions that could not be checked, for example without an encoder; they count as met
    robust_accuracy: Share
    robust_accuracy_at_most: Share
    robust_interval: tuple[Share, Share]


class AttackSummary(ResultPart):
    """The figures of an attack; they say something about robustness only where it is `attacked`.

    Robust accuracy is the share of examples that are right and stay so. An example that outlasts the query budget is
    unbroken; one that ran out of time is unresolved: it counts as broken in `robust_accuracy` and as robust in
    `robust_accuracy_at_most`, and the interval goes from the low end of the one to the high end of the other.
    """

    examples: Annotated[int, Field(gt=0)]
    left_out: Count  # not begun when time was up; examples are taken in random order, so the others are a fair sample
    counts: dict[AttackStatus, Count]
    clean_accuracy: Share
    clean_interval: tuple[Share, Share]
    robust_accuracy: Share
    robust_accuracy_at_most: Share
    robust_interval: tuple[Share, Share]  # 95 % Wilson
    filtered: FilteredAccuracy | None = None  # None without a filter
    success_rate: Share | None  # broken among the resolved that were right; None if there are none
    changed_words: Share | None  # mean share of words changed in broken examples
    changeable_words: Share | None = None  # of all words of the attacked examples, those that the attack could change
    min_changeable: Share = 0.0  # with fewer the examples count as not attacked
    similarity: float | None = None  # mean cosine of broken examples to their originals, where there was an encoder
    majority: Share | None = None  # of the most frequent label among the examples; None if all have one, or not known
    broken_by: dict[str, Count] = {}  # of a list of attacks, how many examples each broke that those before it had not
    mean_queries: float | None  # over the examples that were attacked

    @property
    def attacked(self) -> bool:
        """False where the attack could change so few words that unbroken examples say nothing about the model."""
        return self.changeable_words is None or self.changeable_words >= self.min_changeable


class TestFile(ResultPart):
    """A file of the user's own that a model was measured on, as `--test-file` and its column options name it."""

    __test__ = False  # not a class of tests, whatever pytest thinks

    file: str
    text_columns: list[str]
    label_column: str | None = None  # None: `label` or `labels`


class AttackReport(ResultFile, AttackSettings):
    """What `attack.json` says of one attack on one model: the figures, with the settings that decide them."""

    model: str
    task: str | None = None
    split: str | None = None
    data: str  # fingerprint of the texts and labels that were attacked
    attack: str
    searches: int = 1  # raised when attacks of the same settings come to search otherwise
    settings: dict[str, Any]
    lexicon: str | None  # fingerprint
    lexicon_name: str | None = None  # as `--lexicon` takes it; None if it has no such name
    language_model: str | None = None
    encoder: str | None = None
    masked_lm: str | None = None
    causal_lm: str | None = None
    protocol: str | None = None  # the published setting that was asked for
    deviations: list[str] = []  # from it
    field: str  # the text that was attacked
    forwards: Forwards = 1.0  # passes of the network for one text: more than 1 where a defence is around it
    max_length: Count
    fingerprint: str  # of all of the above and the model's weights: what resumes must share
    test_file: TestFile | None = None  # where the data came from, if from a file of the user's own
    label_names: list[str] = []  # in the order of their numbers, where the data have names
    versions: dict[str, str] = Field(default_factory=installed_versions)
    created: AwareDatetime = Field(default_factory=now)
    seconds: Annotated[float, Field(ge=0)]
    summary: AttackSummary

    @model_validator(mode="before")
    @classmethod
    def _judged_as_in_the_summary(cls, raw: Any) -> Any:
        """Older versions wrote `min_changeable` there alone."""
        if isinstance(raw, dict) and isinstance(summary := raw.get("summary"), dict) and "min_changeable" in summary:
            return {"min_changeable": summary["min_changeable"]} | raw
        return raw


class AttackResult(AttackReport):
    """A report, and what was done to each example."""

    examples: list[AttackedExample]


class FinishedBlock(ResultPart):
    """A line of an attack's journal: some examples that ran together, and the seconds since the search began."""

    fingerprint: str
    number: Count
    seconds: Annotated[float, Field(ge=0)]
    examples: list[AttackedExample]


class SavedDefence(ResultFile):
    """A defence with its settings, and what it has learnt; the model that it wraps is in the folder beside the file."""

    defence: str  # its name in the registry
    settings: dict[str, Any]
    learnt: dict[str, Any] = {}  # a lexicon, a vocabulary, thresholds: whatever the defence needs to answer
    forwards: Forwards  # passes of the network for one text
    command: str = ""  # that wrapped the model; empty in a live session


def with_cost(model: str, forwards: float) -> str:
    """The name of a model in a table, with what an answer of it costs if that is more than one pass."""
    return model if forwards == 1 else f"{model} ×{forwards:g}"


class CertifiedExample(ResultPart):
    """What is certain of one text, with the confidence that the certificate was made with."""

    row: Count
    label: Count
    prediction: Count | None  # None: abstained, as no label is certain to have more than half of all copies
    words: Count
    votes: Count  # of the copies, those with the most frequent label
    lower: Share  # bound of the share of all copies that have it
    radii: dict[str, Count] = {}  # kind of edit -> how many of them change nothing


class Certificate(ResultFile):
    """What `certificate.json` says: certified accuracy of the smoothed model by the number of edits."""

    model: str
    task: str | None = None
    split: str | None = None
    by: Literal["mask", "delete", "substitute"]
    share: Share
    copies: Annotated[int, Field(gt=0)]  # that a bound is computed from
    selection_copies: Annotated[int, Field(gt=0)]  # others, that choose the label the bound is about
    confidence: Annotated[float, Field(gt=0, lt=1)]  # of each text's certificate
    seed: int
    max_length: Count
    fingerprint: str  # of all of the above, the model's weights and the texts
    versions: dict[str, str] = Field(default_factory=installed_versions)
    created: AwareDatetime = Field(default_factory=now)
    seconds: Annotated[float, Field(ge=0)]
    examples: Annotated[list[CertifiedExample], Field(min_length=1)]

    @property
    def abstained(self) -> float:
        """The share of texts without an answer."""
        return sum(each.prediction is None for each in self.examples) / len(self.examples)

    @property
    def kinds(self) -> list[str]:
        """The kinds of edits that there is a radius for."""
        return list(dict.fromkeys(kind for each in self.examples for kind in each.radii))

    def certified_accuracy(self, kind: str, radius: int) -> float:
        """The share of texts that get the right answer after any so many edits; an abstention is not one."""
        right = [each for each in self.examples if each.prediction == each.label]
        return sum(each.radii.get(kind, 0) >= radius for each in right) / len(self.examples)

    def largest_radius(self, kind: str) -> int:
        """The most edits that any text of the right answer withstands."""
        right = [each for each in self.examples if each.prediction == each.label]
        return max((each.radii.get(kind, 0) for each in right), default=0)
