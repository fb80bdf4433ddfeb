"""Tracks the running module with global forward hooks, which see every call and change no argument and no result.

The roots, modules called from outside any other with gradients on, are the trained models. With several of them (a GAN), a
name alone does not identify a layer's model: internally, a name includes the number of its root, and `shown` puts the class of
the root there once there are several.
"""

from __future__ import annotations

import re
import warnings
import weakref
from typing import Any

from fsdp_rehearsal.batches import Batches
from fsdp_rehearsal.guard import guarded
from fsdp_rehearsal.phases import Phases

_WRAPPERS = ("_fsdp_wrapped_module", "_checkpoint_wrapped_module", "_orig_mod", "_forward_module")


def clean(name: str) -> str:
    """A module's or parameter's name without the parts that wrappers add."""
    return ".".join(part for part in name.split(".") if part not in _WRAPPERS)


def class_name(module: Any) -> str:
    """The user's class: FSDP2 derives a new class for each module, from FSDPModule and the user's."""
    kind = type(module)
    of_fsdp2 = len(kind.__bases__) == 2 and kind.__bases__[0].__name__ == "FSDPModule"
    return kind.__bases__[1].__name__ if of_fsdp2 else kind.__name__


class Modules:
    def __init__(self, phases: Phases, batches: Batches) -> None:
        self.roots: list[Any] = []  # weak references, in the order of their first call
        self.autocast: set[str] = set()  # dtypes of autocast around module calls
        self._phases, self._batches = phases, batches
        self._names: Any = weakref.WeakKeyDictionary()  # of a module, with the number of its root
        self._titles: list[str] = []  # of all roots ever: their classes
        self._mapped: Any = weakref.WeakSet()
        self._stack: list[tuple[int, str]] = []
        self._running: list[Any] = []  # weak references to the same modules
        self._torch: Any = None

    def install(self, torch: Any) -> None:
        self._torch = torch
        # torch.compile would warn the user about our hooks, which are not compiled.
        warnings.filterwarnings("ignore", message=r"Using `torch\.compile\(module\)` when there are global hooks")
        module = torch.nn.modules.module
        module.register_module_forward_pre_hook(self._before)
        module.register_module_forward_hook(self._after, always_call=True)

    def in_forward(self) -> bool:
        """Whether the forward of a module runs."""
        return bool(self._stack)

    def enter(self, root: Any) -> None:
        """Acts as if a root were called, with unknown arguments, until `leave`."""
        self._before(root, ())

    def leave(self, root: Any) -> None:
        self._after(root, (), None)

    def innermost(self) -> Any:
        """The module whose forward runs; None between modules."""
        reference = self._running[-1] if self._running else None
        return reference() if reference is not None else None

    def name_of(self, module: Any) -> str:
        """The module's name below its root, with the root's number; "" for an unknown module."""
        return self._names.get(module, "")

    def shown(self, name: str, root: str = "") -> str:
        """A name for people. The root itself is named `root`, with its title if there are several."""
        match = _NUMBERED.match(name)
        if match is None:
            return name
        path = name[match.end() :]
        alive = [r() for r in self.roots if r() is not None]
        if len(alive) < 2:
            return path or root
        return ".".join(part for part in (self._titles[int(match[1])], path) if part)

    def uses_data_parallel(self) -> bool:
        """Whether this process replicates a module over several GPUs."""
        kind = self._torch.nn.DataParallel if self._torch is not None else ()
        roots = [r() for r in self.roots]
        return any(isinstance(m, kind) and len(m.device_ids) > 1 for root in roots if root is not None for m in root.modules())

    def numbered(self, module: Any, name: str) -> str:
        """`name`, of something below the same root as `module`, with the number of that root."""
        match = _NUMBERED.match(self._names.get(module, ""))
        return match[0] + name if match else name

    @guarded("The running module")
    def _before(self, module: Any, args: Any) -> None:
        if self._torch.compiler.is_compiling():
            return
        if not self._stack and self._phases.phase != "backward":
            self._root(module, args)
        else:
            self._batches.enter(args)
        # accelerate turns it on inside the forward of the root, so we check at every module.
        if self._torch.is_autocast_enabled("cuda") and self._torch.is_grad_enabled():
            self.autocast.add(str(self._torch.get_autocast_dtype("cuda")))
        name = self._names.get(module)
        if name is None:  # made after the root was inspected, or not below a root
            name = self._stack[-1][1] if self._stack else type(module).__name__
        self._stack.append((id(module), name))
        self._running.append(weakref.ref(module))
        self._phases.enter_module(name)

    @guarded("The running module")
    def _after(self, module: Any, args: Any, output: Any) -> None:
        if self._torch.compiler.is_compiling():
            return
        for depth in range(len(self._stack) - 1, -1, -1):
            if self._stack[depth][0] == id(module):
                del self._stack[depth:], self._running[depth:]
                break
        self._phases.enter_module(self._stack[-1][1] if self._stack else "")

    def _root(self, module: Any, args: Any) -> None:
        torch = self._torch
        if not torch.is_grad_enabled() and not module.training and self._phases.phase != "initialization":
            if module in self._mapped or module in self._names:
                self._phases.enter("evaluation")
        if not torch.is_grad_enabled() or not any(p.requires_grad for p in module.parameters()):
            return
        if module not in self._mapped:
            self._map(module)
        self._phases.enter("forward")
        self._batches.enter_root(self._names.get(module, ""), args)

    def _map(self, root: Any) -> None:
        """Names all modules below a root. A part of a known root does not become a root."""
        self._mapped.add(root)
        if root in self._names:
            return
        number = f"\x01{len(self._titles)}\x01"
        kind = class_name(held(root))
        same = sum(title.split(" ")[0] == kind for title in self._titles)
        self._titles.append(f"{kind} {same + 1}" if same else kind)
        strip = "module." if hasattr(root, "module") and type(root).__name__ in _HOLDERS else ""
        for name, module in root.named_modules():
            name = clean(name)
            self._names[module] = number + (name.removeprefix(strip) if strip else name)
        below = {id(m) for m in root.modules()}
        self.roots = [r for r in self.roots if r() is not None and id(r()) not in below]
        self.roots.append(weakref.ref(root))


_NUMBERED = re.compile("\x01([0-9]+)\x01")
_HOLDERS = {"DistributedDataParallel", "DeepSpeedEngine", "DataParallel"}
_HOLDERS_WITHOUT_NAME = {"FullyShardedDataParallel": "module", "OptimizedModule": "_orig_mod", "_FabricModule": "_forward_module"}


def held(root: Any) -> Any:
    """The user's own module in a wrapper."""
    for _ in range(4):
        kind = type(root).__name__
        inner = getattr(root, "module" if kind in _HOLDERS else _HOLDERS_WITHOUT_NAME.get(kind, ""), None)
        if inner is None:
            return root
        root = inner
    return root
