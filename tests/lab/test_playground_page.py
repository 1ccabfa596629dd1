"""What the page says, and that it says it as text."""

from __future__ import annotations

import re
from html import unescape

import pytest

from rosewood.lab.playground.app import Playground, answers_html, attack_html, header_html, notice_html
from rosewood.lab.playground.served_runs import Answer, attack_each
from tiny_playground import EVIL, telling_sentence, tiny_playground


@pytest.fixture(scope="module")
def playground(tmp_path_factory: pytest.TempPathFactory) -> Playground:
    return tiny_playground(tmp_path_factory.mktemp("playground"))


def quiet(share: float, words: str) -> None:
    assert 0 <= share <= 1 and words


def attacked(
    playground: Playground, text: str, label: str = "", queries: int | None = 500, attack: str = "pwws"
) -> str:
    return playground.attack([text], "text", attack, playground.choices.lexicon, label, queries, quiet)


def said(html: str) -> str:
    """The text between the tags, with single spaces."""
    return " ".join(unescape(re.sub(r"<[^>]*>", "", html)).split())


def answer(run: str, *probabilities: float, cut: dict[str, int] | None = None) -> Answer:
    return Answer(run, [*probabilities], cut or {}, 128)


def test_probabilities_stand_side_by_side() -> None:
    html = answers_html([answer("plain", 0.9, 0.1), answer("robust", 0.25, 0.75)], ["bad", "good"])
    assert said(html) == (
        "The runs disagree: plain says bad, robust says good. "
        "plain bad 90.0 % good 10.0 % robust bad 25.0 % good 75.0 %"
    )
    assert "width: 90.00%" in html and html.count("class=said") == 2
    assert said(answers_html([answer("a", 0.9, 0.1), answer("b", 0.6, 0.4)], ["bad", "good"])).startswith(
        "All runs say bad."
    )
    assert said(answers_html([answer("a", 0.9, 0.1)], ["bad", "good"])).startswith("a says bad.")


def test_of_many_classes_the_most_probable_of_any_run_are_shown() -> None:
    labels = [f"class {number}" for number in range(20)]
    one, two = [0.0] * 20, [0.0] * 20
    one[3], two[17] = 1.0, 1.0
    text = said(answers_html([answer("a", *one), answer("b", *two)], labels))
    for share in ("class 3 100.0 %", "class 17 0.0 %", "class 3 0.0 %", "class 17 100.0 %"):
        assert text.count(share) == 1
    assert "class 12" not in text
    assert "The 8 most probable of 20 classes." in text


def test_a_text_that_is_cut_off_is_told() -> None:
    html = answers_html([answer("a", 0.9, 0.1, cut={"text": 1234})], ["bad", "good"])
    assert "of the text only the first 1,234 characters fit into 128 tokens; the rest is not read." in said(html)


def test_nothing_that_anybody_typed_is_obeyed(playground: Playground) -> None:
    pages = [
        header_html(EVIL, [EVIL]),
        notice_html(EVIL),
        answers_html([answer(EVIL, 0.9, 0.1)], [EVIL, "good"]),
        playground.answer(EVIL),
        attacked(playground, EVIL),
        attacked(playground, EVIL, attack="typos"),
    ]
    for html in pages:
        assert "<script" not in html and "<b>good" not in html
    assert "&lt;script&gt;" in pages[4]


def test_texts_find_their_own_direction(playground: Playground) -> None:
    assert '<p class="text" dir="auto">فيلم جيد' in attacked(playground, "فيلم جيد", queries=1)


def test_an_empty_text_is_answered_with_what_to_do(playground: Playground) -> None:
    for html in (playground.answer(" "), attacked(playground, "")):
        assert said(html) == "There is nothing to read yet: type the text first."


def test_words_that_break_one_run_and_not_the_other_are_marked(playground: Playground) -> None:
    text = telling_sentence(playground)
    html = attacked(playground, text)
    assert 'class="run telling"' in html and "<del>" in html and "<ins>" in html
    falls, holds = ("plain", "robust") if "breaks plain, but not robust." in said(html) else ("robust", "plain")
    assert f"breaks {falls}, but not {holds}." in said(html)
    assert f"{falls} falls: " in said(html) and f"{holds} holds: " in said(html)


def test_what_became_of_each_run_is_said(playground: Playground) -> None:
    text = telling_sentence(playground)
    assert "Unbroken within 1 queries; with more, it might still break." in said(attacked(playground, text, queries=1))
    wrong = "".join(said(attacked(playground, text, label=label)) for label in ("negative", "positive"))
    assert "Wrong before any attack: it says " in wrong and ", the right answer is " in wrong
    assert "There is no word to change." in said(attacked(playground, "!!!"))
    assert said(attacked(playground, "!!!")).startswith("No run was broken.")
    assert attacked(playground, text, queries=None) == attacked(playground, text, queries=500)


def test_the_same_words_have_one_headline(playground: Playground) -> None:
    attack, resources = playground.choices.take("pwws", playground.choices.lexicon)
    (found, *_) = [
        each
        for each in attack_each(playground.runs, {"text": telling_sentence(playground)}, "text", attack, resources)
        if each.example.status == "broken"
    ]
    twins = attack_html([found, found._replace(run="twin")], ["negative", "positive"], "text", 500)
    assert said(twins).count(" breaks ") == 1 and said(twins).count("Against ") == 2


def test_of_a_long_text_the_ends_are_shown(playground: Playground) -> None:
    html = attacked(playground, "!" * 5000, queries=1)
    assert "!" * 300 + " … " + "!" * 300 in html and "!" * 301 not in html


def test_errors_of_an_attack_become_notices(playground: Playground, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROSEWOOD_DATA", raising=False)
    missing = playground.attack(["good film"], "text", "pwws", "counter-fitted", "", 9, quiet)
    assert "name the folder with --data-dir or ROSEWOOD_DATA" in said(missing)
    other = playground.attack(["good film"], "elsewhere", "typos", playground.choices.lexicon, "", 9, quiet)
    assert "there is no text 'elsewhere' to attack" in said(other)
