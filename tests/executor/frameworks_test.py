"""fsdp-plan execute for plans of DDP, FSDP1, ZeRO and SimpleFSDP: the real PyTorch, DeepSpeed and torchtitan train them over
Gloo, and the run is compared with the prediction.

    frameworks_test.py FSDP_PLAN [ddp | fsdp1 | zero | simple_fsdp | CASE...]

Run it with a Python that has torch; zero needs DeepSpeed and simple_fsdp torchtitan, on PYTHONPATH. Exit 77 if a required
package is missing. Without FSDP_EXECUTE=all runs only the cases that together cover every feature.

Each must have all collectives as predicted: kind, dtype, elements, bytes and group, in order. The tensors of its steps must match the
prediction within 512 bytes, and 4 for each parameter, whose steps Adam counts in a tensor; they may exceed it by one collective: a thread
of Gloo may still reference its tensors after its end, and FSDP1's call of a gather into a list makes one more tensor of its size. Tensors
that Gloo's threads make for themselves are not counted. Its initialization needs at least the predicted memory: a prediction for CPUs
assumes that each rank's part is made at once, while FSDP1, ZeRO-3 and DTensor make whole ones first. tests/rehearsal compares the
predictions for GPUs with these frameworks to the byte.
"""

from __future__ import annotations

import importlib.util
import json
import math
import os
import pathlib
import subprocess
import sys
import unittest
from typing import Any

sys.dont_write_bytecode = True
sys.path[:0] = [str(pathlib.Path(__file__).parent)]
from framework_cases import DDP_CASES, FSDP1_CASES, HALF_OF_ZERO, SIMPLE_FSDP_CASES, ZERO_CASES, ddp, zero  # noqa: E402
from parity_cases import CASES, Case  # noqa: E402
from ranks import LIMIT_SECONDS, ROOT, InAFolder, clean_environment, parameters_of  # noqa: E402

FSDP_PLAN = pathlib.Path(sys.argv[1]).resolve()
WANTED = sys.argv[2:]
ALL = os.environ.get("FSDP_EXECUTE") == "all"
SEED = 7
STUB = FSDP_PLAN.parents[1] / "lib" / "fsdp-plan" / "libfsdp-stub-gpu.so"
FAMILIES = {"ddp": DDP_CASES, "fsdp1": FSDP1_CASES, "zero": ZERO_CASES, "simple_fsdp": SIMPLE_FSDP_CASES}
for _family, _package, _environment in (("zero", "deepspeed", "deepspeed"), ("simple_fsdp", "torchtitan", "simple-fsdp")):
    if importlib.util.find_spec(_package) is not None:
        continue
    print(f"The cases of {_family} need {_package}. Write: ./scripts/rehearsal_env {_environment}, and have PYTHONPATH lead there.", file=sys.stderr)
    del FAMILIES[_family]
    if WANTED and all(name.startswith(_family) for name in WANTED):
        sys.exit(77)
EXACT_BYTES = 512  # Numbers that PyTorch wraps into tensors, a few at a time, independent of the model's size.
EXACTLY_EQUAL = ("count", "payload", "as predicted", "parameters")
NOTHING_IS_SENT = ("zero3_llama_alone",)  # DeepSpeed reduce-scatters among one rank, which no prediction counts.
STEPS = ("first step: live peak", "steady step: live peak")
INITIALIZATION = "initialization: live peak"


def execute(plan: pathlib.Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(FSDP_PLAN), "execute", str(plan), *options], capture_output=True, text=True, timeout=LIMIT_SECONDS,
                          env={**clean_environment(), "FSDP_PLAN_TORCH_PYTHON": sys.executable, **environment})


def held_by_gloo(case: Case, report: dict[str, Any]) -> int:
    """Bytes of the largest collective: a thread of Gloo may still reference it after its end, and FSDP1 gathers through
    one more tensor. DDP's buckets exist anyway."""
    if case.ranks == 1 or case in DDP_CASES:
        return 0
    return max((each["payload_bytes"] for each in report["traffic"]["collectives"]), default=0)


class RealFrameworksMatchPredictions(InAFolder):
    def setUp(self) -> None:
        super().setUp()
        self.learned = self.folder / "learned.json"

    def teach(self, case: Case) -> list[str]:
        """Learns oneDNN's memory, with fsdp-exec."""
        teacher = case.teacher()
        if teacher is None:
            return []
        done = execute(teacher.write(self.folder, "teacher"), "--steps", "1", "--calibration", str(self.learned), "--quiet")
        self.assertEqual(done.returncode, 0, done.stderr)
        return ["--calibration", str(self.learned)]

    def check(self, case: Case) -> None:
        options = self.teach(case)
        run = self.folder / "run"
        done = execute(case.write(self.folder), "--steps", "3", "--json", "--seed", str(SEED), "--lr", str(case.learning_rate),
                       "--run-dir", str(run), *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        answer = json.loads(done.stdout)
        terms = {term["name"]: term for term in answer["comparison"]["terms"]}
        for name, term in terms.items():
            if name.endswith(EXACTLY_EQUAL) and not (case.name in NOTHING_IS_SENT and "parameters" not in name):
                self.assertEqual(term["difference"], 0, term)
        if case.ranks > 1:
            self.assertIn("collectives as predicted", terms)
        exact = EXACT_BYTES + 4 * len(json.loads((run / "job.json").read_text(encoding="utf-8"))["model"]["parameters"])
        held = held_by_gloo(case, answer)
        for name in STEPS:
            more = terms[name]["measured"] - terms[name]["predicted"]
            print(f"{case.name:45} {name:26} {terms[name]['predicted']:10} {more:+7} of {held}", file=sys.stderr)
            self.assertGreaterEqual(more, -EXACT_BYTES, terms[name])
            self.assertLessEqual(more, exact + held, terms[name])
        self.assertGreaterEqual(terms[INITIALIZATION]["measured"], terms[INITIALIZATION]["predicted"] - EXACT_BYTES)
        self.check_learning(case, run)

    def check_learning(self, case: Case, run: pathlib.Path) -> None:
        """A run that does not learn would issue the same collectives."""
        for rank in range(case.ranks):
            steps = json.loads((run / f"report-{rank}.json").read_text(encoding="utf-8"))["steps"]
            losses = [step["loss"] for step in steps]
            self.assertEqual(len(set(losses)), 3, f"the losses repeat: {losses}")
            limit = case.plan.get("optimizer", {}).get("clip_grad_norm", math.inf)
            norms = [step["gradient_norm"] for step in steps]
            self.assertTrue(limit == math.inf or min(norms) > limit, f"nothing is clipped: {norms}")

    def test_requested_names_exist(self) -> None:
        known = {*FAMILIES, *(case.name for cases in FAMILIES.values() for case in cases)}
        self.assertEqual(sorted(set(WANTED) - known), [])

    @unittest.skipUnless("zero" in FAMILIES and (not WANTED or "zero" in WANTED), "a test of ZeRO")
    def test_zero_skips_a_step_with_nonfinite_gradients(self) -> None:
        # The norm reveals the non-finite gradients, or an explicit check does.
        for case in (zero("norm", 1, "gpt2", 2), zero("looked_for", 2, "gpt2", 2, HALF_OF_ZERO, dtype="bfloat16")):
            with self.subTest(case.name):
                plan, run = case.write(self.folder), self.folder / case.name
                kept = {}
                for steps in ("1", "3"):
                    file = self.folder / f"{steps}.safetensors"
                    done = execute(plan, "--steps", steps, "--lr", "1e37", "--save-parameters", str(file), "--run-dir", str(run))
                    self.assertEqual(done.returncode, 0, done.stderr)
                    kept[steps] = parameters_of(file)
                steps_of = [json.loads((run / f"report-{r}.json").read_text(encoding="utf-8"))["steps"] for r in range(case.ranks)]
                self.assertTrue(all(step["loss"] is None for steps in steps_of for step in steps[1:]), steps_of)
                self.assertEqual(kept["3"], kept["1"], "two steps are left out")


@unittest.skipUnless(not WANTED or "ddp" in WANTED, "of all frameworks alike")
class Messages(InAFolder):
    def plan(self, name: str = "ddp", **members: Any) -> pathlib.Path:
        return ddp("said", "llama3_2_1b", 2, members).write(self.folder, name)

    def refused(self, words: str, plan: pathlib.Path, *options: str, **environment: str) -> None:
        done = execute(plan, *options, **environment)
        self.assertEqual((done.returncode, done.stdout), (2, ""), done.stderr)
        self.assertRegex(" ".join(done.stderr.split()), words)
        self.assertNotIn("step 1", done.stderr)

    def test_trained_framework_and_unmeasured_figures_are_named(self) -> None:
        done = execute(self.plan(), "--steps", "2")
        self.assertEqual(done.returncode, 0, done.stderr)
        said = " ".join(done.stdout.split())
        self.assertRegex(said, r"TRAINED .* the time of a step was not measured")
        self.assertIn("by PyTorch's DDP, on this machine's CPU", said)
        self.assertIn("how long a step takes: the first and the last are watched. Write --steps 3 or more", said)
        self.assertIn("what an allocator reserves: a CPU has none", said)
        self.assertIn("A thread of Gloo may hold the tensors of a collective for some time after its end", said)
        answer = json.loads(execute(self.plan(), "--steps", "2", "--json").stdout)
        for missing in ("time",):
            self.assertNotIn(missing, answer)
        self.assertNotIn("at_peak", answer["memory"])
        self.assertNotIn("reserved_peak_bytes", answer["memory"])

    def test_missing_package_error_names_the_command(self) -> None:
        nowhere = {"PYTHONPATH": "", "FSDP_PLAN_TORCH_PYTHON": str(self.lone_python())}
        plan = zero("z", 2, "llama3_2_1b", 2).write(self.folder, "zero")
        self.refused(r"has no deepspeed\. Write: \S+ -m pip install deepspeed==0\.19\.8", plan, **nowhere)
        titan = Case("t", "llama3_2_1b", 2, {"runtime": {"name": "torchtitan-simple-fsdp"}}, units=[{"modules": [""]}])
        self.refused(r"has no torchtitan\. Write: \S+ -m pip install torchtitan==0\.3\.0", titan.write(self.folder, "titan"), **nowhere)
        self.refused(r"/bin/false has no torch\. Write: /bin/false -m pip install torch==2\.11\.0", self.plan(), "--python", "/bin/false")

    def lone_python(self) -> pathlib.Path:
        """This Python in a place without another environment next to it."""
        script = self.folder / "python"
        script.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n', encoding="utf-8")
        script.chmod(0o755)
        return script

    def test_options_of_fsdp_exec_are_refused(self) -> None:
        for option in (["--chrome-trace", str(self.folder / "t.json")], ["--reduction", "parity"], ["--resume", "latest"], ["--mem", "1G"]):
            self.refused(f"{option[0]}: fsdp-exec has it, and PyTorch's DDP trains this plan itself", self.plan(), *option)
        self.refused("--calibration: There is no such file, and only a run of fsdp-exec writes one", self.plan(), "--calibration", str(self.folder / "none.json"))

    def test_fsdp1_offload_on_cpu_is_refused(self) -> None:
        offloaded = Case("o", "llama3_2_1b", 2, {"runtime": {"name": "pytorch-fsdp1"}, "cpu_offload": True}).write(self.folder, "offloaded")
        self.refused("plan/cpu_offload: FSDP1 offloads only from GPUs", offloaded, "--device", "cpu")

    def test_wrong_torch_and_bad_rate_are_reported_together(self) -> None:
        self.refused(r"The plan is for PyTorch 2\.8.* pip install torch==2\.8.* --lr: -1\.0 is no learning rate",
                     self.plan(runtime={"name": "pytorch-ddp", "version": "2.8"}), "--lr=-1")

    def test_failed_rank_is_named(self) -> None:
        weights = self.folder / "w.safetensors"
        weights.write_bytes(b"\x02" + bytes(7) + b"{}")
        done = execute(self.plan(), "--weights", str(weights))
        self.assertIn(done.returncode, (2, 3), done.stderr)
        self.assertIn("error", done.stderr)

    def test_each_engine_gives_rank_and_world(self) -> None:
        from fsdp_plan_runner.launch import NotStarted, Place, first_host, read_place

        meeting = {"MASTER_ADDR": "host", "MASTER_PORT": "29500"}
        slurm = {"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_LOCALID": "1", "SLURM_JOB_ID": "7", "SLURM_STEP_ID": "2",
                 "SLURM_STEP_NODELIST": "rack[1-2]node[03-07,12]-ib,other"}
        for variables, place in (
                ({}, Place()),
                ({"RANK": "2", "WORLD_SIZE": "4", "LOCAL_RANK": "0", **meeting, **slurm}, Place(2, 4, 0, "host", 29500)),
                ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_RANK": "1", **meeting},
                 Place(1, 2, 1, "host", 29500)),
                (slurm, Place(3, 4, 1, "rack1node03-ib", 20000 + (7 * 16 + 2) % 10000)),
                ({"RANK": "1", "WORLD_SIZE": "2", "FSDP_EXEC_STORE_FILE": "/meet"}, Place(1, 2, 1, store_file="/meet"))):
            self.assertEqual(read_place(variables), place)
        self.assertEqual([first_host(nodes) for nodes in ("one", "a,b", "n[5-6]", "")], ["one", "a", "n5", ""])
        for variables, words in (({"RANK": "x", "WORLD_SIZE": "2"}, 'RANK: "x" is not a number'),
                                 ({"RANK": "2", "WORLD_SIZE": "2", **meeting}, "Rank 2 of 2 does not exist"),
                                 ({"RANK": "0", "WORLD_SIZE": "2"}, "MASTER_ADDR, MASTER_PORT: They name the ranks' meeting place")):
            with self.assertRaisesRegex(NotStarted, words):
                read_place(variables)

    def test_torchrun_starts_the_ranks_of_a_plan(self) -> None:
        plan, report = self.plan(), self.folder / "report.{rank}.json"
        words = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-addr", "127.0.0.1", "-m",
                 "fsdp_plan_runner.execute", str(plan), "--steps", "2", "--report", str(report)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=LIMIT_SECONDS,
                              env={**clean_environment(), "PYTHONPATH": str(ROOT / "python"), "FSDP_PLAN": str(FSDP_PLAN)})
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(done.stderr.count("step 2: loss"), 1, done.stderr)
        compared = subprocess.run([str(FSDP_PLAN), "compare", *(str(report).replace("{rank}", r) for r in "01"), "--json"],
                                  capture_output=True, text=True)
        self.assertIn(compared.returncode, (0, 1), compared.stderr)
        losses = [json.loads(pathlib.Path(str(report).replace("{rank}", r)).read_text())["steps"][0]["loss"] for r in "01"]
        self.assertEqual(len(set(losses)), 2, "each rank has data of its own")


@unittest.skipUnless(STUB.is_file() and (not WANTED or "ddp" in WANTED), "the stub GPU is not built")
class OnTheStubGpu(InAFolder):
    def test_caching_allocator_matches_the_prediction(self) -> None:
        for runtime in ("ddp", "fsdp1"):
            with self.subTest(runtime):
                plan = self.folder / f"{runtime}.json"
                made = subprocess.run([str(FSDP_PLAN), "mlp", "--runtime", runtime, "--gpu", "H100 SXM", "--gpus", "2", "-o", str(plan), "--quiet"],
                                      capture_output=True, text=True, env=clean_environment())
                self.assertEqual(made.returncode, 0, made.stderr)
                done = execute(plan, "--device", "cuda", "--steps", "3", "--json", LD_PRELOAD=str(STUB), STUB_GPU_COUNT="2", STUB_GPU_EVENTS="done")
                self.assertEqual(done.returncode, 0, done.stderr)
                answer = json.loads(done.stdout)
                terms = {term["name"]: term for term in answer["comparison"]["terms"]}
                # A thread of ProcessGroupNCCL releases the first step's bucket at its next poll: up to 100 ms later.
                late = max(each["payload_bytes"] for each in answer["traffic"]["collectives"]) + EXACT_BYTES
                for phase, held in (("initialization: ", 0), ("first step: ", 0), ("steady step: ", late)):
                    for kind in ("live", "allocated"):
                        more = -terms[f"{phase}{kind} peak"]["difference"]
                        self.assertTrue(0 <= more <= held, terms[f"{phase}{kind} peak"])
                    self.assertEqual(terms[f"{phase}reserved peak"]["difference"], 0, terms)
                self.assertEqual(terms["collectives as predicted"]["difference"], 0)


def add(case: Case) -> None:
    setattr(RealFrameworksMatchPredictions, f"test_{case.name}", lambda self: self.check(case))


assert not {case.name for cases in FAMILIES.values() for case in cases} & {case.name for case in CASES}
for _family, _cases in FAMILIES.items():
    for each in _cases:
        if each.name in WANTED or (not WANTED or _family in WANTED) and (ALL or each.always):
            add(each)

if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
