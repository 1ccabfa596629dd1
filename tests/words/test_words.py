"""Texts come apart into words and together again without losing a character."""

from hypothesis import given
from hypothesis import strategies as st

from rosewood.words.text import BETWEEN_SPACES, WORD, Words, with_case_of


@given(st.text(), st.sampled_from([WORD, BETWEEN_SPACES]))
def test_nothing_is_lost(text: str, pattern: str) -> None:
    words = Words.split(text, pattern, ["[SEP]"])
    assert words.join(words.words) == text
    assert len(words.gaps) == len(words.words) + 1
    assert not any(map(str.isspace, "".join(words.words)))


def test_words_and_gaps() -> None:
    words = Words.split("  It's a well-known (and silly) film_1, isn’t it?")
    assert words.words == ("It's", "a", "well-known", "and", "silly", "film", "1", "isn’t", "it")
    assert words.join([*words.words[:4], "SILLY", *words.words[5:]]).startswith("  It's a well-known (and SILLY) film")
    assert Words.split("a, b.", BETWEEN_SPACES).words == ("a,", "b.")


def test_marks_belong_to_their_letters() -> None:
    assert Words.split("हिन्दी में, cafe\N{COMBINING ACUTE ACCENT} 电影").words == (
        "हिन्दी",
        "में",
        "cafe\N{COMBINING ACUTE ACCENT}",
        "电影",
    )


def test_left_out_words_take_a_space_with_them() -> None:
    words = Words.split("one two, three.")
    assert words.join(["", "two", "three"]) == "two, three."
    assert words.join(["one", "", "three"]) == "one, three."
    assert words.join(["one", "two", ""]) == "one two,."
    assert words.join(["", "", ""]) == ",."


def test_protected_strings_and_the_rest_behind_the_end() -> None:
    assert Words.split("[SEP] a [MASK] b", protected=["[SEP]", "[MASK]"]).words == ("a", "b")
    # Also within what has no space in it.
    words = Words.split("x[SEP]y z", BETWEEN_SPACES, ["[SEP]"])
    assert words.words == ("x", "y", "z") and words.gaps == ("", "[SEP]", " ", "")
    words = Words.split("one two three", end=5)
    assert words.words == ("one", "two") and words.gaps[-1] == " three"


def test_case() -> None:
    assert [with_case_of("fine", like) for like in ("good", "Good", "GOOD", "I", "mcDonald")] == [
        "fine",
        "Fine",
        "FINE",
        "Fine",
        "fine",
    ]
