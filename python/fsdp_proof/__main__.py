"""python -m fsdp_proof REQUEST.json: runs the trials of a proof, and writes proof.json and proof.html next to the request.

Exit: 0 proven, 1 not proven or made on the stub GPU, 2 if no GPU can prove it (the file "problem" has the reason).
"""

from __future__ import annotations

import datetime
import hashlib
import json
import pathlib
import sys
from collections.abc import Callable
from typing import Any

from fsdp_proof import rows as judge
from fsdp_proof import trials
from fsdp_proof.cards import NoCards, Node, node
from fsdp_proof.page import page
from fsdp_proof.processes import TrialFailed
from fsdp_proof.rows import Row

FORMAT_VERSION = "1.0"
_SIXTEEN_BITS = ("bfloat16", "float16")


def _hash(path: str) -> str:
    try:
        return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()
    except OSError:
        return ""


def _is_in_16_bits(job: dict[str, Any]) -> bool:
    text = json.dumps([job["plan"].get("mixed_precision"), job["plan"].get("parameter_dtype"),
                       [parameter.get("dtype") for parameter in job["model"].get("parameters", [])]])
    return any(dtype in text for dtype in _SIXTEEN_BITS)


class Proof:
    def __init__(self, request: trials.Request, here: Node) -> None:
        self.request = request
        self.here = here
        self.rows: list[Row] = []
        self.predicted = None
        if request.is_predicted:
            self.predicted = json.loads((request.folder / "predicted.json").read_text(encoding="utf-8"))
        self.is_of_this_card = all(judge.is_called(card.name, request.names_of_planned_card) for card in here.cards)
        self.reports: list[dict[str, Any]] = []
        self.theirs: list[dict[str, Any]] = []
        self.collectives: list[dict[str, Any]] = []

    def attempt(self, group: str, what: str, trial: Callable[[], Any]) -> Any:
        """Runs a trial. If it fails, returns None and adds a row with the failure."""
        trials.say(f"{what} ...")
        try:
            found = trial()
        except TrialFailed as failed:
            self.rows.append(Row(group, "the trial", "fail", why=str(failed)))
        except (KeyError, ValueError, TypeError, IndexError, OSError) as error:
            self.rows.append(Row(group, "the trial", "fail", why=f"its output is not understood: {error!r}"))
        else:
            return found
        trials.say(f"  failed: {self.rows[-1].why}")
        return None

    def run(self) -> None:
        request = self.request
        self.rows += judge.machine_rows(self.here.cards, request.ranks, request.planned_card,
                                         request.names_of_planned_card)
        ours = self.attempt("executor", f"fsdp-exec on {request.ranks} GPUs", lambda: trials.executor(request))
        if ours is not None:
            self.reports = ours
            self.attempt("executor", "what it measured", self.judge_executor)
        if not request.torch:
            self.rows += [judge.not_run(group, request.why_no_torch) for group in ("PyTorch FSDP2", "stub GPU")]
            return
        theirs = self.attempt("PyTorch FSDP2", "torchrun with PyTorch's FSDP2 on the same GPUs",
                              lambda: trials.pytorch(request))
        if theirs is None:
            self.rows.append(judge.not_run("stub GPU", "PyTorch asks the card for its answers, and failed"))
            return
        self.theirs = theirs
        self.attempt("PyTorch FSDP2", "what it measured", self.judge_pytorch)
        claimed = self.attempt("stub GPU", "the stub GPU instead of this card",
                               lambda: trials.stub(request, theirs[0]["card"]))
        if claimed is not None:
            self.rows += judge.claim_rows(theirs[0]["claims"], claimed)

    def judge_executor(self) -> None:
        self.rows.append(Row("executor", "all ranks have trained", "pass", len(self.reports), self.request.ranks))
        self.rows += judge.loss_rows(self.reports, self.here.is_stub)
        if self.predicted is not None:
            self.rows += judge.memory_rows(self.reports, self.predicted, self.is_of_this_card)
        self.rows += judge.collective_rows(self.reports, self.predicted)
        self.collectives = judge.collective_table(self.reports, self.predicted)
        self.rows += judge.time_rows(self.reports, self.collectives, self.predicted)

    def judge_pytorch(self) -> None:
        job = json.loads((self.request.folder / "job.json").read_text(encoding="utf-8"))
        if self.reports:
            self.rows += judge.pytorch_rows(self.reports, self.theirs, _is_in_16_bits(job), self.here.is_stub)
            self.rows += judge.pytorch_collective_rows(self.reports, self.theirs, self.collectives)
        self.rows += judge.outside_rows(self.theirs, self.predicted, self.is_of_this_card)

    def verdict(self) -> str:
        if self.here.is_stub:
            return "made on the stub GPU"
        good = all(row.result in ("pass", "note") for row in self.rows)
        return "proven" if good else "not proven"

    def counts(self) -> dict[str, int]:
        return {result: sum(row.result == result for row in self.rows) for result in ("pass", "fail", "not run", "note")}

    def as_json(self) -> dict[str, Any]:
        request, theirs = self.request, self.theirs[0] if self.theirs else {}
        return {
            "format_version": FORMAT_VERSION, "verdict": self.verdict(),
            "made_on": "the stub GPU" if self.here.is_stub else "cards", "counts": self.counts(),
            "cards": [{"name": card.name, "uuid": card.uuid, "memory_bytes": card.memory_bytes} for card in self.here.cards],
            "card_facts": theirs.get("card"),
            "versions": {"fsdp_plan": request.fsdp_plan, "driver": self.here.driver, "torch": theirs.get("torch"),
                         "cuda": theirs.get("cuda"), "nccl": theirs.get("nccl"),
                         "executor": self.reports[0]["cluster"]["gpu"] if self.reports else None},
            "provenance": {"at": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
                           "command": f"fsdp-plan execute {pathlib.Path(request.plan).name} --proof",
                           "sha256": {"plan": _hash(request.plan), "fsdp-exec": _hash(request.program),
                                      "fsdp-exec-cuda": _hash(request.program + "-cuda"), "stub": _hash(request.stub)}},
            "model": request.model, "mesh": {"shard": request.shard, "replicate": request.replicate},
            "steps": request.steps, "seed": request.seed, "rows": [row.as_json() for row in self.rows],
            "collectives": self.collectives,
            "losses": {"fsdp_exec": [[step["loss"] for step in report["steps"]] for report in self.reports],
                       "pytorch": [[step["loss"] for step in found["steps"]] for found in self.theirs]},
        }


def summary(proof: Proof) -> str:
    counts = proof.counts()
    head = {"proven": "PROVEN", "not proven": "NOT PROVEN", "made on the stub GPU": "STUB"}[proof.verdict()]
    names = ", ".join(sorted({card.name for card in proof.here.cards}))
    lines = [f"{head:11} {proof.request.model} on {proof.request.ranks} of {len(proof.here.cards)} GPUs, {names}",
             f"{'rows':11} {counts['pass']} pass, {counts['fail']} fail, {counts['not run']} not run, {counts['note']} notes"]
    if proof.here.is_stub:
        lines.insert(1, f"{'':11} Made on the stub GPU: it proves nothing of a card.")
    lines += [f"{row.result:11} {row.group}: {row.name}{': ' + row.why if row.why else ''}" for row in proof.rows
              if row.result in ("fail", "not run")]
    return "\n".join([*lines, f"{'see':11} {proof.request.folder / 'proof.html'} · proof.json beside it", ""])


def main(path: str) -> int:
    folder = pathlib.Path(path).resolve().parent
    request = trials.Request(folder, json.loads(pathlib.Path(path).read_text(encoding="utf-8")))
    try:
        here = node()
        if not here.cards:
            raise NoCards("There is no GPU.")
    except NoCards as problem:
        (folder / "problem").write_text(f"{problem} A proof needs the GPUs of its node.", encoding="utf-8")
        return 2
    proof = Proof(request, here)
    proof.run()
    result = proof.as_json()
    (folder / "proof.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    lanes = proof.reports[0]["trace"]["traceEvents"] if proof.reports else []
    (folder / "proof.html").write_text(page(result, lanes), encoding="utf-8")
    (folder / "verdict").write_text(summary(proof), encoding="utf-8")
    return 0 if proof.verdict() == "proven" else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
