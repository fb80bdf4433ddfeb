"""The proof of a plan on the GPUs of a node: trials, judged row by row, on one page. Started by `fsdp-plan execute
--proof`."""
