"""Every contraction expands and comes back, in any case and spelling, and what only looks like one stays."""

import pytest

from rosewood.words.noise import CONTRACTION, LONG_FORMS, other_form


def swapped(text: str) -> str:
    return CONTRACTION.sub(lambda match: other_form(match[0]), text)


@pytest.mark.parametrize("short", LONG_FORMS)
def test_every_form_goes_there_and_back(short: str) -> None:
    long = LONG_FORMS[short]
    assert swapped(f"{short} so") == f"{long} so"
    assert swapped(f"{long} so") == f"{short} so"
    assert swapped(f"{short.upper()} so") == f"{long.upper()} so"
    capital = f"{short[0].upper()}{short[1:]} so"
    assert swapped(swapped(capital)) == capital


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Don’t go", "Do not go"),
        ("it does n't and it 's", "it does not and it is"),
        ("we wo n't , you ca n't", "we will not , you cannot"),
        ("you can not know", "you can't know"),
        ("I'm here, i'm there", "I am here, i am there"),
        ("That is what it is.", "That's what it is."),
        ("they haven't been", "they have not been"),
    ],
)
def test_how_texts_are_written(text: str, expected: str) -> None:
    assert swapped(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "it's been long, he's got it, she's had enough",  # has, not is
        "the film's end, Anna's, the 1990's",  # possessors
        "I'd go, we ain't",  # more than one long form
        "bit's éit's hit's",  # other words
        "iſ not so, İt is so",  # letters that only lower-case to English ones
        "this is not.",  # nothing follows
    ],
)
def test_what_stays(text: str) -> None:
    assert swapped(text) == text
