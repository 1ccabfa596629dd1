"""What a person sees at a terminal of 80 columns, and how soon."""

from __future__ import annotations

import io
import os
import pty
import re
import subprocess
import sys
import termios
import warnings
from collections import Counter
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest
import typer
from rich.console import Console
from typer.core import TyperGroup

from cli.conftest import Rosewood
from reported_runs import write_run
from rosewood.cli import PANELS, commands, plain_warnings
from rosewood.cli.train import report
from rosewood.data import embedded
from rosewood.data.suites import load_suite, suite_names
from rosewood.data.tasks import load_task, task_names
from rosewood.models.names import models
from rosewood.recipe import recipe_names
from rosewood.results import Metrics
from tiny_text import save_tiny_checkpoint

SLOW = ("torch", "transformers", "datasets", "pandas", "scipy", "sklearn")
PROGRAM = [sys.executable, "-c", "from rosewood.cli import main; main()"]


@pytest.mark.parametrize("width", [60, 80, 150, 200])
def test_lists_cut_nothing(rosewood: Rosewood, monkeypatch: pytest.MonkeyPatch, width: int) -> None:
    expected = {
        "recipes": ["objective", "perturbation", "selection", "anchors", "memory", *recipe_names()],
        "attacks": ["what", "needs", "settings", "textfooler"],
        "models": ["million parameters", "from", *models(), *(w for m in models().values() for w in m.install.split())],
        "tasks": ["labels", "sets", *task_names(), *load_task("sst2").labels],
        "suites": ["labels", "sets", *suite_names(), *load_suite("sentiment").sets],
    }
    for what, names in expected.items():
        monkeypatch.setenv("COLUMNS", str(width))
        printed = rosewood("list", what)
        assert "…" not in printed and max(map(len, printed.splitlines())) <= width
        absent = [name for name in names if name not in printed and width != 60]
        assert not absent, f"{what} at {width} columns: {absent}"


def test_help_has_every_command_in_its_panel_and_in_order(rosewood: Rosewood, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    grouped = [name for names in PANELS.values() for name in names]
    group = typer.main.get_command(commands())
    assert isinstance(group, TyperGroup)
    assert list(group.commands) == grouped, "a command is in no panel, or a panel names one that is gone"
    printed = rosewood("--help")
    lines = re.findall(r"^(?:╭─ (\w+) ─|│ ([a-z]+)  )", printed, re.MULTILINE)
    expected = [each for panel, names in PANELS.items() for each in [(panel, ""), *(("", name) for name in names)]]
    assert [each for each in lines if each != ("Options", "")] == expected


def test_warnings_are_ours_once_and_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    ours = compile("import warnings\nwarnings.warn('[1] text is cut', stacklevel=2)", "ours.py", "exec")
    with plain_warnings():
        warnings.simplefilter("always")
        for _ in range(2):
            exec(ours, {"__name__": "rosewood.data.examples"})
        exec(ours, {"__name__": "transformers.trainer"})
        warnings.warn("from a library", FutureWarning, stacklevel=1)
    assert capsys.readouterr().err == "Warning: [1] text is cut\n"


def test_the_demo_without_its_extra_says_so_before_anything_slow(
    rosewood: Rosewood, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def absent(package: str) -> None:
        raise PackageNotFoundError(package)

    monkeypatch.setattr(embedded, "distribution", absent)
    monkeypatch.delitem(sys.modules, "rosewood.training.run", raising=False)
    assert "pip install rosewood[demo]" in rosewood("demo", "--output", tmp_path / "demo", code=1)
    assert "rosewood.training.run" not in sys.modules and not (tmp_path / "demo").exists()


@pytest.mark.parametrize(
    ("accuracy", "said"), [(1.0, "Give more of them with --eval-file"), (0.6, "is not more accurate than the most")]
)
def test_a_run_at_guessing_hears_what_it_lacks(accuracy: float, said: str, tmp_path: Path) -> None:
    """Three right answers of three prove nothing, but they are more than the share of the most frequent label."""
    folder, console = write_run(tmp_path / "run"), Console(file=io.StringIO(), width=500)
    Metrics(
        steps=2,
        epochs=1.0,
        train_loss=0.5,
        validation_accuracy=accuracy,
        validation_loss=0.5,
        validation_majority=0.7,
        at_guessing=True,
    ).save(folder / "metrics.json")
    report(folder, 1.0, console)
    (line,) = [each for each in console.file.getvalue().splitlines() if "at guessing" in each]  # type: ignore[attr-defined]
    assert said in line


def seen_on_a_terminal(*words: object) -> str:
    """What a command writes to a terminal, with the signs that move its cursor."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (24, 80))
    environment = os.environ | {"COLUMNS": "80", "TERM": "xterm", "OMP_NUM_THREADS": "1"}
    process = subprocess.Popen([*PROGRAM, *map(str, words)], stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    seen = b""
    try:
        while piece := os.read(ours, 4096):
            seen += piece
    except OSError:  # the terminal is gone with the process
        pass
    assert process.wait() == 0, seen.decode()
    os.close(ours)
    return seen.decode()


@pytest.mark.slow
def test_evaluate_and_attack_show_how_far_they_are(rosewood: Rosewood, tmp_path: Path) -> None:
    checkpoint = save_tiny_checkpoint(tmp_path / "checkpoint")
    films = tmp_path / "films.csv"
    rows = [f"{'good' if i % 2 else 'bad'} film {chr(97 + i % 26)}{i},{i % 2}" for i in range(400)]
    films.write_text("\n".join(["text,label", *rows]) + "\n")
    run = tmp_path / "run"
    data = ("--train-file", films, "--test-file", films, "--max-length", 16)
    rosewood("train", "--model", checkpoint, *data, "--epochs", 0.1, "--output", run)
    bar = re.compile(r"(\d+)/(\d+)")
    for words, name in ((("evaluate", run), "predict"), (("attack", run, "--attack", "typos"), "typos")):
        seen = seen_on_a_terminal(*words)
        assert re.search(rf"{name}.*?{bar.pattern}", seen), seen


DESCRIBED = """
import sys
import termios
from rosewood.cli.explain import stand_ins

def described(checked):
    from rosewood.recipe import load_recipe, recipe_names
    found = [load_recipe(name, check_training=checked) for name in recipe_names()]
    variants = [f"{recipe.name}:{each}" for recipe in found for each in recipe.variants]
    for recipe in [*found, *(load_recipe(name, check_training=checked) for name in variants)]:
        stages = recipe.all_stages()
        lines = [part.explain(stage) for stage in stages for part in stage.components()]
        yield recipe.name, lines, str(recipe.cost()), recipe.memory(), recipe.to_dict()

with stand_ins():
    quick = list(described(checked=False))
assert not {"torch", "transformers", "rosewood.recipe", "rosewood.protocol"} & set(sys.modules)
slow = list(described(checked=True))
assert isinstance(sys.modules["rosewood.protocol"].Tensor, type), "the real ones, once somebody wants to compute"
assert len(quick) > 30 and quick == slow
"""


def test_recipes_describe_themselves_alike_with_and_without_torch() -> None:
    subprocess.run([sys.executable, "-c", DESCRIBED], check=True)


LISTS = ("recipes", "attacks", "tasks", "suites", "models")


@pytest.mark.parametrize(
    "words", [("--help",), ("train", "--help"), ("explain", "rift"), *(("list", what) for what in LISTS)]
)
def test_what_only_prints_is_quick(words: tuple[str, ...]) -> None:
    quick(*words)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("train", "--recipe", "rose-secnd"), "did you mean rose-second"),
        (("train", "--set", "selection.keep=1"), "selection.keep"),
        (("train", "--task", "sst3"), "did you mean sst2"),
        (("tune", "--recipe", "vanila"), "did you mean vanilla"),
        (("train", "--train-file", "none.csv"), "none.csv: no such file"),
        (("train", "--model", "./none"), "there is no run or checkpoint ./none"),
        (("harden", "./none", "--task", "reviews"), "there is no run or checkpoint ./none"),
        (("harden", "minilm", "--train-file", "none.csv"), "none.csv: no such file"),
        (("harden", "minilm", "--task", "reviews", "--threat", "charcters"), "did you mean characters"),
        (("evaluate", "mine", "--test-file", "none.csv"), "none.csv: no such file"),
        (("evaluate", "minilm", "--task", "sst2"), "rosewood train --model minilm"),
        (("evaluate", "mine", "--task", "sst3"), "did you mean sst2"),
        (("attack", "./none", "--attack", "typos"), "there is no run or checkpoint ./none"),
        (("attack", "./none", "--attack", "deepwordbug"), "take typos or textbugger"),
        (("attack", "mpnet", "--attack", "typos"), "mpnet is a pre-trained model without a classification head"),
        (("wrap", "mine", "--with", "corected", "--output", "none"), "did you mean corrected"),
        (("wrap", "minilm", "--with", "corrected", "--output", "none"), "rosewood train --model minilm"),
        (("certify", "./none", "--with", "mask"), "there is no run or checkpoint ./none"),
        (("export", "./none", "--output", "onnx"), "there is no run or checkpoint ./none"),
        (("serve", "./none"), "there is no run or checkpoint ./none"),
        (("push", "none", "me/name"), "there is no run or checkpoint none"),
        (("average", "none", "--output", "soup"), "there is no run or checkpoint none"),
        (("gate", "none", "--require", "clean>=0.5"), "there is no run or checkpoint none"),
        (("table", "none"), "there is no run or checkpoint none"),
        (("geometry", "none"), "there is no run or checkpoint none"),
        (("dynamics", "none"), "there is no run or checkpoint none"),
        (("landscape", "none", "--output", "out"), "there is no run or checkpoint none"),
        (("interpolate", "none", "none", "--output", "out"), "there is no run or checkpoint none"),
        (("tradeoff", "none", "--over", "seed", "--under", "typos"), "there is no run or checkpoint none"),
        (("compare", "none.yaml"), "none.yaml: no such file, expected the YAML file of an experiment"),
        (("probe", "vanila", "--output", "out"), "did you mean vanilla"),
    ],
    ids=str,
)
def test_a_mistake_in_typing_is_said_quickly(words: tuple[str, ...], said: str) -> None:
    assert said in quick(*words, code=1)


def quick(*words: str, code: int = 0) -> str:
    """What a command prints, after a check that it has not imported what takes seconds to import.

    The time itself is not measured: on a busy machine it says nothing about the command.
    """
    done = subprocess.run(
        [sys.executable, "-X", "importtime", *PROGRAM[1:], *words],
        capture_output=True,
        text=True,
    )
    imported = re.findall(r"^import time:.*\| +(\S+)$", done.stderr, re.MULTILINE)
    said = done.stdout + re.sub(r"^import time:.*\n", "", done.stderr, flags=re.MULTILINE)
    assert done.returncode == code, said
    modules = Counter(name.partition(".")[0] for name in imported)
    assert modules["rosewood"] > 10, "nothing was counted"
    assert all(modules[name] < 50 for name in SLOW), "a few are stand-ins; the packages have hundreds"
    return said
