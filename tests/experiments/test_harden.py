"""Hardenings of a tiny classifier: a recipe that is known to be the best, and one that helps nobody."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable
from io import StringIO
from pathlib import Path

import pytest
import torch
from huggingface_hub import ModelCard
from rich.console import Console
from safetensors.torch import load_file
from transformers import pipeline
from typer.testing import CliRunner

from rosewood.cli import commands
from rosewood.data import loading
from rosewood.data.loading import load_split
from rosewood.errors import DataError, ExperimentError
from rosewood.evaluation.files import load_evaluation
from rosewood.experiments.engines.local import CellEngine, LocalEngine
from rosewood.experiments.harden import harden as module
from rosewood.experiments.harden import schedule
from rosewood.experiments.harden.board import show_end
from rosewood.experiments.harden.candidates import behind
from rosewood.experiments.harden.harden import harden
from rosewood.experiments.harden.schedule import CLOCK, Stopwatch, counted, seconds_of, ticking
from rosewood.experiments.harden.stage import whole_task
from rosewood.report import hub
from rosewood.results import Hardening
from tiny_harden import HIDDEN, Counted, Place, write_rows

pytestmark = pytest.mark.filterwarnings("ignore:the training loss is no better than guessing")


STILL = {"learning_rate": 1e-8, "per_device_train_batch_size": 16}
"""Training that changes nothing."""


class Spied:
    """A place, a hardening of it, and the test rows' readers: what harden.json said when they read them."""

    def __init__(self, folder: Path) -> None:
        self.place = Place(folder)
        self.model = self.place.classifier()
        self.moments: list[str | None] = []
        real = loading.read_file

        def reading(file: Path, *rest: object) -> object:
            if Path(file).resolve() == self.place.test.resolve():
                state = folder / "hardened" / "harden.json"
                self.moments.append(Hardening.load(state).winner if state.exists() else None)
            return real(file, *rest)  # type: ignore[arg-type]

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(loading, "read_file", reading)
            self.found = self.place.harden(self.model)


@pytest.fixture(scope="module")
def spied(tmp_path_factory: pytest.TempPathFactory) -> Spied:
    return Spied(tmp_path_factory.mktemp("harden"))


def test_the_recipe_that_is_known_to_be_best_wins(spied: Spied) -> None:
    found, output = spied.found, spied.place.folder / "hardened"
    assert found.outcome == "hardened"
    assert found.winner is not None and "substitution" in found.winner
    threat = next(each for each in found.changes if each.role == "threat")
    assert threat.difference > 0.2 and threat.p is not None and threat.p < 0.001
    assert {"clean", "noise", "calibration"} <= {each.role for each in found.changes}
    for name in ("report.html", "model/README.md", "trade-off.html", "run.json", "evaluation.json"):
        assert (output / name).stat().st_size > 0
    assert "How it was hardened" in (output / "model" / "README.md").read_text(encoding="utf-8")


def test_noise_and_calibration_of_the_start_are_measured_on_held_out_rows(spied: Spied) -> None:
    output = spied.place.folder / "hardened"
    found = load_evaluation(output / "candidates" / "start")
    rows = len((output / "data" / "choosing.jsonl").read_text(encoding="utf-8").splitlines())
    assert {each.examples for each in found.sets} == {rows}
    assert [each.role for each in found.sets].count("noise") == 3
    assert all(0 <= each.ece <= 1 for each in found.sets)


def test_the_end_is_readable_in_80_columns(spied: Spied) -> None:
    console = Console(width=80, file=StringIO(), record=True)
    show_end(spied.found, spied.place.folder / "hardened", console)
    lines = console.export_text().splitlines()
    for each in spied.found.changes:  # a row for each, on a line
        row = next(line for line in lines if line.strip().startswith(f"{each.what} "))
        assert f"{100 * each.before:.1f}" in row and f"{100 * each.difference:+.1f}" in row
    after = [line for line in lines if re.search(r"\[\w+ -> \w+\]", line)]
    assert len(after) == 3, "three texts with their changed words"


def test_the_result_loads_with_plain_transformers(spied: Spied) -> None:
    classify = pipeline("text-classification", model=str(spied.place.folder / "hardened" / "model"))
    assert classify("this film the bonny story")[0]["label"] == "1"
    assert classify("this film the stale story")[0]["label"] == "0"


def made_again(found: Hardening) -> Path:
    """Types the commands that make a winner again; the folder of the last."""
    for line in found.reproduce.splitlines():
        words = shlex.split(line)
        ended = CliRunner().invoke(commands(), words[1:])
        assert ended.exit_code == 0, ended.output
    return Path(words[words.index("--output") + 1])


def weights_in(folder: Path) -> dict[str, torch.Tensor]:
    (file,) = folder.rglob("model.safetensors")
    return dict(load_file(file))


def test_the_command_makes_the_same_weights_again(spied: Spied, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(spied.place.folder)
    again = weights_in(made_again(spied.found))
    winner = weights_in(spied.place.folder / "hardened" / "model")
    assert winner.keys() == again.keys() and all(torch.equal(winner[name], again[name]) for name in winner)


def test_test_rows_are_read_only_after_the_choice(spied: Spied) -> None:
    assert spied.moments and all(winner == spied.found.winner for winner in spied.moments)


@pytest.mark.parametrize("where", ["file", "task", "kept back"])
def test_test_rows_that_nobody_can_read_before_the_choice_are_no_hindrance(
    spied: Spied, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    """Until the choice is written down the rows are such that any reader of them raises."""
    output, poisoned = tmp_path / "hardened", tmp_path / "test.csv"
    rows, poison = spied.place.test.read_bytes(), b"text,label\n\xff\xfe poison,neither label\n"
    changes: dict[str, object] = {"test_file": poisoned}
    task = "name: own\ntitle: Own\ntext: [text]\nlabels: ['0', '1']\nsplits:\n  train: {folder: {file: "
    task += f"{spied.place.train}}}}}\n"
    if where == "task":
        task += f"  test: {{folder: {{file: {poisoned}}}}}\n"
    if where == "kept back":
        poisoned = output / "data" / "test.jsonl"
    if where != "file":
        (tmp_path / "own.yaml").write_text(task, encoding="utf-8")
        changes = {"train_file": None, "test_file": None, "task": tmp_path / "own.yaml"}
    if where != "kept back":
        poisoned.write_bytes(poison)
    real_divide, real_save, cured = module.divide, Hardening.save, []

    def dividing(*given: object) -> None:
        nonlocal rows
        real_divide(*given)  # type: ignore[arg-type]
        if where == "kept back":
            rows = poisoned.read_bytes()
            poisoned.write_bytes(poison)

    def saving(self: Hardening, path: Path) -> None:
        real_save(self, path)
        if self.winner is not None and not cured:
            cured.append(self.winner)
            assert poisoned.read_bytes() == poison
            poisoned.write_bytes(rows)

    monkeypatch.setattr(module, "divide", dividing)
    monkeypatch.setattr(Hardening, "save", saving)
    few = {"output": output, "candidates": [spied.place.best], "budget": 60, "console": Console(quiet=True)}
    found = spied.place.harden(spied.model, **few | changes)
    assert cured == [found.winner] and found.changes
    with pytest.raises(DataError):
        poisoned.write_bytes(poison)
        load_split(whole_task(output), "test")


def test_held_out_rows_are_in_no_other_part(spied: Spied) -> None:
    data = spied.place.folder / "hardened" / "data"
    train_rows, choosing = (set((data / name).read_text(encoding="utf-8").splitlines()) for name in
                            ("train.jsonl", "choosing.jsonl"))  # fmt: skip
    assert choosing and not train_rows & choosing
    assert not (data / "test.jsonl").exists()  # the user has test rows


def test_a_finished_hardening_stays_and_another_is_refused(spied: Spied) -> None:
    assert spied.place.harden(spied.model) == spied.found
    with pytest.raises(ExperimentError, match="holds another hardening"):
        spied.place.harden(spied.model, max_clean_loss=3.0)


def test_other_rows_that_choose_or_judge_are_another_hardening(spied: Spied, tmp_path: Path) -> None:
    other = write_rows(tmp_path / "other.csv", 80, 5)
    for changes in ({"test_file": other}, {"test_file": None}, {"eval_file": other}):
        with pytest.raises(ExperimentError, match="holds another hardening"):
            spied.place.harden(spied.model, **changes)
    before = spied.place.test.read_bytes()
    try:
        spied.place.test.write_bytes(before + b"the good story,1\n")  # the same name, other rows
        with pytest.raises(ExperimentError, match="holds another hardening"):
            spied.place.harden(spied.model)
    finally:
        spied.place.test.write_bytes(before)


def test_the_result_is_pushed_with_a_card_that_says_how_it_was_hardened(
    spied: Spied, monkeypatch: pytest.MonkeyPatch
) -> None:
    uploaded: list[dict[str, str]] = []

    class Stub:
        def create_repo(self, name: str, **_: object) -> str:
            return f"https://hub.test/{name}"

        def upload_folder(self, folder_path: Path, **_: object) -> None:
            uploaded.append({file.name: file.read_text(encoding="utf-8") for file in folder_path.glob("*.md")})

    monkeypatch.setattr(hub, "HfApi", Stub)
    output = spied.place.folder / "hardened"
    assert hub.push_run(output, "me/hardened") == "https://hub.test/me/hardened"
    card = uploaded[0]["README.md"]
    ModelCard(card)
    section = card.split("## How it was hardened")[1]
    assert "substitution is better" in section and "rosewood train" in section and "under pwws" in section
    assert str(spied.place.folder) not in section, "the folders of a machine are nobody's business"
    hub.write_card(output, hub.card_of(output))  # as `rosewood card` does
    assert (output / "model" / "README.md").read_text(encoding="utf-8") == card


def test_nothing_better_changes_nothing(spied: Spied) -> None:
    found = spied.place.harden(spied.model, "still", candidates=["vanilla"], training=STILL, budget=60)
    assert found.outcome == "unchanged"
    assert "Nothing is better beyond noise" in found.sentence and "unchanged" in found.sentence
    output = spied.place.folder / "still"
    assert not (output / "model").exists() and not (output / "run.json").exists()
    assert (output / "report.html").exists()


def test_a_pretrained_model_is_fine_tuned_first(spied: Spied) -> None:
    found = spied.place.harden(
        str(spied.place.encoder), "fresh", candidates=[f"{spied.place.best}@pretrained"], test_file=None, budget=150
    )
    output = spied.place.folder / "fresh"
    assert found.plain_steps is not None and found.plain_steps + 1 >= 0.3 * 150
    assert found.start == str((output / "candidates" / "start" / "run" / "model").resolve())
    assert [each.candidate for each in found.tried] == ["start", "substitution@pretrained"]
    assert (output / "data" / "test.jsonl").exists()  # kept back, since there is no test file


def test_an_encoded_winner_is_judged_with_another_lexicon_too(spied: Spied) -> None:
    lexicon = spied.place.folder / "both-ways.json"
    lexicon.write_text(json.dumps({word: [other] for pair in HIDDEN.items() for word, other in (pair, pair[::-1])}))
    changes = {"lexicon": str(lexicon), "wrapped": ["encoded"], "candidates": ["vanilla"], "training": STILL}
    found = spied.place.harden(spied.model, "encoded", **changes)
    assert found.outcome == "hardened" and str(found.winner).startswith("encoded around "), found.sentence
    (threat,), (other,) = ([each for each in found.changes if each.role == role] for role in ("threat", "lexicon"))
    assert (threat.what, other.what) == ("under pwws", "pwws with roget") and threat.difference > 0
    assert other.examples == threat.examples
    assert "With words of another one: pwws with roget" in found.sentence
    made = {json.loads(file.read_text())["lexicon"] for file in
            (spied.place.folder / "encoded" / "attacks").glob("*/attack.json")}  # fmt: skip
    assert len(made) == 2
    console = Console(width=80, file=StringIO(), record=True)
    show_end(found, spied.place.folder / "encoded", console)
    assert "pwws with roget" in console.export_text()


def test_a_model_that_guesses_is_refused(spied: Spied) -> None:
    with pytest.raises(ExperimentError, match="your model is at guessing"):
        spied.place.harden(spied.place.classifier(1, "raw"), "guessing", candidates=["vanilla"])


def test_what_cannot_be_is_said_before_any_work(tmp_path: Path) -> None:
    with pytest.raises(ExperimentError, match="a budget is a time such as 2h"):
        seconds_of("soon")
    with pytest.raises(ExperimentError, match="name the data"):
        harden("m", output=tmp_path / "out")
    with pytest.raises(ExperimentError, match="harden has no setting 'epochs'"):
        harden("m", "reviews", output=tmp_path / "out", epochs=3)
    assert not (tmp_path / "out").exists()


def test_the_clock_is_written_down_while_work_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "BEAT", 0.02)
    with ticking(Stopwatch(before=100.0), tmp_path, "mine"):
        end = time.monotonic() + 30
        while counted(tmp_path, "mine") < 100.05 and time.monotonic() < end:  # as a kill would leave it
            time.sleep(0.01)
        assert counted(tmp_path, "mine") >= 100.05
        assert counted(tmp_path, "another") == 0.0
    (tmp_path / CLOCK).write_text("half a fi", encoding="utf-8")
    assert counted(tmp_path, "mine") == 0.0


def test_time_that_a_killed_start_has_spent_counts(spied: Spied, monkeypatch: pytest.MonkeyPatch) -> None:
    befores: list[float] = []

    def watching(before: float) -> Stopwatch:
        befores.append(before)
        raise KeyboardInterrupt

    monkeypatch.setattr(module, "Stopwatch", watching)
    monkeypatch.setattr(module, "counted", lambda output, identity: 77.0)
    with pytest.raises(KeyboardInterrupt):
        spied.place.harden(spied.model, "killed early", watch=None)
    assert befores == [77.0]


SCRIPT = """
import os, signal, sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from rosewood.training.trainer import RobustTrainer
from rosewood.attacks.runner import execute
from rosewood.experiments.harden import schedule
from tiny_harden import Place

def killing(real, at, pause=0.0):
    left = [at]
    def wrapped(*args, **kwargs):
        left[0] -= 1
        if left[0] == 0:
            time.sleep(pause)
            os.kill(os.getpid(), signal.SIGKILL)
        return real(*args, **kwargs)
    return wrapped

place, output, kind, at = Place.existing(Path(sys.argv[2])), sys.argv[3], sys.argv[4], int(sys.argv[5])
if kind == "step":
    RobustTrainer.training_step = killing(RobustTrainer.training_step, at)
elif kind == "block":
    execute.FinishedBlock = killing(execute.FinishedBlock, at)
elif kind == "long":
    schedule.BEAT = 0.1
    RobustTrainer.training_step = killing(RobustTrainer.training_step, at, pause=6.0)
given = {"watch": None, "budget": 3600} if kind == "long" else {}
place.harden(str(place.folder / "plain" / "model"), output, **given)
"""


@pytest.mark.slow
def test_killed_three_times_it_ends_with_the_same_choice_and_weights(spied: Spied) -> None:
    folder = spied.place.folder
    here = str(Path(__file__).parent.parent)
    for kind, at in (("step", 7), ("block", 4), ("step", 9), ("none", 0)):
        words = [sys.executable, "-W", "ignore", "-c", SCRIPT, here, str(folder), "killed", kind, str(at)]
        ended = subprocess.run(words, capture_output=True, text=True)
        assert ended.returncode == (0 if kind == "none" else -9), ended.stderr
    again, whole = Hardening.load(folder / "killed" / "harden.json"), spied.found
    assert (again.winner, again.outcome, again.schedule) == (whole.winner, whole.outcome, whole.schedule)
    assert again.tried == whole.tried and again.changes == whole.changes
    first, second = (load_file(folder / name / "model" / "model.safetensors") for name in ("hardened", "killed"))
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.slow
def test_the_seconds_of_a_long_stage_that_was_killed_are_counted(spied: Spied) -> None:
    output, here = spied.place.folder / "long", str(Path(__file__).parent.parent)
    words = [sys.executable, "-W", "ignore", "-c", SCRIPT, here, str(spied.place.folder), "long", "long", "12"]
    assert subprocess.run(words, capture_output=True).returncode == -9
    state = Hardening.load(output / "harden.json")
    assert counted(output, state.identity) >= state.spent + 5.0


def _local() -> CellEngine:
    return LocalEngine(2, [])


def _ray() -> CellEngine:
    pytest.importorskip("ray")
    from rosewood.experiments.engines.ray import RayEngine

    return RayEngine(address="local", cpus=1)


@pytest.mark.slow
@pytest.mark.parametrize("engine", [_local, _ray], ids=["two processes", "ray"])
def test_candidates_that_run_elsewhere_end_alike(spied: Spied, engine: Callable[[], CellEngine]) -> None:
    found = spied.place.harden(spied.model, engine.__name__, engine=engine())
    assert (found.winner, found.outcome, found.schedule) == (
        spied.found.winner,
        spied.found.outcome,
        spied.found.schedule,
    )
    assert found.tried == spied.found.tried and found.changes == spied.found.changes
    folders = (spied.place.folder / name / "model" for name in ("hardened", engine.__name__))
    first, second = (load_file(folder / "model.safetensors") for folder in folders)
    assert all(torch.equal(first[name], second[name]) for name in first)


@pytest.mark.slow
def test_three_candidates_and_two_threats_make_mixtures_a_soup_and_wrapped_models(
    spied: Spied, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = spied.place.harden(
        spied.model,
        "everything",
        threats="pwws,typos",
        candidates=["vanilla", "r-drop", spied.place.best],
        wrapped=["corrected"],
        budget=900,
    )
    names = [each.candidate for each in found.tried]
    assert found.decisions[0].entered == [
        behind(found.shield or "", name) for name in ("vanilla", "r-drop", "substitution")
    ]
    soups = [name for name in names if " + " in name and "start" not in name]
    assert len(soups) == 1 and "substitution" in soups[0], names
    assert any(" + " in name and name.endswith(" start") for name in names), "a mixture with the start"
    assert "corrected around start" in names
    assert found.schedule is not None and len(found.last(soups[0]).robust) == found.schedule.attacked_rows
    assert {each.what for each in found.changes if each.role == "threat"} == {"under pwws", "under typos"}
    assert found.outcome == "hardened" and "substitution" in str(found.winner)
    monkeypatch.chdir(spied.place.folder)
    again, winner = weights_in(made_again(found)), weights_in(spied.place.folder / "everything" / "model")
    assert all(torch.equal(winner[name], again[name]) for name in winner)


def test_time_that_is_counted_is_kept(spied: Spied) -> None:
    assert spied.found.spent <= 1.1 * spied.found.budget
    assert Counted().spent(spied.place.folder / "hardened") == pytest.approx(spied.found.spent, rel=0.05)
