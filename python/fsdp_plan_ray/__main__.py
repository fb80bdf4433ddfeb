"""Ray Train as a launcher of fsdp-exec: one worker for each rank of the plan, each of which starts the program. If the plan is
for another framework than FSDP2, that framework trains it: the program is then this Python with fsdp_plan_runner.execute.

    python -m fsdp_plan_ray PLAN [--program FSDP_EXEC] [--gpus] [--cpus N] [--storage FOLDER] [--max-failures N] [-- OPTIONS]

Ray places the workers and restarts them if one fails; fsdp-exec trains. Rank 0's worker sends the others the meeting place,
and reports the last step to Ray. Arguments after "--" go to fsdp-exec unchanged; with --gpus it trains on the GPU that Ray
assigns (--device cuda). All nodes need PLAN and the program under the same path.

Exit: 0 trained, 2 wrong usage, 3 a rank failed.
"""

from __future__ import annotations

import argparse
import json
import os
import pathlib
import re
import socket
import subprocess
import sys
from typing import Any

from fsdp_plan_runner.programs import find_program

EXIT_INPUT, EXIT_RUN = 2, 3
STEP = re.compile(r"step (?P<step>\d+): loss (?P<loss>[\d.einfa+-]+), (?P<seconds>[\d.]+) s, (?P<tokens>[\d.]+) tokens/s")


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("", 0))
        return int(found.getsockname()[1])


def metrics_of(line: str) -> dict[str, float] | None:
    """The facts of a step in a line of fsdp-exec."""
    said = STEP.match(line)
    if said is None:
        return None
    return {"step": int(said["step"]), "loss": float(said["loss"]), "seconds": float(said["seconds"]),
            "tokens_per_second": float(said["tokens"])}


def run_rank(config: dict[str, Any]) -> None:
    """Runs in a worker: starts the rank, forwards its output, and fails if it fails."""
    import ray
    import ray.train
    from ray.train.collective import broadcast_from_rank_zero

    context = ray.train.get_context()
    rank = context.get_world_rank()
    own = {"address": ray.util.get_node_ip_address(), "port": free_port()} if rank == 0 else None
    meeting = broadcast_from_rank_zero(own)
    environment = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(context.get_world_size()),
                   "LOCAL_RANK": str(context.get_local_rank()), "MASTER_ADDR": meeting["address"],
                   "MASTER_PORT": str(meeting["port"])}
    words = [*config["program"], config["plan"], *config["options"]]
    process = subprocess.Popen(words, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.STDOUT, text=True)
    error, last = "", {}
    try:
        for line in process.stdout or []:
            print(line, end="", flush=True)
            error = line.strip() if line.startswith("error: ") else error
            last = metrics_of(line) or last
        code = process.wait()
    finally:
        process.kill()
    if code != 0:
        raise RuntimeError(error or f"error: rank {rank}: ended with exit code {code}")
    # All workers report together, or none. The loss is that of rank 0.
    ray.train.report(last)


def program_of(given: str | None, runtime: str) -> list[str]:
    """The program of a rank."""
    if runtime != "pytorch-fsdp2":
        return [sys.executable, "-B", "-m", "fsdp_plan_runner.execute"]
    if found := find_program("fsdp-exec", given):
        return [str(pathlib.Path(found).resolve())]
    raise SystemExit("error: There is no fsdp-exec on the path. Write: --program FILE")


def read_arguments(words: list[str]) -> tuple[argparse.Namespace, list[str]]:
    options = words[words.index("--") + 1:] if "--" in words else []
    parser = argparse.ArgumentParser(prog="fsdp_plan_ray", description="Trains a plan as a job of Ray Train.")
    parser.add_argument("plan", help="plan file, as fsdp-plan --output writes it")
    parser.add_argument("--program", help="fsdp-exec (default: next to fsdp-plan, or on PATH)")
    parser.add_argument("--gpus", action="store_true", help="each worker asks Ray for a GPU, and trains on it")
    parser.add_argument("--cpus", type=float, default=1, help="CPUs that each worker asks Ray for (1)")
    parser.add_argument("--storage", help="folder of Ray's own results")
    parser.add_argument("--max-failures", type=int, default=0, help="times that all workers are started again (0)")
    return parser.parse_args(words[:words.index("--")] if "--" in words else words), options


def options_of_rank(gpus: bool, given: list[str]) -> list[str]:
    """The arguments of fsdp-exec, so that it uses a GPU that Ray has assigned. Raises ValueError if `given` contradicts
    this."""
    devices = [word.removeprefix("--device=") for i, word in enumerate(given)
               if word.startswith("--device=") or (i > 0 and given[i - 1] == "--device")]
    if gpus and "cpu" in devices:
        raise ValueError("--gpus asks Ray for GPUs, and --device cpu would leave them idle. Leave out one of both.")
    if not gpus and "cuda" in devices:
        raise ValueError("--device cuda needs GPUs, which Ray hides from workers that ask for none. Write --gpus before --.")
    return [*given, *(["--device", "cuda"] if gpus and not devices else [])]


def main(words: list[str]) -> int:
    arguments, options = read_arguments(words)
    plan = pathlib.Path(arguments.plan).resolve()
    try:
        options = options_of_rank(arguments.gpus, options)
    except ValueError as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_INPUT
    try:
        contents = json.loads(plan.read_text(encoding="utf-8"))
        mesh = contents["mesh"]
        ranks = mesh.get("shard", 1) * mesh.get("replicate", 1)
        runtime = contents.get("runtime", {}).get("name", "pytorch-fsdp2")
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"error: {arguments.plan}: This is not a plan file: {error}.", file=sys.stderr)
        return EXIT_INPUT
    config = {"plan": str(plan), "program": program_of(arguments.program, runtime), "options": options}

    from ray.train import FailureConfig, RunConfig, ScalingConfig
    try:
        from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
    except ImportError:  # Ray before 2.43.
        from ray.train.data_parallel_trainer import DataParallelTrainer

    gpu = {"GPU": 1} if arguments.gpus else {}
    trainer = DataParallelTrainer(
        run_rank, train_loop_config=config,
        scaling_config=ScalingConfig(num_workers=ranks, use_gpu=arguments.gpus,
                                     resources_per_worker={"CPU": arguments.cpus, **gpu}),
        run_config=RunConfig(name="fsdp-plan", storage_path=arguments.storage,
                             failure_config=FailureConfig(max_failures=arguments.max_failures)))
    try:
        trainer.fit()
    except Exception as error:  # noqa: BLE001 Ray wraps a worker's exception in classes that differ between versions.
        causes = re.findall(r"error: rank \d+: .*", str(error))
        print(causes[0] if causes else f"error: {error}", file=sys.stderr)
        return EXIT_RUN
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
