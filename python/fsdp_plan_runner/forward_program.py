"""The forward of each module: its own ops and its calls of other modules, in order.

An expanded model is one list of ops, each in the forward of some module. Here it becomes what a person would have written: the
forward of a module receives the tensors that are read inside and made outside, runs its own ops, calls the modules below it,
and returns the tensors that are made inside and read outside. So the hooks of FSDP2, which are attached to the inputs and
outputs of modules, see the same as in a real model.

A module runs once over consecutive ops (core/model/model_index.cpp has the same rule in C++): always within a call, and from
one call to the next if the module contains calls. A module that is not `called` (a ModuleList, a part whose weight is used but
whose forward is not) has no forward; its ops belong to the nearest module above it that has one.

A tensor is dropped after its last use, or when the last variable that refers to it is overwritten or leaves its scope.
"""

from __future__ import annotations

import bisect

from fsdp_plan_runner.expanded_model import ExpandedModel, Local, Op, parent_name


class OpStep:
    """Runs one op."""

    def __init__(self, op: Op) -> None:
        self.op = op
        self.inputs = op.inputs
        self.outputs = op.outputs
        self.frees: list[int] = []  # Tensors that nothing reads after this step.


class CallStep:
    """Calls a module below; its run number selects one of that module's forwards."""

    def __init__(self, module: str, run: int, forward: ModuleForward) -> None:
        self.module = module
        self.run = run
        self.inputs = tuple(forward.arguments)
        self.outputs = tuple(forward.results)
        self.frees: list[int] = []


class ModuleForward:
    """One run of a module: `begin` and `end` are positions in the list of ops."""

    def __init__(self, begin: int, end: int) -> None:
        self.begin = begin
        self.end = end
        self.arguments: list[int] = []
        self.results: list[int] = []
        self.steps: list[OpStep | CallStep] = []
        self.step_ends: list[int] = []  # The position after each step.

    def step_at(self, position: int) -> int:
        """The number of the step that runs the op there."""
        return bisect.bisect_right(self.step_ends, position)


class ForwardProgram:
    """All runs of all modules. `keep` are tensors that the root returns with the loss, `held` are tensors that live until
    then. `after_root` is the training loop's run over the root's results; None if the root returns the loss."""

    def __init__(self, model: ExpandedModel, keep: tuple[int, ...] = (), held: tuple[int, ...] = ()) -> None:
        self.model = model
        self.runs: dict[str, list[ModuleForward]] = {}
        self._called = {module.name: module.called for module in model.modules}
        self._called[""] = True
        self._call_starts = {call.first_op for call in model.calls}
        self._above_calls = _modules_above_calls(model)
        self._chains = {module.name: self._chain(module.name) for module in model.modules}
        self._maker = [-1] * len(model.tensors)
        self._last_read = [-1] * len(model.tensors)
        for position, op in enumerate(model.ops):
            for tensor in op.inputs:
                self._last_read[tensor] = position
            for tensor in op.outputs:
                self._maker[tensor] = position
        for tensor in (model.loss, *keep):
            self._last_read[tensor] = len(model.ops)
        for tensor in held:
            self._last_read[tensor] = max(self._last_read[tensor], model.after_root)
        self._locals: dict[str, list[Local]] = {}
        for local in model.locals:
            self._locals.setdefault(local.module, []).append(local)
            self._last_read[local.tensor] = max(self._last_read[local.tensor], local.until)
        self._build("", 0, model.after_root)
        root = self.runs[""][0]
        root.arguments = _root_arguments(model)
        self.after_root: ModuleForward | None = None
        if model.after_root == len(model.ops):
            root.results = [model.loss, *keep]
            return
        self.after_root = ModuleForward(model.after_root, len(model.ops))
        self.after_root.steps = [OpStep(op) for op in model.ops[model.after_root:]]
        self.after_root.results = results = [model.loss, *keep]
        self._connect(None, self.after_root)
        self.after_root.results = results[:1 + len(keep)]
        root.results = [tensor for tensor in self.after_root.arguments if tensor not in model.inputs]

    def _chain(self, name: str) -> list[str]:
        """The modules with a forward from the root down to `name`."""
        chain = [name] if self._called[name] else []
        while name:
            name = parent_name(name)
            if self._called.get(name, False):
                chain.append(name)
        return chain[::-1]

    def _build(self, module: str, begin: int, end: int) -> int:
        """Writes the run [begin, end) of a module; returns its number."""
        forward = ModuleForward(begin, end)
        runs = self.runs.setdefault(module, [])
        number = len(runs)
        runs.append(forward)
        depth = len(self._chains[module])
        position = begin
        while position < end:
            chain = self._chains[self.model.ops[position].module]
            if len(chain) == depth:
                forward.steps.append(OpStep(self.model.ops[position]))
                position += 1
                forward.step_ends.append(position)
                continue
            child = chain[depth]
            stop = position + 1
            while stop < end and self._goes_on(child, depth, stop):
                stop += 1
            run = self._build(child, position, stop)
            forward.steps.append(CallStep(child, run, self.runs[child][run]))
            position = stop
            forward.step_ends.append(position)
        self._connect(module, forward)
        return number

    def _goes_on(self, child: str, depth: int, position: int) -> bool:
        chain = self._chains[self.model.ops[position].module]
        if len(chain) <= depth or chain[depth] != child:
            return False
        return position not in self._call_starts or child in self._above_calls

    def _connect(self, module: str | None, forward: ModuleForward) -> None:
        """Finds arguments, results and the last use of each tensor. No module: the training loop."""
        last_use: dict[int, int] = {}
        for index, step in enumerate(forward.steps):
            for tensor in step.inputs:
                if tensor not in last_use and not forward.begin <= self._maker[tensor] < forward.end:
                    forward.arguments.append(tensor)
                last_use[tensor] = index
            for tensor in step.outputs:
                last_use[tensor] = index
                if self._last_read[tensor] >= forward.end:
                    forward.results.append(tensor)
        for local in self._locals.get(module, []) if module is not None else []:
            if local.tensor in last_use and forward.begin <= local.until < forward.end:
                last_use[local.tensor] = max(last_use[local.tensor], forward.step_at(local.until))
        for tensor, index in last_use.items():
            if tensor not in forward.results:
                forward.steps[index].frees.append(tensor)


def _root_arguments(model: ExpandedModel) -> list[int]:
    """Inputs of the root's forward: not those that are read only after it has returned."""
    inside = {tensor for op in model.ops[:model.after_root] for tensor in op.inputs}
    after = {tensor for op in model.ops[model.after_root:] for tensor in op.inputs}
    return [tensor for tensor in model.inputs
            if tensor not in model.inputs_beside_root and (tensor in inside or tensor not in after)]


def _modules_above_calls(model: ExpandedModel) -> set[str]:
    """Modules with calls below them: their forward continues from one call to the next."""
    above = {""}
    for call in model.calls:
        name = call.module
        while name:
            name = parent_name(name)
            above.add(name)
    return above


def unit_windows(program: ForwardProgram, modules: tuple[str, ...]) -> list[tuple[int, int]]:
    """The passes [begin, end) of a unit through its forward, as FSDP2 counts them: a unit of several modules is entered with
    the first of them and left after each has run."""
    runs = sorted((run.begin, run.end, module) for module in modules for run in program.runs.get(module, []))
    windows: list[tuple[int, int]] = []
    to_run: set[str] = set()
    for begin, end, module in runs:
        if not to_run:
            to_run = set(modules)
            windows.append((begin, end))
        to_run.discard(module)
        windows[-1] = (windows[-1][0], end)
    return windows


def forward_order(windows: list[list[tuple[int, int]]]) -> list[int]:
    """Units in the order of their first entry, outer ones first."""
    return _distinct(sorted((begin, begin - end, unit) for unit, passes in enumerate(windows) for begin, end in passes))


def backward_order(windows: list[list[tuple[int, int]]]) -> list[int]:
    """Units in the reverse order of their first exit, inner ones first."""
    return _distinct(sorted((end, end - begin, unit) for unit, passes in enumerate(windows)
                            for begin, end in passes))[::-1]


def _distinct(boundaries: list[tuple[int, int, int]]) -> list[int]:
    return list(dict.fromkeys(unit for _, _, unit in boundaries))
