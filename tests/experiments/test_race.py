"""Races whose candidates are made up: who wins, what it costs, and that a start after a kill decides alike."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

from rosewood.attacks import THREATS, worst
from rosewood.errors import ExperimentError, RecipeError, RosewoodError, RunError
from rosewood.experiments.engines.local import Event
from rosewood.experiments.harden.before_and_after import is_better, sentence_of
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


def figures(candidate: str, clean: float, robust: Sequence[int]) -> CandidateFigures:
    right = [row < round(1000 * clean) for row in range(1000)]
    return CandidateFigures(candidate=candidate, stage=0, steps=1, right=right, robust=[bool(each) for each in robust])


def test_of_candidates_that_rows_cannot_tell_apart_the_most_accurate_is_chosen(tmp_path: Path) -> None:
    start = figures(START, 0.9, [0] * 50)
    best = figures("a", 0.892, [1] * 22 + [0] * 28)
    alike = figures("b", 0.9, [0] * 3 + [1] * 20 + [0] * 27)  # right on one that the best is wrong on, wrong on three
    worse = figures("c", 0.91, [1] * 16 + [0] * 34)  # wrong on six, and right on none in their place
    for tried, winner in (([start, best, alike, worse], "b"), ([start, best, worse], "a"), ([start, worse], "c")):
        race = race_in(tmp_path, World(ENDS, COSTS), tried=tried)
        assert race.choice() == winner
    two_rows = figures("d", 0.95, [1] * 20 + [0] * 30)
    assert race_in(tmp_path, World(ENDS, COSTS), tried=[start, best, two_rows]).choice() == "a"
    noisy = [figures(START, 0.9, [1] * 24 + [0] * 56), figures("a", 0.9, [0] * 10 + [1] * 26 + [0] * 44)]
    below = figures("b", 0.92, [0] * 15 + [1] * 23 + [0] * 42)  # alike to a, and less robust than the start
    assert race_in(tmp_path, World(ENDS, COSTS), tried=[*noisy, below]).choice() == "a"
    short = np.array(best.robust, float) - np.array(alike.robust, float)
    assert 0 < short.mean() <= stats.sem(short) + 1e-9


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
    with pytest.raises(RosewoodError, match="did you mean typos"):
        threat_names("typso")
    with pytest.raises(RosewoodError, match="unknown threat 'charcters': did you mean characters"):
        threat_names("words,charcters")
    assert list(THREATS) == list(worst.THREATS)


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


def change(what: str, role: Any, before: float, after: float, interval: tuple[float, float], p: float) -> Change:
    return Change(
        what=what,
        role=role,
        examples=100,
        before=before,
        after=after,
        difference=after - before,
        interval=interval,
        p=p,
    )


def clean(after: float, interval: tuple[float, float] = (-0.2, 0.2)) -> Change:
    return change("clean", "clean", 0.95, after, interval, 0.5)


MORE = change("under characters", "threat", 0.02, 0.6, (0.44, 0.72), 1e-6)
LESS = change("under words", "threat", 0.3, 0.1, (-0.3, -0.1), 1e-6)
NOISE = change("under words", "threat", 0.3, 0.25, (-0.15, 0.05), 0.4)


@pytest.mark.parametrize(
    ("found", "better"),
    [
        ([clean(0.95), MORE], True),
        ([clean(0.93), MORE], True),  # as much as is allowed
        ([clean(0.929), MORE], False),  # a little more
        ([clean(0.89, (-0.11, -0.02)), MORE], False),  # its interval begins within the limit
        ([clean(0.94, (-0.2, -0.03)), MORE], True),
        ([clean(0.95), MORE, NOISE], True),
        ([clean(0.95), MORE, LESS], False),
        ([clean(0.95), NOISE], False),
        ([clean(0.95), MORE.model_copy(update={"interval": (0.0, 0.7)})], False),
        ([clean(0.95), MORE.model_copy(update={"p": 0.04}), NOISE], False),  # Holm's: 0.08
    ],
)
def test_better_is_more_robust_for_no_more_clean_accuracy_than_allowed(found: list[Change], better: bool) -> None:
    assert is_better(found, 2.0) == better


def ended(found: list[Change], winner: str = "a") -> Hardening:
    rows = {START: 95, winner: 94}
    tried = [
        CandidateFigures(candidate=name, stage=0, steps=0, right=[row < right for row in range(100)], robust=[True])
        for name, right in rows.items()
    ]
    return Hardening(
        identity="", command="", model="m", start="m", pretrained="p", task="t", threats=["characters"], budget=60,
        max_clean_loss=2.0, max_cost=1.0, tried=tried, winner=winner, changes=found,
    )  # fmt: skip


def test_the_sentence_says_why_a_more_robust_candidate_is_not_taken_and_where_it_is() -> None:
    said = sentence_of(ended([clean(0.89), MORE]), "candidates/a/run")
    assert said.startswith("Your model is unchanged: a is more robust, and loses more clean accuracy than you allow")
    assert (
        "On these 100 rows it falls by 6.0 points, and --max-clean-loss is 2; on the 100 held-out rows it fell by 1.0"
        in said
    )
    assert said.endswith("It is kept in candidates/a/run.")
    said = sentence_of(ended([clean(0.95), NOISE]), "candidates/a/run")
    assert said.startswith("Nothing is better beyond noise: your model is unchanged. The best candidate, a:")
    assert "It is kept in candidates/a/run." in said
    said = sentence_of(ended([clean(0.94), MORE]))
    assert said.startswith("a is better: clean 95.0 -> 94.0 %") and "kept" not in said


def test_of_an_encoded_winner_the_sentence_says_what_another_lexicon_leaves() -> None:
    other = change("words with roget", "lexicon", 0.4, 0.37, (-0.1, 0.04), 0.6)
    words = ended([clean(0.94), MORE], "encoded around a").model_copy(update={"threats": ["words"]})
    assert sentence_of(words).endswith("attack it with another one, too, such as --lexicon roget.")
    said = sentence_of(words.model_copy(update={"changes": [*words.changes, other]}))
    assert "the lexicon that it encodes. With words of another one: words with roget 40.0 -> 37.0 %" in said
    letters = ended([clean(0.94), MORE], "corrected+encoded around a")
    assert "lexicon" not in sentence_of(letters), "no word was replaced"
    assert is_better([clean(0.94), MORE, other], 2.0)


def test_what_learns_from_encoded_texts_races_with_the_encoding_in_front() -> None:
    def racing(threats: list[str], *around: str) -> dict[str, str]:
        return {each.name: each.front_end for each in entrants(threats, (), around) if "encoded" in each.name}

    assert racing(["words"], "encoded") == {"encoded": "encoded"}
    assert racing(["words", "characters"], "corrected", "encoded", "corrected+encoded") == {
        "encoded": "corrected+encoded"
    }
    assert racing(["words"]) == {}, "nobody wants wrappers"
    assert racing(["characters"], "corrected") == {}
    asked = entrants(["words"], ["augment:encoded", "augment"], ["encoded"])
    assert [each.front_end for each in asked] == ["encoded", ""]
    own = entrants(["words"], (), ["encoded"], "words.json")[1]
    assert own.overrides == ("perturbation.lexicon=words.json",), "the words of the front end"


def test_a_recipe_keeps_its_front_end_where_the_race_has_none(tmp_path: Path) -> None:
    """Around a plain model the encoding costs too much; a recipe that learns from encoded texts is the best with it."""
    ends = {START: (0.9, 0.3), "encoded around start": (0.8, 0.6), "a": (0.9, 0.4), "encoded around e": (0.9, 0.7)}
    race = race_in(tmp_path, World(ends | {"e": (0.7, 0.3)}, COSTS), around=["encoded"])
    race.entrants = [replace(each, front_end="encoded" if each.name == "e" else "") for each in race.entrants]
    assert race.run() == "encoded around e"
    assert race.state.shield == "" and {"a", "encoded around e"} <= {each.candidate for each in race.state.tried}
    assert race.work_of("encoded around e").defence == "encoded" and race.entrant("encoded around e").name == "e"
