"""One rank of a real run of a plan, by its own framework: PyTorch's FSDP2, FSDP1 or DDP, DeepSpeed's ZeRO, torchtitan's
SimpleFSDP.

    python -m fsdp_plan_runner.execute PLAN [OPTIONS]

PLAN is a plan file, whose model fsdp-plan expands (FSDP_PLAN names the program; defaults to a search), or a job file, which
`fsdp-plan execute PLAN --run-dir FOLDER` leaves as FOLDER/job.json. One process is one rank; torchrun, mpirun, srun and
fsdp_plan_ray start several (launch.py). On CPUs they communicate over Gloo, on GPUs over NCCL.

Exit: 0 trained, 2 if the run is impossible: it prints every reason and trains nothing; 3 failed.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import importlib.util
import json
import math
import os
import pathlib
import subprocess
import sys
import traceback
from typing import Any, NoReturn

from fsdp_plan_runner.expanded_model import ExpandedModel
from fsdp_plan_runner.job_file import JOB_FORMAT_VERSION, Refused, check_job, load, read_parts, set_allocator
from fsdp_plan_runner.launch import NotStarted, Place, join, read_place
from fsdp_plan_runner.limits import cpu_problems, problems_of
from fsdp_plan_runner.plan import Plan, minor_of
from fsdp_plan_runner.programs import find_program

EXIT_INPUT, EXIT_RUN = 2, 3
_DEFAULT_STEPS = 4


def find_planner() -> str:
    """The path of fsdp-plan, which FSDP_PLAN may name."""
    if found := find_program("fsdp-plan", os.environ.get("FSDP_PLAN")):
        return found
    raise Refused("FSDP_PLAN: There is no fsdp-plan on the path, which expands the model of a plan. Name it, or give a job file: "
                  "fsdp-plan execute PLAN --run-dir FOLDER leaves FOLDER/job.json.")


def job_of_plan(path: str, plan: dict[str, Any], steps: int) -> dict[str, Any]:
    """The job that trains a plan file."""
    try:
        model = plan["model"]
        beside = pathlib.Path(path).resolve().parent / model["file"]
        words = [find_planner(), "models", str(beside) if beside.is_file() else model["file"], "--expanded", "--json",
                 "--flavor", plan.get("runtime", {}).get("flavor", "transformers")]
        words += ["--recipe", model["recipe"]] if model.get("recipe") else []
        for name, value in model.get("dimensions", {}).items():
            words += ["--set", f"{name}={value}"]
        words += ["--freeze", *model["frozen"]] if model.get("frozen") else []
    except (KeyError, TypeError) as error:
        raise Refused(f"{path}: This is no plan file: {error}.") from None
    done = subprocess.run(words, capture_output=True, text=True)
    if done.returncode != 0:
        raise Refused(f"{path}: {done.stderr.strip()}")
    return {"format_version": JOB_FORMAT_VERSION, "model": json.loads(done.stdout), "plan": plan, "steps": steps}


def read(arguments: argparse.Namespace) -> dict[str, Any]:
    contents = load(arguments.plan)
    if isinstance(contents, dict) and "mesh" in contents:
        contents = job_of_plan(arguments.plan, contents, _DEFAULT_STEPS)
    else:
        check_job(arguments.plan, contents)
    return {**contents, "steps": arguments.steps or contents["steps"]}


def _versions(plan: Plan) -> list[str]:
    installed = importlib.metadata.version("torch").partition("+")[0]
    if minor_of(plan.runtime_version) == minor_of(installed):
        return []
    return [f"plan/runtime/version: The plan is for PyTorch {plan.runtime_version}, and {installed} is installed, which may do "
            f"something else. Write: {sys.executable} -m pip install torch=={plan.runtime_version}"]


def _others(plan: dict[str, Any]) -> list[str]:
    if not plan["model"].get("also"):
        return []
    return ["plan/model/also: A real run trains one model. Leave it out, or write: fsdp-plan rehearse, which runs all on stub GPUs."]


def _options(arguments: argparse.Namespace, plan: Plan) -> list[str]:
    found = []
    if not (math.isfinite(arguments.lr) and arguments.lr >= 0):
        found.append(f"--lr: {arguments.lr} is no learning rate. Write a number such as 1e-4.")
    if arguments.accumulation == "sum" and plan.zero_stage:
        found.append("--accumulation: DeepSpeed divides the loss by the number of micro-batches. Write mean.")
    for flag, path in (("--report", arguments.report), ("--save-parameters", arguments.save_parameters)):
        if path and not pathlib.Path(path).absolute().parent.is_dir():
            found.append(f"{flag}: The folder of {path} is not there. Make it, or name another.")
    return found


def check(arguments: argparse.Namespace, model: ExpandedModel, plan: Plan, world_size: int) -> list[str]:
    """Every reason against the run that is known without torch."""
    if importlib.util.find_spec("torch") is None:
        return [f"{sys.executable} has no torch. Write: {sys.executable} -m pip install torch=={plan.runtime_version}"]
    found = [*problems_of(model, plan, world_size), *_versions(plan), *_options(arguments, plan)]
    return [*found, *cpu_problems(plan)] if arguments.device == "cpu" else found


def train(arguments: argparse.Namespace, contents: dict[str, Any], model: ExpandedModel, plan: Plan, place: Place) -> None:
    """REQUIRES: `check` found no reason against it."""
    os.environ.setdefault("KINETO_LOG_LEVEL", "5")  # The profiler would report that there is no GPU, or no driver.
    import torch

    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    if plan.zero_stage and arguments.device == "cpu":
        from fsdp_plan_runner.zero import run_on_cpu

        run_on_cpu()
    from fsdp_plan_runner.kernels import KERNELS
    from fsdp_plan_runner.measured_run import MeasuredRun, say_step, write_report
    from fsdp_plan_runner.training import Job, Trial
    from fsdp_plan_runner.trial import save_parameters

    if problems := problems_of(model, plan, place.world_size, list(KERNELS)):
        raise Refused(*problems)
    device = torch.device("cpu")
    if arguments.device == "cuda":
        if not torch.cuda.is_available():
            raise Refused("--device cuda: PyTorch finds no GPU here. Write: --device cpu")
        # A launcher may hide the other GPUs from a rank: then the visible one is its own.
        device = torch.device("cuda", place.local_rank if torch.cuda.device_count() > 1 else 0)
        torch.cuda.set_device(device)
    join(place, backend_of(arguments.device, plan), arguments.timeout)
    trial = Trial(arguments.seed, arguments.lr, arguments.accumulation, "", arguments.weights)
    job = Job(model, plan, contents["steps"], device, place.rank, place.world_size, True, trial,
              contents["model"].get("tokens_per_step", 0))
    run = MeasuredRun(job)
    run.run(lambda step: say_step(job, step))
    if arguments.save_parameters:
        save_parameters(run.root, arguments.save_parameters, job.rank == 0)
    if arguments.report:
        write_report(arguments.report.replace("{rank}", str(job.rank)), run.report(contents["plan"]))
    torch.distributed.barrier(device_ids=[device.index] if device.type == "cuda" else None)


def backend_of(device: str, plan: Plan) -> str:
    if device == "cpu":
        return "gloo"
    # Norms of gradients on the host are summed there.
    on_host = plan.cpu_offload and not plan.zero_stage and plan.optimizer.clip_grad_norm is not None
    return "cpu:gloo,cuda:nccl" if on_host else "nccl"


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise Refused(message)


def read_arguments() -> argparse.Namespace:
    parser = _Parser(prog="python -m fsdp_plan_runner.execute", description="One rank of a real run of a plan.")
    parser.add_argument("plan", help="a plan file, or the file of a job")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu", help="over Gloo, or over NCCL (cpu)")
    parser.add_argument("--steps", type=int, default=0, help=f"steps to train (those of the job, or {_DEFAULT_STEPS})")
    parser.add_argument("--seed", type=int, default=0, help="of weights and data (0)")
    parser.add_argument("--lr", type=float, default=1e-4, help="learning rate (1e-4)")
    parser.add_argument("--accumulation", choices=("mean", "sum"), default="mean", help="how to combine gradients of micro-batches (mean)")
    parser.add_argument("--weights", nargs="+", default=[], metavar="FILE", help="parameters from safetensors files")
    parser.add_argument("--save-parameters", metavar="FILE", help="all parameters at the end, as safetensors")
    parser.add_argument("--report", metavar="FILE", help="this rank's measurements; {rank} is its number")
    parser.add_argument("--timeout", type=float, default=300, metavar="SECONDS", help="that a rank waits for another (300)")
    parser.add_argument("--threads", type=int, default=0, help="threads to compute with (PyTorch's own)")
    parser.add_argument("--check", type=int, default=0, metavar="RANKS", help="only name the obstacles to a run of so many ranks")
    return parser.parse_args()


def main() -> int:
    rank = 0
    try:
        arguments = read_arguments()
        place = Place(world_size=arguments.check) if arguments.check else read_place()
        rank = place.rank
        contents = read(arguments)
        model, plan = read_parts(arguments.plan, contents)
        if problems := [*_others(contents["plan"]), *check(arguments, model, plan, place.world_size)]:
            raise Refused(*problems)
        set_allocator(plan.allocator_settings, plan.runtime_version)
        if arguments.check:
            return 0
        from fsdp_plan_runner.stored import NotReadable

        try:
            train(arguments, contents, model, plan, place)
        except NotReadable as error:
            raise Refused(str(error)) from None
    except (Refused, NotStarted) as refused:
        for reason in refused.args:
            print(f"error: {reason}", file=sys.stderr)
        return EXIT_INPUT
    except Exception as error:  # noqa: BLE001 Any exception of a framework is the end of the run.
        traceback.print_exc()
        print(f"error: rank {rank}: {type(error).__name__}: {str(error).strip().partition(chr(10))[0]}", file=sys.stderr)
        sys.stderr.flush()
        os._exit(EXIT_RUN)  # Threads of a broken group would wait for the others.
    # Gloo's threads may still be working when the interpreter exits, which occasionally ends in an abort.
    sys.stderr.flush()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
