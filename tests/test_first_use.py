"""Public names that are imported on first use."""

import importlib
from importlib.metadata import version
from pathlib import Path

import pytest

import rosewood


@pytest.mark.parametrize("package", ["rosewood", "rosewood.analysis", "rosewood.figures"])
def test_every_public_name_is_found_at_its_home(package: str) -> None:
    module = importlib.import_module(package)
    assert set(module.__all__) == set(module._HOMES)
    for name in module.__all__:
        found = getattr(module, name)
        assert found is getattr(importlib.import_module(module._HOMES[name]), name)
        assert found.__module__.startswith("rosewood.")


@pytest.mark.parametrize("package", ["rosewood", "rosewood.analysis", "rosewood.figures"])
def test_dir_lists_the_public_names(package: str) -> None:
    module = importlib.import_module(package)
    names = [name for name in dir(module) if not name.startswith("__")]
    assert names == sorted(module.__all__)


def test_the_version_and_the_types_are_those_of_the_package() -> None:
    assert rosewood.__version__ == version("rosewood")
    assert "__version__" in dir(rosewood)
    assert (Path(rosewood.__file__).parent / "py.typed").is_file()


def test_an_unknown_name_is_an_ordinary_mistake() -> None:
    with pytest.raises(ImportError, match="cannot import name 'RobustTrainr'"):
        from rosewood import RobustTrainr  # noqa: F401
    with pytest.raises(AttributeError, match=r"module 'rosewood\.figures' has no attribute 'landscape_of'"):
        _ = importlib.import_module("rosewood.figures").landscape_of
