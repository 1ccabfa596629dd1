"""Result files: how all of them are written, read and named, and files and folders that a crash leaves whole."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from hashlib import sha256
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as package_version
from pathlib import Path
from platform import python_version
from tempfile import TemporaryDirectory
from typing import Annotated, Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from rosewood.errors import RunError

# The underscore keeps the Trainer's uploads to the Hub away from it.
UNFINISHED = "_unfinished"


def check_there(run: str | Path) -> None:
    """Refuse a run or checkpoint that is not there; a text that is not a path may be a name on the Hub."""
    is_path = isinstance(run, Path) or run.startswith((".", "/", "~", "runs/")) or run.count("/") > 1
    if is_path and not Path(run).exists():
        raise RunError(f"there is no run or checkpoint {run}")


def cache_folder() -> Path:
    """ROSEWOOD_CACHE, or `rosewood` in the user's cache folder."""
    if own := os.environ.get("ROSEWOOD_CACHE"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rosewood"


def sync(path: Path) -> None:
    """Wait until a file, or the list of names in a folder, is on the disk."""
    is_folder = path.is_dir()
    if is_folder and os.name == "nt":  # Windows has no such call, and keeps names in its journal
        return
    handle = os.open(path, os.O_RDONLY if is_folder else os.O_RDWR)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def append_line(path: Path, text: str) -> None:
    """Add a line to a file and wait until it is on the disk."""
    with path.open("ab") as file:
        file.write(text.encode() + b"\n")
        file.flush()
        os.fsync(file.fileno())


def write_whole(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old one or the new one, never half of one."""
    write_bytes_whole(path, text.encode("utf-8"))


def write_bytes_whole(path: Path, content: bytes) -> None:
    """As `write_whole`, for a file that is not text."""
    with replacing(path) as temporary, temporary.open("xb") as file:
        file.write(content)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file to write, which takes the place of `path` at the end, synced; after a failure nothing has changed."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary.unlink(missing_ok=True)  # never follow a link that somebody left under that name
        yield temporary
        sync(temporary)
        temporary.replace(path)
        sync(path.parent)
    finally:
        with suppress(OSError):
            temporary.unlink()


def staged_path(place: Path) -> Path:
    """Where a folder is filled before it becomes `place`."""
    return place.parent / UNFINISHED / place.name


@contextmanager
def staged(place: Path) -> Iterator[Path]:
    """A folder to fill, which becomes `place` at the end, synced and whole; after a failure nothing has changed."""
    new = staged_path(place)
    shutil.rmtree(new.parent, ignore_errors=True)
    new.mkdir(parents=True)
    try:
        yield new
        for path in new.rglob("*"):
            sync(path)
        sync(new)
        if place.exists():
            place.rename(new.with_name(f"replaced-{place.name}"))
        new.rename(place)
        sync(place.parent)
    finally:
        shutil.rmtree(new.parent, ignore_errors=True)


@contextmanager
def new_folder(place: Path) -> Iterator[Path]:
    """A folder to fill, made beside its place and moved there, so that there never is half of one."""
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        with TemporaryDirectory(dir=place.parent, prefix=".new-") as temporary:
            folder = Path(temporary) / "folder"
            folder.mkdir()
            yield folder
            folder.rename(place)
    except OSError as error:
        raise RunError(f"cannot write {place}: {error}. Check the folder and the space left.") from error


Share = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=0)]


def fingerprint_of(facts: Any, ordered: bool = True) -> str:
    """A hash of plain data: equal for equal data, in every process and on every machine.

    Args:
        facts: What JSON can hold.
        ordered: Whether the order of the entries of a mapping counts.

    Returns:
        16 hexadecimal digits.
    """
    return sha256(json.dumps(facts, sort_keys=not ordered).encode()).hexdigest()[:16]


def now() -> datetime:
    """The present moment with its time zone, to the second."""
    return datetime.now(UTC).replace(microsecond=0)


def installed_versions() -> dict[str, str]:
    """Versions of Python and of the packages that can change a result."""
    packages = ("rosewood", "torch", "transformers", "accelerate", "datasets")
    found = {"python": python_version()} | {name: package_version(name) for name in packages}
    with suppress(PackageNotFoundError):  # an extra
        found["peft"] = package_version("peft")
    return found


def write(path: Path, text: str) -> None:
    """Write a whole file, or say why that cannot be done."""
    try:
        write_whole(path, text)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}. Check the folder and the space left.") from error


class ResultPart(BaseModel):
    """A piece of a result: no unknown fields, and never changed."""

    # A diverged run has a loss of NaN or infinity: as strings they stay valid JSON and load again.
    model_config = ConfigDict(extra="forbid", frozen=True, ser_json_inf_nan="strings")


def append(path: Path, part: ResultPart) -> None:
    """Add a line to a journal that a killed process goes on with, or say why that cannot be done."""
    try:
        append_line(path, part.model_dump_json())
    except OSError as error:
        raise RunError(
            f"cannot write {path}: {error.strerror}. Check the folder and the space left; "
            "the same command then goes on where this one ended."
        ) from error


class ResultFile(ResultPart):
    """A file with a format version; a change that old readers would misread raises `newest`."""

    newest: ClassVar[int] = 1

    version: int = 1

    def save(self, path: str | Path) -> None:
        """Write the result so that a reader sees the old file or the new one, never half of one."""
        write(Path(path), self.model_dump_json(indent=2) + "\n")

    @classmethod
    def load(cls, path: str | Path) -> Self:
        """Read a saved result, or say why this file is not one."""
        path = Path(path)
        try:
            text = path.read_text(encoding="utf-8")
        except FileNotFoundError:
            raise RunError(
                f"{path} does not exist. Expected a saved {cls.__name__}; check the path, "
                "or repeat the step that writes it."
            ) from None
        except (OSError, UnicodeDecodeError) as error:
            raise RunError(f"cannot read {path}: {error}") from error
        return cls._parse(text, path)

    @classmethod
    def finished(cls, path: Path | None, fingerprint: str) -> Self | None:
        """The result of an earlier call, if there is one; refused if its `fingerprint` is another."""
        if path is None or not path.exists():
            return None
        found = cls.load(path)
        if getattr(found, "fingerprint", None) != fingerprint:
            raise RunError(
                f"{path} holds results for other models, on other data or with other settings: "
                "choose another --output, or delete it."
            )
        return found

    @classmethod
    def _parse(cls, text: str, path: Path) -> Self:
        try:
            # The version alone first: a newer format may differ in every other field.
            found = _Version.model_validate_json(text).version
            if found > cls.newest:
                raise RunError(
                    f"{path} has format version {found}; this Rosewood reads up to {cls.newest}. "
                    "Upgrade Rosewood, or write the file again with this one."
                )
            return cls.model_validate_json(text)
        except ValidationError as error:
            raise RunError(
                f"{path} is not a valid {cls.__name__}: {_first_problem(error)}. "
                "The file is damaged or of another kind; repeat the step that writes it."
            ) from error


class _Version(BaseModel):
    version: int


def _first_problem(error: ValidationError) -> str:
    problem = error.errors(include_url=False)[0]
    place = ".".join(str(part) for part in problem["loc"])
    return f"{place}: {problem['msg']}" if place else problem["msg"]
