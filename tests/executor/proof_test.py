"""fsdp-plan execute --proof on the stub GPU: everything except the figures, and how its page reports that.

    proof_test.py FSDP_PLAN STUB PYTHON_WITH_TORCH [CLASS...]
"""

from __future__ import annotations

import ctypes
import html.parser
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from typing import Any

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "tests" / "support"), str(ROOT / "python")]
from command import LIMIT_SECONDS  # noqa: E402
from fsdp_proof import rows as judge  # noqa: E402
from fsdp_proof import worker  # noqa: E402

PLANNER, STUB = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
PYTHON = pathlib.Path(sys.argv[3])
STUB_WORDS = "Made on the stub GPU"


def run(*words: object, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(word) for word in words], capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False,
                          env={**os.environ, "FSDP_PLAN_MODEL_SPECS": str(ROOT / "model_specs"), **environment})


class Words(html.parser.HTMLParser):
    """The text of a page in its order, and the number of its pictures."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.text, self.pictures = [], 0
        self.feed(page)

    def handle_data(self, data: str) -> None:
        self.text.append(data)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.pictures += tag == "svg"


class TheProof(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        folder = tempfile.TemporaryDirectory()
        cls.addClassCleanup(folder.cleanup)
        cls.folder = pathlib.Path(folder.name)
        cls.plan = cls.folder / "plan.json"
        made = run(PLANNER, "mlp", "--gpu", "H100 SXM", "--gpus", "2", "-o", cls.plan)
        assert made.returncode == 0, made.stderr
        predicted = json.loads(run(PLANNER, "simulate", cls.plan, "--json").stdout)
        terms = {term["name"]: term["bytes"] for term in predicted["memory"]["device_terms"]}
        nccl = sum(size for name, size in terms.items() if name.startswith("nccl "))
        cls.card = {"LD_PRELOAD": str(STUB), "STUB_GPU_COUNT": "2", "STUB_GPU_CONTEXT_BYTES": str(terms["CUDA context"]),
                    "STUB_GPU_NCCL_BYTES": f"2:{nccl}"}
        cls.expected = predicted
        cls.proof_folder = cls.folder / "proof"
        cls.done = run(PLANNER, "execute", cls.plan, "--proof", "--steps", "3", "--run-dir", cls.proof_folder, "--python", PYTHON,
                       **cls.card)
        assert cls.done.returncode in (0, 1), cls.done.stderr
        cls.proof = json.loads((cls.proof_folder / "proof.json").read_text(encoding="utf-8"))

    def rows(self, proof: dict[str, Any], result: str) -> list[str]:
        return [f"{row['group']}: {row['name']}" for row in proof["rows"] if row["result"] == result]

    def test_every_trial_runs_and_passes_on_the_stub(self) -> None:
        self.assertEqual(self.rows(self.proof, "fail"), [])
        self.assertEqual(self.rows(self.proof, "not run"),
                         ["executor: losses are numbers that change", "PyTorch FSDP2: losses of all ranks and steps"])
        passed = self.rows(self.proof, "pass")
        for name in ("executor: all ranks have trained", "memory: steady step: reserved", "memory: steady step: device",
                     "collectives: kind, unit, phase, dtype and bytes of each, in their order",
                     "PyTorch FSDP2: steady step: reserved", "stub GPU: bytes of CUDA context",
                     "stub GPU: bytes of a communicator of all ranks", "stub GPU: attention of bf16, head 128, 2048 tokens, causal",
                     "stub GPU: workspace of a 3 x 3 convolution, fp32"):
            self.assertIn(name, passed)
        collectives = [(each["collective"], each["payload_bytes"]) for each in self.proof["collectives"]]
        self.assertEqual([size for _, size in collectives],
                         [each["payload_bytes"] for each in self.expected["traffic"]["collectives"]])
        self.assertEqual(len(self.proof["losses"]["fsdp_exec"]), 2)
        self.assertEqual(len(self.proof["cards"]), 2)
        self.assertEqual(len({card["uuid"] for card in self.proof["cards"]}), 2)

    def test_page_made_on_the_stub_is_marked_and_proves_nothing(self) -> None:
        self.assertEqual(self.done.returncode, 1)
        self.assertEqual((self.proof["verdict"], self.proof["made_on"]), ("made on the stub GPU", "the stub GPU"))
        self.assertTrue(self.done.stdout.startswith("STUB "), self.done.stdout)
        page = Words((self.proof_folder / "proof.html").read_text(encoding="utf-8"))
        first = next(i for i, text in enumerate(page.text) if STUB_WORDS in text)
        self.assertIn("proves nothing of a card", page.text[first])
        self.assertNotIn("memory: ", "".join(page.text[:first]))
        self.assertEqual(page.pictures, 2)

    def test_pytorch_calls_the_same_collectives(self) -> None:
        self.assertIn("PyTorch FSDP2: kind and bytes of each collective, in the order of their kind",
                      self.rows(self.proof, "pass"))
        # The stub has no profiler of a card, and the page states this.
        self.assertIn("PyTorch FSDP2: times of its collectives", self.rows(self.proof, "note"))

    def again(self, name: str, changes: dict[str, Any], **environment: str) -> tuple[int, dict[str, Any], str]:
        """Repeats it without PyTorch, with another request."""
        folder = self.folder / name
        folder.mkdir()
        for file in ("job.json", "predicted.json"):
            (folder / file).write_bytes((self.proof_folder / file).read_bytes())
        request = json.loads((self.proof_folder / "request.json").read_text(encoding="utf-8"))
        request |= {"torch": "", "why_no_torch": "there is none", **changes}
        (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
        done = run(sys.executable, "-B", "-m", "fsdp_proof", folder / "request.json", PYTHONPATH=str(ROOT / "python"),
                   **{**self.card, **environment})
        self.assertIn(done.returncode, (0, 1), done.stderr)
        self.assertNotIn("Traceback", done.stderr)
        return (done.returncode, json.loads((folder / "proof.json").read_text(encoding="utf-8")),
                (folder / "proof.html").read_text(encoding="utf-8"))

    def test_failed_trial_and_unknown_card_are_rows(self) -> None:
        memory = int(self.card["STUB_GPU_CONTEXT_BYTES"]) + (110 << 20)
        code, proof, page = self.again("failing", {}, STUB_GPU_BYTES=str(memory), STUB_GPU_NAME="NVIDIA A10")
        self.assertEqual(code, 1)
        failed = {row["name"]: row for row in proof["rows"] if row["result"] == "fail"}
        self.assertEqual(failed["card"]["found"], "NVIDIA A10")
        self.assertIn("error: rank ", failed["the trial"]["why"])
        self.assertIn("the trial", page)
        self.assertEqual([row["why"] for row in proof["rows"] if row["result"] == "not run"], ["there is none"] * 2)

    def test_another_card_is_not_compared_with_the_prediction(self) -> None:
        _, proof, _ = self.again("another", {}, STUB_GPU_NAME="NVIDIA A10")
        rows = [row for row in proof["rows"] if row["group"] == "memory"]
        self.assertEqual({row["result"] for row in rows}, {"note"})
        self.assertEqual({row["why"] for row in rows}, {judge.OF_ANOTHER_CARD})

    def test_broken_card_is_a_row(self) -> None:
        _, proof, _ = self.again("broken", {}, STUB_GPU_FAULT="illegal:20")
        self.assertIn("an illegal memory access was encountered",
                      next(row["why"] for row in proof["rows"] if row["result"] == "fail"))


    def test_failed_torchrun_is_a_row_and_skips_its_dependents(self) -> None:
        python = self.folder / "python-whose-torchrun-fails"
        python.write_text("#!/bin/sh\necho 'RuntimeError: no kernel image is available' >&2\nexit 7\n", encoding="utf-8")
        python.chmod(0o755)
        code, proof, page = self.again("torchrun", {"torch": str(python), "why_no_torch": ""})
        self.assertEqual(code, 1)
        failed = [row for row in proof["rows"] if row["result"] == "fail"]
        self.assertEqual([(row["group"], row["name"]) for row in failed], [("PyTorch FSDP2", "the trial")])
        self.assertIn("process 0 ended with 7: RuntimeError: no kernel image is available", failed[0]["why"])
        self.assertIn("no kernel image is available", page)
        self.assertIn("stub GPU: the trial", self.rows(proof, "not run"))
        self.assertIn("memory: steady step: reserved", self.rows(proof, "pass"))


class HybridInMixedPrecision(unittest.TestCase):
    def test_two_kinds_of_groups_and_precisions_match_pytorch(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            made = run(PLANNER, "mlp", "--gpu", "H100 SXM", "--gpus", "4", "--replicate", "2", "--precision", "mixed", "-o",
                       folder / "plan.json")
            self.assertEqual(made.returncode, 0, made.stderr)
            done = run(PLANNER, "execute", folder / "plan.json", "--proof", "--steps", "2", "--run-dir", folder / "proof", "--python",
                       PYTHON, LD_PRELOAD=str(STUB), STUB_GPU_COUNT="4")
            proof = json.loads((folder / "proof" / "proof.json").read_text(encoding="utf-8"))
        self.assertEqual(proof["mesh"], {"shard": 2, "replicate": 2}, done.stderr)
        rows = {f"{row['group']}: {row['name']}": row for row in proof["rows"]}
        # The memory outside the allocator is a setting of the stub, and was not set here.
        self.assertEqual([name for name, row in rows.items() if row["result"] == "fail" and "device" not in name
                          and "CUDA context" not in name], [])
        kinds = {each["collective"] for each in proof["collectives"]}
        self.assertEqual(kinds, {"allgather_base", "reduce_scatter_base", "allreduce"})
        for name in ("collectives: kind, unit, phase, dtype and bytes of each, in their order",
                     "PyTorch FSDP2: kind and bytes of each collective, in the order of their kind",
                     "PyTorch FSDP2: steady step: allocated"):
            self.assertEqual(rows[name]["result"], "pass", rows[name])
        self.assertIn("two kinds of groups", rows["stub GPU: bytes of a communicator of all ranks"]["why"])
        self.assertEqual([len(losses) for losses in proof["losses"]["pytorch"]], [2] * 4)


class TheScript(unittest.TestCase):
    """Runs scripts/executor_gpu_proof with a missing driver program."""

    def test_script_writes_page_and_table_and_names_the_stub(self) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            smi = folder / "nvidia-smi"
            smi.write_text('#!/bin/sh\ncase "$*" in *memory.total*) end=", 81559" ;; esac\n'
                           'for i in 1 2; do echo "NVIDIA H100 80GB HBM3$end"; done\n', encoding="utf-8")
            smi.chmod(0o755)
            page = (ROOT / "docs" / "executor_gpus.md").read_text(encoding="utf-8")
            (folder / "page.md").write_text(page, encoding="utf-8")
            done = subprocess.run([str(ROOT / "scripts" / "executor_gpu_proof"), "--out", "out", "--document", "page.md", "--plans", "1",
                                   "mlp"], cwd=folder, capture_output=True, text=True, timeout=LIMIT_SECONDS, check=False,
                                  env={**os.environ, "PATH": f"{folder}:{os.environ['PATH']}", "FSDP_PROOF_BIN": str(PLANNER.parent),
                                       "LD_PRELOAD": str(STUB), "STUB_GPU_COUNT": "2", "FSDP_PLAN_PYTHON": str(PYTHON)})
            self.assertEqual(done.returncode, 1, done.stderr)  # The stub proves nothing.
            self.assertNotIn("Traceback", done.stderr)
            self.assertIn("2 x H100 80GB HBM3", done.stderr)
            proof = json.loads((folder / "out" / "mlp" / "proof.json").read_text(encoding="utf-8"))
            self.assertEqual(proof["verdict"], "made on the stub GPU")
            self.assertEqual({row["group"] for row in proof["rows"]},
                             {"machine", "executor", "memory", "collectives", "times", "PyTorch FSDP2", "stub GPU"})
            self.assertTrue((folder / "out" / "mlp" / "proof.html").is_file())
            written = (folder / "page.md").read_text(encoding="utf-8").split("<!-- gpu: ")[1].split("<!-- end of gpu")[0]
            self.assertIn("the stub GPU, which plays H100 80GB HBM3: nothing here is of a card", written)
            self.assertEqual(written.count("\n| "), 2, written)  # The head and one plan.
            self.assertNotIn("failed", written)
            self.assertEqual([each.name for each in (folder / "out" / "measured").iterdir()], ["stub_h100_80gb_hbm3.jsonl"])
        self.assertEqual((ROOT / "docs" / "executor_gpus.md").read_text(encoding="utf-8"), page)

    def test_script_is_skipped_without_a_driver(self) -> None:
        done = subprocess.run([str(ROOT / "scripts" / "executor_gpu_proof")], capture_output=True, text=True, check=False,
                              env={**os.environ, "PATH": "/usr/bin:/bin"})
        if pathlib.Path("/usr/bin/nvidia-smi").exists():
            self.skipTest("there is a driver")
        self.assertEqual((done.returncode, done.stderr), (77, "There is no GPU: nvidia-smi is not found.\n"))


class RefusedProofs(unittest.TestCase):
    def refused(self, *words: object, **environment: str) -> str:
        with tempfile.TemporaryDirectory() as folder:
            plan = pathlib.Path(folder) / "plan.json"
            run(PLANNER, "mlp", "--gpu", "H100 SXM", "--gpus", "2", "-o", plan)
            done = run(PLANNER, "execute", plan, "--run-dir", pathlib.Path(folder) / "run", *words, **environment)
        self.assertEqual(done.returncode, 2, done.stdout + done.stderr)
        return done.stderr

    def test_options_without_effect_on_a_proof(self) -> None:
        said = self.refused("--proof", "--gpus", "4", "--mem", "2G", "--device", "cpu")
        for part in ("The plan is for 2 ranks.", "--mem", "--device"):
            self.assertIn(part, said)

    def test_options_of_a_proof_without_one(self) -> None:
        said = self.refused("--gpus", "2", "--python", PYTHON)
        self.assertIn("--gpus: It belongs to --proof.", said)
        self.assertIn("--python: fsdp-exec trains a plan of FSDP2, without Python.", said)

    def test_a_python_without_torch(self) -> None:
        said = self.refused("--proof", "--python", "/bin/false", LD_PRELOAD=str(STUB), STUB_GPU_COUNT="2")
        self.assertIn("--python", said)
        self.assertIn("/bin/false", said)

    def test_a_node_without_gpus(self) -> None:
        try:
            ctypes.CDLL("libnvidia-ml.so.1")
            self.skipTest("there is a driver")
        except OSError:
            self.assertIn("There is no NVIDIA driver", self.refused("--proof", "--python", PYTHON))


class JudgedRows(unittest.TestCase):
    def collectives(self, *seconds: float | None, kind: str = "all_gather") -> list[dict[str, Any]]:
        return [{"kind": kind, "payload_bytes": 8 * i, "seconds": each} for i, each in enumerate(seconds)]

    def test_the_kernels_of_a_kind_are_its_collectives_in_their_order(self) -> None:
        called = [*self.collectives(None, None), *self.collectives(None, kind="reduce_scatter")]
        kernels = [(30, "ncclDevKernel_AllGather_RING_LL(a)", 3.0), (10, "ncclDevKernel_AllGather_RING_LL(a)", 1.0),
                   (20, "gemm", 9.0), (5, "ncclDevKernel_AllReduce_Sum_f32_RING_LL(a)", 7.0)]
        worker.add_times(called, kernels)
        self.assertEqual([each["seconds"] for each in called], [1.0, 3.0, None])

    def test_times_of_pytorch_are_listed_with_ours(self) -> None:
        reports = [{"traffic": {"collectives": self.collectives(None, None)}}]
        table = [{"seconds_median": 1.0}, {"seconds_median": 2.0}]
        theirs = [{"collectives": self.collectives(*seconds)} for seconds in ((1.0, 4.0), (2.0, 4.0), (3.0, 4.0))]
        rows = judge.pytorch_collective_rows(reports, theirs, table)
        self.assertEqual([(row.result, row.found, row.expected) for row in rows], [("pass", 2, 2), ("note", 3.0, 6.0)])
        self.assertEqual([row["pytorch_seconds_median"] for row in table], [2.0, 4.0])
        theirs[1]["collectives"][1]["payload_bytes"] += 1
        rows = judge.pytorch_collective_rows(reports, theirs, table)
        self.assertEqual([(row.result, row.why) for row in rows], [("fail", "other ones on rank 1")])

    def test_a_card_has_many_names(self) -> None:
        names = ["H100-SXM5-80GB", "H100 80GB HBM3", "H100 SXM"]
        self.assertTrue(judge.is_called("NVIDIA H100 80GB HBM3", names))
        self.assertTrue(judge.is_called("Tesla T4", ["T4", "Tesla T4"]))
        self.assertFalse(judge.is_called("NVIDIA H100 NVL", names))

    def test_a_bound_is_a_share_of_what_is_expected(self) -> None:
        for found, expected, result in ((101, 100, "pass"), (102, 100, "fail"), (98, 100, "fail"), (0, 0, "pass"), (1, 0, "fail")):
            self.assertEqual(judge.within("", "", found, expected, "B", 0.01).result, result, (found, expected))

    def test_nonfinite_or_constant_losses_fail(self) -> None:
        def reports(*losses: float) -> list[dict[str, Any]]:
            return [{"steps": [{"loss": loss} for loss in losses]}]

        for losses, result in (((2.0, 1.9), "pass"), ((2.0, float("nan")), "fail"), ((2.0, 2.0), "fail")):
            self.assertEqual(judge.loss_rows(reports(*losses), False)[0].result, result)

    def test_losses_are_compared_with_pytorch(self) -> None:
        def side(loss: float, wall: float) -> list[dict[str, Any]]:
            step = {"loss": loss, "wall_seconds": wall, "live_peak_bytes": 1, "allocated_peak_bytes": 1, "reserved_peak_bytes": 1,
                    "requested": 1, "allocated": 1, "reserved": 1}
            return [{"steps": [step, step]}]

        for other, in_16_bits, result in ((2.0, False, "pass"), (2.001, False, "pass"), (2.01, False, "fail"), (2.01, True, "pass"),
                                          (2.1, True, "fail")):
            row = judge.pytorch_rows(side(2.0, 1), side(other, 2), in_16_bits, False)[0]
            self.assertEqual(row.result, result, (other, in_16_bits))

    def test_answer_that_differs_from_the_stub_fails(self) -> None:
        rows = judge.claim_rows({"attention": "flash", "workspace": 8}, {"attention": "cuDNN", "workspace": 8})
        self.assertEqual([row.result for row in rows], ["fail", "pass"])

    def test_shared_gpu_proves_no_transport(self) -> None:
        report = {"cluster": {"gpu": "X, shared by several ranks"}, "traffic": {"collectives": []}}
        self.assertEqual(judge.collective_rows([report], None)[0].result, "fail")


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[4:]], verbosity=1)
