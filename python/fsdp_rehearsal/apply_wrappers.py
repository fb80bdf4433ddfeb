"""Replaces the script's wrappers by the plan.

DistributedDataParallel, FullyShardedDataParallel and DataParallel keep their classes, so that isinstance works, and become
plain holders: `.module`, a forward that calls it, `no_sync`; no hooks, no buckets, no collectives. `fully_shard` returns its
argument; if that is the model of the plan, the plan is applied there. Functions passed to torch.utils.checkpoint run without
it. Engines that own the training (DeepSpeed, accelerate's plugins, Megatron) cannot be removed from a script, and are refused.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from fsdp_rehearsal.guard import warn
from fsdp_rehearsal.switches import casting_to

# Settings that a script may make for its own FSDP2 units; the plan decides them.
_SETTERS = (
    "set_modules_to_forward_prefetch",
    "set_modules_to_backward_prefetch",
    "set_reshard_after_forward",
    "set_reshard_after_backward",
    "set_unshard_in_backward",
)
_SYNC_SETTERS = ("set_requires_gradient_sync", "set_is_last_backward")  # which mark the last micro-batch of its step
# Options of torch.utils.checkpoint.checkpoint itself, not of its function.
_OF_CHECKPOINT = ("use_reentrant", "context_fn", "determinism_check", "debug", "early_stop", "preserve_rng_state")
_ENGINES = {
    "FSDP": "its FSDP plugin",
    "DEEPSPEED": "its DeepSpeed plugin",
    "MEGATRON_LM": "its Megatron plugin",
    "TP": "tensor parallelism",
}


class Wrappers:
    def __init__(self, applying: Any) -> None:
        """`applying`: an ApplyPlan, or its replacement if wrappers are left out (fsdp_capture/unwrapped.py)."""
        self._applying = applying

    def install(self, after_import: Callable) -> None:
        after_import("torch.nn.parallel.distributed", self._ddp)
        after_import("torch.nn.parallel.data_parallel", self._data_parallel)
        after_import("torch.distributed.fsdp.fully_sharded_data_parallel", self._fsdp1)
        after_import("torch.distributed.fsdp._fully_shard._fully_shard", self._setters)
        after_import("torch.distributed.fsdp._fully_shard", self._fsdp2)
        after_import("torch.distributed.fsdp", self._fsdp2)
        after_import("torch.distributed._composable.fsdp.fully_shard", self._fsdp2)
        after_import("torch.distributed._composable.fsdp", self._fsdp2)
        after_import("torch.utils.checkpoint", self._checkpointing)
        after_import("torch.distributed.algorithms._checkpoint.checkpoint_wrapper", self._checkpoint_wrappers)
        after_import("deepspeed", self._deepspeed)
        after_import("accelerate.accelerator", self._accelerate)

    def _note(self, what: str) -> None:
        warn("plan_in_place", self._applying.in_place_of(what))

    def _ddp(self, module: ModuleType) -> None:
        kind, base = module.DistributedDataParallel, module.Module

        def __init__(holder: Any, module: Any, *args: Any, **kwargs: Any) -> None:
            self._note("DistributedDataParallel")
            base.__init__(holder)
            holder.module = module
            holder.device_ids = kwargs.get("device_ids") or (args[0] if args else None)
            holder.require_backward_grad_sync = True

        def register_comm_hook(holder: Any, *args: Any, **kwargs: Any) -> None:
            """There is no reduction here."""

        def __getattr__(holder: Any, name: str) -> Any:
            """A script that calls parts of its model finds them in the model, which the plan does not change."""
            try:
                return base.__getattr__(holder, name)
            except AttributeError:
                inner = holder.__dict__.get("_modules", {}).get("module")
                if inner is None:
                    raise
                return getattr(inner, name)

        kind.__init__, kind.forward, kind.no_sync = __init__, _call_where_it_lies("module"), self._no_sync
        kind.__getattr__ = __getattr__
        kind.require_backward_grad_sync = self._sync_switch
        kind.register_comm_hook = kind._register_builtin_comm_hook = kind._set_static_graph = register_comm_hook
        kind.train, kind.join, kind._get_ddp_logging_data = base.train, _joined, lambda holder: {}
        for name in ("__getstate__", "__setstate__"):  # they concern buckets
            delattr(kind, name)
        kind._rehearsal_stand_in = True

    def _data_parallel(self, module: ModuleType) -> None:
        """In each forward it copies its module to all GPUs, which is impossible for shards."""
        kind, base = module.DataParallel, module.Module

        def __init__(holder: Any, module: Any, device_ids: Any = None, output_device: Any = None, dim: int = 0) -> None:
            self._note("DataParallel")
            base.__init__(holder)
            holder.module, holder.dim = module, dim
            holder.device_ids = [0]
            holder.output_device = holder.src_device_obj = None

        kind.__init__, kind.forward = __init__, _call_where_it_lies("module")
        kind._rehearsal_stand_in = True

    def _fsdp1(self, module: ModuleType) -> None:
        import torch

        kind, base = module.FullyShardedDataParallel, torch.nn.Module
        said = inspect.signature(kind.__init__)

        def __init__(holder: Any, module: Any, *args: Any, **kwargs: Any) -> None:
            self._note("FullyShardedDataParallel")
            base.__init__(holder)
            holder._fsdp_wrapped_module = module
            _save_without_the_name(holder, "_fsdp_wrapped_module.")
            self._applying.at_wrapping(module, "in place of FullyShardedDataParallel")
            given = said.bind(holder, module, *args, **kwargs).arguments
            _materialize(module, given.get("param_init_fn"), given.get("device_id"))
            self._move(module, given.get("device_id"))
            self._cast_inputs(module, given.get("mixed_precision"))

        def clip_grad_norm_(holder: Any, max_norm: float, norm_type: float = 2.0) -> Any:
            return torch.nn.utils.clip_grad_norm_(holder.parameters(), max_norm, norm_type)

        kind.__init__, kind.no_sync, kind.named_modules = __init__, self._no_sync, _named_as_without_fsdp1
        kind.forward = _call_where_it_lies("_fsdp_wrapped_module")
        kind.clip_grad_norm_ = clip_grad_norm_
        for name in ("apply", "named_buffers", "named_parameters", "_apply"):
            if name in kind.__dict__:
                setattr(kind, name, getattr(base, name))
        kind.state_dict_type = staticmethod(_in_context)
        kind._rehearsal_stand_in = True

    def _fsdp2(self, module: ModuleType) -> None:
        real = module.__dict__.get("fully_shard")
        if not callable(real) or getattr(real, "_rehearsal_stand_in", False):
            return

        @functools.wraps(real)
        def fully_shard(modules: Any, *args: Any, **kwargs: Any) -> Any:
            if self._applying.applying:
                for each in modules if isinstance(modules, (list, tuple)) else (modules,):
                    _take_answers_back(each)
                return real(modules, *args, **kwargs)
            self._note("fully_shard")
            for each in modules if isinstance(modules, (list, tuple)) else (modules,):
                self._applying.at_wrapping(each, "in place of fully_shard")
                mesh = kwargs.get("mesh")
                self._move(each, getattr(mesh, "device_type", "cuda"))
                self._cast_inputs(each, kwargs.get("mp_policy"))
                self._answer_setters(each)
            return modules

        fully_shard._rehearsal_stand_in = True  # type: ignore[attr-defined]
        module.fully_shard = fully_shard  # type: ignore[attr-defined]

    def _move(self, module: Any, device: Any) -> None:
        """Moves tensors on the CPU to the `device` to which the script's wrapper would have moved them; a plan moves its
        shards itself."""
        import torch

        if device is None or not self._applying.is_without_plan or not torch.cuda.is_available():
            return
        device = _as_device(device)
        with torch.no_grad():
            for tensor in (*module.parameters(), *module.buffers()):
                if tensor.device.type == "cpu":
                    tensor.data = tensor.to(device)

    def _cast_inputs(self, module: Any, precision: Any) -> None:
        """The script's mixed precision would have cast these inputs. Casts them to the dtype of the parameters, unless the
        plan has a mixed precision, which casts them itself."""
        is_asked = getattr(precision, "param_dtype", None) is not None
        casts = getattr(precision, "cast_forward_inputs", False) or getattr(precision, "cast_root_forward_inputs", False)
        if not (is_asked and casts) or not self._applying.is_without_plan and self._applying.plan.mixed_precision.param_dtype:
            return

        def cast(module: Any, args: Any, kwargs: Any) -> Any:
            first = next((p for p in module.parameters() if p.is_floating_point()), None)
            return (args, kwargs) if first is None else casting_to(first.dtype)(module, args, kwargs)

        module.register_forward_pre_hook(cast, prepend=True, with_kwargs=True)

    def _answer_setters(self, module: Any) -> None:
        """A module that is no unit of the plan, although the script treats it as one of its own."""
        for name in (*_all_setters(), *self._applying.unanswered):
            if not hasattr(type(module), name):
                object.__setattr__(module, name, _nothing)
        for name in _SYNC_SETTERS:
            if not hasattr(type(module), name):
                object.__setattr__(module, name, self._note_last)

    def _note_last(self, is_last: bool = True, **kwargs: Any) -> None:
        """The script marks whether a micro-batch is the last one of its step."""
        if not is_last:
            self._applying.says_last_micro_batch = True

    def _setters(self, module: ModuleType) -> None:
        kind = module.FSDPModule
        for name in _SETTERS:
            if hasattr(kind, name):
                setattr(kind, name, self._only_ours(name, getattr(kind, name)))
        for name in _SYNC_SETTERS:
            setattr(kind, name, self._where_planned(getattr(kind, name)))

    def _where_planned(self, real: Callable) -> Callable:
        """The script decides when gradients are reduced, unless the plan reduces them in each micro-batch."""
        @functools.wraps(real)
        def call(module: Any, is_last: bool = True, **kwargs: Any) -> Any:
            self._note_last(is_last)
            is_planned = self._applying.applying or not self._applying.plan.sync_every_micro_batch
            return real(module, is_last, **kwargs) if is_planned else None

        return call

    def _only_ours(self, name: str, real: Callable) -> Callable:
        @functools.wraps(real)
        def call(module: Any, *args: Any, **kwargs: Any) -> Any:
            return real(module, *args, **kwargs) if self._applying.applying else None

        return call

    @property
    def _no_sync(self) -> Callable:
        """`no_sync` of a wrapper, in FSDP2's own way if the plan reduces only after the last micro-batch."""
        @contextlib.contextmanager
        def no_sync(holder: Any) -> Iterator[None]:
            self._sync(False)
            try:
                yield
            finally:
                self._sync(True)

        return no_sync

    def _sync(self, is_last: bool) -> None:
        applying = self._applying
        self._note_last(is_last)
        if applying.applied and not applying.plan.sync_every_micro_batch:
            applying.root.set_requires_gradient_sync(is_last)

    @property
    def _sync_switch(self) -> property:
        """DDP's attribute that `no_sync` sets, and that some scripts set themselves."""

        def change(holder: Any, value: bool) -> None:
            holder.__dict__["_require_backward_grad_sync"] = value
            self._sync(bool(value))

        return property(lambda holder: holder.__dict__["_require_backward_grad_sync"], change)

    def _checkpointing(self, module: ModuleType) -> None:
        """The script's own recomputation is turned off: the plan decides it."""
        real = module.checkpoint

        @functools.wraps(real)
        def checkpoint(function: Callable, *args: Any, **kwargs: Any) -> Any:
            self._note("activation checkpointing")
            return function(*args, **{name: value for name, value in kwargs.items() if name not in _OF_CHECKPOINT})

        checkpoint._rehearsal_real = real  # type: ignore[attr-defined]
        module.checkpoint = checkpoint  # type: ignore[attr-defined]

    def _checkpoint_wrappers(self, module: ModuleType) -> None:
        def checkpoint_wrapper(module: Any, *args: Any, **kwargs: Any) -> Any:
            self._note("activation checkpointing")
            return module

        def apply_activation_checkpointing(model: Any, *args: Any, **kwargs: Any) -> None:
            self._note("activation checkpointing")

        module.checkpoint_wrapper = checkpoint_wrapper  # type: ignore[attr-defined]
        module.apply_activation_checkpointing = apply_activation_checkpointing  # type: ignore[attr-defined]

    def _deepspeed(self, module: ModuleType) -> None:
        def initialize(*args: Any, **kwargs: Any) -> None:
            self._refuse("deepspeed.initialize")

        module.initialize = initialize  # type: ignore[attr-defined]

    def _accelerate(self, module: ModuleType) -> None:
        if hasattr(module, "model_has_dtensor"):  # it refuses shards before it wraps in DDP, which is replaced
            module.model_has_dtensor = lambda model: False  # type: ignore[attr-defined]
        kind = module.Accelerator
        real = kind.__init__

        @functools.wraps(real)
        def __init__(accelerator: Any, *args: Any, **kwargs: Any) -> None:
            real(accelerator, *args, **kwargs)
            name = str(accelerator.distributed_type).rpartition(".")[2]
            if name in _ENGINES:
                self._refuse(f"accelerate with {_ENGINES[name]}")

        kind.__init__ = __init__

    def _refuse(self, what: str) -> None:
        self._applying.refuse(
            [
                (
                    self._applying.shown,
                    f"The script trains through {what}, whose place {self._applying.subject} cannot take.",
                    self._applying.advice,
                )
            ]
        )


def checkpoint_of_torch() -> Callable:
    """The original torch.utils.checkpoint.checkpoint, even if the script sees a replacement."""
    from torch.utils.checkpoint import checkpoint

    return getattr(checkpoint, "_rehearsal_real", checkpoint)


def _materialize(module: Any, make: Any, device: Any) -> None:
    """Initializes modules on the meta device as FSDP1 does: by the script's `param_init_fn`, or by their
    `reset_parameters`."""
    import torch

    place = torch.device("cuda", torch.cuda.current_device()) if device is None else _as_device(device)
    for each in list(module.modules()):
        tensors = [*each.parameters(recurse=False), *each.buffers(recurse=False)]
        if not any(tensor.is_meta for tensor in tensors):
            continue
        with torch.no_grad():
            if make is not None:
                make(each)
            else:
                each.to_empty(device=place, recurse=False)
                each.reset_parameters()


def _save_without_the_name(holder: Any, name: str) -> None:
    """FSDP1's state dicts have the parameters' names without the wrapper's prefix."""
    from torch.distributed.utils import _replace_by_prefix

    def after_saving(holder: Any, state: Any, prefix: str, *args: Any) -> None:
        _replace_by_prefix(state, prefix + name, prefix)

    def before_loading(holder: Any, state: Any, prefix: str, *args: Any) -> None:
        _replace_by_prefix(state, prefix, prefix + name)

    holder._register_state_dict_hook(after_saving)
    holder.register_load_state_dict_pre_hook(before_loading)


def _named_as_without_fsdp1(holder: Any, memo: Any = None, prefix: str = "", remove_duplicate: bool = True) -> Iterator[Any]:
    """A script that finds shards of FSDP2 uses names unchanged."""
    memo = set() if memo is None else memo
    if holder not in memo:
        memo |= {holder} if remove_duplicate else set()
        yield prefix, holder
        yield from holder._modules["_fsdp_wrapped_module"].named_modules(memo, prefix, remove_duplicate)


def _as_device(device: Any) -> Any:
    import torch

    return torch.device("cuda", device) if isinstance(device, int) else torch.device(device)


def _all_setters() -> list[str]:
    """The setters of this PyTorch's units, without the one for the last micro-batch."""
    from torch.distributed.fsdp import FSDPModule

    return [name for name in dir(FSDPModule) if name.startswith("set_") and name not in _SYNC_SETTERS]


def _take_answers_back(module: Any) -> None:
    for name in (*_all_setters(), *_SYNC_SETTERS):
        module.__dict__.pop(name, None)


def _call_where_it_lies(name: str) -> Callable:
    """A forward of the module `name`. Its tensors may come from the CPU: wrappers copy them to the GPU of their module."""

    def forward(holder: Any, *args: Any, **kwargs: Any) -> Any:
        import torch
        from torch.distributed.utils import _to_kwargs

        inner = holder._modules[name]
        first = next(inner.parameters(), None)
        leaves = torch.utils._pytree.tree_leaves((args, kwargs))
        if first is not None and first.device.type == "cuda" and any(_is_on_cpu(leaf) for leaf in leaves):
            moved, named = _to_kwargs(args, kwargs, first.device, False)
            args, kwargs = moved[0] if moved else (), named[0] if named else {}
        return inner(*args, **kwargs)

    return forward


def _is_on_cpu(value: Any) -> bool:
    import torch

    return isinstance(value, torch.Tensor) and value.device.type == "cpu"


def _nothing(*args: Any, **kwargs: Any) -> None:
    """Ignores a setting that the plan decides."""


@contextlib.contextmanager
def _joined(holder: Any, *args: Any, **kwargs: Any) -> Iterator[None]:
    yield


@contextlib.contextmanager
def _in_context(*args: Any, **kwargs: Any) -> Iterator[None]:
    yield
