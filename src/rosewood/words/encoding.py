"""One word for every cluster of synonyms, so that a word and most of its substitutes become the same.

The clusters are those of Wang, Jin, Yang and He (2021), "Natural Language Adversarial Defense through Synonym
Encoding", Algorithm 1. It reads words from the most frequent one on, and gives each the code of its nearest synonym
that has one, so that clusters grow along chains of synonyms.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence

from rosewood.words.text import Words, with_case_of

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
