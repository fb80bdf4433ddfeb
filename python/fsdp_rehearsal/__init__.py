"""The part of a rehearsal inside a Python process: one rank of a job, without the other ranks and without GPUs.

bootstrap.py starts everything; docs/rehearsal_inside.md has the map of the modules, their replacements and the reasons. No
module here imports torch itself: code that needs torch waits until the program imports it.
"""
