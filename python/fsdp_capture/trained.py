"""The model that a script trains, even if the script never calls it as one: the module that contains all parameters of its
optimizer."""

from __future__ import annotations

from typing import Any, Optional

from fsdp_capture.passes import CaptureError, NotAlike, Turns, turns_of
from fsdp_rehearsal.modules import held
from fsdp_rehearsal.trained_model import group_of, roots_of, smallest_above


def trained_by_turns(modules: Any, steps: Any) -> Optional[Turns]:
    """The models that a script trains with separate optimizers, as a GAN does; None if it trains one model, or all with one
    optimizer. Raises CaptureError if they cannot be captured."""
    called = _called(modules)
    optimizers = steps.made()
    # They may require a gradient in some turns only.
    parameters = [p for optimizer in optimizers for group in optimizer.param_groups for p in group["params"]]
    roots = roots_of(parameters)
    if len(called) < 2 or len(optimizers) < 2 or len(roots) < 2:
        return None
    if any(smallest_above(held(root), called, parameters) is not None for root in roots):
        return None
    try:
        return turns_of(group_of(roots), called, optimizers)
    except NotAlike as why:
        kinds = ", ".join(type(each).__name__ for each in called)
        raise CaptureError(
            f"This script trains {len(called)} models with {len(optimizers)} optimizers: {kinds}. {why} Else capture each in a script "
            "that trains it alone, or in one that gives the parameters of all to one optimizer."
        ) from why


def trained_model(modules: Any, steps: Any) -> Any:
    """`modules`, `steps`: observations of the steps so far. Raises CaptureError if several models are trained in an unknown
    way."""
    called = _called(modules)
    optimizers = steps.made()
    parameters = [p for optimizer in optimizers for group in optimizer.param_groups for p in group["params"] if p.requires_grad]
    if len(called) == 1 and smallest_above(called[0], (), parameters) is not None:
        return called[0]
    roots = roots_of(parameters)
    for root in roots:
        found = smallest_above(held(root), called, parameters)
        if found is not None:
            return found
    if len(called) == 1:
        return called[0]
    kinds = ", ".join(type(each).__name__ for each in called) or "none"
    if len(optimizers) == 1 and len(roots) > 1 and all(_is_in(each, roots) for each in called):
        return group_of(roots)
    raise CaptureError(
        f"One model is captured, or several that one optimizer steps together. This script trains {len(called)} with "
        f"{len(optimizers)} optimizer{'s' * (len(optimizers) != 1)}: {kinds}. Capture each in a script that trains it alone, or in one "
        "that gives the parameters of all to one optimizer."
    )


def _called(modules: Any) -> list[Any]:
    """The models that were called. This excludes a model that the script tried on the CPU to learn the size of its outputs,
    and a loss that runs the head of a model and has only that model's parameters."""
    called = [held(root) for root in (reference() for reference in modules.roots) if root is not None]
    called = [each for each in called if any(p.device.type != "cpu" for p in each.parameters())] or called
    owned = [{id(p) for p in each.parameters()} for each in called]
    return [each for each, own in zip(called, owned) if not any(own < other for other in owned)]


def refuse_sparse_gradients(modules: Any) -> None:
    """Called at the end of a backward. Raises CaptureError if it produced gradients that are lists of rows."""
    for root in (reference() for reference in modules.roots):
        for name, parameter in root.named_parameters() if root is not None else ():
            if parameter.grad is None or parameter.grad.layout == parameter.layout:
                continue
            above = root.get_submodule(name.rpartition(".")[0])
            raise CaptureError(
                f'The gradient of "{name}" is sparse ({type(above).__name__} with sparse=True). FSDP2, FSDP1, ZeRO and DDP over NCCL reduce dense '
                "gradients only, so there is no plan for it on several GPUs. Capture the script with sparse=False: plans then shard the "
                "table and its gradient. fsdp-plan rehearse -- COMMAND shows what the script needs as it is."
            )


def check_alike(forwards: list[set[str]]) -> None:
    """`forwards`: the parts that each step called. Raises CaptureError if they differ from one step to the next."""
    for one in forwards:
        for other in forwards:
            if one - other:
                raise CaptureError(
                    f"The script calls {sorted(one - other)[0]} for one backward and not for another. A plan has a forward of the "
                    "whole model for each backward."
                )


def check_sizes(sizes: dict[tuple[str, bool], list[tuple[int, ...]]]) -> None:
    """`sizes`: shapes of the model's inputs, by recording. Raises CaptureError if they differ from one to the next."""
    handed = list(sizes.values())
    for other in handed[1:]:
        for one, another in zip(handed[0], other):
            if len(one) == len(another) and one != another:
                raise CaptureError(
                    f"The script hands its model batches of other sizes from step to step: {_text(one)}, then {_text(another)}. A capture runs several "
                    "steps, each in another way, and all have to be of one size. Pad its batches to one length, and drop a smaller last one."
                )


def _text(shape: tuple[int, ...]) -> str:
    return " x ".join(str(size) for size in shape)


def _is_in(module: Any, roots: list[Any]) -> bool:
    return any(module is each for root in roots for each in root.modules())
