"""The inside of a measured Python process: a rank of a real job, on real GPUs with the real NCCL, or on CPUs with
Gloo. `fsdp-plan run` puts a plan into it, `fsdp-plan measure` leaves it as it is.

It takes the parts of fsdp_rehearsal that say what a step is and what its peaks are, without the stub, and changes nothing about
the run: no history of the allocator, no hooks of modules after the first forward. The collectives of one step, and on GPUs how
long they took, come from PyTorch's profiler, which runs during that step alone.
"""
