"""Trains a plan of fsdp-plan with the real PyTorch FSDP2.

A job is an expanded model (docs/file_formats.md), the object of a plan file and a number of steps. The package builds the
model as a tree of torch.nn.Module with the names, classes and calls of the spec, wraps it with fully_shard according to the
plan, and trains it on tensors of the right shapes. The computed values have no meaning; memory, collectives and their order
are those of a hand-written model.

    python -m fsdp_plan_runner job.json                     on GPU LOCAL_RANK, in a job as torchrun starts it
    python -m fsdp_plan_runner job.json --device cpu        on the CPU, with a process group that moves nothing

Only `__main__`, `expanded_model`, `plan`, `forward_program` and `limits` are imported before torch, because a plan may set
options of torch's allocator, which reads them once.
"""
