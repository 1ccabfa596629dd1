"""Arrows point one way: a module imports its own layer's package or lower layers, never higher ones."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import rosewood

ROOT = Path(rosewood.__file__).parent
COMPONENTS = (
    *("objectives", "perturbations", "selections", "anchors"),
    *("protocol", "processes", "model", "tensors"),
)
# From the top down; a module may import whatever stands in a lower row.
LAYERS: list[tuple[str, ...]] = [
    ("__main__",),
    ("cli",),
    ("experiments",),
    ("report", "playground"),
    ("figures",),
    ("analysis",),
    ("training", "averaging"),
    ("evaluation",),
    ("attacks",),
    ("scoring", "intervals", "guessing"),
    COMPONENTS,
    ("data",),
    ("recipe", "registry", "recipes"),
    ("overrides", "settings_check", "training_settings"),
    ("watched", "locks"),
    ("errors", "durable", "strict_yaml", "first_use", "typed_command"),
]
HEIGHT = {part: len(LAYERS) - row for row, parts in enumerate(LAYERS) for part in parts}
# The vocabulary of recipes: they describe components, and components may look at the recipe they are part of.
ACQUAINTED = {"recipe", "registry", "protocol"}
MODULES = sorted(path.relative_to(ROOT) for path in ROOT.rglob("*.py"))


def part_of(module: Path) -> str:
    """`selections/rose.py` -> `selections`, `recipe.py` -> `recipe`."""
    return module.parts[0].removesuffix(".py")


def imported_parts(source: str, module: Path) -> Iterator[str]:
    """The parts of rosewood that a module imports when it runs; imports for type checkers do not count."""
    for node in running(ast.parse(source)):
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
            if name.split(".")[0] == "rosewood":
                yield name.split(".")[1] if "." in name else "rosewood"


def running(tree: ast.AST) -> Iterator[ast.AST]:
    for node in ast.iter_child_nodes(tree):
        yield node
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            for other in node.orelse:
                yield other
                yield from running(other)
            continue
        yield from running(node)


def allowed(importer: str, imported: str) -> bool:
    if importer == imported or imported in ("results", "errors", "durable"):
        return True
    if importer in ("results", "errors", "durable"):
        return False
    if {importer, imported} <= ACQUAINTED or {importer, imported} <= set(COMPONENTS):
        return True
    return HEIGHT.get(imported, 99) < HEIGHT[importer]


@pytest.mark.parametrize("module", [m for m in MODULES if m.name != "__init__.py" or len(m.parts) > 1], ids=str)
def test_imports_point_down(module: Path) -> None:
    importer = part_of(module)
    assert importer in HEIGHT or importer == "results", f"{importer} has no layer: give it one in this file"
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
        ("if TYPE_CHECKING:\n    from rosewood.recipe import Recipe\nelse:\n    import rosewood.cli", ["cli"]),
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
        ("evaluation", "training", False),
        ("attacks", "evaluation", False),
        ("attacks", "training", False),
        ("evaluation", "attacks", True),
        ("scoring", "attacks", False),
        ("data", "objectives", False),
        ("training", "evaluation", True),
        ("report", "experiments", False),
        ("selections", "protocol", True),
        ("recipe", "protocol", True),
        ("recipe", "selections", False),
        ("results", "data", False),
        ("errors", "recipe", False),
        ("data", "results", True),
        ("cli", "training", True),
        ("training", "rosewood", False),
    ],
)
def test_the_arrows(importer: str, imported: str, expected: bool) -> None:
    assert allowed(importer, imported) == expected


def test_only_trainers_know_the_trainer() -> None:
    trainers = {Path("training/checkpointed.py"), Path("training/trainer.py")}
    for module in MODULES:
        for node in ast.walk(ast.parse((ROOT / module).read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "transformers":
                knows = {alias.name for alias in node.names} & {"Trainer"}
                assert not knows or module in trainers, f"{module} imports transformers.Trainer"
