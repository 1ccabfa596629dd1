"""Every noise hits the asked share of what it may touch, nothing else, and the same in every run."""

from collections import Counter
from random import Random
from unicodedata import normalize

import pytest
from datasets import ClassLabel, Dataset, Features, Value
from hypothesis import given, settings
from hypothesis import strategies as st

from rosewood.errors import DataError
from rosewood.words.noise import KEYBOARDS, NOISES, noisy, typos

TEXT = "Wonderful acting, although the PLOT doesn't hold (nothing new) under 2nd well-known scrutiny."
CONTRACTED = f"{TEXT} It's clear we can't say they aren't bad; I'm sure it is fun, you will see, and we don't mind it."
NESTED = [kind for kind in NOISES if kind != "typos"]


def slip_kind(word: str, mistyped: str) -> str:
    """Which of the four slips turned one word into the other, found by trying all of them."""
    spots = range(1, len(word))
    if any(word[:i] + word[i + 1 :] == mistyped for i in spots):
        return "drop"
    if any(mistyped[:i] + mistyped[i + 1 :] == word for i in range(1, len(mistyped))):
        return "insert"
    if any(word[:i] + word[i + 1] + word[i] + word[i + 2 :] == mistyped for i in spots[:-1]):
        return "swap"
    differing = [(a, b) for a, b in zip(word, mistyped, strict=True) if a != b]
    assert len(differing) == 1 and differing[0][1].lower() in KEYBOARDS[0][differing[0][0].lower()]
    return "key"


def test_rate_one_mistypes_every_plain_long_word_and_nothing_else() -> None:
    for seed in range(50):
        for word, mistyped in zip(TEXT.split(" "), typos(TEXT, 1, Random(seed)).split(" "), strict=True):
            plain = word.strip("(),.")
            if plain in {"Wonderful", "acting", "although", "PLOT", "hold", "nothing", "under", "scrutiny"}:
                assert slip_kind(plain, mistyped.strip("(),."))
                assert mistyped.strip("(),.")[0] == plain[0]
                assert word.replace(plain, "_") == mistyped.replace(mistyped.strip("(),."), "_")
            else:
                assert mistyped == word


@pytest.mark.parametrize(
    "text",
    [
        "don't can't well-known",
        "B2Bsales 2021 h4ck",
        "snake_case @user_name @mention #topic",
        "http://some.where/x",
        "a an the",
        "[MASK] <html>",
        "e\u0301te\u0301",  # three letters
        "",
        "   \n ",
    ],
)
def test_words_with_non_letters_and_short_words_are_untouched(text: str) -> None:
    assert typos(text, 1, Random(0)) == text


def test_share_and_mix_of_slips() -> None:
    words = ["language"] * 20_000
    mistyped = typos(" ".join(words), 0.3, Random(0)).split()
    kinds = Counter(slip_kind(a, b) for a, b in zip(words, mistyped, strict=True) if a != b)
    assert sum(kinds.values()) / len(words) == pytest.approx(0.3, abs=0.01)
    assert set(kinds) == {"swap", "drop", "insert", "key"}
    for count in kinds.values():
        assert count / kinds.total() == pytest.approx(0.25, abs=0.03)


@pytest.mark.parametrize("word", ["aaaa", "жжжж", "ßßßß", "映画映画"])
def test_a_chosen_word_always_changes(word: str) -> None:
    for seed in range(20):
        mistyped = typos(word, 1, Random(seed))
        assert mistyped != word and mistyped[0] == word[0]


def test_capitals_stay_capitals() -> None:
    assert all(typos("LANGUAGE", 1, Random(seed)).isupper() for seed in range(50))


def test_marks_stay_with_their_letters() -> None:
    plain, marked = ({typos(text, 1, Random(seed)) for seed in range(50)} for text in ("étés", "e\u0301te\u0301s"))
    assert {normalize("NFC", text) for text in marked} == plain and len(plain) > 10


def test_neighbours_of_keys() -> None:
    near = KEYBOARDS[0]
    assert set(near["g"]) == set("fhtyvb")
    assert set(near["q"]) == set("wa")
    assert set(near["p"]) == set("ol")
    assert set(near["m"]) == set("njk")
    for keyboard in KEYBOARDS:
        assert all(key in keyboard[near] for key, nears in keyboard.items() for near in nears)


@given(st.text(), st.floats(0, 1), st.integers())
@settings(max_examples=200, deadline=None)
def test_spaces_and_word_count_survive_any_text(text: str, rate: float, seed: int) -> None:
    changed = typos(text, rate, Random(seed))
    assert len(changed.split()) == len(text.split())
    assert [c for c in changed if c.isspace()] == [c for c in text if c.isspace()]
    assert changed == typos(text, rate, Random(seed))


@pytest.mark.parametrize("kind", NOISES)
@given(text=st.text(), strength=st.floats(0, 1), seed=st.integers())
@settings(max_examples=60, deadline=None)
def test_any_text_takes_any_noise(kind: str, text: str, strength: float, seed: int) -> None:
    changed = NOISES[kind](text, strength, Random(seed))
    changed.encode()  # no half of a character
    assert changed == NOISES[kind](text, strength, Random(seed))
    assert NOISES[kind](text, 0, Random(seed)) == text


@pytest.mark.parametrize("kind", NOISES)
def test_noise_grows_with_strength_on_average(kind: str) -> None:
    def words_left(strength: float) -> float:
        texts = (NOISES[kind](CONTRACTED, strength, Random(seed)) for seed in range(40))
        return sum((Counter(CONTRACTED.split()) & Counter(text.split())).total() for text in texts) / 40

    left = [words_left(strength) for strength in (0, 0.25, 0.5, 0.75, 1)]
    assert left[0] == len(CONTRACTED.split())
    assert left == sorted(left, reverse=True) and len(set(left)) == 5


@pytest.mark.parametrize("kind", ["keyboard", "case", "homoglyphs"])
def test_what_is_touched_stays_touched_when_strength_grows(kind: str) -> None:
    for seed in range(10):
        before = CONTRACTED.split()
        for strength in (0.2, 0.4, 0.6, 0.8, 1):
            after = NOISES[kind](CONTRACTED, strength, Random(seed)).split()
            for weaker, stronger, clean in zip(before, after, CONTRACTED.split(), strict=True):
                assert weaker in (clean, stronger)
            before = after


@pytest.mark.parametrize("kind", NESTED)
def test_share_of_what_is_touched(kind: str) -> None:
    text = "don't PLAY " * 4000
    changed = NOISES[kind](text, 0.3, Random(0))
    touched = {
        "keyboard": sum(word.isupper() and word != "PLAY" for word in changed.split()) / 4000,
        "case": sum(word not in ("don't", "PLAY") for word in changed.split()) / 8000,
        "punctuation": sum(word[-1] in ",.;:!?" for word in changed.split()) / 8000,
        "homoglyphs": sum(not word.isascii() for word in changed.split()) / 8000,
        "dropped_words": 1 - len(changed.split()) / 8000,
        "contractions": changed.count("do not") / 4000,
    }
    assert touched[kind] == pytest.approx(0.3, abs=0.02)


def test_strength_one_by_hand() -> None:
    def full(kind: str, text: str) -> set[str]:
        return {NOISES[kind](text, 1, Random(seed)) for seed in range(200)}

    assert full("keyboard", "“Maps!” a map 4you") == {
        f"“{slip}!” a map 4you"
        for at, letter in enumerate("Maps")
        if at
        for slip in ("Maps"[:at] + near + "Maps"[at + 1 :] for near in KEYBOARDS[0][letter])
    }
    assert full("case", "an 映画 42") == {f"{word} 映画 42" for word in ("AN", "An", "aN")}
    assert full("punctuation", "Well, (3.5) it 's . Don't") == {
        f"Well 3.5 it{one} 's Don't{other}" for one in ",.;:!?" for other in ",.;:!?"
    }
    assert full("homoglyphs", "bab, 123 bbb") == {"bаb, 123 bbb"}
    assert full("dropped_words", "one, two (three)!") == {"one, ()!", ", two ()!", ", (three)!"}
    assert full("dropped_words", "alone.") == {"alone."}
    assert full("contractions", "It's so. We do not know, don’t we? CAN'T!") == {
        "It is so. We don't know, do not we? CANNOT!"
    }


def test_numbers_and_inner_marks_keep_their_points() -> None:
    text = "3.5 of 1,000 at 10:30, a.m."
    for seed in range(50):
        changed = NOISES["punctuation"](text, 1, Random(seed))
        assert "3.5" in changed and "1,000" in changed and "10:30" in changed and changed.endswith("a.m")


def test_case_only_changes_case() -> None:
    for seed in range(20):
        assert NOISES["case"](CONTRACTED, 0.7, Random(seed)).lower() == CONTRACTED.lower()


def test_dropping_keeps_order_and_one_word() -> None:
    for seed in range(20):
        kept = [int(word) for word in NOISES["dropped_words"]("1 2 3 4 5 6 7 8 9", 0.5, Random(seed)).split()]
        assert kept == sorted(kept)
        assert len(NOISES["dropped_words"]("1 2 3 4 5 6 7 8 9", 1, Random(seed)).split()) == 1


def pairs() -> Dataset:
    features = Features({"id": Value("int64"), "one": Value("string"), "two": Value("string"), "label": ClassLabel(2)})
    rows = {"id": list(range(20)), "one": [CONTRACTED] * 20, "two": [CONTRACTED] * 20, "label": [0, 1] * 10}
    return Dataset.from_dict(rows, features=features)


@pytest.mark.parametrize("kind", NOISES)
def test_only_the_text_fields_change(kind: str) -> None:
    dataset = pairs()
    changed = noisy(dataset, ["one", "two"], kind, 0.5, seed=3)
    assert changed.features == dataset.features
    assert changed["id"][:] == dataset["id"][:] and changed["label"][:] == dataset["label"][:]
    assert changed["one"][:] != dataset["one"][:] and changed["two"][:] != dataset["two"][:]
    assert dataset["one"][:] == [CONTRACTED] * 20
    assert noisy(dataset, ["two"], kind, 0.5, seed=3)["one"][:] == dataset["one"][:]


@pytest.mark.parametrize("kind", NOISES)
def test_noise_depends_on_seed_and_index_only(kind: str) -> None:
    dataset = pairs()
    changed = noisy(dataset, ["one", "two"], kind, 0.5, seed=3)
    assert changed.to_dict() == noisy(dataset, ["one", "two"], kind, 0.5, seed=3).to_dict()
    # A row's noise does not depend on the rows before or after it.
    other = dataset.map(lambda row, i: {"one": row["one"] if i == 7 else "Something quite different"},
                        with_indices=True)  # fmt: skip
    assert noisy(other, ["one", "two"], kind, 0.5, seed=3)[7] == changed[7]
    assert noisy(dataset.select(range(8)), ["one", "two"], kind, 0.5, seed=3)[7] == changed[7]
    # Equal texts in other rows, in the other field or under another seed get noise of their own.
    assert len(set(changed["one"])) > 10
    assert changed["one"][:] != changed["two"][:]
    assert changed["one"][:] != noisy(dataset, ["one", "two"], kind, 0.5, seed=4)["one"][:]


def test_fixed_output_guards_published_figures() -> None:
    dataset = Dataset.from_dict({"text": ["a gripping film with wonderful acting"], "label": [1]})
    assert noisy(dataset, ["text"], "typos", 1.0, seed=0)["text"][0] == "a grippig filmz wimth wonderfuzl avting"


def test_unknown_kind_and_bad_strength() -> None:
    with pytest.raises(DataError, match="unknown noise: typo; did you mean typos"):
        noisy(pairs(), ["one"], "typo", 0.1, 0)
    with pytest.raises(DataError, match="from 0 to 1; got 30"):
        noisy(pairs(), ["one"], "typos", 30, 0)
