"""Holds the rules of ops to the real PyTorch on the stub GPU: every allocation and free of a forward and a backward,
its size and its place in the order.

    op_rules_test.py STUB PRINT_MEMORY_EVENTS [CASE...]      run by a Python that has torch

Each kind of op x dtype x GPU x implementation is a model of a few ops (op_cases.py), one rank of two. Without names
some of the combinations run, the same ones each time, with each case and each implementation at least once; all of them
with FSDP_OP_RULES=all, which takes half an hour. Frees that follow each other have no order: the allocator ends up in
the same state. An attention backend that PyTorch refuses there has to be refused by the prediction too.
"""

from __future__ import annotations

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
from dataclasses import dataclass
from typing import Any

sys.dont_write_bytecode = True
sys.path.insert(0, str(pathlib.Path(__file__).parent))
from op_cases import IMPLEMENTATIONS, OpCase, op_cases  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parents[2]
CLUSTERS = ROOT / "model_specs" / "clusters"
STUB, PRINTER = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
WANTED = sys.argv[3:]
ALL = os.environ.get("FSDP_OP_RULES") == "all"
GPUS = {"H100-SXM": "h100_80gb_sxm", "A100": "a100_80gb_sxm", "T4": "t4_16gb", "V100": "v100_32gb_sxm"}
THREADS_PER_SM = {"7.5": 1024}  # 2048 otherwise.
RANKS = 2  # One rank alone would not gather.
SHARE = 40  # One of so many combinations is in the ordinary run.
SECONDS = 5400  # For all combinations of a GPU.

# What is known to differ, by an expression for the run's name, and why.
KNOWN = {
    "kv_cache V100 .* use_cache=True": "keys and values of a cache lie with their heads first, so that attention that is "
                                       "written out need not copy them",
    "router": "weights /= weights.sum() is taken for a product: temporaries of its backward, [tokens, k], are missing",
    "model_moe": "the indices of an expert's rows: temporaries of index_put_, 40 bytes a row",
    "model_bert": "logits live until the loss of both heads is there, as published code has it; the runner drops them",
    "model_t5 (?!H100)": "the scratch of sorting the indices of an embedding, 1 kB",
    "rms_norm_gemma .* float32": "the sum that is the weight's gradient becomes it without a copy",
    "attention_window (?!H100|A100)|attention_window .* float32": "without flash a window is a mask; it is not counted",
    "model_checkpoint_selective": "a layer's hidden states are let go some calls later; attention that is written out "
                                  "lets go of its operands a call later, and adds its mask to a new tensor",
    "model_checkpoint_(full|to_the_end) .* b?float16": "hidden states are let go a call earlier",
    "attention_(odd|grouped|wide) (T4|V100) .*attention=(automatic|memory_efficient)":
        "the blocks of memory-efficient attention's backward are others below sm_80",
    "embedding_sorted(_wide)? (?!H100)": "the scratch of sorting the indices, 1 or 2 kB",
    "(conv.*|model_vit|model_whisper) (T4|V100) bfloat16": "cuDNN has no bf16 there; PyTorch unfolds the input first",
}
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

    def precision(self) -> dict[str, Any]:
        """Frozen parameters keep the checkpoint's dtype, so that whole models are gathered in the other one."""
        if self.case.modules is None:
            return {"parameter_dtype": self.dtype}
        return {"mixed_precision": {"param_dtype": self.dtype, "reduce_dtype": "float32"}}

    def plan(self, spec_file: pathlib.Path) -> dict[str, Any]:
        return {"format_version": "1.0", "model": {"name": self.case.name, "file": str(spec_file)},
                "mesh": {"replicate": 1, "shard": RANKS}, "units": [{"modules": [""]}], **self.precision(),
                "runtime": {"implementations": self.implementations}, **self.case.plan}


def all_runs() -> list[Run]:
    runs = []
    for case in op_cases():
        choices = [dict(itertools.chain.from_iterable(c.items() for c in combination))
                   for combination in itertools.product(*(IMPLEMENTATIONS[use] for use in case.uses))]
        runs += [Run(case, gpu, dtype, choice) for gpu in GPUS for dtype in case.dtypes for choice in choices]
    return runs


def chosen(runs: list[Run]) -> list[Run]:
    if WANTED:
        return [run for run in runs if any(wanted in run.name for wanted in WANTED)]
    if ALL:
        return runs
    seen: set[str] = set()
    kept = []
    for run in runs:
        marks = {run.case.name, *(f"{run.case.kind} {k}={v}" for k, v in run.implementations.items())}
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
        lines.append(f"{plan_file} {run.gpu} {RANKS} 0 1\n")
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
    done = subprocess.run([sys.executable, "-B", str(pathlib.Path(__file__).parent / "op_runner.py"), str(jobs_file),
                           str(results_file)], env=environment, capture_output=True, text=True, timeout=SECONDS)
    if not results_file.is_file():
        raise AssertionError(f"{gpu}: exit status {done.returncode}\n{done.stdout}\n{done.stderr}")
    return json.loads(results_file.read_text(encoding="utf-8"))


def sorted_frees(events: list[int], names: list[str] | None = None) -> list[tuple[int, str]]:
    pairs = list(zip(events, names or [""] * len(events), strict=True))
    result: list[tuple[int, str]] = []
    for is_free, group in itertools.groupby(pairs, key=lambda pair: pair[0] < 0):
        of_group = list(group)
        result += sorted(of_group) if is_free else of_group
    return result


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


class OpsAllocateWhatPyTorchAllocates(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        runs = chosen(all_runs())
        cls.differences: dict[str, str] = {}
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
                    if (difference := cls.compare(run, p, results)) is not None:
                        cls.differences[run.name] = difference
        good = sum(not difference for difference in cls.differences.values())
        print(f"{good} of {len(cls.differences)} combinations allocate what PyTorch allocates, event by event; "
              f"{cls.refused} are refused by PyTorch.", flush=True)

    @staticmethod
    def compare(run: Run, predicted: Predicted | str, results: dict[str, Any]) -> str | None:
        """None: neither of the two runs it."""
        if isinstance(predicted, str):
            return f"not predicted: {predicted}"
        real = results[run.name]
        refused = any(refusal in str(real) for refusal in REFUSALS)
        # A card without kernels for bf16 fails in any op; a backend is asked for by the runtime.
        if refused and (predicted.refusal or NO_KERNELS in str(real)):
            return None
        if refused or predicted.refusal:
            return f"not refused by both: PyTorch says {str(real)[:200] if refused else 'nothing'}, we {predicted.refusal!r}"
        return f"not run: {real}" if isinstance(real, str) else first_difference(real, predicted)

    def test_every_case(self) -> None:
        self.assertTrue(self.differences)
        for name, difference in self.differences.items():
            if any(re.match(known, name) for known in KNOWN) and not difference.startswith("not "):
                continue
            with self.subTest(name):
                self.assertFalse(difference, difference)

    def test_what_is_known_to_differ_does(self) -> None:
        for known in KNOWN:
            found = [difference for name, difference in self.differences.items() if re.match(known, name)]
            if found and ALL:  # One combination may be equal where others are not.
                with self.subTest(known):
                    self.assertTrue(any(found), f"{known}: equal now. Take it out of the list.")

    def test_every_kind_of_op_has_a_case(self) -> None:
        """The names are those of core/op.cpp, in the order of the enum."""
        text = (ROOT / "core" / "op.cpp").read_text(encoding="utf-8")
        names = re.findall(r'"(\w+)"', re.search(r"kOpNames = \{(.*?)\};", text, re.S).group(1))
        self.assertGreater(len(names), 40)
        self.assertEqual(sorted(set(names) - {case.kind for case in op_cases()}), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=1)
