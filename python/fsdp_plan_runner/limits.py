"""The parts of a job that cannot be run. All are reported at once, by their names in the plan file, and nothing runs instead.
"""

from __future__ import annotations

import difflib
import importlib.util
import sys
from typing import Any

import torch

from fsdp_plan_runner.expanded_model import ExpandedModel
from fsdp_plan_runner.forward_program import ForwardProgram
from fsdp_plan_runner.optimizers import OPTIMIZERS, missing_package_of
from fsdp_plan_runner.plan import OFFLOAD_KEYS, PLUS_KEYS, ZERO3_KEYS, Plan, quirks_of

RUNTIMES = ("pytorch-fsdp2", "pytorch-fsdp1", "pytorch-ddp", "deepspeed-zero1", "deepspeed-zero2", "deepspeed-zero3",
            "torchtitan-simple-fsdp")


def problems_of(model: ExpandedModel, plan: Plan, world_size: int, known_kinds: list[str] | None = None) -> list[str]:
    """One line for each problem: its place, the problem, and a remedy. `known_kinds`: ops that have a kernel."""
    return [*_fit(model, plan, world_size), *_units(model, plan), *_checkpointing(model, plan), *_optimizer(model, plan),
            *_attention(model, plan), *runtime_problems(plan), *zero_problems(plan), *simple_fsdp_problems(plan), *_kinds(model, known_kinds), *_packages(model), *_liger(model),
            *_automodel(model), *_float8(model)]


def _fit(model: ExpandedModel, plan: Plan, world_size: int) -> list[str]:
    found = []
    if plan.fingerprint and plan.fingerprint != model.fingerprint:
        found.append(f"plan/model/fingerprint: the plan is for another model ({plan.fingerprint}, and {model.name} has "
                     f"{model.fingerprint}). Expand the model that the plan names.")
    if plan.world_size != world_size:
        found.append(f"plan/mesh: {plan.replicate} x {plan.shard} is {plan.world_size} ranks, and WORLD_SIZE is "
                     f"{world_size}. Start as many ranks as the mesh has.")
    if plan.expert_parallel != 1:
        found.append("plan/mesh/ep: No tokens are exchanged between ranks here. Load the model by transformers' DistributedConfig.")
    return found


def _units(model: ExpandedModel, plan: Plan) -> list[str]:
    names = {module.name for module in model.modules}
    runs = ForwardProgram(model).runs
    found = []
    for i, unit in enumerate(plan.units):
        for name in unit.modules:
            if name not in names:
                found.append(f'plan/units/{i}: the model has no module "{name}". {nearest(name, names)}')
            elif name not in runs and not any(other in runs for other in unit.modules):
                found.append(f'plan/units/{i}: the forward of "{name}" is never entered, so FSDP2 would never gather '
                             "it. Wrap the modules below it, or leave them to the unit above.")
    if not plan.units or plan.units[-1].modules != ("",):
        found.append('plan/units: the last unit is not the root. Put {"modules": [""]} at the end.')
    return found


def _checkpointing(model: ExpandedModel, plan: Plan) -> list[str]:
    repeated = {call.module for call in model.calls if call.repeated}
    return [f'plan/activation_checkpointing/modules: "{name}" is not a repeated block. {nearest(name, repeated)}'
            for name in plan.checkpointed if name not in repeated]


def _optimizer(model: ExpandedModel, plan: Plan) -> list[str]:
    states = plan.optimizer.states
    trained = {plan.parameter_dtype or p.dtype for p in model.parameters if p.trainable}
    kind = plan.optimizer.kind
    if states == "8bit":
        return ["plan/optimizer/states: 8bit is a word of earlier plans. Write as_parameter, and adamw_8bit or adam_8bit for kind."]
    if kind not in OPTIMIZERS:
        return [f'plan/optimizer/kind: "{kind}" is not made here. {nearest(kind, set(OPTIMIZERS))}']
    if package := missing_package_of(kind):
        return [f'plan/optimizer/kind: {sys.executable} lacks the package of "{kind}". Write: {sys.executable} -m pip install {package}, '
                "or in a checkout ./scripts/rehearsal_env finetuning"]
    if states == "bfloat16" and trained != {"bfloat16"}:
        return [f"plan/optimizer/states: PyTorch's optimizers keep their states in the parameters' dtype "
                f"({', '.join(sorted(trained))}), not in bfloat16. Write as_parameter."]
    return []


def _attention(model: ExpandedModel, plan: Plan) -> list[str]:
    if any(op.attributes["packed"] == "flex" for op in model.ops) and not torch.cuda.is_available():
        return ["plan/model/packing/attention: FlexAttention has no backward on the CPU. Write \"sdpa\", or run on a GPU."]
    is_packed = any(op.attributes["packed"] == "flash_attn" for op in model.ops)
    if not (is_packed or plan.implementations.attention == "flash_attn") or importlib.util.find_spec("flash_attn") is not None:
        return []
    where, other = ("model/packing", 'write "varlen"') if is_packed else ("runtime/implementations", 'write "automatic"')
    return [f"plan/{where}/attention: {sys.executable} has no flash-attn. Write: {sys.executable} -m pip install flash-attn, or "
            f"{other}, PyTorch's own."]


def runtime_problems(plan: Plan) -> list[str]:
    """Settings of the plan that need another runtime than this PyTorch."""
    found = []
    if plan.runtime_name not in RUNTIMES:
        found.append(f'plan/runtime/name: "{plan.runtime_name}" is not run here. Write {", ".join(RUNTIMES[:-1])} or {RUNTIMES[-1]}.')
    for name, real in quirks_of(plan.runtime_version).items():
        if plan.quirks[name] != real:
            found.append(f"plan/runtime/quirks/{name}: this PyTorch has {_json(real)}, and the plan asks for "
                         f"{_json(plan.quirks[name])}, which no option of it brings about.")
    return found


def missing_package(name: str, version: str, environment: str) -> str:
    """`environment`: of ./scripts/rehearsal_env, which installs the package together with PyTorch."""
    return (f"plan/runtime/name: {sys.executable} has no {name}. Write: {sys.executable} -m pip install {name}=={version}, or in a "
            f"checkout ./scripts/rehearsal_env {environment}")


def zero_problems(plan: Plan) -> list[str]:
    """Settings that DeepSpeed's ZeRO does not support, or not in the way it runs here."""
    if not plan.zero_stage:
        return []
    found = []
    if importlib.util.find_spec("deepspeed") is None:
        found.append(missing_package("deepspeed", "0.19.8", "deepspeed"))
    if plan.replicate != 1:
        found.append(f"plan/mesh/replicate: ZeRO shards over all ranks, and the plan has {plan.replicate} copies. Write 1.")
    if len(plan.units) != 1:
        found.append(f"plan/units: ZeRO has no units, and the plan has {len(plan.units)}. Leave the root alone.")
    found += _zero_precision(plan)
    if not plan.cpu_offload:
        found += [f"plan/zero/{key}: it is of cpu_offload, and the plan has none. Leave it out."
                  for key in OFFLOAD_KEYS if getattr(plan.zero, key) is not None]
    elif plan.zero.offload_param and plan.zero_stage < 3:
        found.append(f"plan/zero/offload_param: ZeRO-{plan.zero_stage} keeps the parameters whole on each GPU. Write false.")
    if plan.zero.nvme and plan.zero_stage < 3:
        found.append(f"plan/zero/nvme: ZeRO-{plan.zero_stage} keeps everything in host memory. Leave it out.")
    if plan.accumulation > 1 and plan.sync_every_micro_batch != (plan.zero_stage > 1):
        found.append(f"plan/sync_every_micro_batch: ZeRO-{plan.zero_stage} reduces gradients "
                     f"{'after every' if plan.zero_stage > 1 else 'after the last'} micro-batch. "
                     f"Write {_json(plan.zero_stage > 1)}.")
    if plan.zero_stage < 3:
        found += [f"plan/zero/{key}: only ZeRO-3 has it, but the plan is for ZeRO-{plan.zero_stage}. Leave it out."
                  for key in ZERO3_KEYS if getattr(plan.zero, key) is not None]
    return found


def simple_fsdp_problems(plan: Plan) -> list[str]:
    """Settings that SimpleFSDP does not support, or not in the way it runs here."""
    if not plan.is_simple_fsdp:
        return []
    found = []
    if importlib.util.find_spec("torchtitan") is None:
        found.append(missing_package("torchtitan", "0.3.0", "simple-fsdp"))
    if len(plan.units) != 1:
        found.append(f"plan/units: SimpleFSDP has no units, and the plan has {len(plan.units)}. Leave the root alone.")
    if plan.units and plan.units[-1].reshard_after_forward is not None:
        found.append("plan/units: SimpleFSDP has no reshard_after_forward without a compiler. Leave it out.")
    if plan.forward_prefetch != 0 or plan.backward_prefetch != 1:
        found.append("plan/forward_prefetch: SimpleFSDP does not prefetch. Leave both prefetches out.")
    if plan.cpu_offload:
        found.append("plan/cpu_offload: SimpleFSDP does not offload. Write false.")
    if plan.mixed_precision.output_dtype:
        found.append("plan/mixed_precision/output_dtype: SimpleFSDP's policy has none. Leave it out.")
    if plan.accumulation > 1 and not plan.sync_every_micro_batch:
        found.append("plan/sync_every_micro_batch: SimpleFSDP reduces gradients after every micro-batch. Write true.")
    if plan.initialization != "meta":
        found.append("plan/initialization: SimpleFSDP is run with models that are made on the meta device. Write meta.")
    return found


def cpu_problems(plan: Plan) -> list[str]:
    """Settings that a framework supports only on GPUs, or not on the CPUs of this machine."""
    found = []
    if plan.cpu_offload and plan.runtime_name == "pytorch-fsdp1":
        found.append("plan/cpu_offload: FSDP1 offloads only from GPUs. Write --device cuda, or false.")
    if plan.mixed_precision.autocast:
        found.append('plan/mixed_precision/autocast: torch.autocast("cuda") casts nothing on CPUs. Write --device cuda, or leave it out.')
    if not plan.zero_stage:
        return found
    if plan.cpu_offload:
        found.append("plan/cpu_offload: DeepSpeed offloads from GPUs here. Write --device cuda, or false.")
    if plan.mixed_precision.param_dtype == "float16":
        found.append("plan/mixed_precision: DeepSpeed has no fp16 on CPUs. Write --device cuda, or bfloat16 for param_dtype and reduce_dtype.")
    found += [f"plan/zero/{key}: ZeRO++ is for GPUs. Write --device cuda, or leave it out."
              for key in PLUS_KEYS if getattr(plan.zero, key) not in (None, False, 1)]
    return found


def _zero_precision(plan: Plan) -> list[str]:
    found = []
    given = plan.mixed_precision
    copies = ("float32", "bfloat16") if given.param_dtype is None else ("float32",)
    if plan.parameter_dtype not in copies:
        found.append(f"plan/parameter_dtype: ZeRO's optimizer here updates {' or '.join(copies)}, and the plan says "
                     f"{plan.parameter_dtype or 'nothing'}. Write float32.")
    known = ((None, None), ("bfloat16", "bfloat16"), ("float16", "float16"))
    if (given.param_dtype, given.reduce_dtype) not in known or given.output_dtype:
        found.append("plan/mixed_precision: ZeRO is run without it, or with param_dtype and reduce_dtype both bfloat16 or both "
                     "float16, and no output_dtype. Write one of these.")
    if plan.zero.fp16 is not None and given.param_dtype != "float16":
        found.append("plan/zero/fp16: the plan does not compute in fp16. Leave it out.")
    return found


def _kinds(model: ExpandedModel, known: list[str] | None) -> list[str]:
    if known is None:
        return []
    return [f'model/ops: the kind "{kind}" has no kernel here. {nearest(kind, set(known))}'
            for kind in dict.fromkeys(op.kind for op in model.ops) if kind not in known]


def _packages(model: ExpandedModel) -> list[str]:
    if not any(op.kind == "linear_4bit" for op in model.ops) or importlib.util.find_spec("bitsandbytes") is not None:
        return []
    return [f"plan/model/quantization: {sys.executable} lacks bitsandbytes. Write: {sys.executable} -m pip install bitsandbytes==0.50.2, "
            "or in a checkout ./scripts/rehearsal_env finetuning"]


def _liger(model: ExpandedModel) -> list[str]:
    if not any(op.attributes["liger"] or op.kind == "liger_glu" for op in model.ops) or importlib.util.find_spec("liger_kernel") is not None:
        return []
    return [f"plan/model/liger_kernels: {sys.executable} lacks liger-kernel. Write: {sys.executable} -m pip install liger-kernel==0.8.5, "
            "or in a checkout ./scripts/rehearsal_env finetuning"]


def _automodel(model: ExpandedModel) -> list[str]:
    if not any(op.attributes["one_op"] or op.kind == "low_rank" for op in model.ops) or importlib.util.find_spec("nemo_automodel") is not None:
        return []
    return [f"plan/runtime/flavor: {sys.executable} lacks nemo-automodel. Write: {sys.executable} -m pip install nemo-automodel==0.7.0, "
            "or in a checkout ./scripts/rehearsal_env automodel"]


def _float8(model: ExpandedModel) -> list[str]:
    if not any(op.attributes["float8"] for op in model.ops) or importlib.util.find_spec("torchao") is not None:
        return []
    return [f"plan/model/float8: {sys.executable} lacks torchao. Write: {sys.executable} -m pip install torchao==0.18.0, "
            "or in a checkout ./scripts/rehearsal_env finetuning"]


def nearest(name: str, names: set[str]) -> str:
    """A question to the author of `name`; "" if no name is near."""
    close = difflib.get_close_matches(name, sorted(names), 1)
    return f'Did you mean "{close[0]}"?' if close else ""


def _json(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
