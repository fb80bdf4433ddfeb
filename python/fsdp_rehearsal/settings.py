"""The environment variables through which the command configures this process."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Optional

_PREFIX = "FSDP_REHEARSAL_"


class SettingsError(ValueError):
    """Every invalid variable, one sentence each."""


@dataclass(frozen=True)
class Settings:
    """The settings of the command for this process."""

    stub: str  # the library that stands in for the GPU
    record: str = ""  # file for the record; "" writes none
    steps: int = 3  # stop after this many optimizer steps; 0 to run to the end
    rank: int = 0
    world_size: Optional[int] = None  # None for that of the launcher or the script
    local_world_size: Optional[int] = None
    snapshot: str = ""  # file for PyTorch's memory viewer
    trace: str = ""  # file for every allocator event
    capture: str = ""  # file for the model of a captured step
    command: str = "[]"  # the user's command line, as JSON; for a capture
    batch_option: str = ""  # the script's option for its batch: "--batch-size {}"; for a capture
    progress: str = ""  # file for one short text: the current work of the process
    pause: Optional[float] = None  # seconds of sleep after a step of DDP; None to wait for NCCL's watchdog instead
    follow_values: bool = True  # answer reads of device contents that the host can know
    routing: str = "balanced"  # the experts that a router picks; none: always the first expert
    apply: str = ""  # file with a plan to apply to the program; "" for none
    apply_name: str = ""  # the user's name for that file
    eager: bool = False  # disable torch.compile in the script


def read(environ: Mapping[str, str] = os.environ) -> Settings:
    """The settings in `environ`. Raises SettingsError."""
    wrong: list[str] = []

    def number(name: str, kind, default, least):
        text = environ.get(_PREFIX + name, "")
        if text == "":
            return default
        try:
            value = kind(text)
        except ValueError:
            value = None
        if value is None or value < least:
            wrong.append(f"{_PREFIX}{name} is {text!r}, but it must be a number of at least {least}.")
            return default
        return value

    stub = environ.get(_PREFIX + "STUB", "")
    if not os.path.isfile(stub):
        wrong.append(f"{_PREFIX}STUB is {stub!r}, which is not a file.")
    routing = environ.get(_PREFIX + "ROUTING", "") or "balanced"
    if routing not in ("none", "balanced"):
        wrong.append(f"{_PREFIX}ROUTING is {routing!r}, but it must be none or balanced.")
    values = environ.get(_PREFIX + "VALUES", "") or "follow"
    if values not in ("follow", "zeros"):
        wrong.append(f"{_PREFIX}VALUES is {values!r}, but it must be follow or zeros.")
    settings = Settings(
        stub=os.path.abspath(stub),
        record=environ.get(_PREFIX + "RECORD", ""),
        steps=number("STEPS", int, 3, 0),
        rank=number("RANK", int, 0, 0),
        world_size=number("WORLD_SIZE", int, None, 1),
        local_world_size=number("LOCAL_WORLD_SIZE", int, None, 1),
        snapshot=environ.get(_PREFIX + "SNAPSHOT", ""),
        trace=environ.get(_PREFIX + "TRACE", ""),
        capture=environ.get(_PREFIX + "CAPTURE", ""),
        command=environ.get(_PREFIX + "COMMAND", "") or "[]",
        batch_option=environ.get(_PREFIX + "BATCH_OPTION", ""),
        progress=environ.get(_PREFIX + "PROGRESS", ""),
        pause=number("PAUSE", float, None, 0),
        follow_values=values == "follow",
        routing=routing,
        apply=environ.get(_PREFIX + "APPLY", ""),
        apply_name=environ.get(_PREFIX + "APPLY_NAME", ""),
        eager=environ.get(_PREFIX + "EAGER", "") == "1",
    )
    if settings.world_size is not None and settings.rank >= settings.world_size:
        wrong.append(f"{_PREFIX}RANK is {settings.rank}, but there are {settings.world_size} ranks, the first of them 0.")
    if wrong:
        raise SettingsError(" ".join(wrong))
    return settings
