"""Holds the rules of ops to the real PyTorch on the stub GPU: every allocation and free of a forward and a backward,
its size and its place in the order.

    op_rules_test.py STUB PRINT_MEMORY_EVENTS [CASE...]      run by a Python that has torch

Each kind of op x dtype x GPU x implementation is a model of a few ops (op_cases.py), one rank of two. Without names
some of the combinations run, the same ones each time, with each case, each implementation and each cause of a
difference at least once; all of them with FSDP_OP_RULES=all, which takes half an hour. Frees that follow each other
have no order: the allocator ends up in the same state. An attention backend that PyTorch refuses there has to be refused by the prediction too.

What differs stands in tests/golden/rehearsal/op_differences.json with its cause, to the byte, and may neither grow nor shrink nor
move. After a change that is meant, run the test with FSDP_UPDATE_GOLDEN=1 (and FSDP_OP_RULES=all for the whole list) and read the
diff; a combination that did not differ before needs its cause written there.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import zlib
from dataclasses import dataclass, field
from typing import Any

sys.dont_write_bytecode = True
sys.path[:0] = [str(pathlib.Path(__file__).parent), str(pathlib.Path(__file__).resolve().parents[2] / "python")]
import op_differences  # noqa: E402
from fsdp_rehearsal.compilers import prepare as prepare_compilers  # noqa: E402
from op_cases import IMPLEMENTATIONS, OpCase, op_cases  # noqa: E402
from op_differences import sorted_frees  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLUSTERS = ROOT / "model_specs" / "clusters"
STUB, PRINTER = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
WANTED = sys.argv[3:]
UPDATE = bool(os.environ.get("FSDP_UPDATE_GOLDEN"))
ALL = os.environ.get("FSDP_OP_RULES") == "all"
GPUS = {"H100-SXM": "h100_80gb_sxm", "A100": "a100_80gb_sxm", "T4": "t4_16gb", "V100": "v100_32gb_sxm"}
THREADS_PER_SM = {"7.5": 1024}  # 2048 otherwise.
RANKS = 2  # One rank alone would not gather.
SHARE = 40  # One of so many combinations is in the ordinary run.
SECONDS = 5400  # For all combinations of a GPU.

NO_KERNELS = "invalid device function"  # bf16 on cards that have no kernels for it.
REFUSALS = ("Invalid backend", "No available kernel", "FlashAttention only supports", NO_KERNELS)


@dataclass
class Run:
    case: OpCase
    gpu: str
    dtype: str
    implementations: dict[str, Any]

    @property
    def name(self) -> str:
        words = [self.case.name, self.gpu, self.dtype, *(f"{k}={v}" for k, v in self.implementations.items())]
        return " ".join(words).replace("/", "-")

    @property
    def is_autocast(self) -> bool:
        """Parameters in float32 on one GPU, without a wrapper, and a forward under torch.autocast."""
        return self.dtype == "autocast"

    @property
    def ranks(self) -> int:
        return 1 if self.is_autocast else RANKS

    def precision(self) -> dict[str, Any]:
        """Frozen parameters keep the checkpoint's dtype, so that whole models are gathered in the other one."""
        if self.is_autocast:
            return {"parameter_dtype": "float32", "mixed_precision": {"autocast": "bfloat16"}}
        if self.case.modules is None:
            return {"parameter_dtype": self.dtype}
        return {"mixed_precision": {"param_dtype": self.dtype, "reduce_dtype": "float32"}}

    def plan(self, spec_file: pathlib.Path) -> dict[str, Any]:
        return {"format_version": "1.0", "model": {"name": self.case.name, "file": str(spec_file)},
                "mesh": {"replicate": 1, "shard": self.ranks}, "units": [{"modules": [""]}], **self.precision(),
                "runtime": {"name": "pytorch-ddp" if self.is_autocast else "pytorch-fsdp2",
                            "implementations": self.implementations}, **self.case.plan}


def all_runs() -> list[Run]:
    runs = []
    for case in op_cases():
        choices = [dict(itertools.chain.from_iterable(c.items() for c in combination))
                   for combination in itertools.product(*(IMPLEMENTATIONS[use] for use in case.uses))]
        runs += [Run(case, gpu, dtype, choice) for gpu in GPUS for dtype in case.dtypes for choice in choices]
        runs += [Run(case, "H100-SXM", "autocast", choice) for choice in choices]
    return runs


def chosen(runs: list[Run]) -> list[Run]:
    if importlib.util.find_spec("flash_attn") is None:
        print("Without flash-attn (./scripts/rehearsal_env flash-attn) its cross entropy is not compared.", flush=True)
        runs = [run for run in runs if run.implementations.get("loss") != "flash_attn"]
    if WANTED:
        return [run for run in runs if any(wanted in run.name for wanted in WANTED)]
    if ALL:
        return runs
    seen: set[str] = set()
    kept = []
    causes = op_differences.cause_of(op_differences.read())
    for run in runs:
        marks = {run.case.name, causes.get(run.name, run.case.name),
                 *(f"{run.case.kind} {k}={v}" for k, v in run.implementations.items())}
        if marks - seen or zlib.crc32(run.name.encode()) % SHARE == 0:
            kept.append(run)
            seen |= marks
    return kept


def card(gpu: str) -> dict[str, str]:
    """The stub's options that make it this GPU."""
    facts = json.loads((CLUSTERS / "gpus" / f"{GPUS[gpu]}.json").read_text(encoding="utf-8"))

    def size(key: str) -> str:
        number, unit = re.fullmatch(r"(\d+)(KiB|MiB)", facts[key]["value"]).groups()
        return str(int(number) << {"KiB": 10, "MiB": 20}[unit])

    capability = facts["compute_capability"]
    return {"STUB_GPU_COMPUTE_CAPABILITY": capability.replace(".", ""), "STUB_GPU_SMS": str(facts["sms"]["value"]),
            "STUB_GPU_L2_BYTES": size("l2_cache"), "STUB_GPU_SHARED_PER_BLOCK_BYTES": size("shared_memory_per_block"),
            "STUB_GPU_SHARED_PER_SM_BYTES": size("shared_memory_per_sm"),
            "STUB_GPU_THREADS_PER_SM": str(THREADS_PER_SM.get(capability, 2048)),
            # The rules have no workspaces of cuDNN: which engine it takes is its own affair.
            "STUB_GPU_CUDNN_WORKSPACE_BYTES": "0"}


_PHASES = ("forward", "backward", "optimizer")


@dataclass
class Predicted:
    model: dict[str, Any]
    plan: dict[str, Any]
    events: list[int]
    names: list[str]
    refusal: str = ""  # Why PyTorch would not run it, as fsdp-plan sees it.


def read_answer(lines: Any, phases: tuple[str, ...]) -> Predicted | str:
    """One job's answer of print_memory_events, `lines` being its output."""
    blobs: dict[str, Any] = {}
    events: list[int] = []
    names: list[str] = []
    sizes: dict[str, tuple[int, str]] = {}
    phase = problem = ""
    for line in lines:
        word, _, rest = line.decode().rstrip("\n").partition(" ")
        if word in ("model", "plan"):
            blobs[word] = json.loads(lines.read(int(rest)))
        elif word == "phase":
            phase = rest
        elif word == "error":
            problem += rest
        elif word == "end":
            break
        elif word == "alloc":
            number, size, _, name = rest.split(" ", 3)
            sizes[number] = (int(size), name)
            is_ours = phase in phases and not name.endswith(": input") and "workspace" not in name
            if is_ours and int(size) > 0:
                events.append(int(size))
                names.append(name)
        elif word == "free" and phase in phases:
            size, name = sizes.pop(rest)
            if "workspace" not in name and size > 0:
                events.append(-size)
                names.append(name)
    if problem and "PyTorch refuses" not in problem:
        return problem
    return Predicted(blobs["model"], blobs["plan"], events, names, problem)


def predict(runs: list[Run], folder: pathlib.Path) -> list[Predicted | str]:
    lines = []
    for number, run in enumerate(runs):
        spec_file, plan_file = folder / f"{number}.spec.json", folder / f"{number}.plan.json"
        spec_file.write_text(json.dumps(run.case.spec()), encoding="utf-8")
        plan_file.write_text(json.dumps(run.plan(spec_file)), encoding="utf-8")
        lines.append(f"{plan_file} {run.gpu} {run.ranks} 0 1\n")
    jobs = folder / "jobs.txt"
    jobs.write_text("".join(lines), encoding="utf-8")
    answers = folder / "answers.txt"
    with jobs.open("rb") as given, answers.open("wb") as got:
        subprocess.run([str(PRINTER), str(CLUSTERS)], stdin=given, stdout=got, check=True, timeout=SECONDS)
    with answers.open("rb") as got:
        return [read_answer(got, _PHASES[:3 if run.case.optimizer else 2]) for run in runs]


def run_for_real(gpu: str, runs: list[Run], predicted: list[Predicted | str], folder: pathlib.Path) -> dict[str, Any]:
    jobs = [{"name": run.name, "model": p.model, "plan": p.plan, "optimizer": run.case.optimizer}
            for run, p in zip(runs, predicted, strict=True) if isinstance(p, Predicted)]
    jobs_file, results_file = folder / f"{gpu}.jobs.json", folder / f"{gpu}.results.json"
    jobs_file.write_text(json.dumps(jobs), encoding="utf-8")
    environment = {**os.environ, **card(gpu), "LD_PRELOAD": str(STUB), "OMP_NUM_THREADS": "1"}
    prepare_compilers(environment, str(STUB))
    done = subprocess.run([sys.executable, "-B", str(pathlib.Path(__file__).parent / "op_runner.py"), str(jobs_file),
                           str(results_file)], env=environment, capture_output=True, text=True, timeout=SECONDS)
    if not results_file.is_file():
        raise AssertionError(f"{gpu}: exit status {done.returncode}\n{done.stdout}\n{done.stderr}")
    return json.loads(results_file.read_text(encoding="utf-8"))


def first_difference(real: list[int], ours: Predicted) -> str:
    """Where the two part, with what was before; empty where they do not."""
    theirs, mine = sorted_frees(real), sorted_frees(ours.events, ours.names)
    for i, (a, b) in enumerate(itertools.zip_longest(theirs, mine)):
        if a and b and a[0] == b[0]:
            continue
        before = [f"    {'alloc' if size > 0 else 'free '} {abs(size):>12} {name}"
                  for size, name in mine[max(0, i - 4):i]]

        def told(which: str, pair: tuple[int, str] | None) -> str:
            if pair is None:
                return f"  {which} ends here"
            return f"  {which} {'alloc' if pair[0] > 0 else 'free '} {abs(pair[0]):>12} {pair[1]}"

        after = [" ".join(str(size) for size, _ in side[i:i + 12]) for side in (theirs, mine)]
        return "\n".join([f"event {i} of {len(theirs)} and {len(mine)}:", *before, told("PyTorch", a),
                          told("ours   ", b), f"  PyTorch goes on: {after[0]}", f"  ours goes on:    {after[1]}"])
    return ""


@dataclass
class Compared:
    difference: op_differences.Difference = field(default_factory=dict)
    where: str = ""  # Where the two part, for people.
    problem: str = ""  # Why they cannot be compared. Nothing excuses it.


def compare(run: Run, predicted: Predicted | str, results: dict[str, Any]) -> Compared | None:
    """None: neither of the two runs it, or we do not predict it under autocast."""
    if run.is_autocast and "predicted" in (predicted if isinstance(predicted, str) else predicted.refusal):
        return None
    if isinstance(predicted, str):
        return Compared(problem=f"not predicted: {predicted}")
    real = results[run.name]
    refused = any(refusal in str(real) for refusal in REFUSALS)
    # A card without kernels for bf16 fails in any op; a backend is asked for by the runtime.
    if refused and (predicted.refusal or NO_KERNELS in str(real)):
        return None
    if refused or predicted.refusal:
        says = str(real)[:200] if refused else "nothing"
        return Compared(problem=f"not refused by both: PyTorch says {says}, we {predicted.refusal!r}")
    if isinstance(real, str):
        return Compared(problem=f"not run: {real}")
    return Compared(op_differences.difference(real, predicted.events), first_difference(real, predicted))


class OpsAllocateWhatPyTorchAllocates(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        runs = all_runs()
        cls.all_names = {run.name for run in runs}
        runs = chosen(runs)
        cls.chosen_names = {run.name for run in runs}
        cls.compared: dict[str, Compared] = {}
        cls.refused = 0
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            predicted = predict(runs, folder)
            for gpu in GPUS:
                mine = [(run, p) for run, p in zip(runs, predicted, strict=True) if run.gpu == gpu]
                if not mine:
                    continue
                results = run_for_real(gpu, [run for run, _ in mine], [p for _, p in mine], folder)
                for run, p in mine:
                    cls.refused += any(refusal in str(results.get(run.name)) for refusal in REFUSALS)
                    if (found := compare(run, p, results)) is not None:
                        cls.compared[run.name] = found
        if UPDATE:
            found = {name: cls.compared.get(name, Compared()) for name in cls.chosen_names}
            op_differences.update({name: one.difference for name, one in found.items() if not one.problem}, cls.all_names)
        cls.causes = op_differences.read()
        good = sum(not found.difference and not found.problem for found in cls.compared.values())
        print(f"{good} of {len(cls.compared)} combinations allocate what PyTorch allocates, event by event; "
              f"{cls.refused} are refused by PyTorch.", flush=True)

    def test_every_case_has_only_known_differences(self) -> None:
        self.assertTrue(self.compared)
        known = op_differences.known(self.causes)
        for name in sorted(self.chosen_names):
            with self.subTest(name):
                one = self.compared.get(name, Compared())
                self.assertFalse(one.problem, one.problem)
                self.assertEqual(one.difference, known.get(name, {}), f"\nfound, then what is known. {one.where}")

    def test_known_differences_have_a_cause_and_a_case(self) -> None:
        for key, cause in self.causes.items():
            with self.subTest(key):
                self.assertTrue(cause["why"], f"{key}: what differs there, and why, has to be written down: {list(cause['cases'])}")
                self.assertEqual(sorted(set(cause["cases"]) - self.all_names), [])

    def test_change_of_a_known_difference_is_detected(self) -> None:
        real, ours = [512, 512, 1024, -1024, -512, -512], [512, 2048, 1024, -1024, -512, -2048]
        found = op_differences.difference(real, ours)
        self.assertEqual(op_differences.difference(real, real), {})
        self.assertEqual((found["peak"], found["kept"], found["events"]), (1536, 0, 0))
        for other in ([512, 2560, 1024, -1024, -512, -2560],  # It grows,
                      [512, 1024, 2048, -1024, -512, -2048],  # moves,
                      [2048, 512, 1024, -1024, -512, -2048],
                      [512, 2048, 512, -512, -512, -2048],  # hides one more,
                      [512, 2048, 1024, -1024, -512]):  # or keeps it.
            self.assertNotEqual(op_differences.difference(real, other), found)

    def test_pages_count_the_known_differences(self) -> None:
        differing = op_differences.known(self.causes)
        known = sum(" H100-SXM " in name for name in differing)
        for page, counts in (("README.md", r"H100, (\d+) combinations \|.*\| (\d+) equal"),
                             ("docs/op_rules.md", r"on the H100 (\d+) of (\d+) are equal"),
                             ("docs/accuracy.md", r"every test run, (\d+) of (\d+) of all on an H100")):
            first, second = map(int, re.search(counts, (ROOT / page).read_text(encoding="utf-8")).groups())
            self.assertEqual(abs(first - second), known, page)
        of_all = re.search(r"it is (\d+) of (\d+); in (\d+) of the other (\d+) the peak is equal",
                           (ROOT / "docs" / "op_rules.md").read_text(encoding="utf-8"))
        equal, compared, same_peak, others = map(int, of_all.groups())
        self.assertEqual((compared - equal, others, same_peak), (len(differing), len(differing),
                                                                 sum(one["peak"] == 0 for one in differing.values())))

    def test_every_kind_of_op_has_a_case(self) -> None:
        schema = json.loads((ROOT / "model_specs" / "schemas" / "model.schema.json").read_text(encoding="utf-8"))
        # Only blocks make experts; those that are stacked are held to transformers' own layers (docs/oracle.md).
        names = [*schema["definitions"]["op"]["properties"]["op"]["enum"], "experts"]
        self.assertGreater(len(names), 40)
        self.assertEqual(sorted(set(names) - {case.kind for case in op_cases()}), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
