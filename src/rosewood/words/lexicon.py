"""Lexicons: which words may replace which, for attacks and for adversarial training, and codes for whole clusters.

One word for every cluster of synonyms makes a word and most of its substitutes the same. The clusters are those of
Wang, Jin, Yang and He (2021), "Natural Language Adversarial Defense through Synonym Encoding", Algorithm 1. It reads
words from the most frequent one on, and gives each the code of its nearest synonym that has one, so that clusters grow
along chains of synonyms.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from rosewood.data.files import file_digest
from rosewood.errors import AbsentError, DataError, closest
from rosewood.results.files import cache_folder, fingerprint_of, write_whole
from rosewood.words.text import Words, with_case_of
from rosewood.words.wordnet import dictionary_version

COUNTER_FITTED = "wordsub/counterfitted_neighbors.json"
ROGET = Path(__file__).parent / "roget.txt"
"""A word and its substitutes a line, written by benchmarks/roget.py."""
MOST = 8
"""Substitutes of a word, as many as the counter-fitted neighbours have."""


@dataclass(frozen=True)
class Lexicon:
    """Substitutes of words, best first; most lexicons are in lower case.

    `Lexicon.named` finds one by name, `Lexicon.load` reads a JSON file, `Lexicon.of` takes a mapping.

    Example:
        >>> lexicon = Lexicon.of({"good": ["great", "fine"]})
        >>> lexicon.substitutes("good")
        ('great', 'fine')
        >>> lexicon.substitutes("unknown")
        ()
    """

    name: str
    entries: Mapping[str, tuple[str, ...]]
    left_out: int = 0
    """Pairs that `without` removed."""

    @classmethod
    def of(cls, entries: Mapping[str, Sequence[str]], name: str = "lexicon") -> Lexicon:
        """A lexicon from a mapping.

        Args:
            entries: word -> substitutes, best first.
            name: how results call it.

        Raises:
            DataError: the entries are not such a mapping.
        """
        if not isinstance(entries, Mapping):
            raise DataError(f"{name}: expected word -> list of substitutes, got {type(entries).__name__}")
        return cls(name, {word: _checked(name, word, found) for word, found in entries.items()})

    @classmethod
    def load(cls, path: str | Path) -> Lexicon:
        """Read a JSON object of word -> list of substitutes."""
        path = Path(path)
        try:
            entries = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            raise AbsentError(f"{path}: no such file, expected a JSON object of word -> list of substitutes") from None
        except (OSError, ValueError, RecursionError) as error:
            raise DataError(f"{path} cannot be read as JSON: {error}") from None
        return cls.of(entries, str(path))

    @classmethod
    def named(cls, name: str | None = None, data_dir: str | Path | None = None) -> Lexicon:
        """A lexicon by its name, its JSON file, or the folder of a wordnet in WN-LMF.

        Args:
            name: one of `rosewood list lexicons`, a .json file, or a folder. Without a name: counter-fitted where the
                data folder has it, as in the papers, otherwise roget.
            data_dir: the data folder; by default the one that ROSEWOOD_DATA names.

        Raises:
            DataError: there is no such lexicon, or it needs files or packages that are not there.
        """
        if name is None:
            return _default(data_dir)
        if name in _BY_NAME:
            return _BY_NAME[name](data_dir)
        if Path(name).is_dir():
            return cls.omw(name)
        if Path(name).suffix != ".json":
            check_lexicon(name)
        return cls.load(name)

    @classmethod
    def counter_fitted(cls, data_dir: str | Path | None = None) -> Lexicon:
        """At most 8 counter-fitted neighbours of a word (Alzantot et al. 2018, Jia et al. 2019), as published.

        25,591 of the file's 49,975 words have any.
        """
        folder = data_dir or os.environ.get("ROSEWOOD_DATA")
        if not folder:
            raise AbsentError(
                f"the counter-fitted neighbours are the file {COUNTER_FITTED} of the data folder: "
                "name the folder with --data-dir or ROSEWOOD_DATA"
            )
        return replace(cls.load(Path(folder) / COUNTER_FITTED), name="counter-fitted")

    @classmethod
    def wordnet(cls, data_dir: str | Path | None = None, folder: str | Path | None = None) -> Lexicon:
        """Synonyms of WordNet, first senses first, in the form of the word; less the antonyms of the data folder."""
        from rosewood.words import wordnet
        from rosewood.words.wordnet import inflected

        found = Path(folder) if folder else wordnet.find_wordnet()
        made_of = (wordnet.english_fingerprint(found), str(MOST))
        path = built_once("wordnet", made_of, lambda: inflected(wordnet.english_synonyms(found), MOST))
        return replace(cls.load(path), name="wordnet").without(antonyms(data_dir))

    @classmethod
    def roget(cls, data_dir: str | Path | None = None) -> Lexicon:
        """Words of one paragraph in Roget's thesaurus that MiniLM finds similar, without the data folder's antonyms."""
        lines = ROGET.read_text(encoding="utf-8").splitlines()
        entries = {word: found for word, *found in map(str.split, lines)}
        return cls.of(entries, "roget").without(antonyms(data_dir))

    @classmethod
    def omw(cls, folder: str | Path) -> Lexicon:
        """Synonyms of another language from WN-LMF files in a folder, such as those of the Open Multilingual Wordnet.

        Needs rosewood[lexicon]. Words are in the dictionary's form.
        """
        from rosewood.words.wordnet import lmf_fingerprint, lmf_synonyms

        made_of = (lmf_fingerprint(Path(folder)), str(MOST))
        path = built_once("omw", made_of, lambda: lmf_synonyms(Path(folder), MOST))
        return replace(cls.load(path), name=str(folder))

    def limited(self, most: int) -> Lexicon:
        """The lexicon with the first substitutes of each word, at most so many."""
        return replace(self, entries={word: found[:most] for word, found in self.entries.items()})

    def without(self, pairs: Collection[Pair]) -> Lexicon:
        """The lexicon without these pairs, in either order."""
        kept = {
            word: tuple(each for each in found if frozenset((word, each)) not in pairs)
            for word, found in self.entries.items()
        }
        left_out = sum(map(len, self.entries.values())) - sum(map(len, kept.values()))
        return replace(self, entries=kept, left_out=self.left_out + left_out)

    def pairs(self) -> Iterator[Pair]:
        """Each word with each of its substitutes; a pair comes twice if both replace each other."""
        return (frozenset((word, each)) for word, found in self.entries.items() for each in found)

    def substitutes(self, word: str) -> tuple[str, ...]:
        """The words that may replace this one; none if it is not known."""
        return self.entries.get(word, ())

    @property
    def known_as(self) -> str | None:
        """Its name, where that is one that `Lexicon.named` takes: a lexicon's, a file's or a folder's."""
        return self.name if self.name in _BY_NAME or Path(self.name).exists() else None

    @cached_property
    def fingerprint(self) -> str:
        """A hash of all entries: figures are comparable only where it is the same."""
        return fingerprint_of({word: list(found) for word, found in self.entries.items() if found}, ordered=False)


def lexicon_names() -> list[str]:
    """The names that `Lexicon.named` knows."""
    return list(_BY_NAME)


def check_lexicon(name: str | None) -> None:
    """Refuse what is neither the name of a lexicon nor a file."""
    if name is not None and name not in _BY_NAME and not Path(name).exists():
        raise DataError(
            f"unknown lexicon {name!r}: {closest(name, lexicon_names())} Or name a JSON file, or the folder of a "
            "wordnet in WN-LMF."
        )


def lexicon_identity(name: str | None = None, data_dir: str | Path | None = None) -> str:
    """A name for what `Lexicon.named` would give, without building it: with the hash of a lexicon that is a file."""
    folder = data_dir or os.environ.get("ROSEWOOD_DATA")
    published = Path(folder) / COUNTER_FITTED if folder else None
    file = published if name in (None, "counter-fitted") else Path(name)
    if file is not None and file.is_file():
        return f"{name or 'counter-fitted'} {file_digest(file)}"
    if file is not None and file.is_dir():
        from rosewood.words.wordnet import lmf_fingerprint

        return f"{name} {lmf_fingerprint(file)}"
    return name or "roget"


def _default(data_dir: str | Path | None) -> Lexicon:
    try:
        return Lexicon.counter_fitted(data_dir)
    except AbsentError:
        return Lexicon.roget(data_dir)


def _checked(name: str, word: Any, found: Any) -> tuple[str, ...]:
    if not isinstance(word, str) or not word or isinstance(found, str) or not isinstance(found, Sequence):
        raise DataError(f"{name}, entry {word!r}: expected a word and a list of substitutes, got {found!r}")
    bad = [each for each in found if not isinstance(each, str) or not each or any(map(str.isspace, each))]
    if bad:
        raise DataError(f"{name}, entry {word!r}: a substitute must be a single word, got {bad[0]!r}")
    return tuple(each for each in dict.fromkeys(found) if each != word)


_BY_NAME = {"counter-fitted": Lexicon.counter_fitted, "wordnet": Lexicon.wordnet, "roget": Lexicon.roget}


def built_once(name: str, made_of: Iterable[str], build: Callable[[], Mapping[str, Sequence[str]]]) -> Path:
    """The JSON file of these entries; built if there is none of the same code and ingredients."""
    code = Path(__file__).with_name("wordnet.py").read_text(encoding="utf-8")
    parts = [*made_of, dictionary_version(), code]
    path = cache_folder() / f"{name}-{fingerprint_of(parts)}.json"
    if not path.exists():
        write_whole(path, json.dumps(build(), ensure_ascii=False))
    return path


FILES = "wordsub/*antonyms.txt"
Pair = frozenset[str]
"""Two words, in no order."""


def antonyms(data_dir: str | Path | None = None) -> frozenset[Pair]:
    """The pairs in the antonym files of the data folder, which are those of counter-fitting (Mrkšić et al. 2016)."""
    folder = data_dir or os.environ.get("ROSEWOOD_DATA")
    files = sorted(Path(folder).glob(FILES)) if folder else []
    return frozenset(pair for file in files for pair in read_pairs(file))


def read_pairs(path: Path) -> list[Pair]:
    """Two words per line."""
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{path} cannot be read as text: {error}") from None
    pairs = []
    for number, line in enumerate(lines, start=1):
        words = line.split()
        if len(words) not in (0, 2):
            raise DataError(f"{path}, line {number}: expected two words, got {line!r}")
        if words:
            pairs.append(frozenset(words))
    return pairs


Entries = Mapping[str, Sequence[str]]
"""Word -> its substitutes, nearest first."""
COMMON = 15
"""So many of the most frequent words have a code of their own, as in the official code."""


def word_codes(entries: Entries, counts: Mapping[str, int], fixed: Collection[str] = ()) -> dict[str, str]:
    """The clusters of a lexicon's words, each by its most frequent word.

    A word that comes up and has no code takes that of its nearest substitute that has one, or else is its own code. Its
    substitutes without a code then take the same.

    Args:
        entries: Word -> substitutes, nearest first.
        counts: How often each word occurs in the training texts; words that do not occur come last.
        fixed: Words that keep a code of their own, beside the most common ones. Other words may take it.

    Returns:
        Word -> the word that is written in its place; those that stay are left out.

    Example:
        >>> common = {f"the{number}": 9 for number in range(COMMON)}
        >>> word_codes({"film": ["movie"], "movie": ["film", "cinema"]}, common | {"movie": 3})
        {'film': 'movie', 'cinema': 'movie'}
    """
    words = dict.fromkeys(word for pair in entries.items() for word in (pair[0], *pair[1]))
    ranked = sorted(counts, key=lambda word: -counts[word])
    own = {*fixed, *ranked[:COMMON]}
    codes = {word: word for word in own}
    for word in sorted(words, key=lambda word: -counts.get(word, 0)):
        if word not in codes:
            near = entries.get(word, ())
            codes[word] = next((codes[other] for other in near if other in codes), word)
            for other in near:
                codes.setdefault(other, codes[word])
    return {word: code for word, code in codes.items() if code != word}


def word_counts(texts: Iterable[str]) -> Counter[str]:
    """How often each word occurs, in lower case."""
    return Counter(word.lower() for text in texts for word in Words.split(text).words)


def encoded(text: str, codes: Mapping[str, str]) -> str:
    """The text with its words' codes in place of them, in their case.

    Example:
        >>> encoded("Movies I like!", {"movies": "film"})
        'Film I like!'
    """
    split = Words.split(text)
    return split.join([with_case_of(codes.get(word.lower(), word), word) for word in split.words])


def between_codes(entries: Entries, codes: Mapping[str, str], counts: Mapping[str, int]) -> dict[str, tuple[str, ...]]:
    """What a substitution may still do to an encoded text: code -> other codes, the likeliest first.

    Example:
        >>> between_codes({"film": ["movie", "show"], "movie": ["film"]}, {"movie": "film"}, {})
        {'film': ('show',)}
    """
    found: dict[str, Counter[str]] = defaultdict(Counter)
    for word, near in entries.items():
        own = codes.get(word, word)
        for other in {codes.get(other, other) for other in near} - {own}:
            found[own][other] += 1 + counts.get(word, 0)
    return {own: tuple(sorted(others, key=lambda other: (-others[other], other))) for own, others in found.items()}
