"""Detects that another version of FSDP was applied than the script requested.

HF Trainer's `fsdp_config` and accelerate have a key for it, whose name has changed; a release that does not know the key
ignores it silently.
"""

from __future__ import annotations

import os
import re
from types import ModuleType
from typing import Any

from fsdp_rehearsal.guard import guarded, warn

_KEYS = ("version", "fsdp_version")


_TESTED = ((2, 8), (2, 15))  # docs/rehearsal_stub_gpu.md has the table


def check_torch(version: str) -> None:
    """Warns about an untested release of torch."""
    match = re.match(r"(\d+)\.(\d+)", version)
    if match and not _TESTED[0] <= (int(match[1]), int(match[2])) <= _TESTED[1]:
        warn(
            "untested_torch",
            f"torch {version} is untested: the stub GPU and the probes were tried with 2.8 to 2.15. The figures may be incomplete.",
        )


class Versions:
    def __init__(self) -> None:
        self._asked: list[tuple[int, str]] = []

    @guarded("transformers' TrainingArguments")
    def install_transformers(self, module: ModuleType) -> None:
        """After transformers.training_args."""
        kind = module.TrainingArguments
        real = kind.__post_init__

        def __post_init__(arguments, *args, **kwargs):
            self._note(getattr(arguments, "fsdp_config", None), "fsdp_config of TrainingArguments")
            return real(arguments, *args, **kwargs)

        kind.__post_init__ = __post_init__

    @guarded("transformers' TrainingArguments")
    def _note(self, config: Any, where: str) -> None:
        if isinstance(config, str) and os.path.isfile(config):
            import json

            with open(config, encoding="utf-8") as text:
                config = json.load(text)
        for key in _KEYS:
            if isinstance(config, dict) and str(config.get(key)) in ("1", "2"):
                self._asked.append((int(config[key]), f'"{key}" in the {where}'))

    @guarded("The asked version of FSDP")
    def check(self, wrappers: list[dict[str, Any]]) -> None:
        """Warns if another version of FSDP was applied than requested."""
        applied = {int(w["name"][4]) for w in wrappers if w["name"] in ("FSDP1", "FSDP2")}
        asked = list(self._asked)
        if os.environ.get("FSDP_VERSION") in ("1", "2"):
            asked.append((int(os.environ["FSDP_VERSION"]), "FSDP_VERSION in the environment (accelerate's fsdp_version)"))
        for version, where in asked:
            if applied and version not in applied:
                warn("ignored_version", f"{where} asks for FSDP{version}, but FSDP{min(applied)} was applied.")
