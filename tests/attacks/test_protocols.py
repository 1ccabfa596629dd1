"""Protocols: what papers do, what was asked for beside them, and figures that do not share a table."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_attack_table import EXAMPLE, report

from reported_runs import evaluation
from rosewood.attacks.runner.api import choose_attack
from rosewood.attacks.runner.constraints import constraints_of
from rosewood.attacks.runner.protocols import Protocol, lexicon_deviations, load_protocol, protocol_names
from rosewood.attacks.runner.report import deviations_caption, title_of
from rosewood.comparison.attack_tables import attacked, attacked_grid
from rosewood.comparison.runs import EvaluatedRun, KeptAttack
from rosewood.data.tasks import task_names
from rosewood.errors import RunError
from rosewood.results import AttackReport
from rosewood.words.lexicon import Lexicon, check_lexicon

NAMES = ["bert-attack", "pwws", "rift", "textdefender", "textfooler"]


def test_the_shipped_ones() -> None:
    assert protocol_names() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_setting_of_every_attack_and_task_is_one(name: str) -> None:
    protocol = load_protocol(name)
    assert protocol.name == name and protocol.citation and protocol.deviations
    assert set(protocol.tasks) <= set(task_names())
    for attack in protocol.attacks:
        for task in protocol.tasks or [None]:
            found = protocol.resolve({"attack": attack}, task)
            others = (protocol.attacks.keys() | protocol.tasks.keys()) - {attack, task}
            assert found.deviations == tuple(
                each for each in protocol.deviations if each.split(":")[0] not in others
            ), "those of other attacks and tasks are left out"
            chosen = choose_attack(found.values["attack"], found.values["set"])
            settings = found.settings()
            assert len(constraints_of(settings)) == len(settings.constraints)
            assert settings.max_length and found.values["examples"] == 1000
            assert chosen.measure() in ("probability", "raw-margin"), "papers compare probabilities or margins"
            check_lexicon(found.values.get("lexicon"))


PUBLISHED: list[tuple[str, str, str | None, dict[str, Any]]] = [
    ("rift", "imdb", None, {"attack": "genetic", "max_length": 300, "max_candidates": 8}),
    ("rift", "snli", "pwws", {"attack": "pwws", "max_length": 80, "lexicon": "counter-fitted"}),
    ("textdefender", "agnews", None, {"attack": "textfooler", "max_queries_per_word": 50, "max_candidates": 50}),
    ("textdefender", "imdb", "textbugger", {"attack": "textbugger", "max_length": 256}),
    ("textfooler", "snli", None, {"max_length": 128, "max_candidates": 50}),
    ("bert-attack", "imdb", None, {"attack": "bert_attack", "max_candidates": 48}),
    ("pwws", "agnews", None, {"attack": "pwws", "lexicon": "wordnet", "max_length": 150}),
]


@pytest.mark.parametrize(("name", "task", "attack", "expected"), PUBLISHED)
def test_what_the_papers_say(name: str, task: str, attack: str | None, expected: dict[str, Any]) -> None:
    values = load_protocol(name).resolve({} if attack is None else {"attack": attack}, task).values
    assert {key: values[key] for key in expected} == expected


def test_tasks_and_attacks_have_settings_of_their_own() -> None:
    rift, defender = load_protocol("rift"), load_protocol("textdefender")
    fitness = {task: rift.resolve({}, task).values["set"]["fitness"] for task in ("imdb", "snli")}
    assert fitness == {"imdb": "probability", "snli": "raw-margin"}
    assert rift.resolve({}, "snli").values["set"]["population"] == 60
    shares = {
        task: defender.resolve({}, task).values["constraints"]["words_share"]["at_most"] for task in ("agnews", "imdb")
    }
    assert shares == {"agnews": 0.3, "imdb": 0.1}
    assert "part_of_speech" in defender.resolve({}, "imdb").values["constraints"]
    assert "part_of_speech" not in defender.resolve({"attack": "textbugger"}, "imdb").values["constraints"]


def test_textdefender_has_the_bounds_of_its_authors_code() -> None:
    """Of args.py and utils/textattack_utils.py, and of the recipes that the latter changes."""
    protocol = load_protocol("textdefender")
    for attack in protocol.attacks:
        values = protocol.resolve({"attack": attack}, "agnews").values
        bounds = {name: rule for name, rule in values["constraints"].items() if name != "part_of_speech"}
        cosine = pytest.approx(np.cos(np.pi * (1 - 0.840845057)), abs=5e-4)
        assert bounds == {
            "words_share": {"at_most": 0.3},
            "stop_words": {},
            "similarity": {"at_least": cosine, "to": "last", "window": 15},
        }
        assert ("part_of_speech" in values["constraints"]) == (attack == "textfooler")
        assert (values["max_candidates"], values["max_queries_per_word"]) == (50, 50)
    assert protocol.resolve({"attack": "textbugger"}, "agnews").values["set"]["tries"] == 0


def beside(given: dict[str, Any], task: str = "agnews", name: str = "textdefender") -> list[str]:
    """The deviations that come with what was asked for."""
    protocol = load_protocol(name)
    found = protocol.resolve(given, task)
    for key, value in given.items():
        assert key in ("attack", "constraints", "set") or found.values[key] == value, "the user has the last word"
    return [each for each in found.deviations if each not in protocol.deviations]


def test_what_is_given_beside_a_protocol_is_a_deviation() -> None:
    assert beside({}) == []
    assert beside({"examples": 1000, "max_candidates": 50, "attack": "bert-attack"}) == []
    assert beside({"seed": 3, "batch_size": 8, "meaning_filter": "none", "min_changeable": 0.2}) == []
    assert beside({"examples": 60}) == ["examples: 60 instead of 1000"]
    assert beside({"max_queries": 9}) == ["max_queries: 9 instead of none"]
    assert beside({"lexicon": "roget"}) == ["lexicon: roget instead of counter-fitted"]
    assert beside({"attack": "pwws"}) == ["attack: pwws instead of textfooler or bert_attack or textbugger"]
    assert beside({"set": {"skip_stop_words": True}}, name="textfooler") == []
    assert beside({"set": {"skip_stop_words": False}}, name="textfooler") == ["skip_stop_words=false instead of True"]
    assert beside({}, task="sst2") == ["task: sst2 instead of agnews or imdb"]
    assert beside({}, task="sst2", name="bert-attack") == []


def test_a_deviation_of_one_attack_or_task_is_not_told_of_another() -> None:
    def told(attack: str, task: str = "agnews") -> set[str]:
        found = load_protocol("textdefender").resolve({"attack": attack}, task).deviations
        return {each.split(":")[0] for each in found}

    assert told("bert-attack") - told("textfooler") == {"bert_attack"}
    assert told("textbugger") - told("textfooler") == {"textbugger"}
    assert told("textbugger", "imdb") - told("textbugger") == {"imdb"}


def test_constraints_are_given_one_by_one() -> None:
    protocol = load_protocol("textdefender")
    assert beside({"constraints": {"words_share": 0.3}}) == []
    assert beside({"constraints": {"words-share": {"value": 0.2}}}) == [
        "words_share,at_most=0.2 instead of words_share,at_most=0.3"
    ]
    assert beside({"constraints": {"stop_words": None}}) == []
    assert beside({"constraints": {"stop_words": None}}, name="textfooler") == ["stop_words instead of none"]
    kept = protocol.resolve({"constraints": {"words_share": 0.2}}, "agnews").values["constraints"]
    assert kept["words_share"] == {"at_most": 0.2} and kept["similarity"]["window"] == 15


def test_a_lexicon_with_fewer_candidates_is_a_deviation() -> None:
    lexicon = Lexicon.of({"a": ["b", "c"], "b": ["a"]}, "small")
    assert lexicon_deviations(lexicon, 50) == ("candidates: small has at most 2 for a word, not 50",)
    assert lexicon_deviations(lexicon, 2) == lexicon_deviations(lexicon, None) == lexicon_deviations(None, 5) == ()


def of_protocol(name: str | None, deviations: list[str] | None = None) -> AttackReport:
    return report(EXAMPLE).model_copy(update={"protocol": name, "deviations": deviations or [], "field": "text"})


def test_figures_of_different_protocols_do_not_share_a_table() -> None:
    one, other = of_protocol("textdefender"), of_protocol("rift")
    for pair in ((one, other), (one, of_protocol(None))):
        with pytest.raises(RunError, match="figures of different protocols do not share a table, got textdefender and"):
            attacked_grid({"a": pair[0], "b": pair[1]})
    grid = attacked_grid({"a": one, "b": one})
    assert grid.title.startswith("pwws (textdefender) on") and len(grid.rows) == 2


def test_figures_of_different_protocols_have_columns_of_their_own() -> None:
    """Also those that deviate otherwise: what is beside what is said."""
    reports = [
        of_protocol(None),
        of_protocol("rift"),
        of_protocol("textdefender"),
        of_protocol("textdefender", ["examples: 60 instead of 1000"]),
    ]
    runs = [
        EvaluatedRun(Path(str(i)), str(i), 0, evaluation(), attacks=[KeptAttack(Path(), each)])
        for i, each in enumerate(reports)
    ]
    found = attacked(runs)
    assert [each.name for each in found] == [
        "pwws",
        "pwws (rift)",
        "pwws (textdefender) (1)",
        "pwws (textdefender) (2)",
    ]
    assert len({each.identity for each in found}) == 4 and "examples: 60" in found[-1].apart


def test_deviations_are_told() -> None:
    assert deviations_caption(of_protocol(None)) is None
    assert deviations_caption(of_protocol("own")) == "Protocol own, without deviations."
    told = deviations_caption(of_protocol("own", ["a: 1 instead of 2", "b: 3 instead of none"]))
    assert told == "Protocol own, with these deviations:\n  a: 1 instead of 2\n  b: 3 instead of none"
    assert title_of(of_protocol("own")) == "pwws (own) on films[/] test"


def test_a_file_of_your_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("name: mine\ntitle: Mine\ncitation: nobody\nattacks: {typos: {set: {max_letters: 3}}}\n")
    protocol = load_protocol(path)
    assert isinstance(protocol, Protocol) and protocol.resolve({}).values["set"] == {"max_letters": 3}
    path.write_text("name: mine\ntitle: Mine\nattacks: {typos: {examplse: 3}}\nmax_length: 1\n")
    with pytest.raises(RunError) as error:
        load_protocol(path)
    said = str(error.value)
    assert "is not a valid protocol" in said and "citation: field required" in said
    assert "attacks.typos.examplse: no such entry; did you mean examples" in said
    assert "max_length: input should be greater than or equal to 4, got 1" in said
    with pytest.raises(RunError, match="unknown protocol 'textdefendr': did you mean textdefender"):
        load_protocol("textdefendr")
    with pytest.raises(RunError, match="no such file, expected the YAML file of a protocol"):
        load_protocol(tmp_path / "none.yaml")
