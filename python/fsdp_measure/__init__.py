"""The part of `measure` and `run` inside a Python process: a rank of a real job, on real GPUs with the real NCCL, or on CPUs
with Gloo. `fsdp-plan run` applies a plan in it, `fsdp-plan measure` does not change it.

It uses the parts of fsdp_rehearsal that recognize a step and its peaks, without the stub, and changes nothing about the run:
no history of the allocator, no hooks of modules after the first forward. The collectives of one step, and on GPUs their
durations, come from PyTorch's profiler, which runs during that step alone.
"""
