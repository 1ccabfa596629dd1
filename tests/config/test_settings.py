"""Settings are declared once: what older versions wrote still loads, and a new setting is one new field."""

from __future__ import annotations

import json
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

from rosewood.config import settings
from rosewood.config.settings import AttackSettings, Lora, RunSettings
from rosewood.errors import RunError
from rosewood.experiments.cell import Cell
from rosewood.results import AttackReport, RunInfo

BEFORE = Path(__file__).parent / "written_before"
"""What a run, an attack and cells of an experiment looked like before there were settings objects."""
KEPT = sorted((Path(__file__).parents[2] / "experiments" / "results").glob("*.tar.xz"))


def test_a_run_of_before_loads() -> None:
    info = RunInfo.load(BEFORE / "run.json")
    assert info.only(RunSettings) == RunSettings(
        model="/home/me/tiny/checkpoint", data_dir="/home/me/tiny/data", max_length=16
    )
    assert (info.recipe, info.task, info.status, info.examples["train"]) == ("r-drop", "tiny", "finished", 40)
    written = json.loads(info.model_dump_json())
    assert json.loads((BEFORE / "run.json").read_text()).items() <= written.items()
    assert written.keys() >= RunSettings.model_fields.keys(), "stored whole"


def test_an_attack_of_before_loads() -> None:
    report = AttackReport.load(BEFORE / "attack.json")
    assert report.only(AttackSettings) == AttackSettings(field="text", max_length=16, max_queries=20)
    raw = json.loads((BEFORE / "attack.json").read_text())
    raw["summary"]["min_changeable"] = 0.3
    assert AttackReport.model_validate(raw).min_changeable == 0.3
    assert json.loads(report.model_dump_json()).keys() >= AttackSettings.model_fields.keys(), "stored whole"


@pytest.mark.parametrize(
    ("file", "fingerprint"), [("cell.json", "a16aec9ba185a765"), ("cell-with-settings.json", "8f45e58c721d8680")]
)
def test_a_cell_of_before_has_the_same_fingerprint(file: str, fingerprint: str) -> None:
    cell = Cell.model_validate_json((BEFORE / file).read_text())
    assert cell.fingerprint == fingerprint
    assert Cell.model_validate_json(cell.model_dump_json(by_alias=True)).fingerprint == fingerprint


@pytest.mark.parametrize("archive", KEPT, ids=lambda path: path.name)
def test_the_cells_of_published_results_have_the_same_fingerprint(archive: Path) -> None:
    with tarfile.open(archive) as kept:
        files = [member for member in kept if member.name.endswith("/cell.json")]
        for file in files:
            content = kept.extractfile(file)
            assert content is not None
            assert Path(file.name).parent.name.endswith(Cell.model_validate_json(content.read()).fingerprint[:8])
    assert files


def test_the_words_of_settings_are_what_a_command_takes() -> None:
    chosen = RunSettings(
        labels=["bad", "good"],
        new_head=True,
        class_weights={"bad": 2.0, "good": 1.5},
        watch=["masks", "drift"],
        lora=Lora(rank=4, dropout=0.1, targets=["query", "value"]),
        seed=3,
    )
    words = chosen.words()
    assert " ".join(words) == (
        "--labels bad,good --new-head --class-weights bad=2,good=1.5 --watch masks --watch drift --lora-rank 4 "
        "--lora-alpha 8 --lora-dropout 0.1 --lora-targets query --lora-targets value --seed 3 --precision float32"
    )
    assert RunSettings().words() == ["--precision", "float32"]
    assert RunSettings.checked({"labels": "bad, good", "class_weights": "bad=2,good=1.5"}).class_weights == {
        "bad": 2.0,
        "good": 1.5,
    }


def test_everything_wrong_comes_at_once() -> None:
    with pytest.raises(RunError) as caught:
        RunSettings.checked({"max_lenght": 3, "train_size": 1, "lora": {"alpha": 2}})
    first, second, third = str(caught.value).splitlines()
    assert first == "train_size: input should be greater than or equal to 2, got 1"
    assert second == "lora.rank: field required"
    assert third.startswith("max_lenght: no such entry; did you mean max_length")


ONE_FILE = '''
"""In a process whose settings have one field more, and nothing else differs."""
import importlib.util, json, sys
from pathlib import Path

changed, before = Path(sys.argv[1]), Path(sys.argv[2])
spec = importlib.util.spec_from_file_location("rosewood.config.settings", changed)
module = importlib.util.module_from_spec(spec)
sys.modules["rosewood.config.settings"] = module
spec.loader.exec_module(module)

import rosewood.cli.train, rosewood.cli.attack
from typer.testing import CliRunner
from rosewood.cli import app
from rosewood.experiments.cell import Cell
from rosewood.experiments.experiment import build_experiment
from rosewood.experiments.grid import cells_of
from rosewood.experiments.tuning.search import TuningGoal
from rosewood.experiments.tuning.tune import _identity
from rosewood.results import AttackReport, RunInfo

for command in ("train", "tune", "attack"):
    shown = CliRunner().invoke(app, [command, "--help"], env={"COLUMNS": "200", "TERM": "dumb"}).output
    assert "--toy" in shown and "[3<=x<=9]" in shown and "A toy." in shown and "[default: 5]" in shown, shown
    needed = ["run", "--attack", "typos"] if command == "attack" else []
    wrong = CliRunner().invoke(app, [command, *needed, "--toy", "2"])
    assert wrong.exit_code == 2 and "greater than or equal to 3" in wrong.output, wrong.output

assert RunInfo.load(before / "run.json").toy == AttackReport.load(before / "attack.json").toy == 5
raw = {"name": "a", "recipes": ["vanilla"], "tasks": ["reviews", {"task": "sst2", "toy": 7}], "toy": 6,
       "attacks": ["typos", {"attack": "typos", "label": "b", "toy": 8}]}
first, second = cells_of(build_experiment(raw, "here"))
assert first.plan().toy == 6 and second.plan().toy == 7
assert [attack.toy for attack in first.attacks] == [5, 8]
assert json.loads(first.model_dump_json())["attacks"][1]["toy"] == 8
plain = [cells_of(build_experiment({**raw, "toy": toy, "attacks": []}, "here"))[0].fingerprint for toy in (None, 6)]
assert plain[0] != plain[1]
for file, fingerprint in (("cell.json", "a16aec9ba185a765"), ("cell-with-settings.json", "8f45e58c721d8680")):
    assert Cell.model_validate_json((before / file).read_text()).fingerprint == fingerprint
assert "toy" not in module.AttackSettings().deciding() and module.AttackSettings(toy=6).deciding()["toy"] == 6
plan = first.plan()
identities = [_identity(plan.model_copy(update={"toy": toy}), {}, TuningGoal()) for toy in (5, 6)]
assert "toy" not in identities[0] and identities[1]["toy"] == 6
print("all of it")
'''


def test_a_new_setting_is_one_new_field(tmp_path: Path) -> None:
    """Command line, YAML, Python and the files on disk know it, and what does not use it stays as it was."""
    text = Path(str(settings.__file__)).read_text(encoding="utf-8")
    toy = '    toy: Annotated[int, Field(ge=3, le=9), Option(TRAINING)] = 5\n    """A toy."""\n'
    for place in ("    lora: Lora | None = None\n", "    max_queries: Annotated["):
        assert text.count(place) == 1
        text = text.replace(place, toy + place)
    (tmp_path / "settings.py").write_text(text, encoding="utf-8")
    command = [sys.executable, "-c", ONE_FILE, str(tmp_path / "settings.py"), str(BEFORE)]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    assert found.stdout == "all of it\n", found.stderr
