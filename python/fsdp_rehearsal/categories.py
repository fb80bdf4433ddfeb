"""The bytes live at the peak by purpose: parameters, gradients, optimizer states, activations, communication.

The storages of parameters, gradients and states are looked up whenever they may be new: after a backward, and after a step.
The allocator may reuse an address; the phase in which a block was made distinguishes the two. A block without an owner is
classified by the code that allocated it. The rest is classified by its phase: a block from the forward or backward of the
peak's step, or from the evaluation after it, is an activation (or a temporary, or the batch); an older one is something else,
such as a workspace. The allocating code is the innermost known code: an allocation in a module's forward does not belong to
the wrapper that called it.

Not modeled: memory of wrappers that hide their parameters from `Module.parameters`.
"""

from __future__ import annotations

from typing import Any

from fsdp_rehearsal.guard import guarded
from fsdp_rehearsal.ledger import Block, Ledger
from fsdp_rehearsal.modules import Modules
from fsdp_rehearsal.steps import Steps

NAMES = ("parameters", "gradients", "optimizer states", "activations", "communication", "other")
PARAMETERS, GRADIENTS, STATES, ACTIVATIONS, COMMUNICATION, OTHER = NAMES

_ACTIVATING = ("forward", "backward", "evaluation")

# Functions of PyTorch, by file, that allocate memory of one kind.
_GATHERED = {
    "alloc_all_gather_outputs",
    "init_all_gather_outputs",
    "init_unsharded_param",
    "_alloc_padded_unsharded_flat_param",
}
_STATES = {"_init_group"}
_OF_A_FORWARD = ("/nn/modules/module.py",)  # a module runs inside it, whoever called it
_OF_A_BATCH = {"_to_kwargs", "_recursive_to", "scatter_kwargs"}  # wrappers move the model's inputs
_COMMUNICATING = ("_fsdp_collectives.py", "/distributed_c10d.py", "/_functional_collectives.py", "/nn/parallel/distributed.py")


class Owners:
    def __init__(self, modules: Modules, steps: Steps) -> None:
        self._modules, self._steps = modules, steps
        self._addresses: dict[str, set[int]] = {PARAMETERS: set(), GRADIENTS: set(), STATES: set()}

    @guarded("The owners of memory")
    def after_backward(self) -> None:
        """Looks up gradients, and parameters, which wrappers may have replaced."""
        parameters, gradients = self._addresses[PARAMETERS], self._addresses[GRADIENTS]
        for root in (reference() for reference in self._modules.roots):
            for parameter in root.parameters() if root is not None else ():
                _add(parameters, parameter)
                _add(gradients, parameter.grad)

    @guarded("The owners of memory")
    def after_step(self) -> None:
        """Looks up the states of optimizers."""
        states = self._addresses[STATES]
        for optimizer in (reference() for reference in self._steps.optimizers):
            for values in getattr(optimizer, "state", {}).values():
                for value in values.values() if isinstance(values, dict) else ():
                    _add(states, value)

    @guarded("The categories at the peak", {})
    def at_peak(self, ledger: Ledger, step_began: int) -> dict[str, int]:
        """Requested bytes by category; their sum is the peak. `step_began`: allocator events before the peak's step."""
        totals = dict.fromkeys(NAMES, 0)
        for address, block in ledger.peak.blocks.items():
            totals[self._category(ledger, address, block, step_began)] += block.size
        return {name: size for name, size in totals.items() if size}

    def _category(self, ledger: Ledger, address: int, block: Block, step_began: int) -> str:
        phase = block.label.phase
        owned = self._addresses
        if address in owned[STATES] and phase in ("optimizer", "initialization"):
            return STATES
        if address in owned[PARAMETERS] and phase == "initialization":
            return PARAMETERS
        if address in owned[GRADIENTS] and phase in ("backward", "initialization"):
            return GRADIENTS
        for frame in ledger.places[block.place]:
            if frame["function"] in _GATHERED:
                return PARAMETERS
            if frame["function"] in _STATES and "/optim/" in frame["file"]:
                return STATES
            if frame["file"].endswith(_OF_A_FORWARD) or frame["function"] in _OF_A_BATCH:
                break
            if frame["file"].endswith(_COMMUNICATING):
                return COMMUNICATION
        if phase not in _ACTIVATING or block.position < step_began:
            return OTHER
        return ACTIVATIONS


def _add(addresses: set[int], tensor: Any) -> None:
    tensor = getattr(tensor, "_local_tensor", tensor)  # of a DTensor
    if getattr(tensor, "is_sparse", False):
        for part in (tensor._indices(), tensor._values()):
            _add(addresses, part)
    elif getattr(tensor, "is_sparse_csr", False):
        for part in (tensor.crow_indices(), tensor.col_indices(), tensor.values()):
            _add(addresses, part)
    elif getattr(tensor, "is_cuda", False):
        address = tensor.untyped_storage().data_ptr()
        if address:
            addresses.add(address)
