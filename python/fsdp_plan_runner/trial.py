"""Weights and data from a seed or from files; and a run of the real FSDP2 over Gloo on the CPU that writes losses and
parameters, which fsdp-exec must reproduce bit for bit."""

from __future__ import annotations

import contextlib
import json
import struct
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel
from torch.distributed.tensor import DTensor

from fsdp_plan_runner.modules import PlannedModule
from fsdp_plan_runner.stored import Weights, token_batch
from fsdp_plan_runner.synthetic import buffer_values, input_values, parameter_values
from fsdp_plan_runner.micro_batch import Batch
from fsdp_plan_runner.training import Job, make_optimizer, prepare, run_step, start_process_group
from fsdp_plan_runner.zero import updated_parameters

_SAFETENSORS = {torch.float32: "F32", torch.bfloat16: "BF16", torch.float16: "F16", torch.float64: "F64"}


class SyntheticBatch(Batch):
    """The data of one rank, one micro-batch after the other; each rank has different data."""

    has_values = True

    def __init__(self, job: Job, activation: torch.dtype) -> None:
        super().__init__(job.model, activation, job.device)
        self._job = job
        self._micro_batch = job.trial.steps_before * job.plan.accumulation

    def next_on_host(self) -> Iterator[torch.Tensor]:
        """The tensors of the next micro-batch."""
        stream = self._micro_batch * self._job.world_size + self._job.rank
        self._micro_batch += 1
        for i, tensor in enumerate(self._job.model.inputs):
            dtype = self._dtype_of(i)
            described = self._job.model.tensors[tensor]
            if self._job.trial.tokens and described.name in ("input_ids", "labels"):  # The loss shifts the labels.
                batch, seq = described.shape
                yield token_batch(self._job.trial.tokens, stream * batch, batch, seq).to(dtype)
            else:
                yield input_values(self._job.model, tensor, dtype, self._job.trial.seed, stream)

    def load(self) -> None:
        for i, value in enumerate(self.next_on_host()):
            self.values[i] = value.pin_memory().to(self._device, non_blocking=True) if self._device.type == "cuda" else value


@contextlib.contextmanager
def parameters_of(root: PlannedModule, writes: bool) -> Iterator[list[tuple[str, torch.nn.Parameter]]]:
    """All parameters by their names in the model. FSDP1's are whole inside the loop, and changes to them are kept if
    `writes`."""
    flat = root.wrapper[0] if root.wrapper and isinstance(root.wrapper[0], FullyShardedDataParallel) else None
    with FullyShardedDataParallel.summon_full_params(flat, writeback=writes) if flat else contextlib.nullcontext():
        yield [(name.replace("_fsdp_wrapped_module.", ""), parameter) for name, parameter in root.named_parameters()]


def fill(job: Job, root: PlannedModule) -> None:
    """Each rank fills its own data: its rows, its part under ZeRO-3, or everything if parameters are whole."""
    weights = Weights(job.trial.weights) if job.trial.weights else None

    def fill_parameter(name: str, local: torch.Tensor, first: int) -> None:
        if weights:
            names = [name, *(p.name for p in job.model.parameters if p.tied_to == name)]
            values = weights.elements(names, first, local.numel())
        else:
            values = parameter_values(job.model, job.trial.seed, name, first, local.numel())
        local.copy_(values.view(local.shape))

    with torch.no_grad(), parameters_of(root, writes=True) as parameters:
        for name, parameter in parameters:
            if hasattr(parameter, "ds_tensor"):
                part = parameter.ds_tensor
                first = job.rank * part.numel()
                fill_parameter(name, part[:max(0, parameter.ds_numel - first)], first)
                continue
            is_cut = isinstance(parameter, DTensor)
            local = parameter.to_local() if is_cut else parameter
            rows = -(-parameter.shape[0] // job.plan.shard)
            first = job.rank % job.plan.shard * rows * (parameter.numel() // parameter.shape[0]) if is_cut else 0
            fill_parameter(name, local, first)
        for name in root.context.buffers:
            buffer = root.context.buffer(name)
            buffer.copy_(buffer_values(job.model, name, tuple(buffer.shape)))


def is_of_zero(root: PlannedModule) -> bool:
    return bool(root.wrapper) and hasattr(root.wrapper[0], "zero_optimization")


def save_parameters(root: PlannedModule, path: str, writes: bool) -> None:
    """All parameters, whole, in the order of their names."""
    header, pieces, begin = {}, [], 0
    with parameters_of(root, writes=False) as computed_with:
        parameters = updated_parameters(root) if is_of_zero(root) else computed_with
        for name, parameter in sorted(parameters, key=lambda named: named[0]):
            whole = parameter.full_tensor() if isinstance(parameter, DTensor) else parameter
            # A copy: a storage that NumPy has seen cannot be freed.
            data = whole.detach().clone(memory_format=torch.contiguous_format).view(torch.uint8).numpy().tobytes()
            header[name] = {"dtype": _SAFETENSORS[whole.dtype], "shape": list(whole.shape),
                            "data_offsets": [begin, begin + len(data)]}
            begin += len(data)
            pieces.append(data)
    if not writes:
        return
    text = json.dumps(header).encode()
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)))
        file.write(text)
        file.writelines(pieces)


def run_trial(job: Job) -> PlannedModule:
    """Runs the whole job. REQUIRES: job.trial."""
    start_process_group(job)
    root = prepare(job)
    trial = job.trial
    fill(job, root)
    optimizer = make_optimizer(root, job.plan, trial.learning_rate)
    batch = SyntheticBatch(job, root.context.activation)
    root.train()
    if trial.load:
        from fsdp_plan_runner.checkpoints import load

        load(root, optimizer, trial.load)
    torch.manual_seed(trial.seed + job.rank)  # For dropout.
    steps = []
    for _ in range(job.steps):
        wall, cpu = time.perf_counter(), time.process_time()
        step = run_step(root, batch, optimizer, job.plan, trial.accumulation)
        steps.append({"loss": step.loss, "wall_seconds": time.perf_counter() - wall,
                      "cpu_seconds": time.process_time() - cpu})
    if trial.save:
        from fsdp_plan_runner.checkpoints import save

        save(root, optimizer, trial.save)
    save_parameters(root, trial.results + ".safetensors", job.rank == 0)
    with open(f"{trial.results}.{job.rank}.json", "w", encoding="utf-8") as file:
        json.dump({"steps": steps}, file)
    dist.barrier()
    return root
