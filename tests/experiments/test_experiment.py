"""The form of an experiment file, and everything that can be wrong with it, said at once."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

from rosewood.attacks.runner.job import SEARCHES
from rosewood.config.settings import Lora
from rosewood.errors import AbsentError, ExperimentError
from rosewood.experiments import grid
from rosewood.experiments.cell import RUN, load_cell
from rosewood.experiments.experiment import read_experiment
from rosewood.experiments.grid import cells_of
from rosewood.experiments.run_cell import work_on
from tiny_experiment import tiny_experiment, write_data
from tiny_suite import LABELS
from tiny_text import save_tiny_checkpoint, save_tiny_encoder


def lines(file: Path) -> list[str]:
    with pytest.raises(ExperimentError) as caught:
        cells_of(read_experiment(file))
    return str(caught.value).splitlines()


def test_all_problems_of_the_form_come_at_once_with_the_closest_names(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    raw = {
        "recipies": ["vanilla"],
        "tasks": [{"task": "sst2", "trainsize": 3}],
        "seeds": [-1],
        "attacks": [{"atack": "pwws"}],
    }
    file.write_text(yaml.safe_dump(raw))
    first, *found = lines(file)
    assert first == f"{file} has 5 problems:"
    assert found[0] == "- recipes: field required"
    assert found[1].startswith("- tasks.0.trainsize: no such entry; did you mean train_size")
    assert found[2] == "- seeds.0: input should be greater than or equal to 0, got -1"
    assert found[3].startswith("- attacks.0.atack: no such entry; did you mean attack")
    assert found[4].startswith("- recipies: no such entry; did you mean recipes")


def test_all_wrong_names_come_at_once_with_the_closest_ones(tmp_path: Path) -> None:
    file = tmp_path / "wrong.yaml"
    raw = {
        "recipes": ["vanila", "roast", "roast", {"recipe": "r-drop", "set": {"objective.wait": 1, "training.seed": 2}}],
        "tasks": [
            "sst3",
            {
                "task": "sst2",
                "recipes": {"rost": "roast"},
                "training": {"learning_rat": 1},
                "attacks": {"pwwws": "typo"},
            },
            {"task": "rte", "evaluation": {"suite": "sentiment"}},
            {"task": "qqp", "evaluation": {"suite": "glue-adw"}},
            {"task": "imdb", "evaluation": {"sets": ["tset"]}},
            {"task": "qnli", "evaluation": {"suite": "glue-adv"}},
            {"task": "reviews", "evaluation": {"suite": "sentiment", "size": 9}},
        ],
        "models": ["minilm", "a/b/c"],
        "attacks": [{"attack": "pws"}, {"attack": "pwws", "set": {"populaton": 3}, "lexicon": "wordnett"}],
        "baseline": "vanilla",
        "published": {"smart": {"sst2": {"test": 90}}, "roast": {"sst4": {"test": 90}}},
    }
    file.write_text(yaml.safe_dump(raw))
    text = "\n".join(lines(file))
    for expected in (
        "recipes.0: unknown recipe 'vanila': did you mean vanilla",
        "recipes: roast is there more than once: give each a label of its own",
        "objective.wait: no such setting; ",
        "recipes.3.set.training.seed: training arguments belong under `training`",
        "tasks.0: unknown task 'sst3': did you mean sst2",
        "task sst2, recipes.rost: no recipe is called so; did you mean roast",
        "task sst2, attacks.pwwws: no attack is called so; did you mean pwws",
        "task sst2, attacks.pwwws: unknown attack 'typo': did you mean typos",
        "tasks.1: training.learning_rat: no such training argument; did you mean learning_rate",
        "the suite sentiment has the labels negative, positive, the task rte has",
        "tasks.3, evaluation: unknown suite 'glue-adw': did you mean glue-adv",
        "task imdb has no set 'tset'; did you mean test",
        "evaluation: tasks on the suite sentiment share a table: give them one size",
        "models: 'a/b/c' is neither a folder nor a name that a model on the Hub can have",
        "attacks.0: unknown attack 'pws': did you mean pwws",
        "attacks.1.lexicon: unknown lexicon 'wordnett': did you mean wordnet",
        "attacks.1: attack.populaton: ",
        "baseline: no recipe is called 'vanilla'; did you mean vanila",
        "published: no recipe is called 'smart'",
        "published.roast: 'sst4' is neither a task nor a suite here; did you mean",
        "published: the figures are those of one model, and there are several here",
    ):
        assert expected in text, expected


def test_a_task_and_a_recipe_have_settings_of_their_own(tmp_path: Path) -> None:
    task = str(tmp_path / "task.yaml")
    experiment = tiny_experiment(
        tmp_path,
        recipes=["vanilla", {"recipe": "rose-first", "label": "rose", "training": {"learning_rate": 0.3}}],
        tasks=[{"task": task, "max_length": 8, "training": {"learning_rate": 0.2}, "recipes": {"rose": "rose-second"}}],
        training={"learning_rate": 0.1, "weight_decay": 0.5},
        lora={"rank": 2, "alpha": 4},
        seeds=[3],
    )
    vanilla, rose = cells_of(experiment)
    assert vanilla.training == {"learning_rate": 0.2, "weight_decay": 0.5} and vanilla.plan().max_length == 8
    assert rose.recipe["name"] == "rose-second" and rose.label == "rose"
    assert rose.training["learning_rate"] == 0.2, "a recipe chosen for the task brings no training of the usual one"
    assert (rose.plan().seed, rose.plan().recipe.name) == (3, "rose-second")
    rose.save(tmp_path)
    assert load_cell(tmp_path) == rose, "a worker reads what the plan was"
    assert load_cell(tmp_path).plan() == rose.plan() and rose.plan().lora == Lora(rank=2, alpha=4)


def test_an_attack_of_a_task_stands_in_for_that_of_all_under_its_label(tmp_path: Path) -> None:
    usual = tiny_experiment(tmp_path)
    own = {"task": usual.tasks[0].task, "attacks": {"typos": {"attack": "typos", "examples": 3}}}
    (before,) = {cell.attacks[0].examples for cell in cells_of(usual)}
    found = [cell.attacks for cell in cells_of(tiny_experiment(tmp_path, tasks=[own]))]
    assert before == 6
    assert {(attack.name, attack.examples) for attacks in found for attack in attacks} == {("typos", 3)}
    assert {len(attacks) for attacks in found} == {1}


def test_the_order_is_that_of_the_file_and_every_cell_has_a_folder_of_its_own(tmp_path: Path) -> None:
    cells = cells_of(tiny_experiment(tmp_path))
    assert [(cell.label, cell.seed) for cell in cells] == [
        (label, seed) for label in ("vanilla", "rose-second", "drop") for seed in (0, 1)
    ]
    assert len({cell.name for cell in cells}) == 6
    assert cells[0].name == f"vanilla-tiny-checkpoint-seed0-{cells[0].fingerprint[:8]}"


def test_a_fingerprint_changes_with_what_decides_the_figures_and_with_nothing_else(tmp_path: Path) -> None:
    experiment, data = tiny_experiment(tmp_path), write_data(tmp_path / "data")

    def fingerprints(folder: Path = data, **changes: object) -> list[str]:
        return [cell.fingerprint for cell in cells_of(experiment.model_copy(update=changes), folder)]

    before = fingerprints()
    assert fingerprints(write_data(tmp_path / "moved")) == before
    assert fingerprints(title="another", published={}, baseline=None) == before
    changed = fingerprints(training={**experiment.training, "learning_rate": 0.1})
    assert not set(changed) & set(before)
    other = experiment.recipes[2].model_copy(update={"changes": {"objective.divergence_weight": 0.7}})
    assert fingerprints(recipes=[*experiment.recipes[:2], other])[:4] == before[:4]
    assert not set(fingerprints(recipes=[*experiment.recipes[:2], other])[4:]) & set(before)
    text = (data / "test.jsonl").read_text()
    (data / "test.jsonl").write_text(text.replace("a", "b", 1))
    assert not set(fingerprints()) & set(before)
    (data / "test.jsonl").write_text(text)
    assert fingerprints() == before
    config = tmp_path / "checkpoint" / "config.json"
    config.write_text(config.read_text().replace('"hidden_dropout_prob": 0.1', '"hidden_dropout_prob": 0.2'))
    assert not set(fingerprints()) & set(before)


def test_a_fingerprint_changes_with_the_search_of_attacks_and_with_the_default_rates_where_they_are_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = write_data(tmp_path / "data")

    def fingerprints(attacks: list[str], training: dict[str, float]) -> set[str]:
        cells = cells_of(tiny_experiment(tmp_path, attacks=attacks, training=training), data)
        return {cell.fingerprint for cell in cells}

    rate = {"learning_rate": 1e-3}
    choices = [([], rate), (["typos"], rate), ([], {})]
    plain, attacked, by_default = [fingerprints(*each) for each in choices]
    monkeypatch.setitem(SEARCHES, "typos", 9)
    assert [fingerprints(*each) for each in choices[::2]] == [plain, by_default]
    assert not fingerprints(*choices[1]) & attacked
    monkeypatch.setattr(grid, "_DEFAULT_RATES", {"learning rates": {"0": 1.0}})
    assert fingerprints(*choices[0]) == plain
    assert not fingerprints(*choices[2]) & by_default


def test_a_fingerprint_changes_with_how_a_suite_reads_its_texts(tmp_path: Path) -> None:
    data, file = write_data(tmp_path / "data"), tmp_path / "suite.yaml"
    source = {"role": "clean", "title": "Test", "folder": {"file": "test.jsonl"}, "examples": {"folder": 40}}
    suite = {"name": "own", "title": "Own", "text": ["text"], "labels": LABELS, "sets": {"films": source}}
    experiment = tiny_experiment(tmp_path, evaluation={"suite": str(file)})

    def fingerprint(**changes: object) -> str:
        file.write_text(yaml.safe_dump(suite | changes))
        return cells_of(experiment, data)[0].fingerprint

    before = fingerprint()
    assert fingerprint(title="In other words") == before
    assert len({before, fingerprint(max_length=8), fingerprint(inside=["films"])}) == 3


def test_steps_are_counted_as_the_trainer_counts_them(tmp_path: Path) -> None:
    experiment = tiny_experiment(tmp_path, training={"num_train_epochs": 3, "per_device_train_batch_size": 16})
    cell = cells_of(experiment)[0]
    assert cell.steps() is None
    assert cell.steps(40) == 9
    smaller = cells_of(experiment.model_copy(update={"train_size": 20}))[0]
    assert smaller.steps() == smaller.steps(40) == 6


def test_the_file_in_the_documentation_is_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROSEWOOD_DATA", raising=False)
    page = Path(__file__).parent.parent.parent / "docs" / "experiments.md"
    example = re.search(r"```yaml\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    assert example is not None
    file = tmp_path / "shown.yaml"
    file.write_text(example.group(1))
    assert len(cells_of(read_experiment(file))) == 4 * 2 * 3


def test_a_lexicon_that_is_not_here_is_missed_before_training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ROSEWOOD_DATA", raising=False)
    attacks = [{"attack": "pwws", "lexicon": "counter-fitted"}]
    cell = cells_of(tiny_experiment(tmp_path, attacks=attacks), write_data(tmp_path / "data"))[0]
    cell.save(tmp_path / "cell")
    with pytest.raises(AbsentError, match=r"counterfitted_neighbors\.json: no such file"):
        work_on(tmp_path / "cell")
    assert not (tmp_path / "cell" / RUN).exists()


def test_what_a_classifier_decides_is_settled_before_any_cell_runs(tmp_path: Path) -> None:
    """Its labels must be known, and the pre-trained model that it names is part of its cells."""
    data = write_data(tmp_path / "data")
    model = save_tiny_checkpoint(tmp_path / "checkpoint")
    with pytest.raises(
        ExperimentError, match=r"tasks\.0: .* with 2 outputs \(LABEL_0, LABEL_1\), and the data has 2 la"
    ):
        cells_of(tiny_experiment(tmp_path), data)
    named = cells_of(tiny_experiment(tmp_path, labels=LABELS), data)
    assert {tuple(cell.plan().labels or ()) for cell in named} == {tuple(LABELS)}
    assert all("pretrained" not in cell.settings for cell in named)
    base = save_tiny_encoder(tmp_path / "base")
    (model / "README.md").write_text(f"---\nbase_model: {base}\n---\n")
    found = cells_of(tiny_experiment(tmp_path, labels=LABELS), data)
    assert {cell.plan().pretrained for cell in found} == {str(base)}
    assert not {cell.fingerprint for cell in found} & {cell.fingerprint for cell in named}


def test_an_attack_of_a_protocol_says_in_its_cells_all_that_the_paper_says(tmp_path: Path) -> None:
    chosen = {"protocol": "rift", "attack": "pwws", "lexicon": "roget", "constraints": ["words_share=0.2"]}
    cells = cells_of(tiny_experiment(tmp_path, attacks=[chosen, {"protocol": "bert-attack"}]))
    pwws, bert = cells[0].attacks
    assert (pwws.name, pwws.attack, pwws.max_candidates, pwws.examples) == ("pwws (rift)", "pwws", 8, 1000)
    assert pwws.changes == {"scores": "probability", "exact_case": True}
    assert pwws.constraints == {"words_share": {"at_most": 0.2}}
    asked = {"lexicon: roget instead of counter-fitted", "words_share,at_most=0.2 instead of none"}
    assert asked < set(pwws.deviations)
    assert (bert.name, bert.attack, bert.masked_lm) == ("bert-attack", "bert_attack", "bert-base-uncased")
    cells[0].save(tmp_path)
    assert load_cell(tmp_path).attacks == cells[0].attacks
    text = "\n".join(lines_of(tmp_path, [{"protocol": "rft"}, {"attack": "pwws", "constraints": {"fluency": 2}}]))
    assert "attacks.0.protocol: unknown protocol 'rft': did you mean rift" in text
    assert "attacks.1.constraints: fluency needs a causal language model: name one as `causal_lm`" in text


def lines_of(folder: Path, attacks: list[dict[str, object]]) -> list[str]:
    with pytest.raises(ExperimentError) as caught:
        cells_of(tiny_experiment(folder, attacks=attacks))
    return str(caught.value).splitlines()
