"""What the terminal shows of attacks."""

from rich.console import Console

from rosewood.attacks.runner.report import diff, summarize, title_of, warning_of
from rosewood.comparison.attack_tables import attacked_grid
from rosewood.results import AttackedExample, AttackReport
from rosewood.results.grid import Folded

EXAMPLE = AttackedExample(
    row=7,
    status="broken",
    label=1,
    texts={"text": "a good [red]film[/red]"},
    prediction=1,
    probabilities=[0.1, 0.9],
    adversarial="a fine\x1b[2J [red]film[/red]",
    adversarial_prediction=0,
    adversarial_probabilities=[0.6, 0.4],
    words=3,
    aligned=[("a ", "a "), ("good", "fine\x1b[2J"), (" [red]film[/red]", " [red]film[/red]")],
    similarity=0.5,
    queries=12,
)


def printed(thing: object, colours: bool = False) -> str:
    console = Console(width=100, force_terminal=colours, color_system="standard" if colours else None)
    with console.capture() as capture:
        console.print(thing)
    return capture.get()


def render(reports: dict[str, AttackReport]) -> Folded:
    return Folded(attacked_grid(reports))


def test_changed_words_stand_beside_what_they_were() -> None:
    text = printed(diff(EXAMPLE, ["bad", "good"]))
    assert text == "row 7, 12 queries: good 90% -> bad 60%\na [good -> fine�[2J] [red]film[/red]\n"


def test_colours_mark_the_change_and_data_are_no_markup() -> None:
    text = printed(diff(EXAMPLE, ["bad", "good"]), colours=True)
    assert "\x1b[9;31mgood\x1b[0m" in text and "\x1b[32mfine�[2J\x1b[0m" in text
    assert "\x1b[2J" not in text and "[red]film[/red]" in text


def report(*examples: AttackedExample, left_out: int = 0, min_changeable: float = 0.0) -> AttackReport:
    return AttackReport(
        model="m",
        task="films[/]",
        split="test",
        data="d",
        attack="pwws",
        settings={},
        lexicon=None,
        field="text",
        seed=0,
        max_length=128,
        max_queries=None,
        max_seconds=None,
        fingerprint="f",
        seconds=1.0,
        summary=summarize(examples, left_out, min_changeable),
    )


def test_one_row_a_model_with_bounds_where_time_ran_out() -> None:
    unresolved = EXAMPLE.model_copy(
        update={"status": "out_of_time", "adversarial": None, "aligned": [], "similarity": None}
    )
    text = printed(render({"one[/]": report(EXAMPLE), "two": report(unresolved, EXAMPLE, left_out=3)}))
    assert "pwws on films[/] test" in text
    cells = [[cell.strip() for cell in line.split("│")[1:-1]] for line in text.splitlines() if line.startswith("│")]
    assert cells[0] == ["one[/]", "1", "100.0", "0.0", "-", "100.0", "0.0", "0.50", "12"]
    assert cells[2] == ["two", "2", "100.0", "0.0-50.0", "-", "100.0", "0.0", "0.50", "12"]
    assert cells[1][2:4] == ["(21-100)", "(0-79)"]


def test_texts_that_could_not_change_are_not_called_robust() -> None:
    unknown = EXAMPLE.model_copy(
        update={"status": "robust", "adversarial": None, "aligned": [], "words": 200, "changeable": 3}
    )
    found = report(unknown, min_changeable=0.1)
    cells = [line.split("│")[1:-1] for line in printed(render({"one": found})).splitlines() if line.startswith("│")]
    assert [cell.strip() for cell in cells[0]] == ["one", "1", "100.0", "not", "-", "-", "-", "0.50", "12"]
    assert cells[1][3].strip() == "attacked" and cells[1][6].strip() == "of 2"
    warning = warning_of(found)
    assert warning and "could change only 1.5 % of the words, less than 10 %" in warning
    assert warning_of(report(unknown, min_changeable=0.01)) is None and warning_of(report(EXAMPLE)) is None


def test_a_model_at_guessing_is_marked() -> None:
    """Half of the examples have each label, and the model gives one answer to all: nothing can make it worse."""
    robust = EXAMPLE.model_copy(update={"status": "robust", "adversarial": None, "row": 1})
    wrong = EXAMPLE.model_copy(update={"status": "wrong", "adversarial": None, "row": 2, "label": 0})
    constant, learnt = (
        report(*[robust, wrong] * 20),
        report(*[robust, wrong.model_copy(update={"status": "robust"})] * 20),
    )
    assert constant.summary.majority == learnt.summary.majority == 0.5
    text = printed(render({"constant": constant, "learnt": learnt}))
    assert "constant ‡" in text and "learnt ‡" not in text and "at guessing" in " ".join(text.split())
    assert "at guessing" not in printed(render({"learnt": learnt}))


def test_the_caption_says_where_texts_were_cut() -> None:
    long = report(EXAMPLE).model_copy(update={"max_length": 256})
    alike, different = ({"a": report(EXAMPLE), "b": other} for other in (report(EXAMPLE), long))
    assert "Texts are cut after 128 tokens." in attacked_grid(alike).caption
    assert "Texts are cut after 128 or 256 tokens." in attacked_grid(different).caption


def test_the_worst_case_without_gradients_is_told_apart() -> None:
    with_them = report(EXAMPLE).model_copy(update={"attack": "worst", "settings": {"threat": "words"}})
    without = with_them.model_copy(update={"model": "wrapped", "settings": {"threat": "words", "white_box": False}})
    assert title_of(with_them) == "worst on films[/] test"
    assert title_of(without) == "worst without gradients on films[/] test"
    said = "Attacked without gradients, by fewer attacks than the others: wrapped."
    assert said in attacked_grid({"a": with_them, "b": without}).caption
    for alike in (with_them, without):
        assert "by fewer attacks" not in attacked_grid({"a": alike, "b": alike}).caption
