"""The training loop that the simulator's schedule assumes for a script.

    for each micro-batch:  batch on the device, forward with its loss, backward
    clip the gradient norm, optimizer step, zero_grad

The tensors of a batch are made one by one, each replacing the previous one; the backward frees the loss.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor

from fsdp_plan_runner import kernels_float8, losses, optimizers, other_models
from fsdp_plan_runner.activation_checkpointing import checkpoint_blocks
from fsdp_plan_runner.cuda_graphs import GraphedPass
from fsdp_plan_runner.expanded_model import ExpandedModel
from fsdp_plan_runner.flat_units import wrap
from fsdp_plan_runner.job_phases import JobPhases
from fsdp_plan_runner.kernel_table import dtype_of
from fsdp_plan_runner.kernels_attention import choose_backends
from fsdp_plan_runner.micro_batch import Batch, StepResult, run_forward
from fsdp_plan_runner.modules import PlannedModule, activation_dtype, build_model
from fsdp_plan_runner.plan import Plan
from fsdp_plan_runner.replicas import replicate, synchronizing
from fsdp_plan_runner.sharding import make_mesh, materialize, shard
from fsdp_plan_runner.simple_fsdp import parametrize
from fsdp_plan_runner.zero import (
    make_offloaded_optimizer,
    parameter_dtype_of,
    place,
    run_engine_step,
    start_engine,
)

_LEARNING_RATE = 1e-4


@dataclasses.dataclass
class Job:
    model: ExpandedModel
    plan: Plan
    steps: int
    device: torch.device
    rank: int
    world_size: int
    has_rendezvous: bool  # A launcher has set the address of a store.
    trial: Trial | None = None  # None for values without meaning.
    phases: list[str] = dataclasses.field(default_factory=list)  # Those after the last step (job_phases.py), and
    phases_file: str = ""  # the file for their peaks.
    tokens_per_step: int = 0  # Tokens of one rank and micro-batch. 0 if its samples have none.
    others: list[tuple[other_models.Options, ExpandedModel, Plan]] = dataclasses.field(default_factory=list)


@dataclasses.dataclass
class Trial:
    """A run whose values count, to compare with another program's: real collectives on the CPU, weights and data from a seed
    (synthetic.py)."""

    seed: int
    learning_rate: float
    accumulation: str  # "mean" or "sum" over the gradients of micro-batches.
    results: str  # File without its ending: NAME.json and, on rank 0, NAME.safetensors.
    weights: list[str] = dataclasses.field(default_factory=list)  # Files in place of the seed.
    tokens: str = ""  # A file of int32 ids in place of the seed.
    load: str = ""  # A checkpoint to continue from, and
    steps_before: int = 0  # its number of steps.
    save: str = ""  # A checkpoint at the end, by torch.distributed.checkpoint.


def start_process_group(job: Job) -> None:
    """NCCL, and gloo as well for gradient norms on the host; on the CPU a group that moves no data."""
    if job.trial:
        dist.init_process_group("gloo")
        return
    if job.device.type == "cpu":
        from torch.testing._internal.distributed.fake_pg import FakeStore

        dist.init_process_group("fake", store=FakeStore(), rank=job.rank, world_size=job.world_size)
        return
    on_host = job.plan.cpu_offload and not job.plan.zero_stage and job.plan.optimizer.clip_grad_norm is not None
    backend = "cpu:gloo,cuda:nccl" if on_host else "nccl"
    if job.has_rendezvous:
        dist.init_process_group(backend)
    else:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)


def prepare(job: Job, mesh: DeviceMesh | None = None) -> PlannedModule:
    """The job's model with checkpointing, sharded over the mesh, and with memory. `mesh` defaults to the plan's."""
    model, plan = job.model, job.plan
    use = plan.implementations
    choose_backends(use.attention, use.prefer_cudnn_attention)
    if not use.cudnn_allow_tf32:
        torch.backends.cudnn.allow_tf32 = False
    if use.matmul_allow_tf32:
        torch.backends.cuda.matmul.allow_tf32 = True
    where = {"meta": torch.device("meta"), "cpu": torch.device("cpu"), "device": job.device}[plan.initialization]
    dtype = dtype_of(plan.parameter_dtype) if plan.parameter_dtype else None
    root = build_model(model, use, activation_dtype(model, plan), where, job.device,
                       parameter_dtype_of(plan) if plan.zero_stage else dtype, bool(plan.zero_stage),
                       plan.mixed_precision.float_outputs)
    run_under_autocast(root, plan)
    root.hidden_matrices = optimizers.hidden_matrices(model) if plan.optimizer.muon is not None else set()
    checkpoint_blocks(root, model, plan)
    if plan.zero_stage:
        place(root, model, plan, job.device)
        return root
    if plan.runtime_name == "pytorch-ddp":
        replicate(root, model, plan, job.device)
        return root
    if plan.runtime_name == "pytorch-fsdp1":
        wrap(root, model, plan, job.device)
        return root
    if plan.is_simple_fsdp:
        parametrize(root, model, plan, job.device)
        return root
    kernels_float8.wrap_weights(root, model)
    shard(root, plan, mesh or make_mesh(plan, job.device.type))
    if plan.mixed_precision.param_dtype and any(".lora_A" in name for unit in plan.units for name in unit.modules):
        # PEFT reads the dtype of a matrix outside of its unit.
        root.context.trained = dtype_of(plan.parameter_dtype) if plan.parameter_dtype else None
    materialize(root, model, plan, job.device)
    return root


def run_under_autocast(root: PlannedModule, plan: Plan) -> None:
    """Replaces the forward of the root, inside of all wrappers and hooks, as accelerate does (Accelerator.prepare_model)."""
    precision = plan.mixed_precision
    if not precision.autocast:
        return
    root.context.autocast = dtype_of(precision.autocast)
    if not precision.param_dtype:
        root.context.trained = next((p.dtype for p in root.parameters() if p.requires_grad), None)
    plain = root.forward

    def forward(*args: Any) -> Any:
        with root.context.autocasting():
            return plain(*args)

    root.forward = (lambda *args: in_float(forward(*args))) if precision.float_outputs else forward  # type: ignore[method-assign]


def in_float(results: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    """accelerate's convert_to_fp32."""
    return tuple(result.float() if result.dtype in (torch.bfloat16, torch.float16) else result for result in results)


def prepare_others(job: Job, mesh: DeviceMesh | None) -> list[other_models.OtherModel]:
    """The models beside the trained one, which a trainer makes before it wraps that."""
    made = []
    for options, model, plan in job.others:
        root = prepare(dataclasses.replace(job, model=other_models.held(model), plan=plan, others=[]), mesh)
        made.append(other_models.OtherModel(root, options.is_before, other_models.tokens_of(model),
                                            other_models.places_of(model, job.model), job.device))
    return made


def make_optimizer(root: torch.nn.Module, plan: Plan,
                   learning_rate: float = _LEARNING_RATE) -> torch.optim.Optimizer:
    parameters = [parameter for parameter in root.parameters() if parameter.requires_grad]
    if plan.implementations.loss in losses.EMPTIES_CACHE:
        torch.cuda.empty_cache()
    if plan.zero_stage and plan.cpu_offload:
        return make_offloaded_optimizer(parameters, plan, learning_rate)
    if plan.optimizer.muon is not None:
        named = {name: parameter for name, parameter in root.named_parameters() if parameter.requires_grad}
        return optimizers.make_with_muon(named, root.hidden_matrices, plan, learning_rate)
    return optimizers.make(parameters, plan, learning_rate)


def run_step(root: PlannedModule, batch: Batch, optimizer: torch.optim.Optimizer, plan: Plan,
             accumulation: str = "mean", others: Sequence[other_models.OtherModel] = ()) -> StepResult:
    """Runs one step.

    A mean of gradients is that of (loss / N).backward(): the loss's own gradient starts as 1 / N, without the tensor of a
    division.
    """
    if plan.cuda_graphs:
        return _run_graphed_step(root, batch, optimizer, plan)
    divisor = plan.accumulation if accumulation == "mean" else 1
    total = 0.0
    last_loss: torch.Tensor | None = None
    for micro_batch in range(plan.accumulation):
        syncs = plan.sync_every_micro_batch or micro_batch + 1 == plan.accumulation
        if not plan.sync_every_micro_batch and plan.runtime_name == "pytorch-fsdp2":
            root.set_requires_gradient_sync(syncs)
        batch.load()
        with synchronizing(root, syncs):
            beside = [other.log_probabilities(batch) for other in others if other.is_before]
            result = run_forward(root, batch.values)
            last_loss = None
            loss = result[0] if isinstance(result, tuple) else result
            kept = result if plan.implementations.keep_logits else None
            del result
            beside += [other.log_probabilities(batch) for other in others if not other.is_before]
            loss.backward(torch.full_like(loss, 1 / divisor) if divisor > 1 else None)
        if batch.has_values:
            total += loss.item()
        if plan.implementations.loss in losses.KEEPS_LAST_LOSS:
            last_loss = loss
        del kept, loss, beside
    del last_loss
    norm = 0.0
    if plan.optimizer.clip_grad_norm is not None:
        norm = clip(root, plan.optimizer.clip_grad_norm, plan, batch.has_values)
    optimizer.step()
    if plan.precomputes_scales:
        kernels_float8.precompute_scales(root, root.program.model)
    optimizer.zero_grad()
    return StepResult(total / plan.accumulation, norm)


def _run_graphed_step(root: PlannedModule, batch: Batch, optimizer: torch.optim.Optimizer, plan: Plan) -> StepResult:
    def run(values: list[torch.Tensor]) -> torch.Tensor:
        result = run_forward(root, values)
        loss = result[0] if isinstance(result, tuple) else result
        loss.backward()
        return loss

    batch.load()
    if root.graphed is None:
        root.graphed = GraphedPass(run)
    loss = root.graphed(batch.values)
    total = loss.item() if batch.has_values else 0.0
    norm = clip(root, plan.optimizer.clip_grad_norm, plan, batch.has_values) if plan.optimizer.clip_grad_norm is not None else 0.0
    optimizer.step()
    optimizer.zero_grad(set_to_none=False)
    return StepResult(total, norm)


def clip(root: PlannedModule, most: float, plan: Plan, has_values: bool) -> float:
    if plan.implementations.norm_in_float64:
        return _clip_by_one_norm(root, most, has_values)
    if plan.runtime_name == "pytorch-fsdp1":
        norm = root.wrapper[0].clip_grad_norm_(most)
    else:
        norm = torch.nn.utils.clip_grad_norm_(root.parameters(), most)
    if not has_values:
        return 0.0
    return (norm.full_tensor() if isinstance(norm, DTensor) else norm).item()


def _clip_by_one_norm(root: PlannedModule, most: float, has_values: bool) -> float:
    """nemo-automodel 0.7.0 components/training/utils.py, _clip_grad_norm_impl; its sum of squares is one kernel of Triton."""
    gradients = [p.grad for p in root.parameters() if p.grad is not None]
    local = [g.to_local() if isinstance(g, DTensor) else g for g in gradients]
    squares = torch.zeros((), dtype=torch.float64, device=local[0].device)
    for gradient in local:
        squares += torch.linalg.vector_norm(gradient).double().square()
    if isinstance(gradients[0], DTensor):
        dist.all_reduce(squares, group=gradients[0].device_mesh.get_group(gradients[0].device_mesh.ndim - 1))
    norm = squares.sqrt()
    torch.nn.utils.clip_grads_with_norm_(list(root.parameters()), most, norm, True)
    return norm.item() if has_values else 0.0


def train(job: Job) -> PlannedModule:
    """Runs the whole job. Exceptions of PyTorch pass through."""
    start_process_group(job)
    mesh = make_mesh(job.plan, job.device.type) if job.others and job.plan.runtime_name == "pytorch-fsdp2" else None
    others = prepare_others(job, mesh)
    root = prepare(job, mesh)
    optimizer = make_optimizer(root, job.plan)
    batch = Batch(job.model, root.context.activation, job.device)
    root.train()
    if job.plan.zero_stage:
        start_engine(root, optimizer, job.plan)
    for _ in range(job.steps):
        if job.plan.zero_stage:
            run_engine_step(root, batch, job.plan)
        else:
            run_step(root, batch, optimizer, job.plan, others=others)
    if job.device.type == "cuda":
        torch.cuda.synchronize()
    if job.phases:
        phases = JobPhases(root, optimizer, lambda: Batch(job.model, root.context.activation, job.device), others)
        phases.run(job.phases)
        phases.write(job.phases_file)
    return root
