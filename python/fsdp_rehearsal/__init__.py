"""The inside of a Python process that is rehearsed: one rank of a job whose other ranks and whose GPUs are not there.

bootstrap.py starts it all; docs/rehearsal_inside.md has the map of the modules, and says what each replaces and why.
Nothing here imports torch: what needs torch waits until the program itself imports it.
"""
