"""What a component says of itself, without torch: importing that takes longer than reading the answer.

While components are only described, empty objects take the place of torch and of other libraries that compute.
Components are then imported, built and asked, but cannot compute.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from rosewood.config.registry import extensions
from rosewood.errors import RosewoodError

LIBRARIES = ("torch", "transformers", "datasets", "accelerate", "peft", "scipy", "sklearn")


class StandIn:
    """Takes the place of a class or a function that is only named, inherited from, or used as a decorator."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn()

    def __call__(self, *args: Any, **_: Any) -> Any:
        return args[0] if len(args) == 1 and callable(args[0]) else self  # @torch.no_grad() leaves a function alone

    def __mro_entries__(self, bases: tuple[Any, ...]) -> tuple[type, ...]:
        return ()

    def __or__(self, other: Any) -> Any:
        return self

    __ror__ = __getitem__ = __or__


class _Module(ModuleType):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.__path__ = []  # a package, so that it may have modules below it

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return StandIn()


class _Finder(MetaPathFinder, Loader):
    """Finds the libraries and everything below them."""

    def find_spec(self, fullname: str, path: Any, target: Any = None) -> ModuleSpec | None:
        return ModuleSpec(fullname, self) if fullname.partition(".")[0] in LIBRARIES else None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return _Module(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        """There is nothing in it."""


@contextmanager
def stand_ins() -> Iterator[None]:
    """Import what describes recipes without the libraries; where these are imported already, they are used."""
    if any(name in sys.modules for name in LIBRARIES):
        yield
        return
    finder, before = _Finder(), set(sys.modules)
    sys.meta_path.insert(0, finder)
    outside = {name.partition(".")[0] for name in extensions()}
    try:
        yield
    finally:
        sys.meta_path.remove(finder)
        for name in set(sys.modules) - before:
            if name.partition(".")[0] in ("rosewood", *LIBRARIES, *outside):
                _forget(name)


def _forget(name: str) -> None:
    """Nobody must find a component that cannot compute, neither as a module nor in the package it belongs to."""
    del sys.modules[name]
    package, _, own = name.rpartition(".")
    vars(sys.modules.get(package, ModuleType(package))).pop(own, None)


def check_recipe(name: str, overrides: Mapping[str, Any]) -> None:
    """Refuse a recipe that is not there, or that has wrong settings, before the libraries are imported.

    A component from elsewhere may need them to be built. It is then checked when they are there.
    """
    with stand_ins():
        from rosewood.recipe import load_recipe

        try:
            load_recipe(name, overrides, check_training=False)
        except RosewoodError:
            raise
        except Exception:
            return
