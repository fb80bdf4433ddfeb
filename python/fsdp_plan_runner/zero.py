"""ZeRO of DeepSpeed: its configuration for a plan, and the engine that trains it.

If the engine computes in 16 bits it receives a model whose parameters are in 16 bits, as `torch_dtype=torch.bfloat16` makes
them; the engine keeps the master weights in fp32. The place of the model at that time, by "initialization":

    device   whole on the GPU, made there at once, as under `with torch.device("cuda")`
    cpu      whole on the host, as `from_pretrained` makes it; the engine moves it to the GPU, parameter by parameter
    meta     for ZeRO-1 and 2: whole on the GPU, made without memory, then `to_empty`;
             for ZeRO-3: sharded, made under `deepspeed.zero.Init`, which shards a module's parameters when it is made

From a whole model, ZeRO-1 and 2 make a flat copy while it still exists, and ZeRO-3 its shards, parameter by parameter.

With "cpu_offload" the optimizer is DeepSpeedCPUAdam, which DeepSpeed requires there; SGD is PyTorch's own, a loop on the host.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import os
import sys
from typing import Any

import torch

from fsdp_plan_runner import nvme
from fsdp_plan_runner.expanded_model import ExpandedModel
from fsdp_plan_runner.kernel_table import dtype_of
from fsdp_plan_runner.micro_batch import Batch, StepResult, run_forward
from fsdp_plan_runner.modules import PlannedModule, untied
from fsdp_plan_runner.plan import OFFLOAD_KEYS, PLUS_KEYS, ZERO3_KEYS, Plan
from fsdp_plan_runner.quantizer import QuantizerBuilder
from fsdp_plan_runner.sharding import fill_with_numbers, make_buffers


def parameter_dtype_of(plan: Plan) -> torch.dtype | None:
    """Dtype of the model that the engine receives; None for the checkpoint's."""
    named = plan.mixed_precision.param_dtype or plan.parameter_dtype
    return dtype_of(named) if named else None


def _is_pure_bf16(plan: Plan) -> bool:
    return plan.parameter_dtype == "bfloat16" and plan.mixed_precision.param_dtype is None


def _precision_of(plan: Plan) -> dict[str, Any]:
    if plan.mixed_precision.param_dtype == "float16":
        return {"fp16": {"enabled": True, **(plan.zero.fp16 or {})}}
    if _is_pure_bf16(plan):
        return {"bf16": {"enabled": True, "bf16_master_weights_and_grads": True, "bf16_optimizer_states": True}}
    return {"bf16": {"enabled": plan.mixed_precision.param_dtype == "bfloat16"}}


def _written(key: str) -> str:
    """The name in "zero_optimization" of a key in a plan's "zero"."""
    if key in PLUS_KEYS:
        return f"zero_{key}"
    return f"stage3_{key}" if key in ZERO3_KEYS[1:] else key


def configuration_of(plan: Plan) -> dict[str, Any]:
    """The user's ds_config.json."""
    given = {key: value for key, value in dataclasses.asdict(plan.zero).items()
             if value is not None and key not in (*OFFLOAD_KEYS, "fp16")}
    zero: dict[str, Any] = {_written(key): value for key, value in given.items()}
    if plan.cpu_offload:
        host = {"device": "cpu", "pin_memory": plan.zero.pin_memory is not False}
        zero["offload_optimizer"] = host if plan.zero.offload_ratio in (None, 1) else {**host, "ratio": plan.zero.offload_ratio}
        if plan.zero.offload_param:
            zero["offload_param"] = {**host}
    drive: dict[str, Any] = {}
    if plan.zero.nvme:
        path = nvme.folder_of(plan.zero.nvme)
        if plan.zero.nvme.optimizer:
            zero["offload_optimizer"].update(device="nvme", **nvme.optimizer_configuration(plan.zero.nvme, path))
        if plan.zero.nvme.parameters:
            zero["offload_param"].update(device="nvme", **nvme.parameter_configuration(plan.zero.nvme, path))
        drive = {"aio": nvme.queue_configuration(plan.zero.nvme)}
    return {
        # DeepSpeed uses it only to count samples.
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": plan.accumulation,
        "gradient_clipping": plan.optimizer.clip_grad_norm or 0.0,
        **_precision_of(plan),
        "zero_optimization": {"stage": plan.zero_stage, **zero},
        "zero_allow_untested_optimizer": True,
        # Without it DeepSpeed refuses PyTorch's optimizers on the host.
        "zero_force_ds_cpu_optimizer": plan.optimizer.kind != "sgd",
        "steps_per_print": None,
        **drive,
    }


def place(root: PlannedModule, model: ExpandedModel, plan: Plan, device: torch.device) -> None:
    """Gives the model memory and values in the place where a user's model would be before the engine receives it."""
    if plan.initialization == "meta" and plan.zero_stage == 3:
        _make_sharded(root, plan, device)
        for buffer, owner in root.context.buffers.items():
            name = buffer.rpartition(".")[2]
            setattr(owner, name, torch.zeros_like(getattr(owner, name), device=device))
        return
    if plan.initialization == "meta":
        with untied(model, root):
            root.to_empty(device=device)
    make_buffers(root, torch.device("cpu") if plan.initialization == "cpu" else device)
    with torch.no_grad():
        for parameter in root.parameters():
            fill_with_numbers(parameter)


class _Made(torch.nn.Module):
    """A module that makes parameters while it is made itself, as `zero.Init` requires. A `PlannedModule` receives its own
    later."""

    def __init__(self, like: dict[str, torch.nn.Parameter], device: torch.device) -> None:
        super().__init__()
        for name, parameter in like.items():
            tensor = torch.empty(parameter.shape, device=device)
            with torch.no_grad():
                fill_with_numbers(tensor)
            self.register_parameter(name, torch.nn.Parameter(tensor, requires_grad=parameter.requires_grad))


def _make_sharded(root: PlannedModule, plan: Plan, device: torch.device) -> None:
    """Makes and shards the parameters of one module after the other, those of inner modules before its own."""
    deepspeed = _deepspeed()
    made: dict[torch.nn.Parameter, torch.nn.Parameter] = {}

    def make(module: torch.nn.Module) -> None:
        for child in module.children():
            make(child)
        own = {name: parameter for name, parameter in module._parameters.items() if parameter not in made}
        holder = _Made(own, device)
        made.update((parameter, holder._parameters[name]) for name, parameter in own.items())
        module._parameters.update((name, made[parameter]) for name, parameter in module._parameters.items())

    with deepspeed.zero.Init(config_dict_or_path=configuration_of(plan)):
        make(root)


def _deepspeed() -> Any:
    # Its logger uses the stdout at the time of its import.
    with contextlib.redirect_stdout(sys.stderr):
        import deepspeed

    deepspeed.utils.logger.setLevel(logging.WARNING)
    nvme.replace_queue()
    if "FSDP_REHEARSAL" in os.environ:
        deepspeed.ops.op_builder.QuantizerBuilder = QuantizerBuilder
    return deepspeed


def run_on_cpu() -> None:
    """From now on DeepSpeed runs on the CPU, over Gloo. REQUIRES: it is not loaded yet for another device."""
    os.environ["DS_ACCELERATOR"] = "cpu"
    _deepspeed()
    from deepspeed.comm import torch as communication

    # The extension that reduces for inference takes a minute to compile.
    communication.build_shm_op = lambda: None


class _NoArithmetic:
    """Replaces the compiled part of DeepSpeedCPUAdam in a rehearsal, where values have no meaning: the part allocates nothing,
    and takes a minute to compile."""

    def load(self) -> _NoArithmetic:
        return self

    def create_adam(self, *arguments: Any) -> None:
        pass

    def adam_update(self, *arguments: Any) -> None:
        pass

    def destroy_adam(self, *arguments: Any) -> None:
        pass


def make_offloaded_optimizer(parameters: list[torch.nn.Parameter], plan: Plan, learning_rate: float) -> torch.optim.Optimizer:
    given = plan.optimizer
    if given.kind == "sgd":
        return torch.optim.SGD(parameters, lr=learning_rate, momentum=given.momentum, weight_decay=given.weight_decay,
                               foreach=False, fused=False)
    _deepspeed()
    from deepspeed.ops.adam import DeepSpeedCPUAdam, cpu_adam

    if "FSDP_REHEARSAL" in os.environ:
        cpu_adam.CPUAdamBuilder = _NoArithmetic
    return DeepSpeedCPUAdam(parameters, lr=learning_rate, weight_decay=given.weight_decay, adamw_mode=given.kind == "adamw",
                            fp32_optimizer_states=not _is_pure_bf16(plan))


def start_engine(root: PlannedModule, optimizer: torch.optim.Optimizer, plan: Plan) -> None:
    """Passes the model and its optimizer to DeepSpeed: `root.wrapper` is the engine. REQUIRES: a process group."""
    with contextlib.redirect_stdout(sys.stderr):
        engine, *_ = _deepspeed().initialize(model=root, optimizer=optimizer, config=configuration_of(plan),
                                             dist_init_required=False)
    # A list, so that torch.nn.Module does not register the wrapper as a child of its own contents.
    root.wrapper = [engine]


def updated_parameters(root: PlannedModule) -> list[tuple[str, torch.Tensor]]:
    """All parameters by their names, whole, with the optimizer's values; frozen ones with the values of the computation. All
    ranks must call it."""
    _deepspeed()
    from deepspeed.utils import safe_get_full_fp32_param

    optimizer = root.wrapper[0].optimizer
    parts = optimizer.fp32_partitioned_groups_flat if hasattr(optimizer, "fp32_partitioned_groups_flat") else optimizer.single_partition_of_fp32_groups

    def frozen(parameter: torch.nn.Parameter) -> torch.Tensor:
        with _deepspeed().zero.GatheredParameters([parameter], enabled=hasattr(parameter, "ds_tensor")):
            return parameter.detach().clone()

    return [(name, safe_get_full_fp32_param(parameter).to(parts[0].dtype) if parameter.requires_grad else frozen(parameter))
            for name, parameter in root.named_parameters()]


def run_engine_step(root: PlannedModule, batch: Batch, plan: Plan) -> StepResult:
    """The loop that DeepSpeed requires: the engine divides the loss, and its step does nothing before the last micro-batch."""
    engine = root.wrapper[0]
    total = 0.0
    for _ in range(plan.accumulation):
        batch.load()
        result = run_forward(root, batch.values)
        loss = result[0] if isinstance(result, tuple) else result
        engine.backward(loss)
        if batch.has_values:
            total += loss.item()
        del result, loss
        engine.step()
    norm = engine.get_global_grad_norm() if batch.has_values and plan.optimizer.clip_grad_norm is not None else None
    return StepResult(total / plan.accumulation, float(norm or 0.0))
