"""Sections: each shows what the runs hold, and is not there where they hold nothing."""

import shlex
from dataclasses import replace
from pathlib import Path

import pytest

from reported_runs import EVIL, attack_result, evaluation, landscape, watch, write_run
from rosewood.attacks.runner.report import load_attack, save_outcome
from rosewood.comparison.attack_tables import attacked
from rosewood.comparison.runs import EvaluatedRun, load_runs
from rosewood.errors import RunError
from rosewood.report.figures.style import PALETTE
from rosewood.report.sections import AttackedTexts, Charts, Listing, Part, Piece, Section, Table, sections
from rosewood.report.sections.attacks import TEXTS, _shortened, attack_table, attacks_section, transfer_section
from rosewood.report.sections.evaluation import (
    anomalies_section,
    calibration_section,
    comparison_section,
    groups_section,
    noise_section,
    sets_section,
)
from rosewood.report.sections.training import (
    commands,
    commands_section,
    drift_section,
    inconsistency_section,
    masks_section,
)
from rosewood.report.subject import Subject, subject_of
from rosewood.results import Evaluation, LiveAttack


@pytest.fixture
def full(tmp_path: Path) -> Subject:
    rights = {"vanilla": 30, "rose": 33}
    return subject_of(load_runs([write_run(tmp_path / name, name, right=right) for name, right in rights.items()]))


@pytest.fixture
def bare(tmp_path: Path) -> Subject:
    """A checkpoint that was evaluated on one set, and nothing else."""
    folder = write_run(tmp_path / "run")
    found = Evaluation.load(folder / "evaluation.json")
    only = found.sets[0].model_copy(update={"reliability": [], "groups": [], "worst": None})
    plain = {"sets": [only], "anomalies": [], "means": [], "missing": [], "suite": None}
    other = tmp_path / "checkpoint"
    found.model_copy(update=plain).save(other / "evaluation.json")
    return subject_of(load_runs([other]))


def kinds(section: Section | None) -> list[type[Part]]:
    assert section is not None
    return [type(part) for part in section.parts]


def test_all_sections_stand_in_their_order(full: Subject) -> None:
    assert [section.title for section in sections(full)] == [
        *("Comparison", "Every set", "Noise", "Calibration", "Groups", "Anomalies", "Attacks", "Training"),
        *("Recipes", "Reproduce"),
    ]


def test_a_run_with_little_has_few_sections(bare: Subject) -> None:
    assert [section.title for section in sections(bare)] == ["Comparison", "Calibration", "Reproduce"]
    assert [
        write(bare) for write in (sets_section, noise_section, groups_section, anomalies_section, attacks_section)
    ] == [None] * 5
    found = calibration_section(bare)
    assert kinds(found) == [Charts, Table], "errors, but no bins to draw"


def test_the_comparison_has_the_table_and_the_tests(full: Subject) -> None:
    found = comparison_section(full)
    assert kinds(found) == [Charts, Table, Table]
    assert found is not None
    table, differences = (part for part in found.parts if isinstance(part, Table))
    assert [row[0] for row in table.grid.rows] == ["vanilla", "rose"]
    assert differences.folded and differences.grid.title == "rose against vanilla, on the same examples"


def test_the_comparison_says_which_tasks_its_chart_averages(tmp_path: Path) -> None:
    def run(method: str, task: str, seed: int) -> EvaluatedRun:
        return EvaluatedRun(tmp_path, method, seed, evaluation().model_copy(update={"task": task}))

    def lead(*runs: EvaluatedRun) -> str:
        found = comparison_section(subject_of(runs))
        assert found is not None
        return found.lead

    both = [run("vanilla", task, 0) for task in ("sst2", "rte")]
    words = "intervals are over seeds, or of a single seed over its examples."
    assert lead(both[0]) == ""
    assert lead(*both) == f"The chart averages over tasks within each seed (sst2, rte); {words}"
    assert lead(*both, run("vanilla", "rte", 1), run("rose", "rte", 0)) == (
        f"The chart averages over tasks within each seed (rte); {words} Left out, because some method has no run on "
        "it: sst2."
    )
    assert lead(*both, run("vanilla", "rte", 1)).endswith("because their seed lacks one of these tasks: 1.")
    assert lead(both[0], run("rose", "rte", 0)).startswith("No task has runs of all methods")


def test_attacked_texts_stand_side_by_side_and_are_bounded(full: Subject) -> None:
    found = attacks_section(full)
    assert kinds(found) == [Charts, Table, AttackedTexts]
    assert found is not None
    texts = found.parts[-1]
    assert isinstance(texts, AttackedTexts) and len(texts.texts) == TEXTS
    assert texts.more.startswith("2 more texts were broken; all are in examples.jsonl of ")
    first = texts.texts[0]
    assert [version.run for version in first.versions] == ["vanilla", "rose"]
    assert first.title == "Row 0, positive" and first.others == {"other": "other plain"}
    assert first.versions[0].outcome == "positive 80% → negative 60%, not counted when filtered (words)"
    changed = [piece for piece in first.versions[0].pieces if piece.before != piece.after]
    assert [(piece.before, piece.after) for piece in changed] == [("good", "greatplain")]


def attacked_again(folder: Path, name: str, broken: int = 3, **changes: object) -> None:
    save_outcome(attack_result(broken).model_copy(update=changes), folder / "attacks" / name)


def test_what_was_found_on_one_run_and_tried_on_another(tmp_path: Path) -> None:
    vanilla, rose = (write_run(tmp_path / name, name) for name in ("vanilla", "rose"))
    (found,) = (each.parent for each in vanilla.glob("attacks/*/attack.json"))
    source = load_attack(found).model_copy(update={"fingerprint": "of vanilla"})
    save_outcome(source, found)
    assert transfer_section(subject_of(load_runs([vanilla, rose]))) is None
    facts = {"attack": "pwws", "found_on": source.model, "source": source.fingerprint}
    tried = attack_result(broken=4, count=7).model_copy(update={"attack": "replay", "settings": facts})
    save_outcome(tried, rose / "replays" / "pwws-test-1")
    section = transfer_section(subject_of(load_runs([vanilla, rose])))
    assert section is not None
    (part,) = section.parts
    assert isinstance(part, Table) and part.grid.header == ["found on", "vanilla", "rose"]
    assert part.grid.rows == [["vanilla", "found here", "57.1\nof 7"]]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"settings": {"unknown_word": "NULL", "exact_case": True}}, "settings.exact_case="),
        ({"lexicon": "other"}, "lexicon="),
        ({"language_model": "other"}, "language_model="),
        ({"encoder": "other"}, "encoder="),
        ({"max_length": 99}, "max_length="),
        ({"max_queries": 5}, "max_queries="),
    ],
)
def test_an_attack_under_other_conditions_is_another_attack(
    changes: dict[str, object], told: str, full: Subject, tmp_path: Path
) -> None:
    attacked_again(tmp_path / "rose", "pwws-test-other", **changes)
    again = subject_of(load_runs([tmp_path / "vanilla", tmp_path / "rose"]))
    table = attack_table(attacked([run.evaluated for run in again.runs]), again.runs)
    assert table is not None
    assert [row[:2] for row in table.rows] == [
        ["pwws (1) on own test", "vanilla"],
        ["pwws (1) on own test", "rose"],
        ["pwws (2) on own test", "rose"],
    ]
    first, second = table.caption.removesuffix(".").partition("pwws (1) on own test: ")[2].split(". pwws (2) on ")
    assert first.startswith(told) and second.startswith(f"own test: {told}") and first != second
    found = attacks_section(again)
    assert found is not None
    rows = found.parts[0].charts[0].figure.layout.yaxis.ticktext
    assert rows == tuple(f"{when} pwws ({number}) on own test" for number in (1, 2) for when in ("before", "under"))


def test_an_attack_has_the_label_that_an_experiment_gave_it(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    attacked_again(folder, "pwws-test-wordnet", lexicon="wordnet")
    labels = {"pwws": attack_result(), "pwws wordnet": attack_result(3)}
    live = [LiveAttack(attack=name, of="test", settings={}, summary=each.summary) for name, each in labels.items()]
    (run,) = load_runs([folder])
    found = attacked([run._replace(evaluation=run.evaluation.model_copy(update={"attacks": live}))])
    assert [each.title for each in found] == ["pwws on own test", "pwws wordnet on own test"]
    assert [each.column for each in found] == ["under pwws\ntest", "under pwws wordnet\ntest"]


def test_of_long_texts_the_surroundings_of_changes_stay() -> None:
    filler = "x" * 1000
    pieces = [("a", "a"), (filler, filler), ("good", "bad"), (" film", " film")]
    short = _shortened([Piece(*piece) for piece in pieces])
    assert [piece.before for piece in short[1:]] == ["good", " film"]
    assert short[0].before == f"a{'x' * 159} … {'x' * 160}"


def test_commands_say_what_the_results_know(full: Subject) -> None:
    train, evaluate, attack = commands(full.runs[0])
    folder = str(full.runs[0].evaluated.folder)
    assert train == "rosewood train --recipe 'plain'"
    assert shlex.split(evaluate) == [
        "rosewood",
        "evaluate",
        folder,
        *("--suite", "own", "--size", "40", "--max-length", "16", "--seed", "0"),
    ]
    words = shlex.split(attack)
    assert 'unknown_word="NULL"' in words and "exact_case=false" in words and words[-2:] == ["--max-length", "16"]
    found = commands_section(full)
    assert kinds(found) == [Listing, Listing, Table]


def test_cells_of_an_experiment_have_its_command_once(tmp_path: Path) -> None:
    output = tmp_path / "runs" / "my study"
    folders = [write_run(output / f"cell{seed}" / "run", "rose", seed) for seed in range(2)]
    for folder in folders:
        (folder.parent / "cell.json").write_text("{}")
    plain = write_run(tmp_path / "plain")

    def listed(found: Subject) -> dict[str, str]:
        section = commands_section(found)
        assert section is not None
        return {part.title: part.text for part in section.parts if isinstance(part, Listing)}

    runs = load_runs([*folders, plain])
    typed = listed(subject_of(runs, experiment="experiments/my study.yaml"))
    assert list(typed) == ["experiment", "vanilla"] and typed["vanilla"].startswith("rosewood train")
    words = ["rosewood", "compare", "experiments/my study.yaml", "--output", str(output)]
    assert shlex.split(typed["experiment"]) == words
    assert shlex.split(listed(subject_of(runs))["experiment"])[2] == "my study"


def test_a_command_names_the_lexicon_where_the_attack_has_recorded_it(full: Subject) -> None:
    *_, before = commands(full.runs[0])
    assert "--lexicon" not in before
    evaluated = full.runs[0].evaluated
    (kept,) = evaluated.attacks
    named = kept._replace(report=kept.report.model_copy(update={"lexicon_name": "wordnet"}))
    *_, after = commands(replace(full.runs[0], evaluated=evaluated._replace(attacks=[named])))
    assert " --lexicon wordnet " in after


def test_several_seeds_have_names_and_one_colour_a_method(tmp_path: Path) -> None:
    folders = [write_run(tmp_path / f"{seed}", "rose", seed, 30 + seed) for seed in range(2)]
    found = subject_of(load_runs([*folders, write_run(tmp_path / "v", "vanilla")]))
    assert [run.name for run in found.runs] == ["rose, seed 0", "rose, seed 1", "vanilla"]
    assert list(found.marks) == ["rose", "vanilla"] and found.baseline == "vanilla"


def test_the_dots_of_groups_and_calibration_are_in_tables(full: Subject) -> None:
    tables = {part.grid.title: part.grid for each in sections(full) for part in each.parts if isinstance(part, Table)}
    assert tables["Calibration"].header == ["set", "vanilla", "rose"]
    assert tables["Calibration"].rows[0] == ["clean plain", "10.0", "10.0"]
    assert tables["Groups"].rows[0] == ["clean plain", "class: negative", "75.0 ±10.0", "82.5 ±10.0"]


def test_watched_runs_have_their_own_sections_in_the_colours_of_the_page(tmp_path: Path) -> None:
    folders = [write_run(tmp_path / "v", "vanilla")]
    folders += [watch(write_run(tmp_path / f"{seed}", "rose", seed)) for seed in range(2)]
    found = subject_of(load_runs(folders))
    titles = [section.title for section in sections(found)]
    assert titles[titles.index("Training") + 1 : titles.index("Recipes")] == [
        *("Selection", "Drift", "Dropout inconsistency")
    ]
    for write in (drift_section, inconsistency_section):
        shown = write(found)
        assert kinds(shown) == [Charts, Table] and shown is not None and shown.needs_legend
        for chart in shown.parts[0].charts:
            assert [(each.name, each.line.color) for each in chart.figure.data] == [
                ("rose, seed 0", PALETTE[1]),
                ("rose, seed 1", PALETTE[1]),
            ]
            assert found.marks["rose"].colour == PALETTE[1]
    heat = masks_section(found)
    assert kinds(heat) == [Charts, Table, Table] and heat is not None and not heat.needs_legend
    by_layer, by_tensor = heat.parts[0].charts
    assert [list(each.y) for each in by_layer.figure.data] == [["layer 0", "layer 1 plain"]], "the first run only"
    assert heat.parts[2].grid.rows == [["query plain", "100.0%"], ["key", "25.0%"]]
    assert [note.text for note in by_tensor.figure.layout.annotations] == ["rose, seed 0"]


def test_a_run_too_short_for_its_watch_is_left_out(tmp_path: Path) -> None:
    folder = watch(write_run(tmp_path / "run"), steps=0)
    sections_of_training = (masks_section, drift_section, inconsistency_section)
    assert [write(subject_of(load_runs([folder]))) for write in sections_of_training] == [None] * 3


@pytest.mark.parametrize("name", ["history.jsonl", "recipe.yaml"])
def test_a_file_that_is_no_text_is_named(name: str, tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    (folder / name).write_bytes(b"\xff\x00")
    with pytest.raises(RunError, match=rf"{name}.*: .*(can't decode byte|expected UTF-8 text, got 0xff)"):
        subject_of(load_runs([folder]))


def test_landscapes_are_those_of_the_runs(tmp_path: Path) -> None:
    runs = load_runs([write_run(tmp_path / f"run{seed}", "rose", seed) for seed in range(2)])
    folder = tmp_path / "landscapes"
    for name in ("pre-trained", "run1", "run0", "stranger"):
        note, command = "with an untrained head" * (name == "pre-trained"), "rosewood landscape run0 run1"
        landscape(name, note=note, command=command).save(folder / f"{name}.json")
    found = subject_of(runs, landscape=folder)
    shown = next(section for section in sections(found) if section.title == "Loss landscape")
    assert [chart.title for chart in shown.parts[0].charts] == ["pre-trained", "rose, seed 0", "rose, seed 1"]
    assert {chart.figure.data[0].type for chart in shown.parts[0].charts} == {"contour"} and not shown.needs_legend
    table = shown.parts[1].grid
    assert table.title == "Sharpness: own, test, 8 examples"
    assert table.caption == "pre-trained: with an untrained head."
    (typed,) = (part for part in commands_section(found).parts if getattr(part, "title", "") == "loss landscapes")
    assert isinstance(typed, Listing) and typed.text == "rosewood landscape run0 run1"
    assert table.rows[1] == ["rose, seed 0", "0.1000", "75.0%", "0.5000", "≥ 0.0400", "-", "-"]
    landscape("run1", points=7).save(folder / "run1.json")
    with pytest.raises(RunError, match="do not compare: pre-trained and rose, seed 1 differ in coordinates"):
        subject_of(runs, landscape=folder)
    wider = landscape("run1").sharpness.model_copy(update={"threshold": 0.2})
    landscape("run1", sharpness=wider).save(folder / "run1.json")
    with pytest.raises(RunError, match="do not compare: pre-trained and rose, seed 1 differ in threshold"):
        subject_of(runs, landscape=folder)
    for seed in range(2):
        (folder / f"run{seed}.json").unlink()
    with pytest.raises(RunError, match=r"has no landscape of these runs \(expected run0.json, run1.json\)"):
        subject_of(runs, landscape=folder)


def test_charts_are_safe_within_a_script(tmp_path: Path) -> None:
    found = subject_of(load_runs([watch(write_run(tmp_path / "run", words=EVIL), EVIL)]))
    texts = [
        chart.json
        for section in sections(found)
        for part in section.parts
        if isinstance(part, Charts)
        for chart in part.charts
    ]
    assert len(texts) > 5
    assert not any(sign in text for text in texts for sign in "<>&")
