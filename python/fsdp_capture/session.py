"""Chooses the steps of the script to record, and how to record each.

Two steps pass unchanged: libraries make their workspaces, the optimizer its states. The next steps are recorded, one for each
way in which a plan can run the model: unchanged, with its repeated blocks checkpointed, and both again with parameters in
bfloat16 if the script has others, or in float16 if the card has no bfloat16. Then the model is written and the process ends.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import traceback
from collections.abc import Callable
from typing import Any, Optional

from fsdp_capture.blocks import CallCounts, find_stacks
from fsdp_capture.evaluations import EvaluationWatch
from fsdp_capture.gradient_clearing import ClearingWatch
from fsdp_capture.held_tensors import OF_BATCH, HeldTensors
from fsdp_capture.model_file import CaptureError, describe, model_of, plays, with_points_before
from fsdp_capture.old_tensors import OldTensors, are_copied
from fsdp_capture.optimizer_facts import facts_of, muon_parameters, refusal
from fsdp_capture.own_collectives import OwnCollectives
from fsdp_capture.pass_session import STEPS, PassSession
from fsdp_capture.recorder import RECOMPUTED, Recorder, Recording
from fsdp_capture.trained import check_alike, check_sizes, refuse_sparse_gradients, trained_by_turns, trained_model
from fsdp_capture.unwrapped import Unwrapped
from fsdp_rehearsal.apply_wrappers import checkpoint_of_torch
from fsdp_rehearsal.guard import warnings
from fsdp_rehearsal.step_forward import Hook, parts_called
from fsdp_rehearsal.switches import casting_to, convert, scalar_parameters, turn_off_caches, turn_off_checkpointing
from fsdp_rehearsal.whole_files import write_whole

_WARM_UP = 2
_LARGE = 64 << 20
_OF_COMPILED = 0.5  # of an eager step: 27 of 29 published compiled ones take longer (docs/accuracy.md#torchcompile)
_TOLD = ("balanced_routing", "readback")  # kinds of warnings that a reader of the model must see


class Session:
    """Watches the steps of a rehearsed process. `stop` ends it."""

    def __init__(
        self,
        settings: Any,
        steps: Any,
        phases: Any,
        modules: Any,
        step_forward: Any,
        history: Any,
        meter: Any,
        stop: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self._path, self._stop, self._say = settings.capture, stop, say
        self._command, self._batch_option = json.loads(settings.command), settings.batch_option
        self._steps, self._phases, self._modules, self._history, self._meter = steps, phases, modules, history, meter
        self._step_forward = step_forward
        self._recorder: Any = None
        self._recordings: dict[tuple[str, bool], Recording] = {}
        self._wanted: list[tuple[str, bool]] = []
        self._is_written = False
        self.unwrapped = Unwrapped(lambda sentence: self._fail(sentence, stop=True), meter.position)
        self._limits: list[str] = []
        self._least_time_share = 1.0  # of the predicted time
        self._prepared: Optional[tuple[str, bool]] = None
        self._backwards: list[int] = []
        self._clip_grad_norm: Optional[float] = None
        self._root: Any = None
        self._given: list[tuple[tuple[int, ...], str]] = []
        self._handed: list[tuple[int, ...]] = []  # shapes of all inputs of the model in the recording
        self._sizes: dict[tuple[str, bool], list[tuple[int, ...]]] = {}  # the same for each finished recording
        self._original: dict[str, Any] = {}
        self._torch: Any = None
        self._described: dict[str, Any] = {}
        self._held: Any = None
        self._old: Any = None
        self._clearing: Any = None
        self._addresses: dict[tuple[str, bool], dict[int, str]] = {}
        self._turns: Optional[PassSession] = None  # of a step of several backwards
        self._evaluations = EvaluationWatch(phases)
        self._own_collectives = OwnCollectives(meter.collectives)
        self._are_copied: Optional[bool] = None  # whether copies of the parameters existed when an optimizer received them
        self._counts: Any = None
        self._calls: dict[str, int] = {}
        self._stacks: list[list[str]] = []
        self._cast: Hook = lambda module, args, kwargs: (args, kwargs)

    def install(self, torch: Any) -> None:
        self._torch = torch
        self._steps.at_end.append(self._or_fail(self._step_ended))
        self._phases.after_backward.append(self._or_fail(self._backward_ended))
        self._counts = CallCounts(torch, self._phases)
        kind = sys.modules["torch.optim.optimizer"].Optimizer
        construct = kind.__init__

        @functools.wraps(construct)
        def __init__(optimizer, *args, **kwargs):
            construct(optimizer, *args, **kwargs)
            parameters = [p for group in optimizer.param_groups for p in group["params"]]
            self._are_copied = are_copied(torch, parameters) if self._are_copied is None else self._are_copied
            self.unwrapped.note_place(parameters)

        kind.__init__ = __init__
        self._clearing = ClearingWatch(torch, self._optimizers)
        self._clearing.mark_clearings(lambda: self._recorder if self._turns is None else None)
        real = torch.autograd.backward

        @functools.wraps(real)
        def backward(tensors, *args, **kwargs):
            self._clearing.backward_begins()
            if self._turns is not None:
                self._turns.backward_begins()
            if self._recorder is not None:
                self._recorder.end_forward(tensors if isinstance(tensors, torch.Tensor) else tensors[0])
            return real(tensors, *args, **kwargs)

        torch.autograd.backward = backward
        self._watch_clipping(torch.nn.utils)
        self._watch_scaler(torch.amp.GradScaler)

    def _or_fail(self, action: Callable[[], None]) -> Callable[[], None]:
        """`action`, which ends the capture with its reason if it cannot continue."""

        @functools.wraps(action)
        def act() -> None:
            if self._is_written:
                return
            try:
                action()
            except CaptureError as error:
                self._fail(str(error), stop=True)
            except Exception as error:
                self._fail(_what_failed("The step could not be recorded", error), stop=True)

        return act

    def note_compile(self) -> None:
        """The script would run compiled code here."""
        self._limits.append(
            "The script's torch.compile is left out: plans are of the model as PyTorch runs it op by op. A compiled model's memory is "
            "not predicted; as a rule it is less. A compiled step of published runs takes between half and all of the time of such a one, "
            "so that the range of times begins at half."
        )
        self._least_time_share = _OF_COMPILED

    def _watch_clipping(self, utils: Any) -> None:
        real = utils.clip_grad_norm_

        @functools.wraps(real)
        def clip_grad_norm_(parameters, max_norm, *args, **kwargs):
            # Clipping at infinity only measures the norm, with the same kernels.
            is_number = isinstance(max_norm, (int, float)) and 0 <= max_norm <= 1e6
            self._clip_grad_norm = float(max_norm) if is_number else 1.0
            return real(parameters, max_norm, *args, **kwargs)

        utils.clip_grad_norm_ = utils.clip_grad.clip_grad_norm_ = clip_grad_norm_

    def _watch_scaler(self, kind: Any) -> None:
        """A scaler of float16's losses raises an error if it finds no gradients, and a recording drops them."""
        real_step, real_update = kind.step, kind.update

        @functools.wraps(real_step)
        def step(scaler, optimizer, *args, **kwargs):
            has_gradients = any(p.grad is not None for group in optimizer.param_groups for p in group["params"])
            if scaler.is_enabled():
                self._limits.append(
                    "The script scales its losses (GradScaler): under FSDP2 its ranks tell each other of overflows by an all-reduce of 4 "
                    "bytes a step, which is not predicted."
                )
            is_real = has_gradients or not scaler.is_enabled()
            return real_step(scaler, optimizer, *args, **kwargs) if is_real else optimizer.step(*args, **kwargs)

        @functools.wraps(real_update)
        def update(scaler, *args, **kwargs):
            if not scaler.is_enabled() or any(state["found_inf_per_device"] for state in scaler._per_optimizer_states.values()):
                return real_update(scaler, *args, **kwargs)
            return scaler._per_optimizer_states.clear()

        kind.step, kind.update = step, update

    def _step_ended(self) -> None:
        if self._phases.backwards == (self._backwards[-1] if self._backwards else 0):
            return  # another optimizer of the same step, whose number is unknown in the first one; or a step that only makes
                    # states
        self._backwards.append(self._phases.backwards)
        self._evaluations.step_ended()
        if len(self._backwards) < _WARM_UP:
            return self._clearing.look()
        if self._turns is not None:
            self._turn_ended()
        if self._root is None and not self._begins():
            return
        if self._wanted and self._prepared != self._wanted[0]:
            self._prepare(*self._wanted[0])
        elif self._wanted and self._recorder is None:
            self._start(*self._wanted[0])
        else:
            self._finish(stop=True)

    def _begins(self) -> bool:
        """Whether the trained model is known. For models in turns, this is at the end of a step, and a whole one is watched
        first."""
        turns = trained_by_turns(self._modules, self._steps)
        if turns is not None and (self._steps.calls_per_step is None or self._steps.calls % self._steps.calls_per_step != 0):
            return False
        if turns is not None:
            self._turns = PassSession(self._torch, turns)
        self._begin()
        return turns is None

    def _turn_ended(self) -> None:
        """A step of passes has ended."""
        if self._recorder is not None:
            recorder, self._recorder = self._recorder, None
            self._keep(self._turns.stop(recorder))
        self._turns.end_look()

    def _begin(self) -> None:
        self._root = self._turns.root if self._turns is not None else trained_model(self._modules, self._steps)
        if not any(parameter.is_cuda for parameter in self._root.parameters()):
            raise CaptureError(f"The script trains its {type(self._root).__name__} on the CPU.")
        if turn_off_checkpointing(self._root):
            self._limits.append("The script's gradient_checkpointing is switched off: a plan says which blocks are checkpointed.")
        self._refuse_what_is_not_predicted()
        scalars = scalar_parameters(self._root)
        if scalars:
            self._limits.append(
                f"FSDP2 and FSDP1 take no parameter without dimensions, as {', '.join(scalars)}: plans have it with one, and so it is made where "
                "a plan is applied. In your own code write nn.Parameter(torch.ones(1)) in place of nn.Parameter(torch.ones([]))."
            )
        self._described = describe(self._root, muon_parameters(self._torch, self._optimizers()))
        if self._turns is not None:
            self._turns.mark_trained(self._described)
        self._held = HeldTensors(self._torch, self._root)
        made_at = None if self._are_copied else self.unwrapped.made_at
        self._old = OldTensors(self._torch, self._history, self._root, made_at)
        for model in self._turns.models() if self._turns is not None else [self._root]:
            model.register_forward_pre_hook(self._note_given, with_kwargs=True)
        if self._turns is None:
            self._step_forward.of(self._root)
            self._step_forward.hook_parts(self._note_given_to_part)
        dtype = _parameter_dtype(self._torch, self._root)
        self._wanted = [(dtype, False)]
        self._find_stacks()
        if self._stacks:
            self._wanted.append((dtype, True))
        if dtype == "float32" and self._turns is None:
            has_bfloat16 = self._torch.cuda.get_device_capability(self._meter.device) >= (8, 0)
            half = "bfloat16" if has_bfloat16 else "float16"
            self._wanted += [(half, checkpointed) for _, checkpointed in list(self._wanted)]

    def _find_stacks(self) -> None:
        """Finds blocks by the calls of the steps so far."""
        self._counts.stop()
        self._calls = self._counts.in_a_forward(self._root, self._tops())
        self._stacks = find_stacks(self._root, self._calls, tops=self._tops())

    def _tops(self) -> list[str]:
        return self._turns.names() if self._turns is not None else []

    def _keep(self, recording: Recording) -> None:
        kind = self._wanted.pop(0)
        self._recordings[kind] = recording
        self._sizes[kind] = self._handed
        if len(self._recordings) == 1:
            self._settle_stacks(kind)

    def _settle_stacks(self, kind: tuple[str, bool]) -> None:
        """The unchanged step has been recorded. If it cannot be replayed with all blocks, for example because parts of the
        model pass each other many tensors, only repeating modules become blocks."""
        alike = find_stacks(self._root, self._calls, are_alike=True, tops=self._tops())
        if alike == self._stacks or plays(self._described, self._stacks, self._addresses[kind], self._recordings[kind], self._tops()):
            return
        self._stacks = alike
        if not alike:
            self._wanted = [each for each in self._wanted if not each[1]]

    def _refuse_what_is_not_predicted(self) -> None:
        is_wrapper = self._torch.utils._python_dispatch.is_traceable_wrapper_subclass
        for name, parameter in self._root.named_parameters():
            if is_wrapper(parameter):
                kind = type(parameter.data).__name__
                raise CaptureError(f'The parameter "{name}" is a {kind}, which holds other tensors than it shows: its bytes are not known.')
        why = refusal(self._torch, self._optimizers())
        if why:
            raise CaptureError(why)

    def _note_given(self, root: Any, args: Any, kwargs: Any) -> None:
        """The model's inputs in the first recorded step. The script may have made them in the previous step."""
        self._note_given_to_part(root, args, kwargs, is_noted=not self._given)

    def _note_given_to_part(self, part: Any, args: Any, kwargs: Any, is_noted: bool = True) -> None:
        leaves = self._torch.utils._pytree.tree_leaves((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, self._torch.Tensor)]
        self._held.note_given(tensors, len(self._backwards))
        if self._recorder is None or not self._torch.is_grad_enabled():
            return
        self._handed += [tuple(t.shape) for t in tensors]
        if is_noted and not self._recordings:
            self._given += [(tuple(t.shape), str(t.dtype).removeprefix("torch.")) for t in tensors]

    def _prepare(self, dtype: str, checkpointed: bool) -> None:
        """The next step passes unrecorded: work that is new to a thread makes its workspaces."""
        self._prepared = (dtype, checkpointed)
        self._say(f"preparing to record {_way(dtype, checkpointed)}")
        torch = self._torch
        self._drop_gradients()
        if dtype != _parameter_dtype(torch, self._root):
            wanted = getattr(torch, dtype)
            convert(self._root, wanted)
            # FSDP2 casts the inputs of the root; we do so before the root, so that the recording does not include it.
            self._cast = casting_to(wanted)
            self._root.register_forward_pre_hook(self._cast, with_kwargs=True)
            self._step_forward.hook_parts(self._cast)
        self._checkpoint(checkpointed)

    def _start(self, dtype: str, checkpointed: bool) -> None:
        self._say(f"recording {_way(dtype, checkpointed)}, {len(self._wanted)} to go")
        self._drop_gradients()
        self._addresses[dtype, checkpointed] = {
            p.untyped_storage().data_ptr(): name for name, p in self._root.named_parameters()
        }
        self._recorder = Recorder(self._torch, self._root, self._drain, self._cast, self._step_forward, self._meter.launches)
        self._recorder.start()
        self._own_collectives.begin()
        self._handed = []
        self._evaluations.recording_begins()
        if self._turns is not None:
            self._turns.start(self._recorder)

    def _drain(self) -> list[dict[str, Any]]:
        self._history.drain()
        traces = self._history.snapshot.get("device_traces", [])
        entries = traces[self._meter.device] if self._meter.device < len(traces) else []
        return [entry for entry in entries if entry["action"] in ("alloc", "free_requested")]

    def _checkpoint(self, on: bool) -> None:
        checkpoint = checkpoint_of_torch()
        mark = self._torch._C._profiler._RecordFunctionFast
        if on and turn_off_caches(self._root):
            self._limits.append(
                "The script keeps keys and values in training (use_cache), which checkpointing turns off. Where only some "
                "blocks are checkpointed, the others are predicted with them."
            )
        for stack in self._stacks:
            for name in stack:
                module = self._root.get_submodule(name)
                if not on:
                    if name in self._original:
                        module.forward = self._original.pop(name)
                    continue
                original = self._original.setdefault(name, module.forward)

                def marked(*args, _original=original, _name=name, **kwargs):
                    with mark(f"{RECOMPUTED}{_name}"):
                        return _original(*args, **kwargs)

                module.forward = functools.partial(checkpoint, marked, use_reentrant=False)

    def _backward_ended(self) -> None:
        refuse_sparse_gradients(self._modules)
        is_in_forward = self._recorder is not None and self._recorder.is_in_forward
        if is_in_forward and self._turns is None:
            raise CaptureError(
                "The script asks for gradients by torch.autograd.grad in a forward, as a gradient penalty does, which is not predicted. Capture it "
                "without."
            )
        if self._turns is not None and self._recorder is not None:
            return None if is_in_forward else self._recorder.end_backward()
        if self._recorder is not None:
            recorder, self._recorder = self._recorder, None
            recording = recorder.stop()
            self._own_collectives.end()
            if self._evaluations.is_to_be_left_out(self._accumulation()):
                self._given = self._given if self._recordings else []
                # With one micro-batch a step the next recording begins after the optimizer's step, like every other one.
                return self._start(*self._wanted[0]) if self._accumulation() > 1 else None
            self._keep(recording)
        if self._prepared is not None:  # the optimizer's states may have another dtype now
            self._drop_gradients()

    def _drop_gradients(self) -> None:
        for parameter in self._root.parameters():
            parameter.grad = None

    def _accumulation(self) -> int:
        return self._backwards[1] - self._backwards[0] if self._turns is None else 1

    def _facts(self) -> dict[str, Any]:
        accumulation = self._accumulation()
        ranks = int(os.environ.get("WORLD_SIZE", "1"))
        if accumulation > 1 and ranks > 1:
            self._limits.append(
                f"The script makes {accumulation} micro-batches a step on {ranks} GPUs; on another number of them it may make others, "
                "and then --accumulate sets how many."
            )
        self._note_first_peak()
        own = self._own_collectives
        self._limits += [limit for limit in (own.limit(ranks),) if limit]
        if self._step_forward.has_run:
            self._limits.append(parts_called(type(self._root).__name__))
        return {
            "command": self._command or list(sys.orig_argv),
            "batch_option": self._batch_option,
            "framework": str(self._torch.__version__),
            "gpu": self._gpu(),
            "initialization": {"cpu": "cpu", "meta": "meta"}.get(self.unwrapped.made_on, "device"),
            "least_time_share": self._least_time_share,
            "limits": list(dict.fromkeys(self._limits + [str(w["text"]) for w in warnings if w["kind"] in _TOLD])),
            "tf32": _tf32(self._torch),
            "given": self._given,
            "calls_parts": self._step_forward.has_run,
            "accumulation": accumulation,
            "own_collectives": own.kinds,
            "says_last_micro_batch": self.unwrapped.says_last_micro_batch,
            "optimizer": {**facts_of(self._torch, self._optimizers()), "clip_grad_norm": self._clip_grad_norm},
        }

    def _note_first_peak(self) -> None:
        """Work before the first step, such as an evaluation, leaves segments that a prediction of steps does not have."""
        first = next((cut for cut in self._meter.cuts if cut.name == "initialization"), None)
        peak = first.peaks.get("allocated", 0) if first is not None else 0
        if first is not None and peak > 2 * first.allocated and peak - first.allocated > _LARGE:
            self._limits.append(
                f"Before its first step the script allocates up to {peak / 2**30:.2f} GiB, and keeps {first.allocated / 2**30:.2f} of "
                "it: an evaluation, for one. A plan does not have that: reserved memory may be larger than predicted by what is left."
            )

    def _optimizers(self) -> list[Any]:
        return [optimizer for optimizer in (reference() for reference in self._steps.optimizers) if optimizer is not None]

    def _gpu(self) -> str:
        return str(self._torch.cuda.get_device_properties(self._meter.device).name)

    def end(self, why: str, is_out_of_memory: bool = False) -> None:
        """The script has ended by itself, or failed. The recordings so far are a capture if they include the unchanged
        script."""
        if self._is_written:
            return
        if not self._recordings and is_out_of_memory:
            return self._fail(
                f"The script ran out of memory before a step was recorded, on one stub {self._gpu()}. A capture runs the whole model on one "
                "card, and that card may be larger than any that there is: add --mem 900G. Its plans are for the cards that you name then; with a smaller "
                "batch the plans have no larger one.",
                stop=False,
            )
        if not self._recordings and why:
            return  # the rehearsal reports how the script failed
        if not self._recordings:
            done, wanted = len(self._backwards), str(_WARM_UP + 1)
            if self._turns is not None or len(self._steps.made()) > 1:
                done, wanted = self._steps.done, f"{STEPS} of models that are trained by turns, {_WARM_UP + 1} of others,"
            sentence = f"The script ended after {done} {'step' if done == 1 else 'steps'}, and a capture takes {wanted} at least."
            return self._fail(sentence, stop=False)
        for dtype, checkpointed in self._wanted:
            way = "with its blocks checkpointed" if checkpointed else "as it is"
            reason = f"PyTorch refused it: {why}" if why else "The script ended before."
            self._limits.append(f"There is no recording in {dtype} {way}. {reason}")
        self._finish(stop=True)

    def _finish(self, stop: bool) -> None:
        self._say("writing the model")
        try:
            check_alike(self._step_forward.forwards)
            self._evaluations.check(self._accumulation())
            check_sizes(self._sizes)
            of_point = self._add_held()
            turns = self._turns.checked(self._clip_grad_norm) if self._turns is not None else None
            facts = {**self._facts(), "buffers": of_point}
            model = model_of(self._described, self._stacks, self._addresses, self._recordings, facts, turns, self._clearing)
            if self._turns is not None:
                self._turns.check_clearings(next(iter(self._recordings.values())))
            model = with_points_before(self._path, model)
        except CaptureError as error:
            return self._fail(str(error), stop)
        except Exception as error:
            return self._fail(_what_failed("The recording could not be put together", error), stop)
        self._write(model)
        if stop:
            self._stop()

    def _add_held(self) -> list[dict[str, Any]]:
        """Records the tensors that are neither parameters nor buffers. Returns those that may differ from size to size."""
        tensors = self._held.tensors(len(self._backwards) - 1)
        states = [each for o in self._optimizers() for state in o.state.values() for each in self._torch.utils._pytree.tree_leaves(state)]
        gradients = [p.grad for p in self._root.parameters() if p.grad is not None]
        registered = [*self._root.parameters(), *self._root.buffers(), *gradients, *self._clearing.gradients()]
        known = [t for t in (*tensors.values(), *states, *registered) if isinstance(t, self._torch.Tensor) and t.is_cuda]
        rows = self._held.rows(tensors)
        of_point = [row for row in rows if row["name"].startswith(OF_BATCH)] + self._old.rows(known)
        self._described["buffers"] += [row for row in rows if not row["name"].startswith(OF_BATCH)]
        self._limits += self._held.limits() + self._old.limits()
        return of_point

    def _write(self, model: dict[str, Any]) -> None:
        self._is_written = True
        write_whole(self._path, (json.dumps(model, separators=(",", ":")) + "\n").encode())

    def _fail(self, sentence: str, stop: bool) -> None:
        self._write({"format_version": "1.0", "kind": "captured_model", "error": sentence})
        if stop:
            self._stop()


def _parameter_dtype(torch: Any, root: Any) -> str:
    """Dtype of most trained numbers, or of most numbers if none is trained."""
    counts: dict[str, int] = {}
    for parameter in root.parameters():
        if parameter.is_floating_point():
            name = str(parameter.dtype)[6:]
            counts[name] = counts.get(name, 0) + parameter.numel()
    if not counts:
        raise CaptureError("The model has no floating parameters.")
    return max(sorted(counts), key=lambda name: counts[name])


def _way(dtype: str, checkpointed: bool) -> str:
    return f"a step in {dtype}{' with checkpointing' if checkpointed else ''}"


def _what_failed(what: str, error: Exception) -> str:
    where = traceback.extract_tb(error.__traceback__)[-1]
    return f"{what} ({error!r} in {os.path.basename(where.filename)}, line {where.lineno})."


def _tf32(torch: Any) -> dict[str, bool]:
    """The float32 ops that may run as TF32. Since PyTorch 2.9 the older settings raise an error if a script uses the newer
    ones."""
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    if hasattr(matmul, "fp32_precision"):
        return {"cudnn_allow_tf32": cudnn.conv.fp32_precision == "tf32", "matmul_allow_tf32": matmul.fp32_precision == "tf32"}
    return {"cudnn_allow_tf32": bool(cudnn.allow_tf32), "matmul_allow_tf32": bool(matmul.allow_tf32)}
