"""The race: who goes on after a stage, what is made of the finalists, and who wins on held-out rows.

Everything that is decided is decided from what is written down, by functions that give the same answer again: a start
after Ctrl-C or a kill reads what is finished, does what is not, and comes to the same choice and the same weights.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rich import get_console

from rosewood.data.loading import load_split
from rosewood.errors import ExperimentError
from rosewood.experiments.cell import ERROR, duration
from rosewood.experiments.engines.local import CellEngine, Event
from rosewood.experiments.harden.candidates import (
    START,
    Trained,
    Untrained,
    behind,
    defence_of,
    encodes,
    untrained,
    uses_lexicon,
)
from rosewood.experiments.harden.schedule import (
    USED,
    Stopwatch,
    judged_within,
    judging_seconds,
    measurement_seconds,
    stage_seconds,
)
from rosewood.experiments.harden.stage import (
    MADE,
    RUN,
    WORK,
    WRAPPED,
    Work,
    choosing_task,
    result_file,
    shielded,
    work_on_candidate,
)
from rosewood.results import HARDENING, CandidateFigures, Decision, Hardening, Schedule
from rosewood.results.evaluation import majority_share
from rosewood.results.files import write_whole
from rosewood.training.callbacks import Interrupted

FILE, CANDIDATES = HARDENING, "candidates"
News = Callable[[Hardening, str], None]
"""Called with what is known so far and a sentence about what has happened."""


class Here:
    """An engine that works in this process: nothing has to be started, and no model is loaded by two at a time."""

    def run(self, folders: Sequence[Path]) -> Iterator[Event]:
        """One candidate after the other."""
        for folder in folders:
            yield Event(folder, "started")
            with bars_on_terminals_only():
                try:
                    work_on_candidate(folder)
                except Interrupted:
                    raise KeyboardInterrupt from None
            yield Event(folder, "ended")


@contextmanager
def bars_on_terminals_only() -> Iterator[None]:
    """Bars of training say nothing in a file or a pipe, where they cannot move."""
    console = get_console()
    before, console.quiet = console.quiet, console.quiet or not sys.stdout.isatty()
    try:
        yield
    finally:
        console.quiet = before


@dataclass
class Race:
    """A hardening under way: what is known, and how the rest comes about."""

    state: Hardening
    output: Path
    base: Work
    """The start's work, which the others' differ from in a few fields."""
    entrants: Sequence[Trained]
    around: Sequence[str]
    """Defences that may be put around a model."""
    engine: CellEngine
    watch: Stopwatch
    news: News

    @property
    def attacks(self) -> int:
        """How often test rows are attacked, at most: a winner that encodes a lexicon also meets another one."""
        return 2 if any(map(encodes, self.around)) and any(map(uses_lexicon, self.state.threats)) else 1

    def update(self, said: str = "", **changes: object) -> None:
        """Write down what has become known, before anything is done with it."""
        spent = self.watch.spent(self.output)
        self.state = self.state.model_copy(update=changes | {"spent": round(spent, 3)})
        self.state.save(self.output / FILE)
        self.news(self.state, said)

    def folder(self, candidate: str) -> Path:
        """Where a candidate is worked on; names of recipes may be paths."""
        plain = "".join(sign if sign.isalnum() or sign in "+-.@" else "_" for sign in candidate)
        return self.output / CANDIDATES / plain[-120:]

    def run(self) -> str:
        """All stages; the name of the winner, which may be the start."""
        assert self.state.schedule is not None
        self.measure([self.base], 0, "the model as it is")
        self._check_start()
        self.measure([self._made(Untrained(START, defence), 0) for defence in self.around], 0, "no training")
        self._choose_shield()
        going = self._racing()
        for stage in range(1, len(self.state.schedule.keep) + 1):
            self.measure([self._trained(name, stage) for name in going], stage, f"stage {stage}")
            going = self._kept(stage, going)
        finalists = [self.entrant(name) for name in going]
        stage = len(self.state.schedule.keep) + 1
        fitting = self._fitting(untrained(finalists, self.around, self.shield_of), stage)
        self.measure([self._made(each, stage) for each in fitting], stage, "made without training")
        winner = self.choice()
        self.update(winner=winner)
        return winner

    def _choose_shield(self) -> None:
        """The defence that did best around the start, if it is better than none: the race is run behind it."""
        if self.state.shield is None:
            best = self.work_of(self.choice()).defence
            said = f"{best} helps: all candidates are measured with it around them" if best else ""
            self.update(said, shield=best)

    @property
    def shield(self) -> str:
        """The defence around all candidates of the race, or none."""
        return self.state.shield or ""

    def shield_of(self, entrant: Trained) -> str:
        """The defence around an entrant: that of all, or its own front end where that of all has no such part."""
        return entrant.front_end if entrant.front_end and not encodes(self.shield) else self.shield

    def shielded(self, name: str) -> str:
        """What the candidate is called that an entrant is in the race, from the name of its recipe."""
        return behind(self.shield_of(next(each for each in self.entrants if each.name == name)), name)

    def _racing(self) -> list[str]:
        assert self.state.schedule is not None
        return [self.shielded(name) for name in self.state.schedule.entrants]

    def _check_start(self) -> None:
        """A model that guesses cannot be misled: whatever it keeps under attack is not robustness."""
        labels = load_split(choosing_task(self.output), "test", size=self.base.clean_rows, seed=self.base.seed)["label"]
        start, share = self.state.last(START), majority_share(labels[:])
        if share is not None and start.clean_accuracy <= share:
            raise ExperimentError(
                f"your model is at guessing: right on {start.clean_accuracy:.1%} of the held-out rows, and always "
                f"answering the most frequent label on {share:.1%}. Fine-tune it first, or correct the order of its "
                "outputs with --labels"
            )

    def measure(self, works: Sequence[Work], stage: int, what: str) -> None:
        """Have candidates worked on, as many as have not been, and write down how they did, in their order."""
        by_folder = {self.folder(work.candidate): work for work in works}
        waiting = [folder for folder in by_folder if not result_file(folder, stage).exists()]
        for folder in waiting:
            by_folder[folder].save(folder)
            (folder / ERROR).unlink(missing_ok=True)
        for event in self.engine.run(waiting):
            work = by_folder[event.folder]
            if event.what == "started":
                until = f", to step {work.until}" if work.kind == "trained" else ""
                self.news(self.state, f"{work.candidate}: {what}{until}")
            else:
                self._check(event, stage)
                found = CandidateFigures.load(result_file(event.folder, stage))
                self.update(self._said(found), **self.state.with_measured(found))
        for folder in by_folder:  # in one order, whichever ended first, and whoever has measured it
            found = CandidateFigures.load(result_file(folder, stage))
            self.state = self.state.model_copy(update=self.state.with_measured(found))
        racing = self._racing()
        first = [behind(defence, START) for defence in ("", *self.around)]
        now, earlier = [work.candidate for work in works], [each.candidate for each in self.state.tried]
        order = list(dict.fromkeys([*first, *racing, *now, *earlier]))
        self.update(tried=sorted(self.state.tried, key=lambda each: order.index(each.candidate)))

    def _check(self, event: Event, stage: int) -> None:
        if result_file(event.folder, stage).exists():
            return
        error = event.folder / ERROR
        if event.lost:
            write_whole(error, f"{event.lost}\n")
        why = error.read_text(encoding="utf-8").strip() if error.exists() else "it was stopped"
        raise ExperimentError(f"{event.folder.name} could not be finished: {why}\nRun the same command to retry it.")

    def _said(self, found: CandidateFigures) -> str:
        trained = f" after {found.steps} steps" if found.steps else ""
        return (
            f"{found.candidate}{trained}: clean {found.clean_accuracy:.1%}, robust {found.robust_accuracy:.1%} of "
            f"{len(found.robust)} held-out rows{self._left()}"
        )

    def _left(self) -> str:
        """What is left of the budget, unless the race is run whatever it takes."""
        if self.state.costs is None:
            return ""
        return f"; {duration(max(0.0, self.state.budget - self.watch.spent(self.output)))} left"

    def entrant(self, candidate: str) -> Trained:
        """The recipe of a candidate of the race."""
        return next(each for each in self.entrants if self.shielded(each.name) == candidate)

    def _trained(self, name: str, stage: int) -> Work:
        assert self.state.schedule is not None
        entrant = self.entrant(name)
        steps = self.state.schedule.steps[entrant.name]
        return self.base.model_copy(
            update={
                "candidate": name,
                "kind": "trained",
                "stage": stage,
                "recipe": entrant.recipe.to_dict(),
                "model": self.base.model if entrant.origin == "checkpoint" else self.base.pretrained,
                "arguments": self.base.arguments | {"max_steps": steps[-1]},
                "until": steps[stage - 1],
                "defence": self.shield_of(entrant),
            }
        )

    def _made(self, each: Untrained, stage: int) -> Work:
        changes: dict[str, object] = {"candidate": each.name, "stage": stage, "defence": each.defence}
        if isinstance(each.inside, str):
            changes |= {"model": str(self._bare(each.inside)), "made_of": [each.inside]}
        else:
            parts = {str(self._bare(name)): share for name, share in each.inside.of}
            changes |= {"kind": "mixture", "parts": parts, "made_of": [name for name, _ in each.inside.of]}
        return self.base.model_copy(update=changes)

    def _bare(self, name: str) -> Path:
        """The start's folder, or the finished run of an entrant, with no defence around it."""
        return Path(self.base.model) if name == START else self.folder(self.shielded(name)) / RUN

    def work_of(self, candidate: str) -> Work:
        """What was last asked for of a candidate."""
        return Work.model_validate_json((self.folder(candidate) / WORK).read_text(encoding="utf-8"))

    def run_of(self, candidate: str) -> Path:
        """The finished run of a candidate, its defence around it, or the folder of its model where it has none."""
        folder, work = self.folder(candidate), self.work_of(candidate)
        bare = {"trained": folder / RUN, "mixture": folder / MADE, "ready": Path(work.model)}[work.kind]
        if work.defence and not (folder / WRAPPED).exists():
            shielded(work, bare, folder / WRAPPED)
        return folder / WRAPPED if work.defence else bare

    def test_rows(self) -> int:
        """Test rows that are attacked: as many as there is time for, or as were asked for."""
        schedule, costs = self.state.schedule, self.state.costs
        assert schedule is not None
        if self.state.test_rows is None:
            rows = schedule.test_rows
            if costs is not None:
                left = USED * self.state.budget - self.watch.spent(self.output)
                attacks = 2 if encodes(defence_of(str(self.state.winner))) else 1
                rows = judged_within(costs, left / self._slowness(len(schedule.keep)), min(attacks, self.attacks))
            self.update(test_rows=rows)
        assert self.state.test_rows is not None
        return self.state.test_rows

    def _kept(self, stage: int, entered: list[str]) -> list[str]:
        """Who goes on: the better ones, as many as were planned, or as there is time for."""
        assert self.state.schedule is not None
        known = next((each for each in self.state.decisions if each.stage == stage), None)
        if known is None:
            ranked = sorted(entered, key=self.score, reverse=True)  # of equal ones the more promising
            keep = self.state.schedule.keep
            wanted = keep[stage] if stage < len(keep) else len(ranked)
            fits = wanted
            while fits > 1 and stage < len(keep) and self._forecast(stage, fits) > self.state.budget:
                fits -= 1
            cut = "" if fits == wanted else f"time is short: {fits} of {wanted} go on"
            known = Decision(stage=stage, entered=entered, kept=ranked[:fits], cut=cut)
            said = f"{', '.join(known.kept)} {'goes' if fits == 1 else 'go'} on{f' ({cut})' if cut else ''}"
            self.update(said if stage < len(keep) else "", decisions=[*self.state.decisions, known])
        for name in entered:
            if name not in known.kept:
                shutil.rmtree(self.folder(name) / RUN / "checkpoints", ignore_errors=True)
        return known.kept

    def score(self, candidate: str) -> float:
        """Robust accuracy; what the clean accuracy is below the limit is taken off it."""
        found, start = self.state.last(candidate), self.state.last(START)
        lost = start.clean_accuracy - found.clean_accuracy - self.state.max_clean_loss / 100
        return found.robust_accuracy - max(0.0, lost)

    def choice(self) -> str:
        """Of those within the limits: the most accurate one of those that are as robust as the best.

        As robust is what held-out rows cannot tell from it, within one standard error; more would be chosen by chance.
        The start stays if none is more robust than it.
        """
        allowed = [each for each in self.state.tried if self.allowed(each)]
        best, start = max(allowed, key=lambda each: each.robust_accuracy), self.state.last(START)
        better = [each for each in allowed if each.robust_accuracy > start.robust_accuracy]
        alike = [each for each in better if _is_as_robust(each, best)]
        return max(alike, key=lambda each: (each.clean_accuracy, each.robust_accuracy), default=start).candidate

    def allowed(self, found: CandidateFigures) -> bool:
        """Whether a candidate is as accurate without attacks, and as cheap, as was asked for."""
        lost = self.state.last(START).clean_accuracy - found.clean_accuracy
        return lost <= self.state.max_clean_loss / 100 + 1e-9 and found.cost <= self.state.max_cost

    def _fitting(self, candidates: Sequence[Untrained], stage: int) -> list[Untrained]:
        """The candidates without training that there is time for."""
        assert self.state.schedule is not None
        known = next((each for each in self.state.decisions if each.stage == stage), None)
        if known is None:
            count = min(len(candidates), self.state.schedule.mixtures)
            while count and self._forecast(stage - 1, mixtures=count) > self.state.budget:
                count -= 1
            names = [each.name for each in candidates]
            known = Decision(stage=stage, entered=names, kept=names[:count])
            self.update(decisions=[*self.state.decisions, known])
        return [each for each in candidates if each.name in known.kept]

    def _forecast(self, stage: int, going: int = 0, mixtures: int = 0) -> float:
        """Seconds of the whole at the end of a stage, if so many go on, and so many are made without training.

        What is left takes as many times longer than planned as the race has taken so far, if it was slower.
        """
        schedule, costs = self.state.schedule, self.state.costs
        if schedule is None or costs is None:  # a race that is run whatever it takes
            return 0.0
        stages = self._stages(schedule)
        spent, slowness = self.watch.spent(self.output), self._slowness(stage)
        later = sum(stage_seconds(schedule, costs, number, min(going, count)) for number, count in stages[stage + 1 :])
        made = mixtures * measurement_seconds(costs, schedule.clean_rows, schedule.attacked_rows)
        return spent + slowness * (later + made + judging_seconds(costs, schedule.test_rows, self.attacks))

    def _slowness(self, stage: int) -> float:
        """How many times longer than planned everything to the end of a stage has taken; 1 if it was quicker."""
        schedule, costs = self.state.schedule, self.state.costs
        assert schedule is not None and costs is not None
        done = self._stages(schedule)[: stage + 1]
        planned = sum(stage_seconds(schedule, costs, number, count) for number, count in done)
        return max(1.0, (self.watch.spent(self.output) - self.state.planned_at) / planned)

    def _stages(self, schedule: Schedule) -> list[tuple[int, int]]:
        """The number of each stage, and of its candidates."""
        return list(enumerate([1 + len(self.around), *schedule.keep]))


def _is_as_robust(found: CandidateFigures, best: CandidateFigures) -> bool:
    """Whether it falls short of the best by one standard error at most, of their difference on the same rows.

    That is McNemar's statistic of 1 or less, from the rows that one of them withstands alone.
    """
    pairs = list(zip(found.robust, best.robust, strict=True))
    lost, won = pairs.count((False, True)), pairs.count((True, False))
    return lost <= won or (lost - won) ** 2 <= lost + won
