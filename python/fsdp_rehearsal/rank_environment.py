"""The environment variables of a rank, as torchrun sets them. bootstrap.py sets them for a command, launchers.py for a launcher."""

from __future__ import annotations

import os

from fsdp_rehearsal.settings import Settings


def set_rank(settings: Settings) -> None:
    """Sets the variables that torchrun would have set, if the command gave the number of ranks and they are not set yet."""
    if settings.world_size is None or "RANK" in os.environ:
        return
    environment_of_rank(settings.rank, settings.world_size, settings.local_world_size or settings.world_size)


def environment_of_rank(rank: int, world_size: int, local_world_size: int) -> None:
    """Sets torchrun's variables for rank `rank`, and the number of devices of the stub."""
    local = rank % local_world_size
    node = rank // local_world_size
    os.environ.update(
        RANK=str(rank),
        WORLD_SIZE=str(world_size),
        LOCAL_RANK=str(local),
        LOCAL_WORLD_SIZE=str(local_world_size),
        GROUP_RANK=str(node),
        GROUP_WORLD_SIZE=str(max(1, world_size // local_world_size)),
        NODE_RANK=str(node),
        ROLE_RANK=str(rank),
        ROLE_WORLD_SIZE=str(world_size),
        ROLE_NAME="default",
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=os.environ.get("MASTER_PORT", "29500"),
        TORCHELASTIC_RUN_ID="rehearsal",
        TORCHELASTIC_RESTART_COUNT="0",
        TORCHELASTIC_MAX_RESTARTS="0",
        STUB_GPU_COUNT=str(local_world_size),
    )
