"""Synonyms from the dictionary files of WordNet 3, as Debian's wordnet-base or an NLTK corpus folder has them.

A synset is a set of words with one meaning; the synonyms of a word are the other single words of its synsets. Names and
symbols, which are written with capitals, are left out: "he" is not helium.
"""

from __future__ import annotations

import os
import re
import zipfile
from collections.abc import Iterator, Sequence
from importlib.resources.abc import Traversable
from pathlib import Path

import xxhash

from rosewood.errors import AbsentError, DataError
from rosewood.words.inflection import Lemma, Synonym

FILES = {"NOUN": "noun", "VERB": "verb", "ADJ": "adj", "ADV": "adv"}
DEBIAN = Path("/usr/share/wordnet")
_WORD = re.compile(r"[a-z]{2,}(?:-[a-z]+)*")


def synonyms(folder: Traversable) -> dict[Lemma, list[Synonym]]:
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
        plain = (re.sub(r"\((?:a|p|ip)\)$", "", word) for word in words)  # where an adjective may stand
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


def fingerprint(folder: Traversable) -> str:
    """A hash of the files that are read."""
    digest = xxhash.xxh3_128()
    for ending in FILES.values():
        for kind in ("index", "data"):
            digest.update((folder / f"{kind}.{ending}").read_bytes())
    return digest.hexdigest()
