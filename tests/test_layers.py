"""Arrows point one way: a module imports its own layer's package or lower layers, never higher ones."""

import ast
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import rosewood

ROOT = Path(rosewood.__file__).parent
# From the top down; a module may import its own part and whatever is in a lower row. Parts of one row do not know each
# other, but for those of RECIPES, which together say what a recipe is.
LAYERS: list[tuple[str, ...]] = [
    ("__main__",),
    ("cli",),
    ("experiments", "lab/playground"),
    ("report",),
    ("lab", "optim"),
    ("training", "comparison"),
    ("evaluation",),
    ("attacks",),
    ("defences",),
    ("dynamics", "objectives"),
    ("perturbations", "selections", "anchors"),
    ("words",),
    ("models",),
    ("data",),
    ("recipe", "recipes", "protocol", "config"),
    ("tensors",),
    ("results",),
    ("config/settings",),
    ("config/attack_options",),
    ("errors",),
]
RECIPES = {"recipe", "protocol", "config"}
HEIGHT = {part: len(LAYERS) - row for row, parts in enumerate(LAYERS) for part in parts}
MODULES = sorted(path.relative_to(ROOT) for path in ROOT.rglob("*.py"))


def part_of(parts: Sequence[str]) -> str:
    """`selections/rose.py` -> `selections`, `recipe.py` -> `recipe`, `lab/playground/app.py` -> `lab/playground`."""
    nested = "/".join(parts[:2]).removesuffix(".py")
    return nested if nested in HEIGHT else parts[0].removesuffix(".py")


def imported_parts(source: str, module: Path) -> Iterator[str]:
    """The parts of rosewood that a module imports, also inside functions and for type checkers alone."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                package = ["rosewood", *module.parts[:-1]]
                base = ".".join([*package[: len(package) - node.level + 1], *([base] if base else [])])
            names = [f"{base}.{alias.name}" for alias in node.names]
        else:
            continue
        for name in names:
            root, *parts = name.split(".")
            if root == "rosewood":
                yield part_of(parts) if parts else "rosewood"


def allowed(importer: str, imported: str) -> bool:
    if importer == imported or {importer, imported} <= RECIPES:
        return True
    return HEIGHT.get(imported, 99) < HEIGHT[importer]


@pytest.mark.parametrize("module", [m for m in MODULES if m.name != "__init__.py" or len(m.parts) > 1], ids=str)
def test_imports_point_down(module: Path) -> None:
    importer = part_of(module.parts)
    assert importer in HEIGHT, f"{importer} has no layer: give it one in this file"
    for imported in imported_parts((ROOT / module).read_text(encoding="utf-8"), module):
        assert allowed(importer, imported), f"{module} ({importer}) may not import rosewood.{imported}"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("import rosewood.training.trainer", ["training"]),
        ("from rosewood import protocol, recipe", ["protocol", "recipe"]),
        ("from rosewood.data.tasks import Task", ["data"]),
        ("def f():\n    from ..training import trainer", ["training"]),
        ("from .everything import Everything", ["selections"]),
        (
            "if TYPE_CHECKING:\n    from rosewood.recipe import Recipe\nelse:\n    import rosewood.cli",
            ["recipe", "cli"],
        ),
        ("try:\n    import rosewood.cli\nexcept ImportError:\n    pass", ["cli"]),
        ("import torch\nfrom rosewoodish import x", []),
        ("import rosewood", ["rosewood"]),
    ],
)
def test_the_reader_of_imports(source: str, expected: list[str]) -> None:
    assert list(imported_parts(source, Path("selections/rose.py"))) == expected


@pytest.mark.parametrize(
    ("importer", "imported", "expected"),
    [
        ("selections", "training", False),
        ("selections", "anchors", False),
        ("evaluation", "training", False),
        ("evaluation", "comparison", False),
        ("attacks", "evaluation", False),
        ("attacks", "training", False),
        ("models", "words", False),
        ("data", "models", False),
        ("tensors", "protocol", False),
        ("recipe", "selections", False),
        ("results", "data", False),
        ("errors", "recipe", False),
        ("training", "rosewood", False),
        ("report", "experiments", False),
        ("lab", "report", False),
        ("lab/playground", "report", True),
        ("evaluation", "attacks", True),
        ("attacks", "defences", True),
        ("defences", "attacks", False),
        ("models", "defences", False),
        ("training", "evaluation", True),
        ("selections", "protocol", True),
        ("recipe", "protocol", True),
        ("data", "results", True),
        ("cli", "training", True),
    ],
)
def test_the_arrows(importer: str, imported: str, expected: bool) -> None:
    assert allowed(importer, imported) == expected


def test_only_trainers_know_the_trainer() -> None:
    trainers = {Path("training/checkpoint_trainer.py"), Path("training/trainer.py")}
    for module in MODULES:
        for node in ast.walk(ast.parse((ROOT / module).read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "transformers":
                knows = {alias.name for alias in node.names} & {"Trainer"}
                assert not knows or module in trainers, f"{module} imports transformers.Trainer"


def test_training_knows_no_concrete_component() -> None:
    families = ("objectives", "perturbations", "selections", "anchors")
    for module in MODULES:
        if module.parts[0] == "training":
            imported = set(imported_parts((ROOT / module).read_text(encoding="utf-8"), module))
            assert not imported & set(families), f"{module} imports a component of {imported & set(families)}"
