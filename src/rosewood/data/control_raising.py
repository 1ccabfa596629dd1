"""Sentences with a control or a raising construction, with and without a surface feature: a grammar of our own.

Control: "Every baker hopes to paint ..." (the baker does the hoping). Raising: "Every baker seems to paint ..." (the
seeming is nobody's). The two look alike; which one a sentence has depends on its predicate alone. A paradigm is four
sentences of one frame, control and raising with and without the surface feature, from which the parts are made as in
MSGS (Warstadt et al., 2020): in ambiguous parts control always comes with the feature, in disambiguating ones never.

Predicates, nouns, verbs and adjectives of training and of the parts outside its domain are disjoint, so what tells
control from raising there can only be known from pre-training.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random
from typing import Literal, NamedTuple

Surface = Literal["the", "length"]
Number = Literal["singular", "plural"]
Tense = Literal["present", "past"]

SURFACES: tuple[Surface, ...] = ("the", "length")
PARTS = ("train", "disambiguating-in-domain", "ambiguous", "disambiguating")
_PARADIGMS = {"train": 1000, "disambiguating-in-domain": 300, "outside": 300}
DETERMINERS: Mapping[Number, tuple[str, ...]] = {
    "singular": ("this", "that", "every", "some", "one"),
    "plural": ("these", "those", "many", "some", "several"),
}
_BE: Mapping[Tense, Mapping[Number, str]] = {
    "present": {"singular": "is", "plural": "are"},
    "past": {"singular": "was", "plural": "were"},
}
_JOINED = (
    "{context}, and {main}",
    "{context}, but {main}",
    "{main}, and {context}",
    "{main} while {context}",
    "while {context}, {main}",
)


class Verb(NamedTuple):
    """The finite forms of a verb."""

    plural: str
    singular: str
    past: str

    def form(self, number: Number, tense: Tense) -> str:
        """The form that agrees with a subject of that number."""
        return self.past if tense == "past" else getattr(self, number)


class Predicates(NamedTuple):
    """As many of one construction as of the other."""

    control: tuple[str, ...]
    raising: tuple[str, ...]


@dataclass(frozen=True)
class ProbeVocabulary:
    """The content words of a domain; nouns have regular plurals, verbs are written "plural singular past"."""

    people: tuple[str, ...]
    things: tuple[str, ...]
    surroundings: Mapping[str, tuple[str, ...]]
    """Preposition -> nouns."""
    doings: tuple[str, ...]
    acts: tuple[str, ...]
    """Infinitives that take a thing."""
    manners: tuple[str, ...]
    """Adjectives for what somebody can be asked to be as well as be believed to be."""
    verbs: Predicates
    """... hopes / seems to paint a boat."""
    after_be: Predicates
    """... is eager / likely to paint a boat."""
    with_object: Predicates
    """... urges / considers somebody to be honest."""


INSIDE = ProbeVocabulary(
    people=("baker", "doctor", "teacher", "farmer", "painter", "sailor", "tailor", "lawyer", "singer", "banker"),
    things=("boat", "bridge", "clock", "lamp", "map", "tower", "wall", "window"),
    surroundings={
        "near": ("river", "hill"),
        "in": ("garden", "market"),
        "during": ("storm", "holiday"),
        "with": ("friend", "neighbour"),
    },
    doings=("wait waits waited", "laugh laughs laughed", "work works worked", "rest rests rested", "sing sings sang"),
    acts=("paint", "repair", "visit", "sell", "describe", "clean"),
    manners=("honest", "patient", "polite", "generous"),
    verbs=Predicates(
        control=("hope hopes hoped", "refuse refuses refused"),
        raising=("seem seems seemed", "tend tends tended"),
    ),
    after_be=Predicates(
        control=("eager", "willing", "keen", "reluctant", "forced", "urged", "asked", "invited"),
        raising=("likely", "certain", "bound", "set", "said", "known", "supposed", "reported"),
    ),
    with_object=Predicates(
        control=(
            *("urge urges urged", "ask asks asked", "invite invites invited"),
            *("force forces forced", "teach teaches taught", "beg begs begged"),
        ),
        raising=(
            *("know knows knew", "suppose supposes supposed", "consider considers considered"),
            *("find finds found", "declare declares declared", "prove proves proved"),
        ),
    ),
)
OUTSIDE = ProbeVocabulary(
    people=("gardener", "plumber", "dentist", "pilot", "waiter", "barber", "butcher", "soldier", "drummer", "jeweller"),
    things=("statue", "fence", "wagon", "mirror", "house", "fountain", "door", "piano"),
    surroundings={
        "near": ("lake", "mill"),
        "in": ("kitchen", "park"),
        "during": ("concert", "meeting"),
        "with": ("cousin", "partner"),
    },
    doings=(
        "smile smiles smiled",
        "dance dances danced",
        "sleep sleeps slept",
        "talk talks talked",
        "walk walks walked",
    ),
    acts=("draw", "protect", "admire", "buy", "photograph", "measure"),
    manners=("careful", "quiet", "friendly", "cautious"),
    verbs=Predicates(
        control=("want wants wanted", "plan plans planned"),
        raising=("appear appears appeared", "happen happens happened"),
    ),
    after_be=Predicates(
        control=("anxious", "happy", "unwilling", "afraid", "persuaded", "encouraged", "told", "ordered"),
        raising=("unlikely", "sure", "apt", "liable", "thought", "believed", "expected", "alleged"),
    ),
    with_object=Predicates(
        control=(
            *("persuade persuades persuaded", "encourage encourages encouraged", "tell tells told"),
            *("order orders ordered", "advise advises advised", "remind reminds reminded"),
        ),
        raising=(
            *("think thinks thought", "believe believes believed", "expect expects expected"),
            *("presume presumes presumed", "imagine imagines imagined", "judge judges judged"),
        ),
    ),
)


class Paradigm(NamedTuple):
    """The sentences of one frame, each as (without, with) the surface feature."""

    control: tuple[str, str]
    raising: tuple[str, str]


class Sentence(NamedTuple):
    """A row."""

    sentence: str
    label: Literal["raising", "control"]
    surface_feature_label: int
    """As MSGS calls it: 1 where the sentence has "the", or is long."""
    paradigm: int


def sentences(surface: Surface, part: str, seed: int = 0) -> list[Sentence]:
    """All rows of a part; no sentence of one part is in another, and none is there twice."""
    agrees = part in ("train", "ambiguous")
    rows = []
    for number, paradigm in enumerate(_paradigms_of(surface, part, seed)):
        rows.append(Sentence(paradigm.control[agrees], "control", int(agrees), number))
        rows.append(Sentence(paradigm.raising[not agrees], "raising", int(not agrees), number))
    return rows


def _paradigms_of(surface: Surface, part: str, seed: int) -> Sequence[Paradigm]:
    if part not in _PARADIGMS:
        return paradigms(surface, OUTSIDE, _PARADIGMS["outside"], seed)
    trained = _PARADIGMS["train"]
    inside = paradigms(surface, INSIDE, trained + _PARADIGMS["disambiguating-in-domain"], seed)
    return inside[:trained] if part == "train" else inside[trained:]


def paradigms(surface: Surface, words: ProbeVocabulary, count: int, seed: int) -> list[Paradigm]:
    """So many paradigms without a common sentence."""
    rng, seen = Random(f"{surface} {seed}"), set[str]()
    found: list[Paradigm] = []
    while len(found) < count:
        paradigm = _paradigm(surface, words, rng)
        new = {*paradigm.control, *paradigm.raising}
        if not new & seen:
            found.append(paradigm)
            seen |= new
    return found


class _Frame(NamedTuple):
    """Everything that the four sentences of a paradigm share."""

    pattern: str
    phrases: tuple[str, ...]
    """Noun phrases, determiner first: two subjects and an object."""
    surroundings: tuple[str, ...]
    """The shorter sentences have fewer of them."""
    predicates: tuple[str, str]
    """The one of control and the one of raising, each in the form that agrees with the subject."""

    def sentence(self, predicate: str, phrases: Sequence[str], surroundings: Sequence[str]) -> str:
        text = self.pattern.format(*phrases, predicate=predicate, surroundings="".join(surroundings))
        return f"{text[0].upper()}{text[1:]}."


def _paradigm(surface: Surface, words: ProbeVocabulary, rng: Random) -> Paradigm:
    frame = _frame(words, rng)
    if surface == "the":
        around = frame.surroundings[: rng.randrange(3)]
        versions = [(frame.phrases, around), (_with_the(frame.phrases, rng), around)]
    else:
        versions = [(frame.phrases, frame.surroundings[: rng.choice(number)]) for number in ((0, 1), (3, 4))]
    control, raising = ([frame.sentence(each, *version) for version in versions] for each in frame.predicates)
    return Paradigm((control[0], control[1]), (raising[0], raising[1]))


def _with_the(phrases: Sequence[str], rng: Random) -> tuple[str, ...]:
    """One of the determiners, wherever it is, becomes "the", which fits both numbers."""
    chosen = rng.randrange(len(phrases))
    return tuple(f"the {phrase.split()[-1]}" if place == chosen else phrase for place, phrase in enumerate(phrases))


def _frame(words: ProbeVocabulary, rng: Random) -> _Frame:
    tense: Tense = rng.choice(("present", "past"))
    numbers = [_number(rng) for _ in range(3)]
    doing, be = _verb(rng.choice(words.doings)).form(numbers[0], tense), _BE[tense][numbers[1]]
    kind = rng.choice(("verbs", "after_be", "with_object"))
    act, manner = rng.choice(words.acts), rng.choice(words.manners)
    main = {
        "verbs": f"{{1}} {{predicate}} to {act} {{2}}",
        "after_be": f"{{1}} {be} {{predicate}} to {act} {{2}}",
        "with_object": f"{{1}} {{predicate}} {{2}} to be {manner}",
    }[kind]
    nouns = words.people, words.people, words.people if kind == "with_object" else words.things
    predicates = [rng.choice(each) for each in getattr(words, kind)]
    if kind != "after_be":
        predicates = [_verb(each).form(numbers[1], tense) for each in predicates]
    around = [f" {word} {_phrase(nouns, _number(rng), rng)}" for word, nouns in words.surroundings.items()]
    rng.shuffle(around)
    return _Frame(
        pattern=rng.choice(_JOINED).format(context=f"{{0}} {doing}{{surroundings}}", main=main),
        phrases=tuple(_phrase(each, number, rng) for each, number in zip(nouns, numbers, strict=True)),
        surroundings=tuple(around),
        predicates=(predicates[0], predicates[1]),
    )


def _verb(forms: str) -> Verb:
    return Verb(*forms.split())


def _number(rng: Random) -> Number:
    return rng.choice(("singular", "plural"))


def _phrase(nouns: Sequence[str], number: Number, rng: Random) -> str:
    noun = rng.choice(nouns)
    return f"{rng.choice(DETERMINERS[number])} {noun if number == 'singular' else noun + 's'}"
