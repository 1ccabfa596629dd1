"""A gate for models: measured figures against required ones, with an answer that CI can use.

A requirement names a figure of a run and a bound. The gate is careful: for `>=` the lower end of the figure's 95 %
interval must reach the bound, for `<=` the upper end. A figure that was not measured fails, and so does every figure of
a model that has not learnt its task.
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import pyarrow.parquet as pq
from numpy.typing import NDArray
from scipy.special import softmax

from rosewood.attacks import TEXTATTACK
from rosewood.attacks.worst import THREATS, Worst
from rosewood.comparison.runs import EvaluatedRun, load_runs
from rosewood.config import strict_yaml
from rosewood.errors import RunError, closest
from rosewood.evaluation.metrics import bin_of
from rosewood.results import AttackSummary, SetResult
from rosewood.results.evaluation import described, guessed_sets, guesses_before, is_guessing
from rosewood.results.grid import Grid, to_markdown

ROLES = ("clean", "shift", "adversarial", "noise")
_FORM = re.compile(r"\s*([^<>=\s]+)\s*(>=|<=)\s*(\d*\.?\d+)\s*(%?)\s*")
_RESAMPLES, _BINS = 1000, 10


@dataclass(frozen=True)
class Requirement:
    """A figure and its bound, such as `worst:words >= 0.40`.

    Figures: `clean`, `shift`, `adversarial` and `noise` (mean accuracy of these sets), the name of a set, the name of
    an attack (`pwws`; `worst:words` is the attack `worst` with a setting of that value), `ece`, `macro_f1` and
    `worst_group`, which are those of the clean sets.
    """

    figure: str
    sign: Literal[">=", "<="]
    bound: float

    @classmethod
    def parse(cls, text: str) -> Requirement:
        """Read `FIGURE>=NUMBER` or `FIGURE<=NUMBER`; the number is a share, or has a percent sign.

        >>> Requirement.parse("worst:words >= 40%")
        Requirement(figure='worst:words', sign='>=', bound=0.4)
        """
        found = _FORM.fullmatch(text)
        if found is None:
            raise RunError(f"a requirement is FIGURE>=NUMBER or FIGURE<=NUMBER, such as clean>=0.85, got {text!r}")
        figure, sign, number, percent = found.groups()
        bound = float(number) / (100 if percent else 1)
        if not 0 <= bound <= 1:
            raise RunError(f"{text!r}: the bound is a share from 0 to 1, or a percentage with %, got {number}")
        return cls(figure, ">=" if sign == ">=" else "<=", round(bound, 12))

    def __str__(self) -> str:
        return f"{self.figure} {self.sign} {self.bound:g}"


class GateFigure(NamedTuple):
    """A measured figure: what it is, its value, its 95 % interval if it has one, and why it does not count, if so."""

    what: str
    value: float
    interval: tuple[float, float] | None
    invalid: str = ""


@dataclass(frozen=True)
class Checked:
    """A requirement, the figure that was measured, and whether it is met."""

    requirement: Requirement
    figure: GateFigure | None
    reason: str

    @property
    def passed(self) -> bool:
        return not self.reason


@dataclass(frozen=True)
class Gate:
    """All requirements of a run, checked."""

    run: Path
    checked: Sequence[Checked]

    @property
    def passed(self) -> bool:
        """Whether every requirement is met."""
        return all(each.passed for each in self.checked)

    def grid(self) -> Grid:
        """The requirements as a table."""
        rows = [
            [
                str(each.requirement),
                "–" if each.figure is None else each.figure.what,
                "–" if each.figure is None else f"{each.figure.value:.3f}",
                _ends(each.figure),
                "passed" if each.passed else "FAILED",
            ]
            for each in self.checked
        ]
        caption = ">= compares the lower end of the 95 % interval, <= the upper end, or the value if there is none."
        return Grid(
            f"Gate of {self.run.name}", ["requirement", "figure", "value", "95 % interval", "result"], rows, caption, 5
        )

    def reasons(self) -> list[str]:
        """Why requirements are not met, a sentence for each."""
        return [f"{each.requirement}: {each.reason}" for each in self.checked if not each.passed]

    def markdown(self) -> str:
        """The table and the reasons, for a pull request or a job summary."""
        listed = "".join(f"- {reason}\n" for reason in self.reasons())
        return f"{'✅ passed' if self.passed else '❌ failed'}\n\n{to_markdown(self.grid())}\n\n{listed}"

    def junit(self) -> str:
        """The requirements as test cases, in the XML that CI systems read."""
        failures = sum(not each.passed for each in self.checked)
        suite = ElementTree.Element(
            "testsuite", name="rosewood gate", tests=str(len(self.checked)), failures=str(failures)
        )
        for each in self.checked:
            case = ElementTree.SubElement(
                suite, "testcase", classname=f"rosewood.gate.{self.run.name}", name=str(each.requirement)
            )
            if not each.passed:
                ElementTree.SubElement(case, "failure", message=each.reason)
        return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True) + "\n"


def _ends(figure: GateFigure | None) -> str:
    return "–" if figure is None or figure.interval is None else "{:.3f} to {:.3f}".format(*figure.interval)


def gate(run: str | Path, requirements: Sequence[str | Requirement], suite: str | None = None) -> Gate:
    """Check what was measured of a run against requirements.

    Args:
        run: a run or a folder with `evaluation.json`, as `rosewood evaluate` and `rosewood attack` leave it.
        requirements: such as `"clean>=0.85"`, `"worst:words>=0.40"`, `"ece<=0.08"`.
        suite: the suite whose evaluation counts; by default the latest evaluation.

    Returns:
        The gate; `gate(...).passed` says whether all requirements are met.

    Raises:
        RunError: the run was not evaluated, or a requirement cannot be read.

    Example:
        >>> gate("runs/rose", ["clean>=0.5", "clean>=0.99"]).passed
        False
    """
    wanted = [each if isinstance(each, Requirement) else Requirement.parse(each) for each in requirements]
    if not wanted:
        raise RunError("a gate needs at least one requirement, such as clean>=0.85")
    (found,) = load_runs([run], suite)
    guessing = ""
    if is_guessing(found.evaluation):
        guessing = f"the model has not learnt its task: {described(guessed_sets(found.evaluation))}"
    return Gate(Path(run), [_check(each, found, guessing) for each in wanted])


def read_requirements(path: Path) -> list[str]:
    """The requirements in a YAML file: a list under the key `require`."""
    plain = strict_yaml.read(path, "requirements", RunError)
    listed = plain.get("require") if isinstance(plain, dict) and set(plain) == {"require"} else None
    if not isinstance(listed, list) or not all(isinstance(each, str) for each in listed):
        raise RunError(f"{path}: expected the key require with a list of texts such as clean>=0.85, and no other key")
    return list(listed)


def _check(requirement: Requirement, run: EvaluatedRun, guessing: str) -> Checked:
    figure = _figure(requirement.figure, run)
    if figure is None:
        return Checked(requirement, None, _missing(requirement.figure, run))
    if guessing or figure.invalid:
        return Checked(requirement, figure, guessing or figure.invalid)
    low, high = figure.interval or (figure.value, figure.value)
    reached = low >= requirement.bound if requirement.sign == ">=" else high <= requirement.bound
    end, number = ("lower", low) if requirement.sign == ">=" else ("upper", high)
    what = f"the {end} end of its interval is {number:.3f}" if figure.interval else f"it is {number:.3f}"
    return Checked(requirement, figure, "" if reached else what)


def _figure(name: str, run: EvaluatedRun) -> GateFigure | None:
    """The figure of that name; `set:` and `attack:` tell a set from an attack of the same name."""
    kind, _, rest = name.partition(":")
    if kind in ("set", "attack"):
        return (_of_set if kind == "set" else _of_attack)(rest, run)
    of_set, of_attack = _of_set(name, run), _of_attack(name, run)
    if of_set is not None and of_attack is not None:
        raise RunError(f"{name} is a set and an attack of {run.folder}: write set:{name} or attack:{name}")
    return _of_all(name, run) or of_set or of_attack


def _of_all(name: str, run: EvaluatedRun) -> GateFigure | None:
    """A figure over several sets."""
    evaluation = run.evaluation
    clean = [each for each in evaluation.sets if each.role == "clean"]
    if name in ROLES:
        means = [each for each in evaluation.means if each.name == name]
        return GateFigure(f"mean accuracy, {name} sets", means[0].value, means[0].interval) if means else None
    if name == "ece" and clean:
        return _calibration(run, clean)
    if name == "macro_f1":
        scores = [each.macro_f1 for each in clean if each.macro_f1 is not None]
        return GateFigure("macro F1, clean sets", float(np.mean(scores)), None) if scores else None
    if name == "worst_group":
        groups = [each.worst for each in clean if each.worst is not None]
        found = (GateFigure(f"accuracy on {each.kind} {each.group}", each.accuracy, each.interval) for each in groups)
        return min(found, default=None, key=_lower_end)
    return None


def _of_set(name: str, run: EvaluatedRun) -> GateFigure | None:
    sets = [each for each in run.evaluation.sets if each.name == name]
    return GateFigure(f"accuracy on {name}", sets[0].accuracy, sets[0].interval) if sets else None


def _of_attack(name: str, run: EvaluatedRun) -> GateFigure | None:
    """Robust accuracy; of several attacks of that name the lowest."""
    found = [_under_attack(name, summary) for names, summary in _attacks(run) if name in names]
    return min(found, default=None, key=_lower_end)


def _lower_end(figure: GateFigure) -> float:
    return figure.value if figure.interval is None else figure.interval[0]


def _attacks(run: EvaluatedRun) -> Iterator[tuple[set[str], AttackSummary]]:
    """The names that each attack on the run goes by, and its figures."""
    made = [(each.report.attack, each.report.settings, each.report.summary) for each in run.attacks]
    made += [(each.attack, each.settings, each.summary) for each in run.evaluation.attacks]
    for attack, settings, summary in made:
        yield {attack, *(f"{attack}:{value}" for value in settings.values() if isinstance(value, str))}, summary


def _under_attack(name: str, summary: AttackSummary) -> GateFigure:
    invalid = ""
    if not summary.attacked:
        invalid = "too few words could be changed: the examples count as not attacked"
    elif guesses_before(summary):
        invalid = "the model is at guessing on the attacked examples"
    what = f"robust accuracy under {name}, {summary.examples} examples"
    return GateFigure(what, summary.robust_accuracy, summary.robust_interval, invalid)


def _calibration(run: EvaluatedRun, clean: Sequence[SetResult]) -> GateFigure:
    """The mean calibration error of the clean sets; its interval is a bootstrap over the kept predictions."""
    value, what = float(np.mean([each.ece for each in clean])), "calibration error, clean sets"
    if not run.predictions.exists():
        return GateFigure(what, value, None)
    resampled = []
    for each in clean:
        confidence, right = _predictions(run.predictions, each.name)
        own, errors = _resampled_errors(confidence, right)
        if abs(own - each.ece) > 1e-4:  # other predictions, or labels that merge several of the model's
            return GateFigure(what, value, None)
        resampled.append(errors)
    low, high = np.quantile(np.mean(resampled, axis=0), [0.025, 0.975])
    return GateFigure(what, value, (float(min(low, value)), float(max(high, value))))


def _predictions(path: Path, name: str) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
    table = pq.ParquetFile(path).read(columns=["set", "label", "prediction", "logits"]).to_pylist()
    rows = [row for row in table if row["set"] == name]
    logits = np.array([row["logits"] for row in rows], dtype=np.float64)
    return softmax(logits, axis=1).max(axis=1), np.array([row["label"] == row["prediction"] for row in rows])


def _resampled_errors(confidence: NDArray[np.float64], right: NDArray[np.bool_]) -> tuple[float, NDArray[np.float64]]:
    """The expected calibration error of all examples, and of resamples of them."""
    count = len(right)
    bins = bin_of(confidence, _BINS)
    gaps = np.zeros((count, _BINS))
    gaps[np.arange(count), bins] = right - confidence
    weights = np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), size=_RESAMPLES)
    return float(np.abs(gaps.sum(axis=0)).sum() / count), np.abs(weights @ gaps).sum(axis=1) / count


def _missing(name: str, run: EvaluatedRun) -> str:
    known = [*ROLES, "ece", "macro_f1", "worst_group", *(each.name for each in run.evaluation.sets)]
    known += [attack for names, _ in _attacks(run) for attack in sorted(names)]
    own = run.evaluation.test_file
    on = "" if own is None else f" --test-file {own.file}"
    if name in known:
        return f"it was not measured: rosewood evaluate {run.folder}{on}"
    how = f"rosewood attack {run.folder}{on} {_options(name.removeprefix('attack:'))}"
    return f"it was not measured, {closest(name, known)} An attack: {how}"


def _options(figure: str) -> str:
    """What `rosewood attack` is given to measure a figure."""
    attack, _, setting = figure.partition(":")
    if attack == Worst().name and setting in THREATS:
        return f"--threat {setting}"
    return f"--attack {figure if figure.startswith(TEXTATTACK) else attack}"
