"""Has cases run by the real PyTorch: starts the workers, one process with torch for each of `jobs`."""

from __future__ import annotations

import concurrent.futures
import dataclasses
import json
import os
import pathlib
import subprocess
from typing import Any

from predict import ROOT, Case, Prediction

LIMIT_SECONDS = 3600


@dataclasses.dataclass
class Machine:
    """What is needed to run the real PyTorch."""

    python: pathlib.Path  # With torch.
    stub: pathlib.Path  # The library of the stub GPU.
    packages: pathlib.Path | None = None  # A folder of further packages.

    def run(self, requests: list[dict[str, Any]], *words: str) -> dict[str, dict[str, Any]]:
        """Answers by name, as workers.py writes them."""
        environment = {**os.environ, "LD_PRELOAD": str(self.stub), "OMP_NUM_THREADS": "1",
                       "PYTHONPATH": os.pathsep.join(map(str, filter(None, (ROOT / "python", self.packages)))),
                       "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run([str(self.python), str(ROOT / "tests" / "oracle" / "workers.py"), *words],
                              input="".join(json.dumps(request) + "\n" for request in requests), text=True,
                              stdout=subprocess.PIPE, env=environment, timeout=LIMIT_SECONDS)
        answers = [json.loads(line) for line in done.stdout.splitlines()]
        if len(answers) != len(requests):
            raise RuntimeError(f"{len(answers)} answers to {len(requests)} requests, exit status {done.returncode}")
        return {answer["name"]: answer for answer in answers}


def record(machine: Machine, pairs: list[tuple[Case, Prediction]], jobs: int = 1) -> dict[str, dict[str, Any]]:
    """{"result"} or {"error"} by the name of the case."""
    requests = [{"name": case.name, "model": prediction.model, "plan": prediction.plan, "rank": case.rank}
                for case, prediction in pairs]
    answers: dict[str, dict[str, Any]] = {}
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for part in pool.map(machine.run, [requests[i::jobs] for i in range(jobs) if requests[i::jobs]]):
            answers |= part
    return answers
