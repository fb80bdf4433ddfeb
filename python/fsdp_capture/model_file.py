"""Writes a captured model: the structure of the step, and for each way of recording it the tapes of its calls. Calls that are
equal in everything share a block.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Container, Sequence
from typing import Any, Optional

from fsdp_capture.gradient_clearing import ClearingWatch
from fsdp_capture.gradient_links import Flow
from fsdp_capture.module_names import named_modules
from fsdp_capture.pass_rows import passes_of
from fsdp_capture.passes import CaptureError, Turns
from fsdp_capture.recorder import Recording
from fsdp_capture.replay import Replay, recorded_peak
from fsdp_capture.structure import align, entered_modules, structure_of
from fsdp_capture.tapes import NO_STORAGE, CallTape, Interface, TapeWriter, interfaces_of
from fsdp_capture.values import Storages

_TOLERANCE = 0.005  # of the peak
_OF_NARROW_PRODUCTS = 0.5  # the rate of tensor cores for 8 bits is twice that for 16 on all cards that have one

_FLOATING_POINT = ("float64", "float32", "bfloat16", "float16")

Kind = tuple[str, bool]  # dtype of the activations, checkpointed


def describe(root: Any, muon: Container[int] = ()) -> dict[str, Any]:
    """Modules, parameters and buffers, before any change. `muon`: ids of the parameters that Muon updates."""
    names: dict[int, list[str]] = {}
    parameters = dict(root.named_parameters(remove_duplicate=False))
    for name, parameter in parameters.items():
        names.setdefault(id(parameter), []).append(name)
    kept = [name for name, p in parameters.items() if names[id(p)][0] == name]
    persistent = set(root.state_dict(keep_vars=True))
    return {
        "modules": [{"name": name, "class": type(module).__name__} for name, module in named_modules(root)],
        "parameters": [
            {
                "name": name,
                "shape": list(parameters[name].shape) or [1],  # as switches.give_dimensions does for a plan
                "dtype": str(parameters[name].dtype)[6:],
                "trainable": parameters[name].requires_grad,
                "tied_names": names[id(parameters[name])][1:],
                **({"muon": True} if id(parameters[name]) in muon else {}),
                **_packed(parameters[name]),
            }
            for name in kept
        ],
        "buffers": [
            {"name": name, "shape": list(b.shape), "dtype": str(b.dtype)[6:], "persistent": name in persistent}
            for name, b in root.named_buffers()
        ],
    }


def _packed(parameter: Any) -> dict[str, int]:
    """bitsandbytes stores 4-bit weights as bytes or as numbers of another dtype; the state has the shape of the weight."""
    shape = getattr(getattr(parameter, "quant_state", None), "shape", None)
    return {"stands_for": math.prod(shape)} if shape is not None and math.prod(shape) != parameter.numel() else {}


def model_of(
    described: dict[str, Any],
    stacks: list[list[str]],
    addresses: dict[Kind, dict[int, str]],
    recordings: dict[Kind, Recording],
    facts: dict[str, Any],
    turns: Optional[Turns] = None,
    clearing: Optional[ClearingWatch] = None,
) -> dict[str, Any]:
    """`addresses`: names of parameters by the storage that they had. The first recording is that of the unchanged script.
    `turns`: of a step of passes; `clearing`: of another step."""
    for recording in recordings.values():
        if recording.unmatched:
            raise CaptureError(f"{recording.unmatched} allocations could not be told apart.")
        if recording.recomputes:
            raise CaptureError(
                "The script checkpoints activations itself. Switch that off for the capture: a plan says which blocks to checkpoint."
            )
        if not recording.losses or min(recording.losses) < 0:
            raise CaptureError(_why_no_loss(recording))
    limits = list(dict.fromkeys(facts.pop("limits")))
    if any(recording.has_narrow_products for recording in recordings.values()):
        facts["least_time_share"] = min(facts["least_time_share"], _OF_NARROW_PRODUCTS)
        limits.append(
            "Products of 8-bit numbers are timed like those of 16 bits, of which they take half at best: the range of times begins at half."
        )
    storages: dict[Kind, Storages] = {}
    base = next(iter(recordings))
    for kind, recording in recordings.items():
        structure = structure_of(recording, stacks, addresses[kind], turns.names if turns is not None else ())
        if kind != base and not align(storages[base].structure, structure):
            way = "with its blocks checkpointed" if kind[1] else "as it is"
            limits.append(f"In {kind[0]} {way} the model runs other modules, so there is no recording of that.")
            continue
        storages[kind] = Storages(structure)
    order = {p["name"]: i for i, p in enumerate(described["parameters"])}
    interfaces, tapes = _tapes_of(storages, order, limits)
    interface = interfaces[base]
    without_cost = list(dict.fromkeys(name for recording in recordings.values() for name in recording.without_cost))
    model = _Writer(described, stacks, storages[base], interface, tapes, facts, limits, without_cost).run()
    if turns is not None:
        model["points"][0].update(passes_of(storages[base].structure, model["points"][0]))
    elif clearing is not None:
        model["points"][0].update(clearing.rows(storages[base].structure))
    return model


def _tapes_of(
    storages: dict[Kind, Storages], order: dict[str, int], limits: list[str]
) -> tuple[dict[Kind, Interface], dict[Kind, list[CallTape]]]:
    """Values that pass between calls, and their tapes. Drops a recording that cannot be replayed from `storages`, and adds a
    limit. Raises CaptureError if it is the first one, of the unchanged script."""
    base = next(iter(storages))
    while True:
        interfaces = dict(zip(storages, interfaces_of(list(storages.values()), order)))
        tapes: dict[Kind, list[CallTape]] = {}
        unclear: dict[str, int] = {}
        for kind, each in storages.items():
            writer = TapeWriter(each, interfaces[kind], kind[1])
            tapes[kind] = writer.run()
            why = _why_not_played(each, interfaces[kind], writer)
            if why and kind == base:
                raise CaptureError(f"The recording in {kind[0]} cannot be played again: {why}.")
            if why:
                way = "with its blocks checkpointed" if kind[1] else "as it is"
                limits.append(f"The recording in {kind[0]} {way} cannot be played again ({why}), so it is left out.")
                break
            for what, size in writer.unclear.items():
                unclear[what] = max(unclear.get(what, 0), size)
        else:
            limits += [f"{size:,} bytes {what}." for what, size in unclear.items()]
            return interfaces, tapes
        del storages[kind]


def plays(described: dict[str, Any], stacks: list[list[str]], addresses: dict[int, str], recording: Recording, tops: Sequence[str]) -> bool:
    """Whether a recording of the unchanged script can be replayed with these blocks."""
    if recording.unmatched or not recording.losses or min(recording.losses) < 0:
        return True  # it cannot be captured for another reason
    storages = {("", False): Storages(structure_of(recording, stacks, addresses, tops))}
    try:
        _tapes_of(storages, {p["name"]: i for i, p in enumerate(described["parameters"])}, [])
    except CaptureError:
        return False
    return True


def _why_no_loss(recording: Recording) -> str:
    if recording.loss_place not in ("", "cuda"):
        return (
            f"The backward begins with a tensor on the {recording.loss_place.upper()}. Call it on the loss where the model computed it, on "
            "the GPU."
        )
    return (
        "The tensor that the backward begins with was not made in the recorded step. Let each backward begin with a loss that was computed "
        "after the optimizer's last step."
    )


def with_points_before(path: str, model: dict[str, Any]) -> dict[str, Any]:
    """The model with the sizes that earlier captures of the same model wrote to `path`. Raises CaptureError if the file has
    another model."""
    if "points" not in model or not os.path.exists(path):
        return model
    with open(path, encoding="utf-8") as text:
        before = json.load(text)
    for key in ("modules", "parameters", "buffers"):
        if before.get(key) != model[key]:
            raise CaptureError(f"With other sizes the script trains another model: its {key} differ.")
    new = model["points"][0]["dimensions"]
    points = [point for point in before["points"] if point["dimensions"] != new] + model["points"]
    points.sort(key=lambda point: -point["dimensions"]["batch"])  # a plan without a batch uses the first
    merged = {**before, "points": points, "limits": list(dict.fromkeys(before["limits"] + model["limits"]))}
    without_cost = list(dict.fromkeys(before.get("without_cost", []) + model.get("without_cost", [])))
    return {**merged, "without_cost": without_cost} if without_cost else merged


def _why_not_played(storages: Storages, interface: Interface, writer: TapeWriter) -> str:
    """A capture must replay exactly as it was recorded."""
    replay = Replay(storages, interface, writer.tapes, writer.carried)
    played, recorded = replay.run(), recorded_peak(storages, writer.carried)
    if replay.errors or abs(played - recorded) > _TOLERANCE * recorded:
        return replay.errors[0] if replay.errors else f"its peak is {played} bytes for {recorded}"
    return ""


class _Writer:
    def __init__(
        self,
        described: dict[str, Any],
        stacks: list[list[str]],
        base: Storages,
        interface: Interface,
        tapes: dict[Kind, list[CallTape]],
        facts: dict[str, Any],
        limits: list[str],
        without_cost: list[str],
    ) -> None:
        self._described, self._stacks, self._base, self._interface = described, stacks, base, interface
        self._tapes, self._facts, self._limits = tapes, facts, limits
        self._without_cost = without_cost
        self._structure = base.structure
        self._activation = next(iter(tapes))[0]
        self._module = {m["name"]: i for i, m in enumerate(described["modules"])}
        self._parameter = {p["name"]: i for i, p in enumerate(described["parameters"])}
        # The root has no forward of its own if its parts are called one after another.
        self._called = entered_modules(self._structure.recording) - ({""} if facts["calls_parts"] else set())
        self._losses = [self._value_of_loss(number) for number in self._structure.recording.losses]
        self._blocks: list[dict[str, Any]] = []
        self._block_of: dict[str, int] = {}

    def run(self) -> dict[str, Any]:
        recording = self._structure.recording
        called = self._called
        gradients = set(recording.gradients.values())
        described, facts = self._described, self._facts
        names = [self._interface.values[v] for v in range(len(self._interface.values))]
        inputs = [i for i, v in enumerate(names) if v.maker < 0]
        batch = self._batch(inputs)
        flow = Flow(self._structure, self._base, self._interface, described["parameters"], self._activation)
        calls = [self._call(c, flow) for c in range(len(self._structure.calls))]
        values = [self._value(v.key) for v in names] + [{"name": f"link_{i}", "shape": [0], "dtype": None} for i in range(flow.num_links)]
        framework = facts["framework"]
        return {
            "format_version": "1.0",
            "kind": "captured_model",
            "name": described["modules"][0]["class"],
            "source": f"captured from `{' '.join(facts['command'])}`, torch {framework}, on the stub GPU as {facts['gpu']}",
            "command": facts["command"],
            "batch_option": facts["batch_option"],
            "framework": framework.split("+")[0],
            "gpu": facts["gpu"],
            "accumulation": facts["accumulation"],
            **({"says_last_micro_batch": True} if facts["says_last_micro_batch"] else {}),
            "initialization": facts["initialization"],
            **facts["tf32"],
            "optimizer": facts["optimizer"],
            "modules": [{**m, "called": m["name"] in called} for m in described["modules"]],
            "parameters": [{**p, "receives_gradient": p["name"] in gradients} for p in described["parameters"]],
            "buffers": described["buffers"],
            "limits": self._limits,
            **({"least_time_share": facts["least_time_share"]} if facts["least_time_share"] < 1 else {}),
            **({"own_collectives": facts["own_collectives"]} if facts["own_collectives"] else {}),
            **({"without_cost": self._without_cost} if self._without_cost else {}),
            "points": [
                {
                    "dimensions": batch,
                    "tokens_per_step": batch["batch"] * batch.get("seq", 1),
                    "values": values,
                    "inputs": inputs,
                    "loss": self._losses[-1],
                    **({"losses": self._losses} if self._structure.num_passes > 1 else {}),
                    "blocks": self._blocks,
                    "calls": calls,
                    "stacks": self._stack_rows(),
                    # Facts of a batch, which may differ from size to size.
                    **({"buffers": facts["buffers"]} if facts["buffers"] else {}),
                }
            ],
        }

    def _batch(self, inputs: list[int]) -> dict[str, int]:
        """Sizes of the model's largest input tensor: of ids, samples and positions. Without inputs, those of the batch that
        was made before the model ran."""
        keys = [self._interface.values[i].key for i in inputs]
        tensors = [self._base.tensor(self._base.number[key]) for key in keys if key in self._base.number]
        given = self._facts["given"] or [(t.shape, t.dtype) for t in tensors]
        shapes = [shape for shape, _ in given if shape]
        if not shapes:
            return {"batch": 1}
        shape = max(shapes, key=lambda s: (len(s), s))
        ids = [shape for shape, dtype in given if len(shape) == 2 and dtype == "int64"]
        if ids:
            return {"batch": ids[0][0], "seq": ids[0][1]}
        return {"batch": shape[0]}

    def _value_of_loss(self, number: int) -> int:
        key = self._base.key.get(number)
        for i, value in enumerate(self._interface.values):
            if value.key == key:
                return i
        raise CaptureError("The loss is not made in the forward of the model or after it.")

    def _value(self, key: Any) -> dict[str, Any]:
        if key not in self._base.number:
            return {"name": "not there", "shape": [0], "dtype": None}
        tensor = self._base.tensor(self._base.number[key])
        part, place = key
        where = "input" if part < 0 else self._name_of(part) or "root"
        is_own = tensor.dtype == self._activation
        return {"name": f"{where}:{place}", "shape": list(tensor.shape), "dtype": None if is_own else tensor.dtype}

    def _name_of(self, part: int) -> str:
        call = self._structure.parts[part].call
        return self._structure.recording.calls[call].name or "" if call >= 0 else "loss"

    def _stack_rows(self) -> list[dict[str, Any]]:
        rows = []
        for stack in self._stacks:
            members = set(stack)
            calls = [c for c, call in enumerate(self._structure.calls) if call.member in members]
            if calls:
                module = self._described["modules"][self._module[stack[0]]]
                name = stack[0].rpartition(".")[0] if len(stack) > 1 else stack[0]
                rows.append({"name": name, "class": module["class"], "calls": calls})
        return rows

    # ---- calls and blocks ------------------------------------------------------------------------------------------

    def _call(self, number: int, flow: Any) -> dict[str, Any]:
        call = self._structure.calls[number]
        modules = self._modules_of(number)
        inputs = self._interface.inputs[number] + flow.inputs_of(number)
        outputs = self._interface.outputs[number] + flow.outputs_of(number)
        block = self._block(number, modules, flow)
        text = json.dumps(block, sort_keys=True)
        if text not in self._block_of:
            self._block_of[text] = len(self._blocks)
            self._blocks.append(block)
        top = -1 if call.after_root else self._module[call.member or call.top]
        return {
            "block": self._block_of[text],
            "module": top,
            "modules": [-1] if call.after_root else [self._module[name] for name in modules],
            "parameters": [self._parameter[name] for name in self._interface.parameters[number]],
            "inputs": inputs,
            "outputs": outputs,
            "repeated": call.member is not None,
            **({"backward": call.backward} if self._structure.is_by_turns else {}),
        }

    def _modules_of(self, number: int) -> list[str]:
        """Full names: for a member of a stack, all modules below it, otherwise the modules that run."""
        call = self._structure.calls[number]
        if call.after_root:
            return [""]
        if call.member is not None:
            return [n for n in self._module if n == call.member or n.startswith(call.member + ".")]
        wanted = {call.top}
        for part in call.ops:
            name = self._name_of(part)
            while name and name not in wanted:
                wanted.add(name)
                name = name.rpartition(".")[0]
        return [n for n in self._module if n in wanted]

    def _block(self, number: int, modules: list[str], flow: Any) -> dict[str, Any]:
        call = self._structure.calls[number]
        top = call.member or call.top
        place = {name: i for i, name in enumerate(modules)}
        called = self._called
        rows = []
        for name in modules:
            relative = name[len(top) + 1 :] if top and name != top else "" if name == top else name
            parent = place.get(name.rpartition(".")[0], -1) if name != top else -1
            kind = "loss" if call.after_root else self._described["modules"][self._module[name]]["class"]
            rows.append({"name": relative, "class": kind, "parent": parent, "called": name in called})
        values, ops, outputs = flow.block(number, lambda part: self._place_of(part, place, top) if not call.after_root else 0)
        shapes = [self._described["parameters"][self._parameter[p]]["shape"] for p in self._interface.parameters[number]]
        links = flow.num_output_links(number)
        return {
            "kind": self._described["modules"][self._module[top]]["class"] if call.member else "glue",
            "modules": rows,
            "parameters": shapes,
            "values": values,
            "num_inputs": len(self._interface.inputs[number]) + len(flow.inputs_of(number)),
            "outputs": outputs,
            "ops": ops,
            "tapes": [self._tape(kind, tapes[number], links, call.member is not None) for kind, tapes in self._tapes.items()],
        }

    def _place_of(self, part: int, place: dict[str, int], top: str) -> int:
        name = self._name_of(part)
        if name not in place:
            raise CaptureError(
                f"{top} runs {name}, a module that several blocks share. Give each block a module of its own for the capture."
            )
        return place[name]

    def _tape(self, kind: Kind, tape: CallTape, links: int, runs_again: bool) -> dict[str, Any]:
        row = {
            "dtype": kind[0],
            "checkpointed": kind[1],
            "storage_op": tape.storage_op,
            "forward": tape.forward,
            "backward": tape.backward,
            "outputs": tape.outputs + [NO_STORAGE] * links,
            "work": tape.work,
        }
        arithmetic = [None if dtype == kind[0] or dtype not in _FLOATING_POINT else dtype for dtype in tape.arithmetic]
        if any(arithmetic):
            row["arithmetic"] = arithmetic
        if kind[1]:
            row |= {"recompute": [], "recomputed": [runs_again] * len(tape.forward)}
        return row
