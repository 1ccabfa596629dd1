"""Synonyms from wordnets: of English from WordNet 3, in every form of a word, of other languages from WN-LMF files.

A synset is a set of words with one meaning; the synonyms of a word are the other single words of its synsets, first
senses first. Names and symbols, which are written with capitals, are left out: "he" is not helium.

WordNet 3 is a folder of dictionary files, as Debian's wordnet-base or an NLTK corpus has them. WN-LMF is the format of
the Open Multilingual Wordnet's releases; a folder holds the wordnet of one language, as an unpacked release does
(omw-fr/omw-fr.xml). Its words are in the dictionary's form: no inflection is known for other languages, so an inflected
word has no substitutes.
"""

from __future__ import annotations

import os
import re
import zipfile
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cache
from importlib import import_module
from importlib.resources.abc import Traversable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple
from unicodedata import normalize

import xxhash

from rosewood.errors import AbsentError, DataError

FILES = {"NOUN": "noun", "VERB": "verb", "ADJ": "adj", "ADV": "adv"}
DEBIAN = Path("/usr/share/wordnet")
_WORD = re.compile(r"[a-z]{2,}(?:-[a-z]+)*")


def english_synonyms(folder: Traversable) -> dict[Lemma, list[Synonym]]:
    """The synonyms of every lower-case single word, by part of speech; the rank is the number of the sense."""
    found: dict[Lemma, list[Synonym]] = {}
    for part, ending in FILES.items():
        synsets = dict(_synsets(folder / f"data.{ending}"))
        for word, senses in _index(folder / f"index.{ending}"):
            own = [(rank, synsets[sense]) for rank, sense in enumerate(senses, start=1) if sense in synsets]
            ranked = _others(word, [(rank, synset) for rank, synset in own if word in synset])
            if ranked:
                found[Lemma(word, part)] = ranked
    return found


def _others(word: str, senses: Sequence[tuple[int, Sequence[str]]]) -> list[Synonym]:
    """The other words, each with the first sense that it shares."""
    ranked: dict[str, int] = {}
    for rank, synset in senses:
        for other in synset:
            ranked.setdefault(other, rank)
    return [Synonym(rank, other) for other, rank in ranked.items() if other != word]


def find_wordnet() -> Traversable:
    """The folder of the dictionary files: WNSEARCHDIR, WNHOME, NLTK's data folders, or Debian's."""
    for folder in _places():
        if (folder / "index.noun").is_file():
            return folder
    raise AbsentError(
        "WordNet was not found: install Debian's wordnet-base or NLTK's corpus (python -m nltk.downloader wordnet), "
        "or name the folder that has index.noun and data.noun in WNSEARCHDIR"
    )


def _places() -> Iterator[Traversable]:
    if named := os.environ.get("WNSEARCHDIR"):
        yield Path(named)
    if home := os.environ.get("WNHOME"):
        yield Path(home) / "dict"
    own = [Path(each) for each in os.environ.get("NLTK_DATA", "").split(os.pathsep) if each]
    usual = [Path.home() / "nltk_data", *(Path(f"/usr/{part}/nltk_data") for part in ("share", "local/share", "lib"))]
    for folder in (*own, *usual):
        yield folder / "corpora" / "wordnet"
        packed = folder / "corpora" / "wordnet.zip"  # NLTK leaves it so
        if packed.is_file():
            yield zipfile.Path(packed, "wordnet/")
    yield DEBIAN


def _synsets(file: Traversable) -> Iterator[tuple[str, list[str]]]:
    """Offset and single lower-case words of each synset: `offset lexfile type count word id word id ... | gloss`."""
    for line in _lines(file):
        fields = line.split(" ")
        words = fields[4 : 4 + 2 * int(fields[3], 16) : 2]
        plain = (re.sub(r"\((?:a|p|ip)\)$", "", word) for word in words)  # where an adjective may be
        yield fields[0], [word for word in plain if _WORD.fullmatch(word)]


def _index(file: Traversable) -> Iterator[tuple[str, list[str]]]:
    """Word and offsets of its synsets, most frequent sense first: `word pos count ... offset offset`."""
    for line in _lines(file):
        word, _, count, *rest = line.split()
        if _WORD.fullmatch(word):
            yield word, rest[-int(count) :]


def _lines(file: Traversable) -> Iterator[str]:
    """The lines after the licence, which is indented."""
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise DataError(f"{file} cannot be read as a dictionary file of WordNet: {error}") from None
    return (line for line in text.splitlines() if line.strip() and not line.startswith(" "))


def english_fingerprint(folder: Traversable) -> str:
    """A hash of the dictionary files that are read."""
    return _hash_of(folder / f"{kind}.{ending}" for ending in FILES.values() for kind in ("index", "data"))


def _lmf_files(folder: Path) -> list[Path]:
    """The WN-LMF files of a folder and those below it."""
    files = sorted(folder.rglob("*.xml"))
    if not files:
        raise DataError(
            f"{folder} has no WN-LMF file (*.xml): expected the unpacked wordnet of one language, such as omw-fr"
        )
    return files


def lmf_fingerprint(folder: Path) -> str:
    """A hash of the WN-LMF files that are read."""
    return _hash_of(_lmf_files(folder))


def lmf_synonyms(folder: Path, limit: int) -> dict[str, list[str]]:
    """Word -> at most so many synonyms; in small letters, as words are looked up."""
    wordnets = [wordnet for file in _lmf_files(folder) for wordnet in _load(file)]
    languages = sorted({wordnet["language"] for wordnet in wordnets})
    if len(languages) > 1:
        raise DataError(f"{folder} has wordnets of {', '.join(languages)}: name the folder of one language")
    members: dict[str, list[str]] = defaultdict(list)  # of a synset
    senses: dict[str, list[str]] = defaultdict(list)  # of a word, first ones first
    for wordnet in wordnets:
        for entry in wordnet.get("entries", []):
            word = _plain(entry["lemma"]["writtenForm"])
            for sense in entry.get("senses", []) if word else []:
                members[sense["synset"]].append(word)
                senses[word].append(sense["synset"])
    found = {
        word: list(dict.fromkeys(other for synset in own for other in members[synset] if other != word))[:limit]
        for word, own in sorted(senses.items())
    }
    return {word: others for word, others in found.items() if others}


def _plain(lemma: str) -> str:
    """A single word in small letters; nothing for what is more than a word, or written in capitals inside."""
    word = normalize("NFC", lemma)
    return "" if any(map(str.isspace, word)) or "_" in word or word[1:] != word[1:].lower() else word.lower()


def _load(file: Path) -> list[Any]:
    try:
        from wn import lmf
    except ImportError:
        raise AbsentError("the package wn is not installed: pip install rosewood[lexicon]") from None
    try:
        return [each for each in lmf.load(file, progress_handler=None)["lexicons"] if "language" in each]
    except (OSError, lmf.LMFError, KeyError, ValueError) as error:
        raise DataError(f"{file} cannot be read as a WN-LMF file: {error}") from None


def _hash_of(files: Iterable[Traversable]) -> str:
    digest = xxhash.xxh3_128()
    for file in files:
        digest.update(file.read_bytes())
    return digest.hexdigest()


BASE = {"NOUN": "NN", "VERB": "VB", "ADJ": "JJ", "ADV": "RB"}
"""Part of speech -> the tag of its base form, in Penn Treebank tags as lemminflect has them."""
Forms = Mapping[str, tuple[str, ...]]
"""Tag -> the spellings of a form, most usual first."""


class Lemma(NamedTuple):
    """A word as a dictionary lists it."""

    word: str
    part: str
    """NOUN, VERB, ADJ or ADV."""


class Synonym(NamedTuple):
    """A word that may replace another of the same part of speech."""

    rank: float
    """The lower the better; comparable over parts of speech."""
    word: str


Synonyms = Mapping[Lemma, Sequence[Synonym]]


def inflected(synonyms: Synonyms, limit: int) -> dict[str, list[str]]:
    """Every form of every lemma, with at most so many synonyms in the same form, best first."""
    found: dict[str, list[Synonym]] = defaultdict(list)
    for lemma, others in synonyms.items():
        for tag, spellings in forms(lemma).items():
            same = [(each.rank, forms(Lemma(each.word, lemma.part)).get(tag, ())) for each in others]
            ranked = [Synonym(rank, theirs[0]) for rank, theirs in same if theirs]
            for spelling in spellings:
                # "put" is the base form first of all, and "film" as a plural is rare.
                if spelling != lemma.word or tag == BASE[lemma.part]:
                    found[spelling] += ranked
    return {word: _best(word, ranked, limit) for word, ranked in sorted(found.items()) if ranked}


def _best(word: str, ranked: Sequence[Synonym], limit: int) -> list[str]:
    ordered = dict.fromkeys(each.word for each in sorted(ranked, key=lambda each: each.rank))
    return [each for each in ordered if each != word][:limit]


@cache
def forms(lemma: Lemma) -> Forms:
    """All forms of a lemma that the dictionary of lemminflect lists; a word it does not know has its base form only."""
    known = _lemminflect().getAllInflections(lemma.word, upos=lemma.part)
    single = {tag: tuple(each for each in spellings if " " not in each) for tag, spellings in known.items()}
    return {**single, BASE[lemma.part]: (lemma.word,)}


def dictionary_version() -> str:
    """The version of lemminflect: another one may know other forms."""
    return str(_lemminflect().__version__)


@cache
def _lemminflect() -> ModuleType:
    try:
        return import_module("lemminflect")
    except ImportError:
        raise AbsentError("the package lemminflect is not installed: pip install rosewood[lexicon]") from None
