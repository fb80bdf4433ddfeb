"""The metrics of a run, written with --metrics, for other programs.

    python -m fsdp_metrics to-tensorboard METRICS LOGDIR
"""
