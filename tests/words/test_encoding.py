"""Clusters of synonyms, against slow transcriptions and plain facts."""

from itertools import combinations
from random import Random

import pytest

from rosewood.words.lexicon import COMMON, between_codes, encoded, word_codes, word_counts

Entries = dict[str, list[str]]


def made_up(seed: int) -> tuple[Entries, dict[str, int], set[str]]:
    """A lexicon whose entries are not symmetric, counts without ties, and a few fixed words."""
    rng = Random(seed)
    words = [f"w{number}" for number in range(rng.randrange(20, 60))]
    entries = {word: rng.sample([other for other in words if other != word], rng.randrange(0, 5)) for word in words}
    counts = dict(zip(rng.sample(words, len(words)), range(1, 1 + len(words)), strict=True))
    return entries, counts, set(rng.sample(words, 2))


def official(entries: Entries, counts: dict[str, int], common: set[str]) -> dict[str, int]:
    """The official code's synonyms_encode_v1: codes are numbers, and the distance of a neighbour is its rank."""
    count, codes = 1, {}
    order = sorted(counts, key=lambda word: counts[word], reverse=True)
    for word in [*(each for each in order if each in common), *(each for each in order if each not in common)]:
        if word in codes:
            continue
        if word in common:
            codes[word] = count
            count += 1
            continue
        has_neighbour, nearest = False, float("inf")
        for rank, neighbour in enumerate(entries[word]):
            if neighbour in codes:
                if rank < nearest:
                    nearest = rank
                    codes[word] = codes[neighbour]
                has_neighbour = True
        if has_neighbour:
            for neighbour in entries[word]:
                if neighbour not in codes:
                    codes[neighbour] = codes[word]
        else:
            codes[word] = count
            for neighbour in entries[word]:
                codes[neighbour] = count
            count += 1
    return codes


def common_words(counts: dict[str, int]) -> set[str]:
    return set(sorted(counts, key=lambda word: -counts[word])[:COMMON])


@pytest.mark.parametrize("seed", range(40))
def test_clusters_are_those_of_the_official_code(seed: int) -> None:
    entries, counts, _ = made_up(seed)
    codes = word_codes(entries, counts)
    numbers = official(entries, counts, common_words(counts))
    for one, two in combinations(counts, 2):
        assert (codes.get(one, one) == codes.get(two, two)) == (numbers[one] == numbers[two]), (one, two)


@pytest.mark.parametrize("seed", range(20))
def test_a_code_is_its_own_code_and_fixed_words_keep_theirs(seed: int) -> None:
    entries, counts, fixed = made_up(seed)
    codes = word_codes(entries, counts, fixed)
    assert not codes.keys() & set(codes.values())
    assert not codes.keys() & {*fixed, *common_words(counts)}


@pytest.mark.parametrize("seed", range(20))
def test_a_substitution_in_a_text_changes_its_code_by_what_between_codes_says(seed: int) -> None:
    entries, counts, fixed = made_up(seed)
    codes = word_codes(entries, counts, fixed)
    left = between_codes(entries, codes, counts)
    for word, found in entries.items():
        own = encoded(word, codes)
        for other in found:
            assert encoded(other, codes) == own or encoded(other, codes) in left[own]


def test_texts_keep_their_case_and_all_else() -> None:
    codes = {"movies": "film", "great": "good"}
    assert encoded("Movies, GREAT  movies...\nnot great-looking", codes) == "Film, GOOD  film...\nnot great-looking"
    assert encoded("", codes) == ""
    assert word_counts(["Good film", "good!"]) == {"good": 2, "film": 1}
