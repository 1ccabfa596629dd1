"""Rosewood is extended from outside: an installed package brings a file for each thing, and nothing else is touched."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tiny_suite import LABELS, write
from tiny_text import save_tiny_checkpoint

TESTS = Path(__file__).parent
FILES = {
    "selections/alternate.py": '''
"""Every second tensor in every second step."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from rosewood.models.parameters import candidate_names
from rosewood.protocol import Masks, Readings, Run, Selection, Selector


@dataclass(frozen=True)
class Alternate(Selection):
    """Moves the even candidates in even steps and the odd ones in odd steps."""

    masked = "freeze"

    start_with_odd: bool = False

    def start(self, run: Run) -> Selector:
        return Alternating(candidate_names(run.model), self.start_with_odd)


class Alternating(Selector):
    def __init__(self, names: list[str], odd: bool) -> None:
        self.names = names
        self.odd = odd

    def masks(self, readings: Readings) -> Masks:
        parity = (torch.arange(len(self.names)) + readings.at.step + self.odd) % 2
        return Masks(self.names, (parity == 0).float())
''',
    "attacks/backwards.py": '''
"""Words spelt backwards, one after the other."""

from __future__ import annotations

from dataclasses import dataclass

from rosewood.attacks.runner.attack import Attack
from rosewood.attacks.runner.search import Search, Target, move


@dataclass(frozen=True)
class Backwards(Attack):
    """Spells words backwards, from the first on."""

    max_words: int = 3

    def search(self, target: Target) -> Search:
        words = list(target.words)
        for at in range(min(self.max_words, len(words))):
            words[at] = words[at][::-1]
            yield move([tuple(words)])
''',
    "defences/lowered.py": '''
"""Texts in small letters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rosewood.models.defended import Defence, Floats, Learnt, Shield
from rosewood.models.scoring import Row, Scorer


@dataclass(frozen=True)
class Lowered(Defence):
    """The model reads every text in small letters."""

    def start(self, learnt: Learnt) -> Shield:
        return Lowering()


class Lowering(Shield):
    def logits(self, rows: Sequence[Row], base: Scorer) -> Floats:
        found = np.empty((len(rows), base.classes))
        for batch in base.batches([tuple(text.lower() for text in row) for row in rows]):
            found[batch.rows] = batch.logits
        return found
''',
    "sections/thorns.py": '''
"""How many thorns there are."""

from rosewood.report.sections import Section
from rosewood.report.sections import section


@section(35)
def thorns(subject):
    """A sentence."""
    return Section("Thorns", [], f"There are {len(subject.runs)} runs with thorns.")
''',
    "recipes/thorny.yaml": """
title: Thorny
selection: {name: alternate, start_with_odd: true}
""",
    "tasks/thorns.yaml": """
name: thorns
title: Thorns
text: [text]
labels: [negative, positive]
splits: {train: {folder: {file: train.jsonl}}, test: {folder: {file: test.jsonl}}}
""",
    "protocols/pruned.yaml": """
name: pruned
title: Pruned
citation: nobody
examples: 6
attacks: {backwards: {set: {max_words: 1}}}
""",
    "suites/bushes.yaml": """
name: bushes
title: Bushes
text: [text]
labels: [negative, positive]
sets: {garden: {role: clean, title: Garden, folder: {file: garden.jsonl}}}
""",
}
ACTS = """
import json, sys
from pathlib import Path

from typer.testing import CliRunner

from rosewood import load_recipe
from rosewood.cli import app, attack, defences, evaluate, explain, listing, report, train

def run(*words):
    result = CliRunner().invoke(app, [str(word) for word in words])
    if result.exception and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == 0, result.output
    return result.output

listed = {"attacks": "backwards", "tasks": "thorns", "suites": "bushes", "defences": "lowered", "recipes": "thorny"}
listed["protocols"] = "pruned"
for what, name in listed.items():
    assert name in run("list", what)
place = Path(sys.argv[1])
common = ("--model", place / "checkpoint", "--max-length", 16, "--set", "training.max_steps=3", "--batch-size", 4)
run("train", "--recipe", "thorny", "--task", "thorns", "--output", place / "run", *common)
run("attack", place / "run", "--attack", "backwards", "--set", "max_words=2", "--examples", 6)
run("evaluate", place / "run", "--suite", "bushes")
run("wrap", place / "run", "--with", "lowered", "--output", place / "lowered")
run("attack", place / "lowered", "--protocol", "pruned", "--examples", 3)
run("report", place / "run", "--output", place / "report.html")
print(json.dumps([
    load_recipe("thorny").selection.settings(),
    [json.loads(path.read_text())["settings"] for path in (place / "run" / "attacks").glob("*/attack.json")],
    "There are 1 runs with thorns." in (place / "report.html").read_text(),
    [json.loads(path.read_text()) for path in (place / "lowered" / "attacks").glob("*/attack.json")],
]))
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of installed packages, with one in it that extends Rosewood."""
    site = tmp_path_factory.mktemp("site")
    for name, text in FILES.items():
        (site / "thorns_for_rosewood" / name).parent.mkdir(parents=True, exist_ok=True)
        (site / "thorns_for_rosewood" / name).write_text(text.lstrip(), encoding="utf-8")
    (site / "thorns_for_rosewood" / "__init__.py").write_text('"""Thorns."""\n')
    write(site / "thorns_for_rosewood" / "tasks" / "train.jsonl", 40, seed=0)
    write(site / "thorns_for_rosewood" / "tasks" / "test.jsonl", 20, seed=1)
    write(site / "thorns_for_rosewood" / "suites" / "garden.jsonl", 20, seed=2)
    facts = site / "thorns_for_rosewood-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: thorns-for-rosewood\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[rosewood.components]\nthorns = thorns_for_rosewood\n")
    return site


def python(site: Path, *words: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    command = [sys.executable, *words]
    return subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True, check=False)


def test_a_package_brings_one_file_for_each_thing(installed: Path, tmp_path: Path) -> None:
    save_tiny_checkpoint(tmp_path / "checkpoint", tuple(LABELS))
    found = python(installed, "-c", ACTS, str(tmp_path))
    assert found.returncode == 0, found.stderr
    recipe, attacks, reported, (pruned,) = json.loads(found.stdout.splitlines()[-1])
    assert recipe == {"start_with_odd": True}
    assert attacks == [{"max_words": 2}]
    assert reported
    assert (pruned["protocol"], pruned["settings"]) == ("pruned", {"max_words": 1})
    assert pruned["deviations"] == ["examples: 3 instead of 6"]
    history = (tmp_path / "run" / "history.jsonl").read_text().splitlines()
    assert len(history) == 3


def test_a_name_that_is_there_twice_is_an_error(installed: Path, tmp_path: Path) -> None:
    package = tmp_path / "second"
    (package / "attacks").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "attacks" / "backwards.py").touch()
    facts = tmp_path / "second-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: second\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text("[rosewood.components]\nsecond = second\n")
    code = f"import sys; sys.path.append({str(tmp_path)!r}); from rosewood.config.registry import component_names; "
    found = python(installed, "-c", code + "component_names('attack')")
    expected = (
        "backwards is there twice, as second.attacks.backwards and thorns_for_rosewood.attacks.backwards: rename one"
    )
    assert expected in found.stderr
