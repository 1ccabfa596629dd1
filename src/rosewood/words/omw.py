"""Synonyms of other languages from WN-LMF files, the format of the Open Multilingual Wordnet's releases.

A folder holds the wordnet of one language, as an unpacked release does (omw-fr/omw-fr.xml). The synonyms of a word are
the other single words of its synsets, first senses first, as in `wordnet`. They are in the dictionary's form: no
inflection is known for other languages, so an inflected word has no substitutes.
"""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path
from typing import Any
from unicodedata import normalize

import xxhash

from rosewood.errors import AbsentError, DataError


def files_of(folder: Path) -> list[Path]:
    """The WN-LMF files of a folder and those below it."""
    files = sorted(folder.rglob("*.xml"))
    if not files:
        raise DataError(
            f"{folder} has no WN-LMF file (*.xml): expected the unpacked wordnet of one language, such as omw-fr"
        )
    return files


def fingerprint(folder: Path) -> str:
    """A hash of the files that are read."""
    digest = xxhash.xxh3_128()
    for file in files_of(folder):
        digest.update(file.read_bytes())
    return digest.hexdigest()


def synonyms(folder: Path, limit: int) -> dict[str, list[str]]:
    """Word -> at most so many synonyms; in small letters, as words are looked up."""
    wordnets = [wordnet for file in files_of(folder) for wordnet in _load(file)]
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
