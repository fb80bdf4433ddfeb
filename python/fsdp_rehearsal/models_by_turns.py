"""Models that a script trains in turns, with separate optimizers, as a GAN does. A plan puts them below a holder module that
the script does not have. Each is its own root for FSDP2, as if its author had called fully_shard on it.
"""

from __future__ import annotations

import copy
from typing import Any, Optional

from fsdp_plan_runner.plan import Plan
from fsdp_rehearsal.modules import class_name, held
from fsdp_rehearsal.trained_model import group_of, outermost


def models_by_turns(plan: Plan, given: list[Any]) -> Optional[Any]:
    """The holder of the models that a plan names, if the first optimizer, with the parameters `given`, trains only some of
    them; None if the plan is of another kind, or one of them does not exist yet."""
    names = {unit.modules[0] for unit in plan.units if len(unit.modules) == 1 and unit.modules[0] and "." not in unit.modules[0]}
    inside = {name.partition(".")[0] for unit in plan.units for name in unit.modules if name}
    if len(names) < 2 or inside != names:
        return None
    by_name: dict[str, Any] = {}
    for root in outermost():
        model = held(root)
        if class_name(model) in names and any(p.requires_grad for p in model.parameters()):
            if class_name(model) in by_name:
                return None
            by_name[class_name(model)] = model
    if set(by_name) != names:
        return None
    trained = {id(p) for p in given}
    if all(id(p) in trained for model in by_name.values() for p in model.parameters() if p.requires_grad):
        return None  # one optimizer for all of them
    order = [unit.modules[0] for unit in plan.units if unit.modules[0] in names]
    return group_of([by_name[name] for name in order])


def without_root(plan: Plan) -> Plan:
    """The plan without the unit of the holder, which has no parameters."""
    inner = copy.copy(plan)
    inner.units = [unit for unit in plan.units if unit.modules != [""]]
    return inner
