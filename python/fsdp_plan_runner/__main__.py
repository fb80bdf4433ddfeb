"""python -m fsdp_plan_runner JOB.json [--device cuda|cpu]

JOB.json is {"format_version": "1.0", "model": an expanded model, "plan": the object of a plan file, "dimensions": {...},
"steps": 3}. Exit: 0 trained, 2 the job cannot be run (every reason is printed), else Python's exit status for an exception.
"""

from __future__ import annotations

import argparse
import os
import sys

from fsdp_plan_runner.job_file import Refused, read_job, read_others, read_parts, set_allocator
from fsdp_plan_runner.limits import problems_of
from fsdp_plan_runner.plan import minor_of

def run(arguments: argparse.Namespace) -> None:
    job = read_job(arguments.job)
    model, plan = read_parts(arguments.job, job)
    world_size = int(os.environ.get("WORLD_SIZE", "1"))
    problems = problems_of(model, plan, world_size)
    if (plan.zero_stage or plan.is_simple_fsdp) and arguments.device == "cpu":
        problems.append("--device cpu: DeepSpeed and SimpleFSDP are run on GPUs here, where values do not count. Write "
                        "python -m fsdp_plan_runner.execute for a real run.")
    if arguments.results and plan.runtime_name != "pytorch-fsdp2":
        problems.append("--results: only FSDP2 is compared with fsdp-exec. Write python -m fsdp_plan_runner.execute.")
    try:
        set_allocator(plan.allocator_settings, plan.runtime_version)
    except Refused as refused:
        problems += refused.args
    if problems:
        raise Refused(*problems)

    import torch

    from fsdp_plan_runner.kernels import KERNELS
    from fsdp_plan_runner.stored import NotReadable
    from fsdp_plan_runner.training import Job, Trial, train
    from fsdp_plan_runner.trial import run_trial

    problems = problems_of(model, plan, world_size, list(KERNELS))
    installed = torch.__version__.partition("+")[0]
    if minor_of(plan.runtime_version) != minor_of(installed):
        problems.append(f"plan/runtime/version: The plan is for PyTorch {plan.runtime_version}, and {installed} is installed, "
                        f"which may do something else. Install torch=={plan.runtime_version}.")
    if problems:
        raise Refused(*problems)
    device = torch.device("cpu")
    if arguments.device == "cuda":
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(device)
    trial = None
    if arguments.results:
        trial = Trial(arguments.seed, arguments.learning_rate, arguments.accumulation, arguments.results,
                      arguments.weights, arguments.tokens, arguments.load, arguments.steps_before, arguments.save)
    try:
        asked = Job(model, plan, job["steps"], device, int(os.environ.get("RANK", "0")), world_size,
                    "MASTER_ADDR" in os.environ, trial, phases=job.get("phases", []), phases_file=job.get("phases_file", ""),
                    others=read_others(arguments.job, job))
        root = run_trial(asked) if trial else train(asked)
    except NotReadable as error:
        raise Refused(str(error)) from None
    # A parameter sharded by ZeRO-3 has its own size.
    sizes = [(getattr(parameter, "ds_numel", parameter.numel()), parameter.requires_grad) for parameter in root.parameters()]
    total = sum(size for size, _ in sizes)
    trained = sum(size for size, is_trained in sizes if is_trained)
    print(f"{model.name}: {total} parameters, {trained} trained, {len(plan.units)} units, {job['steps']} steps.",
          file=sys.stderr)
    if trial:
        # Gloo's threads may still be working when the interpreter exits, which occasionally ends in an abort.
        sys.stderr.flush()
        os._exit(0)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m fsdp_plan_runner", description="Trains a plan with its framework.")
    parser.add_argument("job", help="file of the job")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda",
                        help="cpu: real tensors on the CPU, collectives that move nothing")
    parser.add_argument("--results", metavar="NAME",
                        help="with --device cpu: real collectives over Gloo, weights and data from a seed; writes "
                             "NAME.RANK.json and NAME.safetensors")
    parser.add_argument("--seed", type=int, default=0, help="of weights and data (0)")
    parser.add_argument("--weights", nargs="+", default=[], metavar="FILE",
                        help="with --results: parameters from safetensors files, a folder of them or an index")
    parser.add_argument("--tokens", default="", metavar="FILE", help="with --results: token ids, raw int32")
    parser.add_argument("--load", default="", metavar="FOLDER",
                        help="with --results: go on from a checkpoint of fsdp-exec or torch.distributed.checkpoint")
    parser.add_argument("--steps-before", type=int, default=0, help="with --load: steps that it has")
    parser.add_argument("--save", default="", metavar="FOLDER",
                        help="with --results: write a checkpoint of torch.distributed.checkpoint at the end")
    parser.add_argument("--accumulation", choices=("mean", "sum"), default="mean",
                        help="with --results: how to combine the gradients of micro-batches (mean)")
    parser.add_argument("--learning-rate", type=float, default=1e-4, help="with --results (1e-4)")
    try:
        run(parser.parse_args())
    except Refused as refused:
        for reason in refused.args:
            print(f"error: {reason}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
