"""What a run has written with --metrics, for other programs.

    python -m fsdp_metrics to-tensorboard METRICS LOGDIR
"""
