"""Each slip makes one small mistake, from the letter it may begin at."""

from collections import Counter
from random import Random
from unicodedata import name

import pytest
import regex

from rosewood.words.noise import (
    HOMOGLYPHS,
    LOOK_ALIKES,
    Slip,
    drop,
    homoglyph,
    insert,
    inside,
    look_alike,
    neighbour_key,
    space,
    swap,
)


@pytest.mark.parametrize(("slip", "length"), [(swap, 6), (drop, 5), (insert, 7), (neighbour_key, 6), (homoglyph, 6)])
def test_lengths_and_the_first_letter(slip: Slip, length: int) -> None:
    words = {slip("planet", Random(seed), 1) for seed in range(100)}
    assert {len(word) for word in words} == {length} and all(word[0] == "p" for word in words)
    free = {slip("planet", Random(seed), 0) for seed in range(100)}
    assert any(word[0] != "p" for word in free)


def test_homoglyphs_look_alike_and_are_not() -> None:
    assert homoglyph("bad", Random(0)) == "bаd" != "bad"
    assert homoglyph("bbb", Random(0)) == "bbb"
    assert all(letter.isascii() != other.isascii() for letter, other in HOMOGLYPHS.items())
    assert all(letter.isupper() == other.isupper() for letter, other in HOMOGLYPHS.items())


def test_signs_look_like_letters() -> None:
    assert {look_alike("hallo", Random(seed)) for seed in range(30)} == {"h@llo", "ha1lo", "hal1o", "hall0"}
    assert look_alike("bed", Random(0)) == "bed" and all(not other.isalpha() for other in LOOK_ALIKES.values())


def test_a_space_is_within_the_word() -> None:
    for first in (0, 1):
        assert {space("bed", Random(seed), first) for seed in range(30)} == {"b ed", "be d"}
    assert space("a", Random(0)) == "a"


@pytest.mark.parametrize("slip", [drop, swap])
def test_a_slip_inside_leaves_both_ends(slip: Slip) -> None:
    words = {inside(slip)("planet", Random(seed), 1) for seed in range(100)}
    assert len(words) > 2 and all(word[0] + word[-1] == "pt" for word in words)
    assert inside(slip)("be", Random(0), 1) == "be"


WORDS = {
    "Cyrillic": "превосходный",
    "Ukrainian": "чудовий",
    "Greek": "υπέροχος",
    "Hebrew": "נפלאות",
    "Arabic": "ممتازون",
    "Devanagari": "हिन्दुस्तानी",
    "Thai": "ยอดเยี่ยม",
    "Hangul": "훌륭합니다",
    "Han": "非常精彩",
    "accents apart": "e\N{COMBINING ACUTE ACCENT}le\N{COMBINING GRAVE ACCENT}ve",
}


@pytest.mark.parametrize("word", WORDS.values(), ids=WORDS)
@pytest.mark.parametrize("slip", [swap, drop, insert, neighbour_key, homoglyph])
def test_every_script_keeps_its_letters_and_marks(slip: Slip, word: str) -> None:
    whole = regex.findall(r"\X", word)
    for seed in range(30):
        changed = regex.findall(r"\X", slip(word, Random(seed), 1))
        assert changed[0] == whole[0]
        if slip is not homoglyph:
            scripts = {name(letter[0]).split()[0] for letter in changed}
            assert scripts == {name(letter[0]).split()[0] for letter in whole}
        alike = [len(changed) - len(whole), sum((Counter(changed) - Counter(whole)).values())]
        assert alike in {swap: [[0, 0]], drop: [[-1, 0]], insert: [[1, 1]]}.get(slip, [[0, 0], [0, 1]])


@pytest.mark.parametrize("word", ["длинный", "φιλος", "ПРИВЕТ", "שלום", "مرحبا"])
def test_keys_and_letters_are_those_of_the_script(word: str) -> None:
    typed = {neighbour_key(word, Random(seed), 0) for seed in range(200)}
    assert len(typed) > 5 and all(each.isupper() == word.isupper() for each in typed)
    inserted = {insert(word, Random(seed), 0) for seed in range(200)}
    assert all(not letter.isascii() for each in typed | inserted for letter in each)


def test_homoglyphs_of_other_scripts() -> None:
    assert homoglyph("рррр", Random(0)).count("p") == 1
    assert homoglyph("ννν", Random(0)).count("v") == 1
    assert homoglyph("שלום", Random(0)) == "שלום"


@pytest.mark.parametrize("slip", [swap, drop, insert, neighbour_key, homoglyph])
def test_short_words_are_no_error(slip: Slip) -> None:
    for word in ("a", "हि", "нe"):
        for first in (0, 1, 2):
            slip(word, Random(0), first)
