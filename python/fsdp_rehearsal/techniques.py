"""Other techniques that affect the memory of a training: recomputation, accumulation, tensor, context and pipeline
parallelism.

Detected by the program's calls, not by its options.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

from fsdp_rehearsal.guard import guarded
from fsdp_rehearsal.modules import Modules, class_name
from fsdp_rehearsal.phases import Phases
from fsdp_rehearsal.steps import Steps

_ATTENTION = ("torch.distributed.tensor.experimental._attention", "torch.distributed.tensor.experimental._context_parallel._attention")


class Techniques:
    def __init__(self, modules: Modules, phases: Phases, steps: Steps) -> None:
        self._modules, self._phases, self._steps = modules, phases, steps
        self._recomputed: dict[str, set[int]] = {}  # class -> recomputed modules
        self._stages: list[tuple[int, int]] = []  # stage, stages
        self._context: set[int] = set()  # ranks that share a sequence

    def install(self, after_import: Callable) -> None:
        after_import("torch.utils.checkpoint", self._watch_recomputation)
        after_import("torch.distributed.pipelining.stage", self._watch_pipelines)
        for name in _ATTENTION:
            after_import(name, self._watch_context)

    @guarded("What was applied beside wrappers", [])
    def seen(self, steps: int) -> list[str]:
        """A phrase for each, for a run of `steps` whole steps."""
        lines = [f"recomputes {len(some)} x {kind}" for kind, some in sorted(self._recomputed.items())]
        backwards = self._phases.backwards
        if steps and not self._stages and len(self._steps.optimizers) == 1 and backwards > steps and backwards % steps == 0:
            lines.append(f"accumulates gradients over {backwards // steps} backwards")
        roots = [r for r in (reference() for reference in self._modules.roots) if r is not None]
        for ranks, tensors in sorted(_tensor_parallel(roots).items()):
            lines.append(f"tensor parallel over {ranks} ranks, {tensors} tensors")
        lines += [f"context parallel over {ranks} ranks" for ranks in sorted(self._context)]
        lines += [f"pipeline parallel, stage {stage} of {stages}, the first is 0" for stage, stages in self._stages]
        return lines

    @guarded("Recomputation")
    def _watch_recomputation(self, module: ModuleType) -> None:
        """Watches the functions that `checkpoint` calls; `checkpoint` itself, which torch.compile recognizes, is unchanged."""
        generator = module._checkpoint_without_reentrant_generator

        @functools.wraps(generator)
        def without_reentrant(fn, *args, **kwargs):
            self._note(fn)
            return generator(fn, *args, **kwargs)

        module._checkpoint_without_reentrant_generator = without_reentrant
        function = module.CheckpointFunction
        forward = function.forward

        @functools.wraps(forward)
        def reentrant(ctx, run_function, *args):
            self._note(run_function)
            return forward(ctx, run_function, *args)

        function.forward = staticmethod(reentrant)

    @guarded("Recomputation")
    def _note(self, function: Any) -> None:
        while isinstance(function, functools.partial):
            function = function.func
        owner = getattr(function, "__self__", function)
        if not isinstance(owner, sys.modules["torch"].nn.Module):
            owner = self._modules.innermost() or function
        kind = getattr(owner, "__name__", None) or class_name(owner)
        self._recomputed.setdefault(kind, set()).add(id(owner))

    @guarded("Pipelines")
    def _watch_pipelines(self, module: ModuleType) -> None:
        base = module._PipelineStageBase
        real = base.__init__

        @functools.wraps(real)
        def __init__(stage, submodule, stage_index, num_stages, *args, **kwargs):
            self._stages.append((stage_index, num_stages))
            real(stage, submodule, stage_index, num_stages, *args, **kwargs)

        base.__init__ = __init__

    @guarded("Context parallelism")
    def _watch_context(self, module: ModuleType) -> None:
        real = getattr(module, "context_parallel", None)
        if real is None:
            return

        @functools.wraps(real)
        def context_parallel(mesh, *args, **kwargs):
            self._context.add(int(mesh.size()))
            return real(mesh, *args, **kwargs)

        module.context_parallel = context_parallel


def _tensor_parallel(roots: list[Any]) -> dict[int, int]:
    """Ranks that share a tensor -> number of such tensors, without FSDP's own sharding."""
    api = sys.modules.get("torch.distributed.fsdp._fully_shard._fully_shard")
    found: dict[int, int] = {}
    for root in roots:
        of_fsdp: set[int] = set()
        for module in root.modules() if api else ():
            if not isinstance(module, api.FSDPModule):
                continue
            state = module._get_fsdp_state()
            for group in getattr(state, "_fsdp_param_groups", None) or [state._fsdp_param_group]:
                for parameter in group.fsdp_params if group is not None else ():
                    of_fsdp.add(id(parameter.sharded_param))
                    specification = getattr(parameter, "_tp_spec", None)
                    if specification is not None and any(p.is_shard() for p in specification.placements):
                        ranks = int(specification.mesh.size())
                        found[ranks] = found.get(ranks, 0) + 1
        for parameter in root.parameters():
            placements = getattr(parameter, "placements", None)
            if placements is not None and id(parameter) not in of_fsdp and any(p.is_shard() for p in placements):
                ranks = int(parameter.device_mesh.size())
                found[ranks] = found.get(ranks, 0) + 1
    return found
