"""Prints the configuration that torchtitan 0.3 makes of its arguments, as JSON: what differs from the defaults of its classes.

    python -m fsdp_torchtitan.read_config --module llama3 --config llama3_8b [--training.seq_len 4096 ...]

torchtitan's own ConfigManager imports the registry and parses the arguments. What stands for an object: its fields; "class", where
several classes fit; of "model_spec" its name, its flavor, the kernel of attention, and what torchtitan's own has not; of groups of
parameters the names of their optimizers. Exit 3: torchtitan is not installed, or is another release.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.metadata
import json
import sys
from typing import Any

RELEASE = "0.3."
# Objects of which several classes fit, each with the class that counts if none is named, and names that differ from those of classes.
CLASSES = {"activation_checkpoint": "selective", "loss": "ChunkedLossWrapper", "loss_fn": "CrossEntropyLoss",
           "dataloader": "HuggingFaceTextDataLoader", "optimizer": "OptimizersContainer"}  # fmt: skip
NAMES = {"SelectiveAC": "selective", "FullAC": "full", "MemoryBudgetAC": "memory-budget"}
BACKENDS = ("flex", "varlen", "flex_flash")


def name_of(value: Any) -> str:
    """"FullAC" of FullAC.Config."""
    name = type(value).__qualname__.removesuffix(".Config").rpartition(".")[2]
    return NAMES.get(name, name)


def default_of(field: dataclasses.Field[Any]) -> Any:
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return field.default


def model_of(spec: Any) -> dict[str, Any]:
    """Its names, the kernel of attention, and the classes that torchtitan's own model has not, if it is another one."""
    found = {"name": spec.name, "flavor": spec.flavor}
    registry = importlib.import_module(f"torchtitan.models.{spec.name}")
    mine, own = described(spec.model), set()
    for backend in BACKENDS:
        with contextlib.suppress(Exception):  # It takes no such argument, or this machine has no such kernel.
            plain = described(registry.model_registry(spec.flavor, attn_backend=backend).model)
            if plain == mine:
                return found | {"attention": backend}
            own |= classes_in(plain)
    return found | {"changed": sorted(name for name in classes_in(mine) - own if not name.endswith("Config")) or ["other sizes"]}


def described(value: Any) -> Any:
    """All of a model's configuration but its functions, which have no equality. A dataclass is a pair of class and fields."""
    if dataclasses.is_dataclass(value):
        return (name_of(value), {f.name: described(getattr(value, f.name)) for f in dataclasses.fields(value)})
    if isinstance(value, dict):
        return {str(key): described(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [described(each) for each in value]
    return None if callable(value) else str(value)


def classes_in(described_value: Any) -> set[str]:
    if isinstance(described_value, tuple):
        return {described_value[0]} | classes_in(described_value[1])
    inner = described_value.values() if isinstance(described_value, dict) else described_value if isinstance(described_value, list) else []
    return set().union(*map(classes_in, inner))


def changed(value: Any, name: str) -> dict[str, Any]:
    """The fields of an object that differ from its class's defaults."""
    found: dict[str, Any] = {}
    if name in CLASSES and name_of(value) != CLASSES[name]:
        found["class"] = name_of(value)
    for field in dataclasses.fields(value):
        mine = getattr(value, field.name)
        if field.name == "model_spec":
            found["model_spec"] = model_of(mine)
        elif field.name == "param_groups":
            found["param_groups"] = [group.optimizer_name for group in mine]
        elif field.name in CLASSES and mine is None:
            found[field.name] = {"class": "none"}
        elif dataclasses.is_dataclass(mine):
            if inner := changed(mine, field.name):
                found[field.name] = inner
        elif mine != default_of(field):
            found[field.name] = mine if isinstance(mine, (bool, int, float, str, list)) else str(mine)
    return found


def read(arguments: list[str]) -> dict[str, Any]:
    from torchtitan.config import ConfigManager

    config = ConfigManager().parse_args(arguments)
    kind = name_of(config)
    return ({} if kind == "Trainer" else {"class": type(config).__qualname__}) | changed(config, "")


def main() -> int:
    try:
        release = importlib.metadata.version("torchtitan")
    except importlib.metadata.PackageNotFoundError:
        release = "no"
    if not release.startswith(RELEASE):
        print(f"This Python has {release} torchtitan.", file=sys.stderr)
        return 3
    with contextlib.redirect_stdout(sys.stderr):
        found = read(sys.argv[1:])
    print(json.dumps(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
