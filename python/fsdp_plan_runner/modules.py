"""The model as a tree of torch.nn.Module with the names and classes of the spec."""

from __future__ import annotations

import contextlib
import functools
import types
from collections.abc import Callable, Iterator

import torch

from fsdp_plan_runner.expanded_model import ExpandedModel, last_part, parent_name
from fsdp_plan_runner.forward_program import ForwardProgram, ModuleForward, OpStep
from fsdp_plan_runner.kernels import KERNELS, KernelContext, dtype_of
from fsdp_plan_runner.losses import CALLS_HEAD
from fsdp_plan_runner.plan import Implementations, Plan


class RunningOp:
    """The running op, which selective checkpointing needs to classify the calls of PyTorch that it sees."""

    def __init__(self) -> None:
        self.is_kept = False
        self.kind = ""
        self.is_float8 = False
        self.kept_ops: frozenset[int] = frozenset()  # Positions in the list of ops.


class PlannedModule(torch.nn.Module):
    """A module of the model. Its forward takes the number of its run, followed by tensors."""

    name = ""
    context: KernelContext
    hidden_matrices: set[str]  # Names of parameters for Muon, if the plan has it.
    running: RunningOp
    beside: dict[int, torch.Tensor] = {}  # Inputs that the root's forward reads and does not receive.
    graphed: Callable[[list[torch.Tensor]], torch.Tensor] | None = None  # For the root: its pass as a CUDA graph.
    wrapper: list[torch.nn.Module] = []  # For the root: the wrapper that is called instead, if there is one.

    def prepare(self, forwards: list[ModuleForward], root: torch.nn.Module, positions: dict[int, int]) -> None:
        """Resolves the names in the steps of the forwards. REQUIRES: the whole tree."""
        self._forwards = [
            (forward.arguments, [_Step(step, root, positions) for step in forward.steps], forward.results)
            for forward in forwards]

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> PlannedModule:
        """Moves plain attributes, too, as bitsandbytes does with the scales of a weight."""
        super()._apply(fn, recurse)
        for name, value in vars(self).items():
            if isinstance(value, torch.Tensor):
                self.__dict__[name] = fn(value)
        return self

    def forward(self, run: int, *tensors: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, ...]:
        arguments, steps, results = self._forwards[run]
        values = dict(zip(arguments, tensors, strict=True))
        values.update(self.beside)
        del tensors
        for step in steps:
            step.run(values, self.context, self.running)
        if len(results) == 1:
            return values[results[0]]
        return tuple(values[tensor] for tensor in results)


class HeadModule(PlannedModule):
    """The head that a loss calls: it has no run in the program of the model."""

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return torch.nn.functional.linear(hidden, self.weight, getattr(self, "bias", None))


def name_of_head(model: ExpandedModel, implementations: Implementations) -> str | None:
    """The module that the loss calls after the root's forward, if it does."""
    if implementations.loss not in CALLS_HEAD:
        return None
    weight = next(op.parameters[0] for op in model.ops if op.kind == "linear_cross_entropy")
    names = [weight, *(parameter.name for parameter in model.parameters if parameter.tied_to == weight)]
    called = {module.name for module in model.modules if module.called}
    run = {op.module for op in model.ops}
    return next(name for name in map(parent_name, names) if name in called and name not in run)


def call_in_place(root: PlannedModule, module: torch.nn.Module, wrapper: torch.nn.Module) -> None:
    """From now on a call of `module` calls `wrapper`."""
    for caller in root.modules():
        for _, steps, _ in getattr(caller, "_forwards", ()) if isinstance(caller, PlannedModule) else ():
            for step in steps:
                if step.op is None and step.called[0] is module:
                    step.called[0] = wrapper


class AfterRoot:
    """A training loop's work on the root's result: the loss."""

    def __init__(self, root: PlannedModule, positions: dict[int, int]) -> None:
        forward = root.program.after_root
        self._root = root
        self._arguments = root.program.runs[""][0].results
        self._inputs = [(i, tensor) for i, tensor in enumerate(root.program.model.inputs) if tensor in forward.arguments]
        self._steps = [_Step(step, root, positions) for step in forward.steps]
        self._results = forward.results

    def __call__(self, returned: torch.Tensor | tuple[torch.Tensor, ...],
                 batch: list[torch.Tensor | None]) -> torch.Tensor | tuple[torch.Tensor, ...]:
        """The loss, or the loss and the tensors that the loop keeps."""
        given = (returned,) if len(self._arguments) == 1 else returned
        values = dict(zip(self._arguments, given, strict=True))
        values.update({tensor: batch[i] for i, tensor in self._inputs})
        del given
        for step in self._steps:
            step.run(values, self._root.context, self._root.running)
        if len(self._results) == 1:
            return values[self._results[0]]
        return tuple(values[tensor] for tensor in self._results)


class _Step:
    """A step of a forward with the modules that it needs. No tensor outlives `run`."""

    def __init__(self, step: object, root: torch.nn.Module, positions: dict[int, int]) -> None:
        self.inputs = step.inputs
        self.outputs = step.outputs
        self.frees = step.frees
        self.op = None
        if isinstance(step, OpStep):
            self.op = step.op
            self.position = positions[id(step.op)]
            self.kernel = KERNELS[step.op.kind]
            # FSDP2 puts another Parameter object into the module at each unshard, so we look it up each time.
            self.parameters = [(root.get_submodule(parent_name(name)), last_part(name)) for name in step.op.parameters]
        else:
            # A list, so that torch.nn.Module does not register the called module as a child of its caller.
            self.called = [root.get_submodule(step.module)]
            self.number = step.run

    def run(self, values: dict[int, torch.Tensor], context: KernelContext, running: RunningOp) -> None:
        inputs = [values[tensor] for tensor in self.inputs]
        if self.op is None:
            result = self.called[0](self.number, *inputs)
        else:
            parameters = [getattr(module, name) for module, name in self.parameters]
            running.is_kept, running.kind = self.position in running.kept_ops, self.op.kind
            running.is_float8 = bool(self.op.attributes["float8"])
            try:
                result = self.kernel(self.op, context, inputs, parameters)
            finally:
                running.is_kept = False
        if len(self.outputs) == 1:
            if self.outputs[0] in context.requested:
                result.requires_grad_()
            values[self.outputs[0]] = result
        else:
            values.update(zip(self.outputs, result, strict=True))
        for tensor in self.frees:
            del values[tensor]


@functools.cache
def _class_named(name: str, base: type[PlannedModule] = PlannedModule) -> type[PlannedModule]:
    return type(name, (base,), {})


def activation_dtype(model: ExpandedModel, plan: Plan) -> torch.dtype:
    """The dtype of tensors without their own: the plan's compute dtype."""
    named = plan.mixed_precision.param_dtype or plan.parameter_dtype
    if plan.mixed_precision.autocast and not plan.mixed_precision.param_dtype:
        stored = [dtype_of(parameter.dtype if not (parameter.trainable and plan.parameter_dtype) else plan.parameter_dtype)
                  for parameter in model.parameters]
        return next((dtype for dtype in stored if dtype.is_floating_point), torch.float32)
    if named:
        return dtype_of(named)
    dtypes = [dtype_of(parameter.dtype) for parameter in model.parameters]
    return next((dtype for dtype in dtypes if dtype.is_floating_point), torch.float32)


def logits_of(model: ExpandedModel) -> tuple[int, ...]:
    """A model's results besides its loss if the caller keeps its outputs."""
    return tuple(dict.fromkeys(op.inputs[0] for op in model.ops if op.kind == "cross_entropy"))


def build_model(model: ExpandedModel, implementations: Implementations, activation: torch.dtype, device: torch.device,
                compute_device: torch.device, parameter_dtype: torch.dtype | None = None,
                frozen_too: bool = False, returns_logits: bool = False) -> PlannedModule:
    """The tree with its parameters and buffers on `device` ("meta" for none), to compute on `compute_device`.
    `parameter_dtype` is that of trainable parameters, or of all; defaults to the checkpoint's. `returns_logits`: beside the loss,
    as models of transformers do."""
    keep = logits_of(model) if implementations.keep_logits or returns_logits else ()
    held = (*model.held, *(model.held_if_cached if implementations.use_cache else ()))
    program = ForwardProgram(model, keep, held)
    modules: dict[str, PlannedModule] = {}
    context = KernelContext(implementations, activation, compute_device, [t.shape for t in model.tensors], {},
                            requested=frozenset(t for t, tensor in enumerate(model.tensors) if tensor.requires_grad))
    running = RunningOp()
    head = name_of_head(model, implementations)
    for module in model.modules:
        made = _class_named(module.class_name, HeadModule if module.name == head else PlannedModule)()
        made.name, made.context, made.running = module.name, context, running
        modules[module.name] = made
        if module.name:
            modules[parent_name(module.name)].add_module(last_part(module.name), made)
    for buffer in model.buffers:
        tensor = torch.zeros(buffer.shape, dtype=dtype_of(buffer.dtype), device=device)
        owner = modules[parent_name(buffer.name)]
        if buffer.registered:
            owner.register_buffer(last_part(buffer.name), tensor, persistent=buffer.persistent)
        else:
            setattr(owner, last_part(buffer.name), tensor)
        context.buffers[buffer.name] = owner
    if head is not None:
        context.head.append(modules[head])
    _add_parameters(model, modules, device, parameter_dtype, frozen_too)
    root = modules[""]
    positions = {id(op): position for position, op in enumerate(model.ops)}
    for op in model.ops:
        if op.kind == "linear_4bit":  # As bitsandbytes has it: the shape of the packed weight.
            numbers = (op.attributes["out_features"], model.tensors[op.inputs[0]].shape[-1])
            modules[op.module].quant_state = types.SimpleNamespace(shape=numbers)
    for name, module in modules.items():
        module.prepare(program.runs.get(name, []), root, positions)
    root.program = program
    root.after_root = AfterRoot(root, positions) if program.after_root else None
    root.argument_places = [model.inputs.index(tensor) for tensor in program.runs[""][0].arguments]
    root.places_beside = {tensor: model.inputs.index(tensor) for tensor in model.inputs_beside_root}
    return root


def _add_parameters(model: ExpandedModel, modules: dict[str, PlannedModule], device: torch.device,
                    parameter_dtype: torch.dtype | None, frozen_too: bool) -> None:
    made: dict[str, torch.nn.Parameter] = {}
    for parameter in model.parameters:
        if parameter.tied_to is None:
            dtype = dtype_of(parameter.dtype)
            if parameter_dtype is not None and (parameter.trainable or frozen_too) and dtype.is_floating_point:
                dtype = parameter_dtype
            tensor = torch.empty(parameter.shape, dtype=dtype, device=device)
            made[parameter.name] = torch.nn.Parameter(tensor, requires_grad=parameter.trainable)
    for parameter in model.parameters:
        owner = modules[parent_name(parameter.name)]
        owner.register_parameter(last_part(parameter.name), made[parameter.tied_to or parameter.name])


@contextlib.contextmanager
def untied(model: ExpandedModel, root: torch.nn.Module) -> Iterator[None]:
    """Inside, a tied parameter is registered only under its first name: to_empty would make a separate parameter for each
    name."""
    aliases = [parameter for parameter in model.parameters if parameter.tied_to is not None]
    for parameter in aliases:
        delattr(root.get_submodule(parent_name(parameter.name)), last_part(parameter.name))
    yield
    for parameter in aliases:
        owner = root.get_submodule(parent_name(parameter.name))
        owner.register_parameter(last_part(parameter.name), root.get_parameter(parameter.tied_to))
