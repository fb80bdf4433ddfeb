"""Converts between checkpoints of fsdp-exec and those of torch.distributed.checkpoint (DCP), or loads them into a model.

    python -m fsdp_checkpoint to-dcp STEP OUT           a checkpoint of fsdp-exec as DCP
    python -m fsdp_checkpoint from-dcp DCP OUT          the other way
    python -m fsdp_checkpoint to-safetensors STEP OUT   its parameters, whole, as one file
    python -m fsdp_checkpoint to-hf STEP OUT --config C a folder that transformers loads

A model that is sharded by FSDP2 loads a checkpoint of fsdp-exec directly, each rank its own rows:

    state = {"model": model_state, "optim": optimizer_state}      # of get_state_dict(model, optimizer)
    dcp.load(state, storage_reader=CheckpointReader("checkpoints/step-00000010"),
             planner=DefaultLoadPlanner(allow_partial_load=True))

Names in DCP are model.NAME and optim.state.NAME.exp_avg, as get_state_dict makes them from such a dict.
"""

from fsdp_checkpoint.reader import CheckpointReader

__all__ = ["CheckpointReader"]
