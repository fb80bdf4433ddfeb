"""Applies a plan to a rehearsed or measured program: wraps its own model in the units of the plan, with the real fully_shard.

This happens where a person would write it: before the first optimizer, or where the program itself calls fully_shard or FSDP
on the model. Until then the model is the script's own; from then on its parameters are shards, which replace the old ones in
the optimizer's arguments, lists and dicts. The script's wrappers are removed (apply_wrappers.py).

It applies the plan's mesh, units and their resharding after forward, mixed precision, the parameters' dtype, checkpointing of
blocks, prefetching, offload to the CPU, and the allocator's settings. It does not apply the training loop (optimizer,
accumulation, clipping, the batch), which stays the script's.

Not modeled: explicit prefetching follows the order in which modules are registered, not the order in which they run.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import sys
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any, NoReturn

from fsdp_plan_runner.limits import nearest, runtime_problems
from fsdp_plan_runner.plan import Plan, minor_of
from fsdp_rehearsal import frames
from fsdp_rehearsal.apply_parameters import Replaced
from fsdp_rehearsal.apply_wrappers import checkpoint_of_torch
from fsdp_rehearsal.faults import Faults
from fsdp_rehearsal.guard import warn
from fsdp_rehearsal.models_by_turns import models_by_turns, without_root
from fsdp_rehearsal.modules import class_name, held
from fsdp_rehearsal.saved_ops import SAVED_KINDS, contexts_of, has_experts
from fsdp_rehearsal.step_forward import StepForward, parts_called
from fsdp_rehearsal.switches import casting_to, convert, give_dimensions, turn_off_caches, turn_off_checkpointing
from fsdp_rehearsal.trained_model import group_of, roots_of

_MOST_NAMES = 5
_HINT_NAMES = "The module names of a plan must be those of the script's model."


class PlanNotApplied(RuntimeError):
    """The plan cannot be applied to this program. One line for each reason: place, sentence and hint, separated by tabs."""


class ApplyPlan:
    subject = "a plan"
    advice = "Rehearse it without --apply, or let the script train its model by itself."
    is_without_plan = False
    unanswered = ()  # methods of FSDP2's modules that have no implementation

    @staticmethod
    def in_place_of(what: str) -> str:
        return f"The plan takes the place of the script's {what}."

    def __init__(self, path: str, shown: str, faults: Faults, finish: Callable[[], None], step_forward: StepForward) -> None:
        with open(path, encoding="utf-8") as file:
            self.plan = Plan(json.load(file))
        self.shown = shown or os.path.basename(path)
        self.applied = False
        self.applying = False
        self.says_last_micro_batch = False  # the script has marked the last micro-batch
        self.root: Any = None
        self._faults, self._finish, self._step_forward = faults, finish, step_forward
        self._replaced = Replaced()
        frames.hide(sys.modules[Plan.__module__].__file__)
        self._check()

    def _check(self) -> None:
        """Runs before the script begins: finds settings of the plan that no program supports, and sets the allocator's
        settings, which PyTorch reads once."""
        problems = [(self.shown, text, "") for text in runtime_problems(self.plan)]
        if self.plan.runtime_name != "pytorch-fsdp2":
            problems.append(
                (
                    f"{self.shown}: /runtime/name",
                    f"The plan is for {self.plan.runtime_name}, but only units of fully_shard go into a script.",
                    "Plan with --runtime fsdp2, or rehearse the script as it is.",
                )
            )
        if self.plan.cuda_graphs:
            problems.append(
                (
                    f"{self.shown}: /cuda_graphs",
                    "The script's own loop captures CUDA graphs, or does not.",
                    "Plan with --cuda-graphs no, or rehearse the script as it is.",
                )
            )
        if self.plan.mixed_precision.autocast:
            problems.append(
                (
                    f"{self.shown}: /mixed_precision/autocast",
                    "A script runs under torch.autocast, or it does not: units of fully_shard do not change that.",
                    "Plan with --precision mixed, or rehearse the script as it is.",
                )
            )
        is_selective = "selective" in self.plan.checkpointed.values()
        for kind in self.plan.selective_keep if is_selective else ():
            if kind not in SAVED_KINDS:
                problems.append(
                    (
                        f"{self.shown}: /activation_checkpointing/selective_keep",
                        f'The outputs of "{kind}" are kept, which a script does not tell from those of other ops.',
                        'Write ["attention", "linear"], or "full" or "none" for the blocks.',
                    )
                )
        wanted = self.plan.allocator_settings
        for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF") if wanted else ():
            given = os.environ.get(name)
            if given is not None and given != wanted:
                problems.append(
                    (
                        f"{self.shown}: /runtime/allocator_settings",
                        f'The plan says "{wanted}", and {name} is "{given}".',
                        "Unset the variable, or write the same into the plan.",
                    )
                )
        if problems:
            self.refuse(problems)
        if wanted:
            os.environ["PYTORCH_ALLOC_CONF"] = wanted

    def install(self, torch: ModuleType) -> None:
        """Watches the construction of optimizers."""
        installed = torch.__version__.partition("+")[0]
        if minor_of(self.plan.runtime_version) != minor_of(installed):
            warn(
                "other_torch",
                f"{self.shown} is a plan for PyTorch {self.plan.runtime_version}, and {installed} is installed, whose FSDP2 may "
                "reduce in another dtype and hold other memory. Plan with --torch "
                f"{minor_of(installed)}.",
            )
        kind = sys.modules["torch.optim.optimizer"].Optimizer
        real = kind.__init__

        @functools.wraps(real)
        def __init__(optimizer: Any, params: Any, *args: Any, **kwargs: Any) -> None:
            groups = self._replaced.listed(params)
            if not self.applied:
                self._before_optimizer(groups, type(optimizer).__name__)
            else:
                self._warn_of_others(groups, type(optimizer).__name__)
            real(optimizer, self._replaced.of_groups(groups), *args, **kwargs)
            del params, groups
            self._replaced.warn_of_held()

        kind.__init__ = __init__

    def refuse(self, problems: list[tuple[str, str, str]]) -> NoReturn:
        """Ends the process, even if the script catches exceptions: figures of a run without the plan would be wrong."""
        error = PlanNotApplied("\n".join("\t".join(problem) for problem in problems))
        self._faults.exception = None
        self._faults.note(error)
        self._finish()
        raise error

    def missing(self) -> bool:
        """At the end: whether the plan was never applied. If so, this is why the program ended."""
        if self.applied and self.plan.accumulation > 1 and not self.plan.sync_every_micro_batch and not self.says_last_micro_batch:
            warn(
                "plan_in_place",
                f"{self.shown} reduces gradients after the last of {self.plan.accumulation} micro-batches, and the script does not say which that "
                "is: they were reduced in each. Write model.set_requires_gradient_sync(is_last) before the backward.",
            )
        if self.applied or self._faults.exception is not None:
            return False
        self._faults.note(
            PlanNotApplied(
                f"{self.shown}\tThe plan was not applied: the script made no torch.optim optimizer of a module's parameters, and "
                "did not call fully_shard on a model with the plan's modules.\tDoes the command start the script that trains?"
            )
        )
        return True

    def note_end(self) -> None:
        """At the end of a run that failed: reports that it failed without the plan."""
        error = self._faults.exception
        if not self.applied and (error is None or not error["type"].endswith(PlanNotApplied.__name__)):
            warn("plan_missing", f"{self.shown} was not applied: the script failed before it made its optimizer.")

    def at_wrapping(self, module: Any, how: str) -> None:
        """The script is about to wrap `module`: applies the plan if this is the plan's model."""
        names = {name for unit in self.plan.units for name in unit.modules if name}
        model = held(module)
        if not self.applied and names and not _missing(model, names):
            self.apply(model, how)

    def _before_optimizer(self, groups: list[Any], optimizer: str) -> None:
        given = self._replaced.tensors(groups)
        roots = roots_of(given)
        if not roots:  # tensors that belong to no module: an optimizer of other code
            return
        by_turns = models_by_turns(self.plan, given)
        if by_turns is not None:
            del given, roots
            return self.apply(by_turns, f"before {optimizer}", by_turns=True)
        model = self._model_of(roots)
        held = {id(p) for p in model.parameters()}
        outside = sum(id(p) not in held for p in given)
        if outside:
            self.refuse(
                [
                    (
                        self.shown,
                        f"{optimizer} trains {outside} parameters that are not below {type(model).__name__}, which has "
                        "the modules of the plan.",
                        "Plan the whole model that the optimizer trains.",
                    )
                ]
            )
        del given, roots
        self.apply(model, f"before {optimizer}")

    def _warn_of_others(self, groups: Any, optimizer: str) -> None:
        """A later optimizer may train parameters outside the plan's model, such as those of a second network."""
        inside = {id(p) for p in self.root.parameters()}
        given = self._replaced.tensors(self._replaced.of_groups(groups))
        outside = sum(id(p) not in inside for p in given)
        if outside:
            warn(
                "plan_in_place",
                f"{outside} parameters of another {optimizer} are outside of the plan's model, and stay as they are.",
            )

    def _model_of(self, roots: list[Any]) -> Any:
        """The outermost module that contains all modules of the plan."""
        names = {name for unit in self.plan.units for name in unit.modules} | set(self.plan.checkpointed)
        for root in roots:
            for module in held(root).modules():
                if not _missing(module, names):
                    return module
        trained = [root for root in roots if any(p.requires_grad for p in root.parameters())]
        group = group_of(trained) if len(trained) > 1 else None
        if group is not None and not _missing(group, names):
            return group
        root = min((held(root) for root in roots), key=lambda each: len(_missing(each, names)))
        there = {name for name, _ in root.named_modules()}
        missing = sorted(_missing(root, names), key=_by_numbers)
        problems = []
        for name in missing[:_MOST_NAMES]:
            problems.append(
                (
                    self.shown,
                    f'The script\'s {type(root).__name__} has no module "{name}".',
                    nearest(name, there) or _HINT_NAMES,
                )
            )
        if len(missing) > _MOST_NAMES:
            problems.append((self.shown, f"It lacks {len(missing) - _MOST_NAMES} more modules of the plan.", _HINT_NAMES))
        self.refuse(problems)

    def apply(self, root: Any, how: str, by_turns: bool = False) -> None:
        """Checkpoints, shards and prefetches according to the plan, below `root`. `by_turns`: the script trains the models
        below it in turns, each as its own root."""
        at = frames.user_frame(2) or {}
        self.applying = True
        try:
            with _without_bytecode():
                from fsdp_plan_runner import sharding
            self._check_experts(root)
            mesh = self._mesh(sharding)
            self._turn_off(root)
            self._checkpoint(root)
            self._convert(root)
            self._give_dimensions(root)
            self._warn_of_devices(root)
            self._replaced.begin(root)
            plan = without_root(self.plan) if by_turns else self.plan
            firsts = sharding.shard_units(root, plan, mesh, self._replaced.after_unit)
            self._replaced.end()
            self._stay(root)
            if not by_turns:  # such a plan is predicted only with FSDP2's own order
                forward, backward = _orders(root, self.plan)
                sharding.prefetch(firsts, self.plan, forward, backward)
                sharding.set_reductions(root, self.plan)
                self._give_forward(root)
        except Exception as error:
            if isinstance(error, PlanNotApplied):
                raise
            self.refuse(
                [
                    (
                        self.shown,
                        f"PyTorch cannot apply the plan {how}: {type(error).__name__}: {' '.join(str(error).split())[:300]}",
                        "",
                    )
                ]
            )
        finally:
            self.applying = False
        self.applied, self.root = True, root
        count = len(self.plan.units)
        warn(
            "plan_applied",
            f"{count} unit{'s' * (count != 1)} of {self.shown} were applied {how}",
            at.get("file"),
            at.get("line"),
        )

    def _give_forward(self, root: Any) -> None:
        """A script may call only parts of its model. Runs a forward of the model around each step, as FSDP2 does for a method
        that is passed to register_fsdp_forward_method."""
        state, step = root._get_fsdp_state(), self._step_forward
        given = self.plan.mixed_precision

        def begin() -> None:
            if not step.has_run:
                warn("plan_in_place", parts_called(class_name(root)))
                _only_outside(state, root, step)
            state._pre_forward(root, (None,), {})  # PyTorch indexes its arguments

        step.of(root, begin, lambda outputs: state._post_forward(root, (), outputs))
        if given.param_dtype and given.cast_forward_inputs:
            from fsdp_plan_runner.kernel_table import dtype_of

            step.hook_parts(casting_to(dtype_of(given.param_dtype)))

    def _mesh(self, sharding: ModuleType) -> Any:
        import torch.distributed as dist

        if not dist.is_initialized():
            # Norms of gradients on the host are reduced there.
            on_gpus = "cpu:gloo,cuda:nccl" if self.plan.cpu_offload else "nccl"
            dist.init_process_group(on_gpus if _device() == "cuda" else "gloo")
        if dist.get_world_size() != self.plan.world_size:
            self.refuse(
                [
                    (
                        f"{self.shown}: /mesh",
                        f"The mesh has {self.plan.world_size} ranks, and the script's process group has "
                        f"{dist.get_world_size()}.",
                        "Take the number of ranks from WORLD_SIZE in the script.",
                    )
                ]
            )
        return sharding.make_mesh(self.plan, _device())

    def _turn_off(self, root: Any) -> None:
        """Turns off transformers' own recomputation: the plan decides it."""
        if turn_off_checkpointing(root):
            warn("plan_in_place", "gradient_checkpointing of the script is off: the plan says what is recomputed.")

    def _check_experts(self, root: Any) -> None:
        """Their number of products depends on the data, so the products of linear layers cannot be counted."""
        for name, mode in self.plan.checkpointed.items():
            if mode == "selective" and "linear" in self.plan.selective_keep and has_experts(root.get_submodule(name)):
                self.refuse(
                    [
                        (
                            f"{self.shown}: /activation_checkpointing",
                            f'"{name}" has experts, and a script does not tell their products from the linear layers that are kept.',
                            'Plan with --activation-checkpointing full, save-attention or none.',
                        )
                    ]
                )

    def _checkpoint(self, root: Any) -> None:
        checkpoint = checkpoint_of_torch()
        saves = {"context_fn": contexts_of(self.plan.selective_keep, self.plan.every_second_linear)}
        for name, mode in self.plan.checkpointed.items():
            block = root.get_submodule(name)
            if mode == "reentrant":
                from fsdp_plan_runner.activation_checkpointing import call_as_reentrant

                call_as_reentrant(block, checkpoint)
                continue
            options = saves if mode == "selective" else {}
            for child in block.children() if mode == "nested" else ():
                child.forward = functools.partial(checkpoint, child.forward, use_reentrant=False)
            block.forward = functools.partial(
                checkpoint, block.forward, use_reentrant=False, early_stop=self.plan.early_stop, **options
            )
            if self.plan.offload_inputs:
                block.forward = with_inputs_on_host(block.forward)
        if self.plan.checkpointed:
            turn_off_caches(root)

    def _give_dimensions(self, root: Any) -> None:
        names = give_dimensions(root)
        if names:
            warn("plan_in_place", f"FSDP2 takes no parameter without dimensions: {', '.join(names)} has one here, of one number.")

    def _convert(self, root: Any) -> None:
        if self.plan.parameter_dtype is None:
            return
        from fsdp_plan_runner.kernel_table import dtype_of

        count = convert(root, dtype_of(self.plan.parameter_dtype))
        if count:
            warn(
                "plan_in_place",
                f"{count} parameters of the script were converted to {self.plan.parameter_dtype}, in which the plan "
                "trains them.",
            )

    def _stay(self, root: Any) -> None:
        """Shards on the host stay there, even if the script moves its model."""
        if not self.plan.cpu_offload:
            return

        def stay(*args: Any, **kwargs: Any) -> Any:
            warn("plan_in_place", "The script moves its model to a device; the shards stay on the CPU, as the plan says.")
            return root

        root.to = root.cuda = stay

    def _warn_of_devices(self, root: Any) -> None:
        where = {"meta": "meta", "cpu": "cpu", "device": _device()}[self.plan.initialization]
        found = sorted({p.device.type for p in root.parameters()})
        if found != [where]:
            warn(
                "plan_in_place",
                f"The script makes its parameters on {' and '.join(found)}, and the plan is predicted for {where}: the "
                "peaks of the initialization differ.",
            )


def _only_outside(state: Any, root: Any, step: StepForward) -> None:
    """If the root is called within the forward of a step, it acts as a part. With its own hooks FSDP2 would reduce its
    gradients as soon as those of its inputs exist, which is too early for the parts that were called before it."""
    for handle in (state._pre_forward_hook_handle, state._post_forward_hook_handle):
        handle.remove()

    def before(module: Any, args: Any, kwargs: Any) -> Any:
        return None if step.is_open else state._pre_forward(module, args, kwargs)

    def after(module: Any, args: Any, output: Any) -> Any:
        return None if step.is_open else state._post_forward(module, args, output)

    root.register_forward_pre_hook(before, prepend=True, with_kwargs=True)
    root.register_forward_hook(after)


def _device() -> str:
    """The device type of the program: a measured one may have no GPU."""
    return "cuda" if sys.modules["torch"].cuda.is_available() else "cpu"


def _by_numbers(name: str) -> list[tuple[int, str]]:
    """Sorts layers.9 before layers.10."""
    return [(int(part) if part.isdigit() else -1, part) for part in name.split(".")]


def _missing(module: Any, names: set[str]) -> list[str]:
    return [name for name in names if not _has(module, name)]


def _has(module: Any, name: str) -> bool:
    try:
        module.get_submodule(name)
    except AttributeError:
        return False
    return True


def _orders(root: Any, plan: Plan) -> tuple[list[int], list[int]]:
    """Units in the order in which forward and backward enter them, by the place where their modules are registered: outer ones
    first. A wrapper of the script may be inside `root`, whose modules then have longer names than in the plan."""
    place = {id(module): i for i, module in enumerate(root.modules())}
    spans = []
    for unit in plan.units:
        inside = [place[id(below)] for name in unit.modules for below in root.get_submodule(name).modules()]
        spans.append((min(inside), max(inside)))
    order = range(len(spans))
    forward = sorted(order, key=lambda i: (spans[i][0], -spans[i][1]))
    backward = sorted(order, key=lambda i: (spans[i][1], spans[i][1] - spans[i][0]))[::-1]
    return forward, backward


@contextlib.contextmanager
def _without_bytecode() -> Iterator[None]:
    """Our imports write no bytecode files."""
    wrote, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        yield
    finally:
        sys.dont_write_bytecode = wrote


def with_inputs_on_host(checkpointed: Callable) -> Callable:
    """What a checkpoint saves goes to pinned host memory."""
    import torch

    @functools.wraps(checkpointed.func)
    def forward(*args: Any, **kwargs: Any) -> Any:
        with torch.autograd.graph.save_on_cpu(pin_memory=True):
            return checkpointed(*args, **kwargs)

    return forward
