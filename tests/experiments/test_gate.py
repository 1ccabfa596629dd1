"""Gates: careful with intervals, strict with what was not measured, and readable for CI."""

import re
import shlex
from collections.abc import Callable
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import yaml

from cli.conftest import Rosewood, rosewood  # noqa: F401  a fixture
from reported_runs import write_run
from rosewood import gate
from rosewood.errors import RunError
from rosewood.evaluation.files import predictions_file, predictions_path, save_evaluation
from rosewood.evaluation.metrics import expected_calibration_error
from rosewood.experiments.gate import _RESAMPLES, Gate, Requirement, read_requirements
from rosewood.experiments.gate_fixture import rosewood_gate  # noqa: F401  a fixture
from rosewood.results import Evaluation
from tiny_harden import Place

CLEAN = "clean plain"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """30 of 40 right on clean text, with intervals of 0.1 to each side; 3 of 10 stay right under pwws."""
    return write_run(tmp_path / "mine", "rose", right=30)


@pytest.mark.parametrize(
    ("text", "figure", "sign", "bound"),
    [
        ("clean>=0.85", "clean", ">=", 0.85),
        (" worst:words >= 40 % ", "worst:words", ">=", 0.4),
        ("ece<=.08", "ece", "<=", 0.08),
    ],
)
def test_requirements_are_read(text: str, figure: str, sign: str, bound: float) -> None:
    assert Requirement.parse(text) == Requirement(figure, sign, bound)  # type: ignore[arg-type]


@pytest.mark.parametrize("text", ["clean", "clean=0.8", ">=0.8", "clean>=x", "clean>=85", "clean>=0.8 extra", ""])
def test_what_cannot_be_read_is_an_error(text: str) -> None:
    with pytest.raises(RunError, match=r"FIGURE>=NUMBER|share from 0 to 1"):
        Requirement.parse(text)


def test_lower_ends_of_intervals_decide(run: Path) -> None:
    found = gate(run, ["clean>=0.65", "clean>=0.66", "clean<=0.85", "clean<=0.84", "imdb>=0.5"])
    assert [each.passed for each in found.checked] == [True, False, True, False, True]
    assert not found.passed and gate(run, ["clean>=0.65"]).passed
    assert "lower end of its interval is 0.650" in found.checked[1].reason


def test_attacks_are_figures(run: Path) -> None:
    (checked,) = gate(run, ["pwws>=0.99"]).checked
    assert checked.figure is not None and checked.figure.value == pytest.approx(0.3)
    (named,) = gate(run, ["pwws:NULL>=0.99"]).checked
    assert named.figure is not None and named.figure[1:] == checked.figure[1:]
    (other,) = gate(run, ["pwws:nothing>=0"]).checked
    assert not other.passed and other.figure is None


def test_a_name_of_a_set_and_an_attack_must_say_which(run: Path) -> None:
    found = Evaluation.load(run / "evaluation.json")
    sets = [each.model_copy(update={"name": "pwws"}) if each.name == "imdb" else each for each in found.sets]
    save_evaluation(found.model_copy(update={"sets": sets}), run)
    with pytest.raises(RunError, match=r"write set:pwws or attack:pwws"):
        gate(run, ["pwws>=0.1"])
    one, other = gate(run, ["set:pwws>=0.1", "attack:pwws>=0.1"]).checked
    assert one.figure is not None and other.figure is not None
    assert (one.figure.value, other.figure.value) == pytest.approx((0.65, 0.3))
    assert one.figure.what == "accuracy on pwws" and "robust accuracy under pwws" in other.figure.what


def test_what_was_not_measured_fails(run: Path) -> None:
    (checked,) = gate(run, ["textfooler>=0"]).checked
    assert not checked.passed
    assert f"rosewood attack {run} --attack textfooler" in checked.reason


@pytest.mark.parametrize(
    ("figure", "options"),
    [
        ("worst:characters", "--threat characters"),
        ("attack:worst:words", "--threat words"),
        ("worst", "--attack worst"),
        ("pwws:other", "--attack pwws"),
        ("textattack:pruthi", "--attack textattack:pruthi"),
    ],
)
def test_the_attack_that_is_proposed_measures_the_figure(run: Path, figure: str, options: str) -> None:
    (checked,) = gate(run, [f"{figure}>=0.1"]).checked
    assert checked.reason.endswith(f"An attack: rosewood attack {run} {options}")


def test_a_model_at_guessing_meets_nothing(tmp_path: Path) -> None:
    folder = write_run(tmp_path / "guesses", "rose", right=30)
    found = Evaluation.load(folder / "evaluation.json")
    (clean,) = [each for each in found.sets if each.role == "clean"]
    halves = [clean.groups[0].model_copy(update={"group": name}) for name in ("negative", "positive")]
    low = clean.model_copy(update={"accuracy": 0.5, "interval": (0.4, 0.6), "groups": halves})
    save_evaluation(found.model_copy(update={"sets": [low, *found.sets[1:]]}), folder)
    checked = gate(folder, ["clean>=0.1", "imdb>=0.1"]).checked
    assert [each.passed for each in checked] == [False, False]
    assert "has not learnt its task" in checked[0].reason


def test_the_interval_of_calibration_is_a_bootstrap(run: Path) -> None:
    rng = np.random.default_rng(1)
    logits = rng.normal(size=(40, 2)).astype(np.float32)
    labels = rng.integers(2, size=40)
    names = ["negative", "positive"]
    found = Evaluation.load(run / "evaluation.json")
    with predictions_file(predictions_path(run, found.suite, found.task)) as file:
        predicted = [names[i] for i in logits.argmax(1)]
        file.write(CLEAN, logits, [names[i] for i in labels], predicted, {})
    chances = np.exp(logits.astype(np.float64))
    chances /= chances.sum(1, keepdims=True)
    own = expected_calibration_error(chances, labels)
    sets = [each.model_copy(update={"ece": own}) if each.role == "clean" else each for each in found.sets]
    save_evaluation(found.model_copy(update={"sets": sets}), run)
    weights = np.random.default_rng(0).multinomial(40, np.full(40, 1 / 40), size=_RESAMPLES)
    slow = [expected_calibration_error(chances.repeat(w, axis=0), labels.repeat(w)) for w in weights]
    (checked,) = gate(run, ["ece<=1"]).checked
    assert checked.figure is not None and checked.figure.value == pytest.approx(own)
    assert checked.figure.interval == pytest.approx(tuple(np.quantile(slow, [0.025, 0.975])))


def test_calibration_without_its_predictions_has_no_interval(run: Path) -> None:
    (checked,) = gate(run, ["ece<=0.1"]).checked
    assert checked.figure is not None and checked.figure.interval is None and checked.passed


def test_the_command_says_it_to_people_and_to_ci(run: Path, tmp_path: Path, rosewood: Rosewood) -> None:  # noqa: F811
    file = tmp_path / "gate.yaml"
    file.write_text("require:\n  - clean>=0.65\n", encoding="utf-8")
    junit, markdown = tmp_path / "out" / "gate.xml", tmp_path / "gate.md"
    options = ["--requirements", file, "--junit", junit, "--markdown", markdown]
    assert "passed" in rosewood("gate", run, *options)
    printed = rosewood("gate", run, *options, "--require", "imdb>=0.99", code=1)
    assert "FAILED" in printed
    suite = ElementTree.parse(junit).getroot()
    assert (suite.get("tests"), suite.get("failures")) == ("2", "1")
    assert [case.find("failure") is None for case in suite] == [True, False]
    assert markdown.read_text(encoding="utf-8").startswith("❌ failed")
    assert "nothing is required" in rosewood("gate", run, code=1)


@pytest.mark.parametrize(
    "text", ["clean>=0.5", "require: clean>=0.5", "require: [1]", "other: []", "require: [", "- a"]
)
def test_a_file_of_another_form_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "gate.yaml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(RunError, match=r"gate\.yaml"):
        read_requirements(path)


def test_the_fixture_fails_the_test(run: Path, rosewood_gate: Callable[..., Gate]) -> None:  # noqa: F811
    assert rosewood_gate(run, "clean>=0.65").passed
    with pytest.raises(pytest.fail.Exception, match=r"imdb >= 0\.99"):
        rosewood_gate(run, "clean>=0.65", "imdb>=0.99")


def test_the_workflow_of_the_page_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rosewood: Rosewood) -> None:  # noqa: F811
    page = (Path(__file__).parents[2] / "docs" / "gate.md").read_text(encoding="utf-8")
    requirements, workflow = re.findall(r"```yaml\n(.*?)```", page, flags=re.DOTALL)
    steps = yaml.safe_load(workflow)["jobs"]["gate"]["steps"]
    commands = [shlex.split(step["run"])[1:] for step in steps if step.get("run", "").startswith("rosewood")]
    assert [words[0] for words in commands] == ["evaluate", "attack", "gate"]
    place = Place(tmp_path)
    place.classifier(name="runs/mine")
    (tmp_path / "data").mkdir()
    place.test.rename(tmp_path / "data" / "test.csv")
    (tmp_path / "gate.yaml").write_text(requirements, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for words in commands:  # so short a training leaves the model unsure of its right answers
        rosewood(*words, code=1 if words[0] == "gate" else 0)
    suite = ElementTree.parse("gate.xml").getroot()
    assert [case.find("failure") is None for case in suite] == [True, False]
    assert "ece" in Path("gate.md").read_text(encoding="utf-8").splitlines()[-1]
