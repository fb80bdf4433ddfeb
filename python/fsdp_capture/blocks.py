"""Finds the blocks of a model: the modules that a plan can checkpoint, and its first candidates for units.

A stack is a run of blocks. In this order, and never one inside another:
  * siblings of one class with parameters of the same shapes ("layers.{0..27}"), the outermost ones;
  * siblings of one user class whose shapes differ, if nothing repeats inside them (the stages of a U-Net; T5's first block,
    which alone has a table of positions, and the others);
  * a module that the model calls several times in one forward (ALBERT's shared layer): one block with many calls;
  * a single module with a sixteenth of the parameters outside of embeddings (a DLRM's top, a tower).

Not modeled: blocks that are called by another name than that of their module.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Optional

_SHARE_OF_A_SINGLE = 16


class CallCounts:
    """Counts how often modules are called in forwards with gradients on."""

    def __init__(self, torch: Any, phases: Any) -> None:
        self._torch, self._phases = torch, phases
        self._counts: Counter[int] = Counter()
        self._handle = torch.nn.modules.module.register_module_forward_pre_hook(self._before)

    def _before(self, module: Any, args: Any) -> None:
        # The backward calls again what the script itself checkpoints.
        if self._torch.is_grad_enabled() and not self._phases.in_backward:
            self._counts[id(module)] += 1

    def stop(self) -> None:
        self._handle.remove()

    def in_a_forward(self, root: Any, tops: list[str]) -> dict[str, int]:
        """For each module below a root, how often one forward of its model calls it. `tops`: models of a step of passes. A
        root that is never called itself has a forward for each backward."""
        forwards = {name: self._counts[id(root.get_submodule(name))] for name in (tops or [""])}
        calls = {}
        for name, module in root.named_modules():
            top = next((t for t in forwards if not t or name == t or name.startswith(t + ".")), None)
            per = forwards.get(top, 0) if top is not None else 0
            calls[name] = self._counts[id(module)] // max(1, per or self._phases.backwards)
            if calls[name] == 0 and self._counts[id(module)] > 0:
                calls[name] = 1  # in some forwards only
        return calls


def find_stacks(
    root: Any, calls: Optional[dict[str, int]] = None, are_alike: bool = False, tops: Sequence[str] = ()
) -> list[list[str]]:
    """Names of blocks, stack by stack. `calls`: how often a forward calls each module; defaults to once. `are_alike`: only
    those that repeat, as siblings of the same shapes or by repeated calls. `tops`: models of a step of passes, which are roots
    and no blocks."""
    names = {id(module): name for name, module in root.named_modules()}
    number = (lambda name: calls.get(name, 0)) if calls is not None else lambda name: 1
    models = [root.get_submodule(name) for name in tops] or [root]
    stacks = [stack for model in models for stack in _Siblings(names, number, are_alike).below(model)]
    taken = [name for stack in stacks for name in stack]
    rules = [_is_called_again(root, number), _is_large(root, number)]
    for is_block in rules[:1] if are_alike else rules:
        for name, module in root.named_modules():
            if name and name not in tops and _is_a_block(module) and not any(_overlap(name, other) for other in taken) and is_block(name, module):
                stacks.append([name])
                taken.append(name)
    order = {name: i for i, name in enumerate(names.values())}
    return sorted(stacks, key=lambda stack: order[stack[0]])


def _is_a_block(module: Any) -> bool:
    """Parallel leaves (q, k and v of an attention) are no blocks."""
    return any(True for _ in module.children()) and any(True for _ in module.parameters())


def _overlap(one: str, other: str) -> bool:
    return one == other or one.startswith(other + ".") or other.startswith(one + ".")


def _is_called_again(root: Any, number: Callable[[str], int]) -> Callable[[str, Any], bool]:
    return lambda name, module: number(name) > 1


def _is_large(root: Any, number: Callable[[str], int]) -> Callable[[str, Any], bool]:
    def weight(module: Any) -> int:
        tables = sum(p.numel() for m in module.modules() if "Embedding" in type(m).__name__ for p in m.parameters(recurse=False))
        return sum(p.numel() for p in module.parameters()) - tables

    whole = weight(root)

    def is_large(name: str, module: Any) -> bool:
        # A module with almost all parameters is the model itself; checkpointing it would save nothing.
        return number(name) > 0 and whole <= _SHARE_OF_A_SINGLE * weight(module) and 2 * weight(module) <= whole

    return is_large


class _Siblings:
    """Stacks of sibling modules."""

    def __init__(self, names: dict[int, str], number: Callable[[str], int], are_alike: bool) -> None:
        self._names, self._number, self._are_alike = names, number, are_alike

    def below(self, module: Any) -> list[list[str]]:
        stacks: list[list[str]] = []
        run: list[Any] = []
        for child in module.children():
            if run and type(child) is not type(run[-1]):
                stacks += self._of_run(run)
                run = []
            run.append(child)
        return stacks + self._of_run(run)

    def _of_run(self, run: list[Any]) -> list[list[str]]:
        """Finds stacks among siblings of one class."""
        groups: list[list[Any]] = []
        for child in run:
            if groups and _shapes(groups[-1][-1]) == _shapes(child):
                groups[-1].append(child)
            else:
                groups.append([child])
        are_blocks = [all(_is_a_block(m) and self._is_called(m) for m in group) for group in groups]
        if not self._are_alike and len(groups) > 1 and all(are_blocks) and not type(run[0]).__module__.startswith("torch.nn.modules.container"):
            inner = [stack for child in run for stack in self.below(child)]
            if not inner:
                return [[self._names[id(child)] for child in run]]
        stacks: list[list[str]] = []
        for group, is_block in zip(groups, are_blocks):
            if len(group) > 1 and is_block:
                stacks.append([self._names[id(child)] for child in group])
            else:
                stacks += [stack for child in group for stack in self.below(child)]
        return stacks

    def _is_called(self, module: Any) -> bool:
        return self._number(self._names[id(module)]) > 0


def _shapes(module: Any) -> Any:
    return tuple((name, tuple(p.shape)) for name, p in module.named_parameters())
