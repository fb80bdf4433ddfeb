"""What the GPUs of a node say to a plan: trials, judged row by row, on one page. Started by `fsdp-plan execute --proof`."""
