"""Trains a plan of fsdp-plan as a job of Ray Train: `python -m fsdp_plan_ray PLAN`."""
