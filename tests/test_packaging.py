"""The wheel has everything that the package needs, and versions agree."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path
from zipfile import ZipFile

import pytest
import yaml

import rosewood

ROOT = Path(__file__).parent.parent
SOURCE = ROOT / "src" / "rosewood"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> ZipFile:
    pytest.importorskip("hatchling")
    folder = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    subprocess.run(build, cwd=ROOT, check=True, capture_output=True)
    (file,) = folder.glob("rosewood-*.whl")
    return ZipFile(file)


def test_the_wheel_has_every_file_of_the_package(wheel: ZipFile) -> None:
    files = [path for path in SOURCE.rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    expected = {path.relative_to(SOURCE.parent).as_posix() for path in files}
    assert expected <= set(wheel.namelist())
    kinds = {path.suffix for path in files}
    assert {".yaml", ".html", ".css", ".jsonl", ".typed", ".md"} <= kinds, "what a wheel easily loses"


def test_the_wheel_has_nothing_but_the_package(wheel: ZipFile) -> None:
    assert {name.split("/")[0] for name in wheel.namelist()} == {
        "rosewood",
        f"rosewood-{rosewood.__version__}.dist-info",
    }


def test_the_wheel_asks_for_no_extra_on_its_own(wheel: ZipFile) -> None:
    metadata = wheel.read(f"rosewood-{rosewood.__version__}.dist-info/METADATA").decode()
    needed = re.findall(r"^Requires-Dist: (.*)$", metadata, flags=re.MULTILINE)
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert len([each for each in needed if "extra ==" not in each]) == len(settings["dependencies"])


def test_the_newest_release_is_this_version() -> None:
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    releases = re.findall(r"^## \[(.+?)\] - (\d{4}-\d\d-\d\d)$", changes, flags=re.MULTILINE)
    assert releases[0][0] == rosewood.__version__
    assert [date for _, date in releases] == sorted((date for _, date in releases), reverse=True)
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert (citation["version"], str(citation["date-released"])) == releases[0]


def test_every_direct_dependency_is_pinned() -> None:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pinned = re.findall(r"^([\w.-]+)==", (ROOT / "constraints.txt").read_text(encoding="utf-8"), flags=re.MULTILINE)
    known = {name.lower().replace("_", "-") for name in pinned}
    wanted = [
        *settings["dependencies"],
        *(each for extra in settings["optional-dependencies"].values() for each in extra),
    ]
    names = {re.split(r"[<>=\[ ]", each)[0].lower().replace("_", "-") for each in wanted}
    assert not names - known


@pytest.mark.parametrize("workflow", sorted((ROOT / ".github" / "workflows").glob("*.yml")), ids=lambda path: path.name)
def test_a_workflow_calls_what_there_is(workflow: Path) -> None:
    jobs = yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"]
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), flags=re.MULTILINE)
    assert commands
    for command in commands:
        program, *words = command.split()
        assert (program == "make" and set(words) <= set(targets)) or (ROOT / program).exists(), command


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "uv pip install --system --no-cache --torch-backend cpu -c constraints.txt torch==1.2"),
        ({"PIP_EXTRA_INDEX_URL": "somewhere"}, "pip install --no-cache-dir torch==1.2+cpu"),
        ({"DEVICE": "gpu"}, "pip install --no-cache-dir torch==1.2"),
        ({"DEVICE": "gpu", "PIP_EXTRA_INDEX_URL": "somewhere"}, "pip install --no-cache-dir torch==1.2"),
        ({"DEVICE": "tpu"}, None),
    ],
)
def test_the_image_is_for_processors_unless_a_gpu_is_asked_for(
    settings: dict[str, str], expected: str | None, tmp_path: Path
) -> None:
    """The Dockerfile's own commands, with programs that only write down how they were called."""
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    (script,) = re.findall(r"^RUN (.*?)\nWORKDIR", dockerfile, flags=re.MULTILINE | re.DOTALL)
    defaults = dict(re.findall(r"^ARG (\w+)=(.*)$", dockerfile, flags=re.MULTILINE))
    for name in ("pip", "uv"):
        (tmp_path / name).write_text(f'#!/bin/sh\necho "{name} $*" >> called\n', encoding="utf-8")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "constraints.txt").write_text("accelerate==1\ntorch==1.2\n", encoding="utf-8")
    script = script.replace("\\\n", "").replace("rm -rf /src", "true")
    found = subprocess.run(
        ["sh", "-c", script],
        cwd=tmp_path,
        env={**defaults, **settings, "PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    called = (tmp_path / "called").read_text(encoding="utf-8").splitlines() if expected else []
    assert (found.returncode == 0) == (expected is not None), found.stderr
    assert [line for line in called if "torch==" in line] == ([expected] if expected else [])
