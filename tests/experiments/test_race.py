"""Races whose candidates are made up: who wins, what it costs, and that a start after a kill decides alike."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from rosewood.errors import ExperimentError, RecipeError, RunError
from rosewood.experiments.engines.local import Event
from rosewood.experiments.harden.before_and_after import sentence_of
from rosewood.experiments.harden.candidates import (
    START,
    Trained,
    WeightMixture,
    behind,
    entrants,
    threat_names,
    untrained,
    wrappers,
)
from rosewood.experiments.harden.race import FILE, Race
from rosewood.experiments.harden.schedule import HARDER, Stopwatch, judging_seconds, planned
from rosewood.experiments.harden.stage import WORK, Work, result_file
from rosewood.recipe import load_recipe
from rosewood.results import CandidateFigures, Change, Costs, Hardening

ROWS = 200


@dataclass
class World:
    """Made-up candidates: how right they end, clean and robust, and what a second of work really takes."""

    ends: dict[str, tuple[float, float]]
    costs: Costs
    slower: float = 1.0
    seconds: float = 0.0
    steps: dict[str, int] = field(default_factory=dict)
    killed_at: int | None = None
    measured: list[str] = field(default_factory=list)

    def run(self, folders: Sequence[Path]) -> Iterator[Event]:
        for folder in folders:
            yield Event(folder, "started")
            work = Work.model_validate_json((folder / WORK).read_text(encoding="utf-8"))
            trained = work.until - self.steps.get(work.candidate, 0) if work.kind == "trained" else 0
            if len(self.measured) == self.killed_at:
                raise KeyboardInterrupt
            self.steps[work.candidate] = work.until
            costs, rows = self.costs, work.attacked_rows
            measuring = costs.begin + work.clean_rows * costs.clean_row + rows * costs.attacked_row * HARDER
            recipe = work.candidate.removeprefix(behind(work.defence, ""))
            self.seconds += self.slower * (measuring + trained * costs.steps.get(recipe, 0.0))
            clean, robust = self.figures(work)
            found = CandidateFigures(
                candidate=work.candidate,
                stage=work.stage,
                steps=work.until,
                right=[row < round(clean * work.clean_rows) for row in range(work.clean_rows)],
                robust=[row < round(robust * rows) for row in range(rows)],
            )
            found.save(result_file(folder, work.stage))
            self.measured.append(work.candidate)
            yield Event(folder, "ended")

    def figures(self, work: Work) -> tuple[float, float]:
        """A candidate comes nearer to its end with every step; a mixture lies between its parts."""
        start = self.ends.get(behind(work.defence, START), self.ends[START])
        if work.kind == "mixture":
            ends = [self.ends.get(behind(work.defence, name), start) for name in work.made_of]
            shares = list(work.parts.values())
            return tuple(sum(end[k] * share for end, share in zip(ends, shares, strict=True)) for k in (0, 1))  # type: ignore[return-value]
        end = self.ends.get(work.candidate, start)
        done = work.until / work.arguments["max_steps"] if work.kind == "trained" else 1.0
        return start[0] + done * (end[0] - start[0]), start[1] + done * (end[1] - start[1])


class Clock(Stopwatch):
    """The time of a world."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world

    def spent(self, output: Path) -> float:
        return self.world.seconds


ENDS = {START: (0.9, 0.3), "a": (0.9, 0.35), "b": (0.895, 0.6), "c": (0.9, 0.4), "d": (0.6, 0.8), "e": (0.9, 0.2)}
BEHIND = {
    "corrected around start": (0.9, 0.5),
    "corrected around b": (0.9, 0.52),
    "corrected around d": (0.6, 0.8),
    "corrected around e": (0.9, 0.7),
}
"""Of all recipes the worst without the defence is the best behind it."""
COSTS = Costs(steps=dict.fromkeys("abcde", 0.5) | {"b": 2.0}, clean_row=0.001, attacked_row=0.05, begin=1.0)


def race_in(folder: Path, world: World, budget: float = 900.0, around: Sequence[str] = (), **changes: Any) -> Race:
    names = [name for name in world.ends if name in world.costs.steps]
    schedule = planned(budget, 0.0, world.costs, names, {"choosing": ROWS, "steps": 100}, len(around), 5)
    state = Hardening(
        identity="", command="", model="m", start="m", pretrained="p", task="t", threats=["typos"], budget=budget,
        max_clean_loss=1.0, max_cost=1.0, costs=world.costs, schedule=schedule,
    ).model_copy(update=changes)  # fmt: skip
    base = Work(
        candidate=START, kind="ready", output=str(folder), stage=0, clean_rows=schedule.clean_rows,
        attacked_rows=schedule.attacked_rows, threats=["typos"], black_box=False, max_length=16, seed=0, data_dir=None,
        lexicon=None, model="m",
    )  # fmt: skip
    racing = [Trained(name, name, (), load_recipe("vanilla"), "checkpoint") for name in names]
    return Race(state, folder, base, racing, around, world, Clock(world), lambda state, said: None)


@pytest.fixture(autouse=True)
def _no_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Made-up candidates have no labels to compare the start with."""
    monkeypatch.setattr(Race, "_check_start", lambda self: None)


def test_the_best_within_the_limits_wins_though_it_is_the_most_expensive(tmp_path: Path) -> None:
    race = race_in(tmp_path, World(ENDS, COSTS))
    assert race.run() == "b"
    assert race.state.decisions[0].entered == list("abcde")
    assert "e" not in race.state.decisions[0].kept


def test_all_candidates_get_the_same_time(tmp_path: Path) -> None:
    schedule = race_in(tmp_path, World(ENDS, COSTS)).state.schedule
    assert schedule is not None
    seconds = [COSTS.steps[name] * steps[-1] for name, steps in schedule.steps.items()]
    assert max(seconds) - min(seconds) <= 2.0  # a step of the most expensive one


def test_a_mixture_wins_where_the_whole_candidate_costs_too_much(tmp_path: Path) -> None:
    ends = {START: (0.9, 0.3), "d": (0.88, 0.8)}
    race = race_in(tmp_path, World(ends, COSTS))
    winner = race.run()
    assert winner == "0.5 d + 0.5 start"
    assert not race.allowed(race.state.last("d"))


def test_nothing_better_leaves_the_start(tmp_path: Path) -> None:
    ends = {START: (0.9, 0.3), "a": (0.9, 0.3), "b": (0.5, 0.5), "c": (0.9, 0.1)}
    assert race_in(tmp_path, World(ends, COSTS)).run() == START


@pytest.mark.parametrize("slower", [1.0, 1.2, 1.5])
@pytest.mark.parametrize("budget", [300.0, 900.0, 3600.0])
def test_the_budget_is_kept_to_within_a_tenth(tmp_path: Path, budget: float, slower: float) -> None:
    world = World(ENDS, COSTS, slower)
    race = race_in(tmp_path, world, budget)
    race.run()
    whole = world.seconds + slower * judging_seconds(COSTS, race.test_rows())
    assert whole <= 1.1 * budget
    if slower == 1.0:
        assert not any(each.cut for each in race.state.decisions)


def test_a_slow_race_is_cut_and_says_so(tmp_path: Path) -> None:
    race = race_in(tmp_path, World(ENDS, COSTS, slower=1.5))
    assert race.run() == "b"
    assert any("time is short" in each.cut for each in race.state.decisions)


@pytest.mark.parametrize("around", [[], ["corrected"]], ids=["bare", "behind a defence"])
def test_killed_anywhere_it_decides_alike(tmp_path: Path, around: list[str]) -> None:
    ends = ENDS | BEHIND if around else ENDS
    whole = race_in(tmp_path / "whole", World(ends, COSTS), around=around)
    winner = whole.run()
    total = len(whole.engine.measured)  # type: ignore[attr-defined]
    for moment in range(total):
        folder = tmp_path / str(moment)
        world = World(ends, COSTS, killed_at=moment)
        first = race_in(folder, world, around=around)
        first.update()
        with pytest.raises(KeyboardInterrupt):
            first.run()
        world.killed_at = None
        again = race_in(folder, world, around=around)
        again.state = Hardening.load(folder / FILE)
        assert again.run() == winner
        assert again.state.decisions == whole.state.decisions
        assert again.state.tried == whole.state.tried
        assert len(world.measured) == total  # nothing was measured twice


def test_a_recipe_that_is_best_only_behind_the_defence_wins(tmp_path: Path) -> None:
    world = World(ENDS | BEHIND, COSTS)
    race = race_in(tmp_path, world, around=["corrected"])
    assert race.run() == "corrected around e"
    assert race.state.shield == "corrected"
    bare = [name for name in world.measured if name in "abcde"]
    assert all(race.state.last(name).stage > len(race.state.schedule.keep) for name in bare)  # type: ignore[union-attr]


def test_a_defence_that_helps_nobody_is_not_raced_behind(tmp_path: Path) -> None:
    world = World(ENDS | {"corrected around start": (0.9, 0.2)}, COSTS)
    race = race_in(tmp_path, world, around=["corrected"])
    assert race.run() == "b"
    assert race.state.shield == ""


def test_a_defence_that_costs_too_much_clean_accuracy_is_not_raced_behind(tmp_path: Path) -> None:
    world = World(ENDS | {"corrected around start": (0.8, 0.9)}, COSTS)
    race = race_in(tmp_path, world, around=["corrected"])
    assert race.run() == "b"
    assert race.state.shield == ""


def test_a_budget_for_nothing_is_refused_before_any_training() -> None:
    with pytest.raises(ExperimentError, match=r"the budget is too short: 10 s.*--budget"):
        planned(10.0, 0.0, COSTS, ["a"], {"choosing": ROWS, "steps": 100}, 0, 3)


@pytest.mark.parametrize("around", [0, 1, 3])
@pytest.mark.parametrize("attacked_row", [0.05, 1.0, 7.0])
def test_the_budget_that_the_error_names_is_enough(around: int, attacked_row: float) -> None:
    costs = COSTS.model_copy(update={"attacked_row": attacked_row})
    rest: Any = (costs, list("ab"), {"choosing": ROWS, "steps": 100}, around, 6)
    with pytest.raises(ExperimentError) as refused:
        planned(20.0, 15.0, *rest)
    named = re.search(r"--budget (\d+)m", str(refused.value))
    assert named is not None
    assert planned(60.0 * int(named[1]), 15.0, *rest).entrants[0] == "a"


def test_a_defence_around_the_model_is_measured_before_anything_is_trained(tmp_path: Path) -> None:
    world = World(ENDS | {"corrected around start": (0.9, 0.7)}, COSTS)
    race = race_in(tmp_path, world, around=["corrected"])
    assert race.run() == "corrected around start"
    assert world.measured[:2] == [START, "corrected around start"]


def test_a_short_budget_leaves_out_the_last_candidates() -> None:
    schedule = planned(150.0, 0.0, COSTS, list("abcde"), {"choosing": ROWS, "steps": 100}, 0, 3)
    assert schedule.entrants == list("abcde")[: len(schedule.entrants)] != list("abcde")


def test_names_of_threats_are_checked() -> None:
    assert threat_names("words, characters,words") == ["words", "characters"]
    with pytest.raises(Exception, match="typo"):
        threat_names("typso")


@pytest.mark.parametrize(
    ("threats", "first"), [("words", "augment:words"), ("typos", "augment:letters"), ("all", "augment")]
)
def test_rose_is_among_the_entrants_that_suit_a_threat(threats: str, first: str) -> None:
    names = [each.name for each in entrants([threats])]
    assert names[0] == first
    assert any("rose" in name for name in names)
    assert len(set(names)) == len(names)


def test_a_candidate_may_have_settings() -> None:
    usual, other = Trained.parse("augment+rose"), Trained.parse(" augment+rose  selection.keep_quantile=0.8 ")
    assert other.name == "augment+rose selection.keep_quantile=0.8"
    assert usual.recipe.to_dict()["selection"]["keep_quantile"] == 0.6
    assert other.recipe.to_dict()["selection"]["keep_quantile"] == 0.8
    with pytest.raises(Exception, match="keep_quantil"):
        Trained.parse("augment+rose selection.keep_quantil=0.8")


def test_only_models_that_started_alike_are_mixed() -> None:
    vanilla = load_recipe("vanilla")
    here, there = Trained("a", "a", (), vanilla, "checkpoint"), Trained("b@pretrained", "b", (), vanilla, "pretrained")
    mixtures = [each.inside for each in untrained([here, there], []) if isinstance(each.inside, WeightMixture)]
    assert mixtures and all("b@pretrained" not in dict(each.of) for each in mixtures)
    assert untrained([there], []) == []


def test_the_cost_limit_leaves_out_ensembles() -> None:
    assert wrappers(["characters"], 1.0) == ["corrected"]
    assert "smoothed:mask" in wrappers(["characters"], 1000.0)
    assert wrappers(["words"], 1.0) == ["encoded"]
    assert wrappers(["all"], 1.0) == ["corrected", "encoded", "corrected+encoded"]
    with pytest.raises(RunError, match=r"smoothed:mask takes 50 passes.*give --max-cost 50"):
        wrappers(["words"], 1.0, ["smoothed:mask"])


def test_defences_that_were_asked_for_are_checked_before_any_work() -> None:
    assert wrappers(["words"], 1.0, []) == []
    assert wrappers(["words"], 1.0, ["corrected"]) == ["corrected"]
    with pytest.raises(RecipeError, match="did you mean corrected"):
        wrappers(["words"], 1.0, ["corected"])


@pytest.mark.parametrize(("after", "said"), [(0.89, True), (0.94, False)])
def test_a_clean_loss_beyond_the_limit_is_said_even_if_it_may_be_chance(after: float, said: bool) -> None:
    def change(what: str, role: Any, before: float, after: float) -> Change:
        both: Any = {"before": before, "after": after, "difference": after - before, "interval": (-0.1, 0.1)}
        return Change(what=what, role=role, examples=100, p=0.01, **both)

    found = [change("clean", "clean", 0.95, after), change("under characters", "threat", 0.02, 0.6)]
    rows = {START: 95, "a": 94}
    tried = [
        CandidateFigures(candidate=name, stage=0, steps=0, right=[row < right for row in range(100)], robust=[True])
        for name, right in rows.items()
    ]
    state = Hardening(
        identity="", command="", model="m", start="m", pretrained="p", task="t", threats=["characters"], budget=60,
        max_clean_loss=2.0, max_cost=1.0, tried=tried, winner="a", changes=found,
    )  # fmt: skip
    sentence = sentence_of(state, better=True)
    assert sentence.startswith("a is better: clean 95.0 -> ")
    assert ("falls by 6.0 points, and you allow 2. On the 100 held-out rows it fell by 1.0" in sentence) == said
    assert ("Mind the clean accuracy" in sentence) == said
    assert "with another one, too" not in sentence
    tried.append(tried[1].model_copy(update={"candidate": "encoded around a"}))
    encoded = state.model_copy(update={"winner": "encoded around a", "tried": tried})
    assert sentence_of(encoded, better=True).endswith("attack it with another one, too, such as --lexicon roget.")
