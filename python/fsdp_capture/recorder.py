"""Records the forward and backward of one step without changing their allocations.

It joins four sources:
  * the profiler's tree (CPU side only): ops with their sequence numbers, the windows of autograd's nodes, each allocation and
    free inside the op that made it;
  * the allocator's history: the same allocations and frees, with the bytes as requested;
  * ranges that hooks put into the tree: module calls "M|", tensors that autograd saves "S|", recomputations "R|";
  * a dispatch mode in the forward, "D|": the reads, writes and FLOPs of each op. In the backward it would change allocations:
    a gradient that Python has seen is not added to in place.
No source keeps a tensor alive.

Sources: torch/csrc/profiler/collection.cpp, torch/csrc/autograd/engine.cpp (evaluate_function), torch 2.11.
"""

from __future__ import annotations

import collections
import contextlib
import functools
import gc
import heapq
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from fsdp_capture.module_names import name_at, named_modules
from fsdp_capture.op_watch import DISPATCHED, DispatchedOp, OpWatch

MODULE, SAVED, RECOMPUTED, ENDED = "M|", "S|", "R|", "E|"
BEGUN, GRADIENT, CLEARED, STEPPED = "B|", "G|", "Z|", "O|"  # of a step of passes
_WINDOW = "autograd::engine::evaluate_function: "
_ATEN_PRODUCTS = {f"aten::{name}" for name in ("mm", "addmm", "bmm", "baddbmm")}
# Products that use no workspace of cuBLAS.
_OTHER_PRODUCTS = {f"aten::{name}" for name in ("_scaled_mm", "_scaled_mm_v2", "_grouped_mm", "_scaled_grouped_mm", "_int_mm")}


@dataclass
class ModuleCall:
    name: str  # below the root; "" is the root, None a module outside it
    class_name: str
    parent: int  # in Recording.calls; -1 if there is none


@dataclass
class Event:
    """One event. `what`: alloc, free, workspace, save, op, node, enter, leave, end (of the forward), window, product (of a
    backward, without a workspace)."""

    what: str  # for a step of passes also: begin (of a forward after a backward), gradient, clear, step
    number: int = -1  # alloc, free, save: the allocation, -1 if made before; op: in Recording.ops; node: sequence number;
    # enter, leave: in Recording.calls; window: in Recording.windows; workspace: 0 cuBLAS, 1 cuBLASLt; clear, step: in Recording.said
    bytes: int = 0
    call: int = -1  # innermost module call of the forward
    window: int = -1  # of the backward
    recomputed: bool = False  # in a checkpointed module that is recomputed


@dataclass
class Recording:
    events: list[Event] = field(default_factory=list)
    ops: list[DispatchedOp] = field(default_factory=list)
    reads: list[list[int]] = field(default_factory=list)  # [num ops] allocations, or -1 - index of an address in `older`
    makes: list[list[int]] = field(default_factory=list)
    older: list[int] = field(default_factory=list)  # addresses of storages from before the recording
    calls: list[ModuleCall] = field(default_factory=list)
    windows: list[tuple[str, int]] = field(default_factory=list)  # node, sequence number
    sizes: list[int] = field(default_factory=list)  # [num allocations]
    gradients: dict[int, str] = field(default_factory=dict)  # allocation -> parameter
    loss: int = -1  # allocation; with several losses the last
    losses: list[int] = field(default_factory=list)  # one for each backward
    # allocation -> bytes of the tensor: mse_loss puts its scalar into the storage of the differences of all elements
    loss_bytes_of: dict[int, int] = field(default_factory=dict)
    loss_place: str = ""  # type of its device
    unmatched: int = 0
    recomputes: bool = False  # modules run again in the backward, although the capture did not request it
    peak: int = 0  # requested bytes above those at the start
    without_cost: list[str] = field(default_factory=list)  # names of ops of unknown cost
    has_narrow_products: bool = False  # of numbers of 8 bits or fewer
    said: list[list[str]] = field(default_factory=list)  # models whose gradients are cleared, or that an optimizer steps


class Recorder:
    """Records from `start` to `stop`, which are called outside of any module. `drain` empties the allocator's history and
    returns the entries since the last call."""

    def __init__(
        self, torch: Any, root: Any, drain: Any, cast_inputs: Any, step_forward: Any, launches: Callable[[], int]
    ) -> None:
        """`cast_inputs`: applied to the arguments of the root before its forward; `step_forward`: the forward of a root that
        is never called; `launches`: returns the number of kernels that the program has launched."""
        self._torch, self._root, self._drain, self._cast_inputs = torch, root, drain, cast_inputs
        self._step_forward = step_forward
        self._root_range: Any = None  # around the parts of a root that is never called
        self._stack = contextlib.ExitStack()
        self._watch = OpWatch(torch, launches)

    def start(self) -> None:
        torch = self._torch
        from torch.autograd.profiler import profile

        gc.collect()  # reference cycles would otherwise die at a different moment each time
        gc.disable()
        self._drain()
        # record_shapes would keep functorch's wrappers and their tensors alive.
        self._profile = self._stack.enter_context(profile(use_kineto=True, profile_memory=True, record_shapes=False))
        self._stack.enter_context(torch._C._profiler._RecordFunctionFast("step"))  # frees outside of any range are lost
        self._stack.enter_context(self._marks())
        self._watch.begin()

    def end_forward(self, loss: Any = None) -> None:
        """A backward of `loss` is about to begin."""
        if self._watch.is_on:
            self._leave_root()
            self._watch.end()
            address, size, place = 0, 0, ""
            if loss is not None:
                address, size = loss.untyped_storage().data_ptr(), loss.numel() * loss.element_size()
                place = loss.device.type
            with self._torch._C._profiler._RecordFunctionFast(f"{ENDED}{address:x}|{size}|{place}"):
                pass

    @property
    def is_in_forward(self) -> bool:
        """Whether no backward of a loss has begun: a backward that ends then belongs to torch.autograd.grad."""
        return self._watch.is_on

    def mark(self, name: str) -> None:
        """Writes a name between forwards and backwards."""
        with self._torch._C._profiler._RecordFunctionFast(name):
            pass

    def end_backward(self) -> None:
        """One of several backwards has ended. Records its gradients and drops them, as FSDP2 would after their reduction."""
        self.mark(BEGUN)
        for name, parameter in self._root.named_parameters():
            if parameter.grad is not None and parameter.grad.is_cuda:
                self.mark(f"{GRADIENT}{parameter.grad.untyped_storage().data_ptr():x}|{name}")
        for parameter in self._root.parameters():
            parameter.grad = None
        self._watch.begin()

    def stop(self, said: bool = False) -> Recording:
        """`said`: each backward has recorded its gradients."""
        if said and self._watch.is_on:
            self._watch.end()
        elif not said:
            self.end_forward()
        history = self._drain()
        self._stack.close()
        gc.enable()
        result = _Join(self._watch).run(self._profile.kineto_results.experimental_event_tree(), history)
        if said:
            return result.recording
        newest = {address: number for number, address in enumerate(result.addresses)}
        for name, parameter in self._root.named_parameters():
            if parameter.grad is not None and parameter.grad.is_cuda:
                number = newest.get(parameter.grad.untyped_storage().data_ptr())
                if number is not None:
                    result.recording.gradients[number] = name
        return result.recording

    def _enter_root(self) -> None:
        mark = self._torch._C._profiler._RecordFunctionFast
        self._root_range = mark(f"{MODULE}=|{type(self._root).__name__}")
        self._root_range.__enter__()

    def _leave_root(self) -> None:
        if self._root_range is not None:
            self._root_range.__exit__(None, None, None)
            self._root_range = None

    @contextlib.contextmanager
    def _marks(self) -> Any:
        torch = self._torch
        mark = torch._C._profiler._RecordFunctionFast
        names: dict[int, list[str]] = {}
        for name, module in named_modules(self._root):
            names.setdefault(id(module), []).append(name)
        around = [""]  # of the running modules
        original = torch.nn.Module.__call__

        @functools.wraps(original)
        def call(module, *args, **kwargs):
            places = names.get(id(module))
            name = name_at(places, around[-1]) if places else None
            if name == "":
                args, kwargs = self._cast_inputs(module, args, kwargs)
            if self._watch.is_on and self._step_forward.begins_with(module):
                self._enter_root()
            self._watch.enter(type(module).__name__)
            with mark(f"{MODULE}{'!' if name is None else '=' + name}|{type(module).__name__}"):
                around.append(around[-1] if name is None else name)
                try:
                    result = original(module, *args, **kwargs)
                finally:
                    around.pop()
            self._watch.leave()
            if not self._step_forward.is_open:  # it was around a part that was evaluated
                self._leave_root()
            return result

        def pack(tensor):
            if tensor.is_cuda:
                with mark(f"{SAVED}{tensor.untyped_storage().data_ptr():x}"):
                    pass
            if tensor.grad_fn is None:
                return tensor
            # A node that saves its own output would keep itself alive: if no backward runs through it, it would never be
            # freed.
            with torch._C._DisableTorchDispatch():
                return tensor.detach()

        torch.nn.Module.__call__ = call
        ctc_loss, torch.ctc_loss = torch.ctc_loss, _with_lengths_as_numbers(torch.ctc_loss)
        try:
            with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
                yield
        finally:
            torch.nn.Module.__call__ = original
            torch.ctc_loss = ctc_loss


def _with_lengths_as_numbers(ctc_loss: Any) -> Any:
    """PyTorch reads lengths on the CPU as numbers, but under a dispatch mode as tensors, which its kernel for GPUs refuses."""

    def numbers(lengths: Any) -> Any:
        return lengths.tolist() if getattr(lengths, "device", None) is not None and lengths.device.type == "cpu" else lengths

    @functools.wraps(ctc_loss)
    def with_numbers(log_probs, targets, input_lengths, target_lengths, *args, **kwargs):
        return ctc_loss(log_probs, targets, numbers(input_lengths), numbers(target_lengths), *args, **kwargs)

    return with_numbers


class _Join:
    """Puts the tree, the history and the marks into one order."""

    def __init__(self, watch: OpWatch) -> None:
        self.recording = Recording(
            ops=watch.ops, without_cost=list(watch.without_cost), has_narrow_products=watch.has_narrow_products
        )
        self.addresses: list[int] = []  # [num allocations]
        self._memory: Any = collections.defaultdict(collections.deque)  # address -> events of the tree

    def run(self, roots: Any, history: list[dict[str, Any]]) -> _Join:
        # One thread after the other: within a thread the tree gives a certain order, between threads the clock does.
        threads: dict[int, list[Any]] = collections.defaultdict(list)
        for root in sorted(roots, key=lambda r: r.start_time_ns):
            threads[root.start_tid].append(root)
        main = next((tid for tid, rs in threads.items() if any(r.name == "step" for r in rs)), None)
        lists = []
        for tid, of_thread in threads.items():
            walker = _Walker(self.recording, is_main=tid == main)
            for root in of_thread:
                walker.walk(root, -1, -1, False)
            lists.append(walker.timed())
        merged = [event for _, event in heapq.merge(*lists, key=lambda pair: pair[0])]
        self._number(merged, history)
        return self

    def _number(self, merged: list[tuple[Event, Any]], history: list[dict[str, Any]]) -> None:
        """Numbers the allocations, and maps marks from addresses to allocations."""
        requested: Any = collections.defaultdict(collections.deque)
        for entry in history:
            requested[entry["addr"], entry["action"] == "alloc"].append(entry["size"])
        recording = self.recording
        alive: dict[int, int] = {}
        older: dict[int, int] = {}
        live = 0
        workspace: Any = None  # the last event

        def meaning(address: int) -> int:
            if address in alive:
                return alive[address]
            return -1 - older.setdefault(address, len(older))

        for event, extra in merged:
            if event.what == "alloc":
                sizes = requested[extra, True]
                recording.unmatched += not sizes
                event.bytes = sizes.popleft() if sizes else event.bytes
                event.number = alive[extra] = len(recording.sizes)
                recording.sizes.append(event.bytes)
                self.addresses.append(extra)
                live += event.bytes
                recording.peak = max(recording.peak, live)
            elif event.what == "free":
                sizes = requested[extra, False]
                recording.unmatched += not sizes
                event.bytes = sizes.popleft() if sizes else event.bytes
                event.number = alive.pop(extra, -1)
                live -= event.bytes
            elif event.what in ("save", "end"):
                event.number = alive.get(extra, -1)
                if event.what == "end":
                    recording.loss = event.number
                    recording.losses.append(event.number)
                    recording.loss_bytes_of[event.number] = event.bytes
            elif event.what == "gradient":
                address, name = extra
                event.number = alive.get(address, -1)
                if event.number >= 0:
                    recording.gradients[event.number] = name
            elif event.what == "op":
                op = recording.ops[event.number]
                recording.reads += [[]] * (event.number + 1 - len(recording.reads))
                recording.makes += [[]] * (event.number + 1 - len(recording.makes))
                recording.reads[event.number] = [meaning(t.address) for t in op.inputs]
                recording.makes[event.number] = [meaning(t.address) for t in op.outputs]
                if op.name == "addmm" and len(op.inputs[0].shape) > 1 and workspace is not None:
                    workspace.number = 0  # a matrix is added, so it is no bias
            elif event.what == "workspace":
                workspace = event
            recording.events.append(event)
        recording.older = sorted(older, key=lambda address: older[address])
        recording.unmatched += sum(len(sizes) for sizes in requested.values())


class _Walker:
    """The events of one thread, in order."""

    def __init__(self, recording: Recording, is_main: bool) -> None:
        self._recording, self._is_main = recording, is_main
        self._events: list[tuple[int, tuple[Event, Any]]] = []

    def timed(self) -> list[tuple[int, tuple[Event, Any]]]:
        latest, result = 0, []
        for moment, event in self._events:
            latest = max(latest, moment)
            result.append((latest, event))
        return result

    def _add(self, moment: int, event: Event, extra: Any = None) -> None:
        self._events.append((moment, (event, extra)))

    def walk(self, e: Any, call: int, window: int, recomputed: bool) -> None:
        name, fields, moment = e.name, e.extra_fields, e.start_time_ns
        kind = str(e.tag).rsplit(".", 1)[-1]
        is_module = False
        if kind == "Allocation":
            if fields.device.type == "cuda":
                what = "alloc" if fields.alloc_size > 0 else "free"
                self._add(moment, Event(what, -1, abs(fields.alloc_size), call, window, recomputed), fields.ptr)
            return
        if name.startswith(SAVED):
            self._add(moment, Event("save", -1, 0, call, window, recomputed), int(name.split("|")[1], 16))
            return
        if name.startswith(DISPATCHED):
            self._add(moment, Event("op", int(name.split("|")[1]), 0, call, window, recomputed))
            return
        if name.startswith(ENDED):
            _, address, size, self._recording.loss_place = name.split("|")
            self._add(moment, Event("end", bytes=int(size)), int(address, 16))
            return
        if name == BEGUN:
            self._add(moment, Event("begin"))
            return
        if name.startswith(GRADIENT):
            _, address, parameter = name.split("|")
            self._add(moment, Event("gradient"), (int(address, 16), parameter))
            return
        if name.startswith((CLEARED, STEPPED)):
            self._recording.said.append(name[2:].split(",") if name[2:] else [])
            self._add(moment, Event("clear" if name.startswith(CLEARED) else "step", len(self._recording.said) - 1))
            return
        if name.startswith(MODULE) and window >= 0 and not recomputed:
            self._recording.recomputes = True
        if name.startswith(MODULE) and window < 0:
            _, module, class_name = name.split("|", 2)
            self._recording.calls.append(ModuleCall(module[1:] if module[0] == "=" else None, class_name, call))
            call, is_module = len(self._recording.calls) - 1, True
            self._add(moment, Event("enter", call, 0, call))
        elif name.startswith(RECOMPUTED) and window >= 0:
            recomputed = True
        elif name.startswith(_WINDOW):
            window = len(self._recording.windows)
            self._recording.windows.append((name.split(": ", 1)[1], fields.sequence_number))
            self._add(moment, Event("window", window, 0, call, window))
        elif kind == "TorchOp" and window < 0 and fields.sequence_number >= 0:
            self._add(moment, Event("node", fields.sequence_number, 0, call))
        first = len(self._events)
        for child in e.children:
            self.walk(child, call, window, recomputed)
        if name in _ATEN_PRODUCTS:
            # cuBLASLt adds biases. In a backward the added matrix is a partial sum, except for a recomputed layer.
            may_be_lt = name == "aten::addmm" and (window < 0 or recomputed)
            self._want_workspace(first, moment, Event("workspace", int(may_be_lt), 0, call, window, recomputed))
        if name in _OTHER_PRODUCTS and window >= 0:
            self._add(moment, Event("product", -1, 0, call, window, recomputed))
        if is_module:
            self._add(e.end_time_ns, Event("leave", call, 0, call))

    def _want_workspace(self, first: int, moment: int, event: Event) -> None:
        """For a product with the events from `first` on: it requests its workspace after its result and the copies of its
        arguments exist."""
        inside = self._events[first:]
        if any(inner.what == "workspace" for _, (inner, _) in inside):
            return  # a mode dispatches the product again, inside itself
        made = [place for place, (_, (inner, _)) in enumerate(inside) if inner.what == "alloc"]
        if made:
            moment = inside[made[-1]][0]
        self._events.insert(first + (made[-1] + 1 if made else 0), (moment, (event, None)))
