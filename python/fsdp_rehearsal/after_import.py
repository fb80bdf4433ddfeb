"""Calls a function right after a module has been imported, without any other change to the import.

The module keeps its loader: only its `exec_module` is wrapped, on that one object. If a program only looks for a module
(importlib.util.find_spec), its actions wait until it is really imported.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import sys
from collections.abc import Callable
from importlib.machinery import ModuleSpec
from types import ModuleType

from fsdp_rehearsal.guard import failed

Action = Callable[[ModuleType], None]

_actions: dict[str, list[Action]] = {}


def after_import(name: str, action: Action) -> None:
    """Calls `action(module)` once `name` is imported; at once if it is already. The actions of a module run in order."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    is_underway = getattr(spec, "_initializing", False)
    if module is not None and not is_underway:
        _run(action, module)
        return
    _actions.setdefault(name, []).append(action)
    if is_underway and type(spec) is ModuleSpec:
        spec.__class__ = _Underway
        return
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


class _Underway(ModuleSpec):
    """For a module whose import had begun before `after_import` was called, such as a module that imports torch: the importer
    signals the end of its import."""

    @property
    def _initializing(self) -> bool:
        return bool(self.__dict__["_initializing"])

    @_initializing.setter
    def _initializing(self, value: bool) -> None:
        self.__dict__["_initializing"] = value
        module = sys.modules.get(self.name)
        if not value and module is not None:
            for action in _actions.pop(self.name, []):
                _run(action, module)


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self) -> None:
        self._asking: set[str] = set()

    def find_spec(self, name, path=None, target=None):
        if name not in _actions or name in self._asking:
            return None
        self._asking.add(name)
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._asking.discard(name)
        if spec is not None and spec.loader is not None:
            _wrap(name, spec.loader)
        return spec


def _wrap(name: str, loader) -> None:
    real = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        real(module)
        for action in _actions.pop(name, []):
            _run(action, module)

    try:
        loader.exec_module = exec_module
    except AttributeError:  # a loader that cannot be wrapped: the module is imported, but its actions do not run
        pass


def _run(action: Action, module: ModuleType) -> None:
    try:
        action(module)
    except Exception as error:
        failed(f"What follows the import of {module.__name__}", error)


_finder = _Finder()
