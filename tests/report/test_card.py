"""Model cards: what the Hub's parser reads is what was measured."""

import shutil
from pathlib import Path

import pytest
from huggingface_hub import ModelCard

from reported_runs import EVIL, attack_result, guess, write_run
from rosewood.attacks.runner.report import save_outcome
from rosewood.errors import RunError
from rosewood.report.hub import model_card, write_card
from rosewood.results import Average, AveragedRun, Evaluation
from tiny_runs import run_info


def test_the_hub_reads_the_figures_that_were_measured(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", "rose")
    write_card(folder, folder / "model" / "README.md")
    data = ModelCard.load(folder / "model" / "README.md").data
    assert data.base_model == "bert-base-uncased" and data.pipeline_tag == "text-classification"
    assert data.model_name == "bert-base-uncased-own-rose" and "rose" in data.tags
    found = {(each.dataset_name, each.metric_name): each for each in data.eval_results}
    for each in Evaluation.load(folder / "evaluation.json").sets:
        if each.role != "noise":
            result = found.pop((each.name, f"Accuracy ({each.role})"))
            assert result.metric_value == pytest.approx(each.accuracy, abs=1e-4)
            assert result.metric_args["interval_95"] == pytest.approx(each.interval, abs=1e-4)
    ((name, metric), attacked) = found.popitem()
    assert (name, metric, attacked.metric_value) == ("own", "Accuracy under pwws on own test", 0.3) and not found


def test_the_card_says_how_to_load_and_where_the_limits_are(tmp_path: Path) -> None:
    text = str(model_card(write_run(tmp_path / "run", "rose")))
    assert 'classify({"text": "The first text.", "text_pair": "The second text."})' in text
    assert "It sorts texts like those of own into negative and positive." in text
    assert "Under pwws on own test its accuracy falls from 100.0 to 30.0 % (10 examples)." in text
    assert "It is least accurate on advglue (adversarial): 37.5 ±10.0 %." in text
    assert "Its worst group of clean plain is class: negative, with 75.0 ±10.0 %." in text
    assert "Not measured: yelp (gone plain)" in text
    assert (
        "Where it is worst, on clean plain, its confidence differs from its accuracy by 10.0 points on average." in text
    )
    assert "| rose | 75.0 ±10.0 |" in text and "name: rose" in text
    assert text.count("**Attacks**") == 1


def test_the_card_counts_the_examples_that_there_were(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    run_info(validation_size=1000).save(folder / "run.json")
    assert "All training examples, at most 1000 for validation;" in str(model_card(folder)), "of older versions"
    run_info(validation_size=1000, examples={"train": 2610, "validation": 290}).save(folder / "run.json")
    assert "2610 training examples, 290 for validation;" in str(model_card(folder))
    run_info(validation_size=1000, examples={"train": 2610}).save(folder / "run.json")
    assert "2610 training examples, none for validation;" in str(model_card(folder))


def test_three_labels_are_all_what_texts_are_sorted_into(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    task = (folder / "task.yaml").read_text().replace("- negative\n", "- human\n- location\n")
    (folder / "task.yaml").write_text(task.replace("- positive", "- numeric"))
    assert "into human, location and numeric. For other texts" in str(model_card(folder))


def test_attacks_under_other_conditions_have_names_of_their_own(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    other = attack_result(broken=3).model_copy(update={"lexicon": "other"})
    save_outcome(other, folder / "attacks" / "pwws-test-other")
    card = model_card(folder)
    found = {each.metric_name: each.metric_value for each in card.data.eval_results}
    assert found["Accuracy under pwws (1) on own test"] == 0.3
    assert found["Accuracy under pwws (2) on own test"] == 0.7
    assert 'pwws (2) on own test: lexicon="other".' in str(card)
    assert "Under pwws (2) on own test its accuracy falls from 100.0 to 70.0 %" in str(card)


def test_no_folder_of_the_author_is_named(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    run_info(model=str(tmp_path / "secret" / "my-bert"), data_dir=str(tmp_path)).save(folder / "run.json")
    card = model_card(folder)
    assert card.data.base_model is None and "my-bert" in str(card) and str(tmp_path) not in str(card)


def test_text_from_data_is_no_markup(tmp_path: Path) -> None:
    text = str(model_card(write_run(tmp_path / "run", words=EVIL)))
    outside = text.split("---", 2)[2].split("The recipe:")[0]
    assert "<script>" not in outside and "&lt;script&gt;" in outside
    assert "```" not in outside.replace("```python", "", 1).replace("```", "", 1)


def test_averages_say_what_they_are_made_of(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run", "average")
    runs = [AveragedRun(run="x", recipe="rose", seed=seed, weight=0.5) for seed in (0, 1)]
    Average(runs=runs, pretrained=None, pretrained_share=0).save(folder / "average.json")
    assert "averaged from the runs rose (seed 0), rose (seed 1) with Rosewood" in str(model_card(folder))


def test_what_is_no_run_has_no_card(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "run")
    (folder / "run.json").unlink()
    with pytest.raises(RunError, match=r"run is not a run of Rosewood \(no run\.json\)"):
        model_card(folder)
    shutil.rmtree(folder)
    with pytest.raises(RunError, match="not a run of Rosewood"):
        write_card(folder, tmp_path / "card.md")
    assert not (tmp_path / "card.md").exists()


def test_a_card_says_that_a_model_guesses(tmp_path: Path) -> None:
    text = str(model_card(guess(write_run(tmp_path / "run", "freelb", right=20))))
    limits = text.split("## Limits")[1].split("- ")
    assert limits[1].startswith(
        "It is at guessing: 50.0 % (40.0 to 60.0) on clean plain, where the most frequent label is 50.0 % of the "
        "examples. It has not learnt the task"
    )
    assert "freelb is at guessing (own)" in text.split("## How to load it")[0], "and says so before anything else"
    assert "| freelb ‡ |" in text
    assert "at guessing" not in str(model_card(guess(write_run(tmp_path / "good", "rose", right=30))))
