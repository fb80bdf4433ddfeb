"""Follows values that the host knows through the device.

On the stub GPU no kernel computes, so a size that is read back from the device (torch.nonzero, the number of tokens of an
expert, whether a mask is all ones) would be zero. Such sizes come from few integers: ids, masks and counts that the host sent,
and the choice of experts. We follow them: each call on known tensors runs on their host copies, too (known_copies.py), and
these answer a readback. Memory is still PyTorch's own, since the real call runs and the stub returns the number that it waits
for.

known_rules.py has results that follow from only some of the inputs, and assumptions about unknowable ones (which experts a
router picks, whether numbers are finite). loops.py ends loops that wait for a value that never comes.

This is a torch function mode. A dispatch mode would see more, but PyTorch allocates differently while one is active: autograd
then does not add gradients in place (isTensorSubclassLike in ATen/TensorSubclassLikeUtils.h).

Not followed: floating point results of unknown values; calls without a CPU version; code that torch.compile has compiled,
whose first call ends the following.
"""

from __future__ import annotations

import functools
import struct
from typing import Any, Callable, Optional

from fsdp_rehearsal.after_import import after_import
from fsdp_rehearsal.guard import failed, warn
from fsdp_rehearsal.known_copies import KnownCopies
from fsdp_rehearsal.known_rules import ASSUMED, EQUALS, Rules
from fsdp_rehearsal.loops import Loops, as_bytes
from fsdp_rehearsal.stub import Stub

# Random or unknown contents, or the contents of the argument, whose storage they share.
_NOT_FOLLOWED = frozenset(
    "__get__ __set__ __len__ __repr__ __hash__ __format__ size dim numel stride is_contiguous data_ptr untyped_storage "
    "storage_offset element_size nelement requires_grad_ backward register_hook record_stream is_floating_point is_complex pin_memory "
    "empty empty_like empty_strided new_empty new_empty_strided randn rand randint randperm rand_like randn_like randint_like "
    "normal bernoulli multinomial dropout manual_seed view view_as reshape_as expand expand_as permute transpose unsqueeze "
    "squeeze t detach alias narrow split chunk unbind select movedim swapaxes".split()
)
_OVERWRITES = ("copy_", "fill_", "zero_")
_INDEXES = ("__getitem__", "__setitem__")
_INDEX_NODES = ("IndexBackward0", "IndexPutBackward0")
_SCATTERS = ("masked_scatter", "masked_scatter_")
_SCATTER_NODES = ("MaskedScatterBackward0",)
_DEPTH_OF_INDEX = 4  # views that an index with slices as well as the mask puts after it
_READS = ("item", "__bool__", "__int__", "__index__", "__float__", "equal", "is_nonzero")
# Calls whose numbers may be tensors: PyTorch reads those from the device, one after the other. The first argument of a method
# is none.
_FACTORIES = frozenset("arange range linspace logspace full zeros ones empty rand randn randint".split())
_SIZED = frozenset("reshape view expand repeat tile narrow split split_with_sizes pad new_full new_zeros new_ones new_empty".split())
_UNIQUE = {"unique": 4, "unique_consecutive": 3}  # and the argument that selects the dimension
_COLLECTIVES = ("all_reduce", "all_gather", "all_gather_into_tensor", "reduce_scatter_tensor", "all_to_all_single")


def install(
    torch: Any, stub: Stub, balanced_routing: bool, in_module: Callable[[], bool], steps: Callable[[], int]
) -> KnownValues:
    """Follows known values from now on, in this thread and in those that autograd starts for it. `in_module`: whether the
    forward of a module runs; `steps`: the number of optimizer calls so far."""
    from torch.overrides import TorchFunctionMode

    copies = KnownCopies(torch)
    values = KnownValues(torch, stub, copies, Rules(torch, copies, balanced_routing, in_module), Loops(steps))

    class Following(TorchFunctionMode):
        has_left = False  # permanently

        def __torch_function__(self, func: Callable, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return values.call(func, args, kwargs or {})

    mode = Following()
    mode.__enter__()
    _follow_backward(torch, mode)

    after_import("torch._dynamo.eval_frame", lambda module: _end_with_compiled_code(module, torch, mode))
    after_import("triton.runtime.jit", lambda module: _forget_what_kernels_write(module, torch, copies))
    return values


def _forget_what_kernels_write(jit: Any, torch: Any, copies: KnownCopies) -> None:
    """A kernel of Triton receives addresses, and may write through any of them. No call of PyTorch shows which."""
    real = jit.JITFunction.run

    @functools.wraps(real)
    def run(kernel: Any, *args: Any, **kwargs: Any) -> Any:
        for given in (*args, *kwargs.values()):
            if isinstance(given, torch.Tensor):
                copies.forget(given)
        return real(kernel, *args, **kwargs)

    jit.JITFunction.run = run


def _end_with_compiled_code(eval_frame: Any, torch: Any, mode: Any) -> None:
    """Many libraries decorate functions with torch.compile that are never called, so only the first call ends the
    following."""
    real = eval_frame._callback_from_stance

    def _callback_from_stance(callback: Any) -> Any:
        if callback not in (None, False):
            _leave(torch, mode)
        return real(callback)

    eval_frame._callback_from_stance = _callback_from_stance


def _follow_backward(torch: Any, mode: Any) -> None:
    """Recomputation by checkpointing is followed as well. A mode is off inside the functions that it handles, and both
    `Tensor.backward` and `torch.autograd.backward` are such: it is on again where they call the engine."""
    real = torch.autograd._engine_run_backward

    def _engine_run_backward(*args: Any, **kwargs: Any) -> Any:
        if mode.has_left or torch._C._len_torch_function_stack() > 0:
            return real(*args, **kwargs)
        with mode:
            return real(*args, **kwargs)

    torch.autograd._engine_run_backward = _engine_run_backward


def _leave(torch: Any, mode: Any) -> None:
    """Removes the mode from the stack of modes, at any position. torch.compile would trace through it."""
    from torch.overrides import _pop_mode, _push_mode

    mode.has_left = True
    others = []
    while torch._C._len_torch_function_stack() > 0:
        others.append(_pop_mode())
    for other in reversed(others):
        if other is not mode:
            _push_mode(other)
    if mode in others:
        warn("not_followed", "Code of torch.compile was called, so values that are read back from the device are not followed.")


class KnownValues:
    def __init__(self, torch: Any, stub: Stub, copies: KnownCopies, rules: Rules, loops: Loops) -> None:
        self.copies = copies
        self._torch = torch
        self._stub = stub
        self._rules = rules
        self._loops = loops
        self._broken = False

    def call(self, func: Callable, args: Any, kwargs: dict[str, Any]) -> Any:
        """Calls `func`, and calls it on the copies, too, if all its inputs are known."""
        name = getattr(func, "__name__", "")
        if name in _NOT_FOLLOWED or self._broken:
            return self._with_numbers(func, name, args, kwargs)
        if name in _COLLECTIVES and getattr(func, "__module__", "").startswith("torch.distributed"):
            return self._collective(func, name, args, kwargs)
        on_host = answers = None
        try:
            on_host = self._on_host(func, name, args, kwargs)
            answers = self._answers(name, args, on_host)
            self._rules.note_router(name, args, kwargs)
        except Exception:  # there is no CPU version, or not for these arguments
            on_host, answers = None, []
        if name in _READS and (on_host is None or self.copies.mark_of(args[0]) == ASSUMED):
            answers = self._answer_to_a_loop(name, args) or answers
        self._stub.answer_readbacks(answers)
        try:
            if name == "ctc_loss":
                with self._without_cudnn(args):
                    result = func(*args, **kwargs)
            else:
                result = func(*args, **kwargs)
        finally:
            if answers:
                self._stub.forget_answers()
        try:
            if answers and name in _INDEXES:
                self._answer_in_backward(args[0] if name == "__setitem__" else result, answers)
            if name in _SCATTERS:
                self._answer_to_scatter(args[0] if name.endswith("_") else result, args)
            self._follow(name, args, kwargs, result, on_host)
            self._follow_rows(name, args, result)
        except Exception as error:
            self._broken = True
            failed("Values known to the host", error)
        return result

    def _with_numbers(self, func: Callable, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        """Calls `func`, with the numbers that it reads from the device."""
        answers = [] if self._broken else self._of_numbers(name, args)
        if not answers:
            return func(*args, **kwargs)
        self._stub.answer_readbacks(answers)
        try:
            return func(*args, **kwargs)
        finally:
            self._stub.forget_answers()

    def _collective(self, func: Callable, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        """Every rank has the same data as this one."""
        written = []
        try:
            group = kwargs.get("group")
            size, rank = self._torch.distributed.get_world_size(group), self._torch.distributed.get_rank(group)
            written = self._rules.collective(name, args, kwargs, size, rank)
        except Exception as error:
            failed("Values that ranks exchange", error)
        result = func(*args, **kwargs)
        for tensor, value in written:
            self.copies.forget(tensor)
            if value is not None and self.copies.on_device(tensor):
                self.copies.learn(tensor, value)
        return result

    def _answer_to_a_loop(self, name: str, args: Any) -> list[bytes]:
        """The value that ends a loop that read the same unknown value many times; usually none, an empty list."""
        tensor = args[0] if args else None
        if not self.copies.on_device(tensor) or tensor.numel() != 1:
            return []
        is_bool = name in ("__bool__", "is_nonzero") or tensor.dtype == self._torch.bool
        value = self._loops.answer(is_bool)
        return [] if value is None else [as_bytes(value, tensor.is_floating_point(), tensor.element_size())]

    def _on_host(self, func: Callable, name: str, args: Any, kwargs: dict[str, Any]) -> Optional[list[Any]]:
        """The results on the copies, in a flat list; None if an input is unknown."""
        if getattr(func, "namespace", "aten") != "aten":  # for example collectives
            return None
        inputs = [x for x in self._flat((args, kwargs)) if isinstance(x, self._torch.Tensor) and x.is_cuda]
        if not inputs:
            return self._from_host(func, name, args, kwargs)
        target = args[0] if name in _OVERWRITES else None
        if target is not None and not self.copies.has_room(target):
            return None
        if name in _UNIQUE and (len(args) > _UNIQUE[name] or kwargs.get("dim") is not None):
            return None  # Thrust reads differently
        if any(x is not target and self.copies.of(x) is None for x in inputs):
            return self._rules.results(name, args, kwargs)
        host_args, host_kwargs = self._torch.utils._pytree.tree_map(self._to_host, (args, kwargs))
        host_kwargs.pop("non_blocking", None)
        with self._torch.no_grad():
            if name == "histc":  # has no CPU version for integers
                return [func(host_args[0].double(), *host_args[1:], **host_kwargs).to(host_args[0].dtype)]
            return self._flat(func(*host_args, **host_kwargs))

    def _from_host(self, func: Callable, name: str, args: Any, kwargs: dict[str, Any]) -> Optional[list[Any]]:
        """A tensor that is sent to the device, or made there from numbers."""
        if name in ("cuda", "to") and not self.copies.has_room(args[0]):
            return None
        if name == "cuda":
            return [args[0]]
        if name == "to":
            moved = func(*self._torch.utils._pytree.tree_map(self._to_host, args), **self._host_keywords(kwargs))
            return [moved]
        device = kwargs.get("device")
        if device is None or self._torch.device(device).type != "cuda":
            return None
        keywords = self._host_keywords(kwargs)
        if not all(self.copies.has_room(tensor) for tensor in self._flat(func(*args, **{**keywords, "device": "meta"}))):
            return None
        return self._flat(func(*args, **keywords))

    def _host_keywords(self, kwargs: dict[str, Any]) -> dict[str, Any]:
        kept = {key: self._to_host(value) for key, value in kwargs.items() if key not in ("non_blocking", "pin_memory")}
        if isinstance(kept.get("device"), int):
            kept["device"] = "cpu"
        return kept

    def _to_host(self, value: Any) -> Any:
        if isinstance(value, self._torch.Tensor) and value.is_cuda:
            copy = self.copies.of(value)
            return copy if copy is not None else self._torch.empty(value.shape, dtype=value.dtype, device="cpu")
        if isinstance(value, self._torch.device) or isinstance(value, str) and value.startswith("cuda"):
            return "cpu"
        return value

    def _flat(self, tree: Any) -> list[Any]:
        return self._torch.utils._pytree.tree_flatten(tree)[0]

    def _answers(self, name: str, args: Any, on_host: Optional[list[Any]]) -> list[bytes]:
        """The tensors whose values are about to be read from the device, in order."""
        if name in (*_INDEXES, "masked_select"):  # the tensor that is selected from need not be known
            index = args[1] if isinstance(args[1], (tuple, list)) else (args[1],)
            ends = [end for i in index if isinstance(i, slice) for end in (i.start, i.stop, i.step)]
            numbers = self._of_scalars(ends)  # slices come first
            masks = [i for i in index if isinstance(i, self._torch.Tensor) and i.is_cuda and i.dtype == self._torch.bool]
            copies = [self.copies.of(mask) for mask in masks]
            return [] if any(c is None for c in copies) else numbers + [_integer(int(c.count_nonzero())) for c in copies]
        if name == "ctc_loss":
            return self._of_ctc(*args[1:4])
        if name == "repeat_interleave":
            return self._of_repeats(args)
        if name in _FACTORIES or name in _SIZED:
            return self._of_numbers(name, args)
        if on_host is None:
            return []
        if name == "tolist":
            return self._contents([self.copies.of(args[0])])
        if name in _UNIQUE:
            return self._of_unique(name, args[0], on_host[0])
        if name == "nonzero" or name == "where" and len(args) == 1:
            return [_integer(on_host[0].size(0))]
        if name in _READS and len(on_host) == 1:
            value = on_host[0]
            if isinstance(value, float):
                return [struct.pack("<d" if args[0].dtype == self._torch.float64 else "<f", value)]
            return [_integer(int(value))]
        return []

    def _contents(self, known: list[Any]) -> list[bytes]:
        return [bytes(tensor.contiguous().view(-1).view(self._torch.uint8).numpy()) for tensor in known]

    def _of_numbers(self, name: str, args: Any) -> list[bytes]:
        """Numbers that are tensors of one element. If any is unknown, no answer is given for any."""
        if name not in _FACTORIES and name not in _SIZED:
            return []
        return self._of_scalars(args if name in _FACTORIES else args[1:])

    def _of_scalars(self, values: Any) -> list[bytes]:
        given = [x for x in self._flat(values) if self.copies.on_device(x) and x.dim() == 0]
        known = [self.copies.of(x) for x in given]
        return [] if any(c is None for c in known) else self._contents(known)

    def _of_ctc(self, targets: Any, inputs: Any, lengths: Any) -> list[bytes]:
        """It reads its targets, the lengths of both sides if they are on the device, and its targets again."""
        read = [x for x in (targets, inputs, lengths, targets) if self.copies.on_device(x)]
        known = [(x, self.copies.of(x)) for x in read]
        return self._contents([self._torch.zeros(x.shape, dtype=x.dtype) if c is None else c for x, c in known])

    def _without_cudnn(self, args: Any) -> Any:
        """The stub has no CTC of cuDNN, which accepts only targets of 32 bits."""
        cudnn = self._torch.backends.cudnn
        if len(args) > 1 and args[1].dtype == self._torch.int32 and cudnn.enabled:
            warn("cudnn_ctc", "The CTC loss took PyTorch's own kernels; a GPU may take cuDNN's, with another workspace.")
        return cudnn.flags(enabled=False)

    def _of_unique(self, name: str, given: Any, found: Any) -> list[bytes]:
        """The number of different values; for booleans in no required order, the number of true ones."""
        if name == "unique" and given.dtype == self._torch.bool:
            return [struct.pack("<i", int(self.copies.of(given).count_nonzero()))]
        return [_integer(found.size(0))]

    def _of_repeats(self, args: Any) -> list[bytes]:
        """The total number of repeats, and that none is negative; the repeated tensor need not be known."""
        repeats = next((c for c in map(self.copies.of, args[1::-1]) if c is not None and not c.is_floating_point()), None)
        return [] if repeats is None else [_integer(int(repeats.sum())), b"\x01"]

    def _answer_in_backward(self, indexed: Any, answers: list[bytes]) -> None:
        """Backward reads the same masks again, for the gradients of the indexed tensor and of the values put there."""
        node = indexed.grad_fn
        for _ in range(_DEPTH_OF_INDEX):
            if node is None or node.name() in _INDEX_NODES:
                break
            node = node.next_functions[0][0] if node.next_functions else None
        if node is None or node.name() not in _INDEX_NODES:
            return
        wanted = sum(source is not None for source, _ in node.next_functions)
        node.register_prehook(lambda gradients: self._stub.answer_readbacks(answers * wanted))

    def _answer_to_scatter(self, scattered: Any, args: Any) -> None:
        """The gradient of what was scattered is selected by the same mask."""
        mask = self.copies.of(args[1]) if self.copies.on_device(args[1]) else None
        node = scattered.grad_fn
        if mask is None or node is None or node.name() not in _SCATTER_NODES or not args[2].requires_grad:
            return
        answer = _integer(int(mask.expand(scattered.shape).count_nonzero()))
        node.register_prehook(lambda gradients: self._stub.answer_readbacks([answer]))

    def _follow(self, name: str, args: Any, kwargs: dict[str, Any], result: Any, on_host: Optional[list[Any]]) -> None:
        in_place = name == "__setitem__" or name.endswith("_") and not name.endswith("__")
        if on_host is None:
            if name.startswith(("_foreach_", "_fused_")):
                written = self._flat((args, kwargs))
            else:
                written = ([args[0]] if in_place and args else []) + self._flat(kwargs.get("out"))
            for tensor in written:
                self.copies.forget(tensor)
            return
        if name == "__setitem__":
            return  # ran on the copy
        mark = self._mark(name, args, kwargs)
        for tensor, value in zip(self._flat(result), on_host):
            if not isinstance(tensor, self._torch.Tensor) or not isinstance(value, self._torch.Tensor):
                continue
            if self.copies.on_device(tensor):
                self.copies.learn(tensor, value, mark, is_alone=name in _UNIQUE)
            elif not tensor.is_cuda and tensor.data_ptr() != value.data_ptr():
                with self._torch.no_grad():
                    tensor.copy_(value)

    def _follow_rows(self, name: str, args: Any, result: Any) -> None:
        """A nested tensor that is sent to the device: a wrapper around its values and the places where its rows begin."""
        if name not in ("to", "cuda") or not getattr(result, "is_nested", False) or result.layout != self._torch.jagged:
            return
        for sent, source in ((result.values(), args[0].values()), (result.offsets(), args[0].offsets())):
            if not source.is_cuda and self.copies.on_device(sent) and self.copies.has_room(sent):
                self.copies.learn(sent, source)

    def _mark(self, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
        """Marks results that follow from a router's choice, or from the assumption that no unknown integer equals a number."""
        if name == "topk" and self._rules.router is not None:
            router, self._rules.router = self._rules.router, None
            return router
        if name in EQUALS and self.copies.of(args[0]) is None:
            return ASSUMED
        marks = (self.copies.mark_of(value) for value in self._flat((args, kwargs)))
        return next((mark for mark in marks if mark is not None), None)


def _integer(value: int) -> bytes:
    return struct.pack("<q", value)
