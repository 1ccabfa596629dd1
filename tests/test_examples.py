"""The examples run offline on tiny sizes, and stay short."""

from __future__ import annotations

import csv
import json
import runpy
import sys
from pathlib import Path
from typing import Any

import pytest

from rosewood import load_split, load_task
from tiny_harden import Place

EXAMPLES = Path(__file__).parent.parent / "examples"
SCRIPTS = sorted(EXAMPLES.glob("*.py"))
NOTEBOOKS = sorted(EXAMPLES.glob("notebooks/*.ipynb"))


def run(name: str, *words: str) -> int:
    """The exit code of an example, in this process: importing torch again would take longer than the example."""
    before = sys.argv
    sys.argv = [name, *words, "--tiny"]
    try:
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    except SystemExit as end:
        return int(end.code or 0)
    finally:
        sys.argv = before
    return 0


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the first example leaves."""
    folder = tmp_path_factory.mktemp("model")
    assert run("trainer_in_two_lines.py", "--output", str(folder)) == 0
    return folder


@pytest.fixture(scope="module")
def test_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Reviews as a CSV file of one's own."""
    task = load_task("reviews")
    path = tmp_path_factory.mktemp("data") / "test.csv"
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file)
        writer.writerow(["text", "label"])
        for row in load_split(task, "test", size=16):
            writer.writerow([" ".join(row["text"].split()[:12]), task.labels[row["label"]]])
    return path


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_an_example_is_short_and_says_how_it_is_run(script: Path) -> None:
    source = script.read_text(encoding="utf-8")
    assert len(source.splitlines()) <= 60
    assert f"python examples/{script.name}" in source


def test_trainer_in_two_lines(checkpoint: Path) -> None:
    assert (checkpoint / "model.safetensors").exists()
    assert (checkpoint / "tokenizer.json").exists()


def test_attack_a_checkpoint(checkpoint: Path, test_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("attack_a_checkpoint.py", str(checkpoint), str(test_file), "--output", "attacked") == 0
    assert "4 examples" in capsys.readouterr().out
    assert Path("attacked/attack.json").exists()


def test_new_method_in_one_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("new_method_in_one_file.py") == 0
    printed = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("plain ", "gradual "))]
    assert [line.split()[0] for line in printed] == ["plain", "gradual"]


def test_robustness_gate_says_no(checkpoint: Path, test_file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run("robustness_gate.py", str(checkpoint), str(test_file), "--require", "clean>=0.99") == 1
    assert "FAILED" in capsys.readouterr().out


def test_own_csv_to_hardened_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = Place(tmp_path)
    assert run("own_csv_to_hardened_model.py", str(place.train), "--model", place.classifier()) == 0
    assert "better beyond noise" in capsys.readouterr().out
    assert Path("hardened/harden.json").exists()


def cells(notebook: Path) -> list[str]:
    """The code of a notebook, without the cells that install packages."""
    plain = json.loads(notebook.read_text(encoding="utf-8"))
    code = [cell for cell in plain["cells"] if cell["cell_type"] == "code"]
    return ["".join(cell["source"]) for cell in code if "install" not in cell["metadata"].get("tags", [])]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(notebook: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ROSEWOOD_TINY", "1")
    names: dict[str, Any] = {"__name__": "__main__"}
    for source in cells(notebook):
        exec(compile(source, str(notebook), "exec"), names)
    assert len(names["table"] if "table" in names else names["result"].examples) >= 4


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_and_its_text_are_in_step(notebook: Path) -> None:
    jupytext = pytest.importorskip("jupytext")
    pair = [jupytext.read(path) for path in (notebook, notebook.with_suffix(".py"))]
    one, other = ([(cell.cell_type, cell.source) for cell in each.cells] for each in pair)
    assert one == other, "jupytext --sync examples/notebooks/*.py"
    assert not any(cell.get("outputs") for cell in pair[0].cells), "outputs are not kept"


def test_there_are_two_notebooks() -> None:
    assert len(NOTEBOOKS) == 2
