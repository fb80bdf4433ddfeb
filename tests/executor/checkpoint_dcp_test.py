"""Checkpoints cross over between fsdp-exec and PyTorch's FSDP2 (torch.distributed.checkpoint), and the run goes on to
the same bits, whoever trains which half of it.

    checkpoint_dcp_test.py FSDP_EXEC FSDP_PLAN      run by a Python that has torch
"""

from __future__ import annotations

import json
import multiprocessing
import os
import pathlib
import pickle
import sys
import unittest
from collections.abc import Callable
from typing import Any

sys.dont_write_bytecode = True
os.environ["OMP_NUM_THREADS"] = "1"
sys.path[:0] = [str(pathlib.Path(__file__).parent)]
from checkpoints import contents_of, differing, index_of  # noqa: E402
from parity_cases import CLIPPED, MIXED, Case  # noqa: E402
from ranks import LIMIT_SECONDS, ROOT, InAFolder, parameters_of, run_executor, run_reference, started  # noqa: E402

EXECUTOR, PLANNER = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
SEED, RATE = ["--seed", "7"], "0.001"
SGD = {"optimizer": {"kind": "sgd", "momentum": 0.9, "weight_decay": 0.1}}


class AcrossPrograms(InAFolder):
    def plan(self, case: Case) -> pathlib.Path:
        return case.write(self.folder, case.name)

    def ours(self, case: Case, name: str, *options: str, steps: int = 4) -> dict[str, Any]:
        return run_executor(EXECUTOR, self.plan(case), case.ranks, self.folder, name,
                            [*SEED, "--lr", RATE, "--steps", str(steps), "--reduction", "parity", *options])

    def theirs(self, case: Case, name: str, *options: str) -> dict[str, Any]:
        return run_reference(PLANNER, self.plan(case), case.ranks, self.folder, name, 2,
                             [*SEED, "--learning-rate", RATE, *options])

    def convert(self, *words: str, code: int = 0, said: str = "") -> None:
        """In a fork, which has torch already."""
        import fsdp_checkpoint.__main__ as program  # Torch computes nothing before the fork.

        log = self.folder / "convert.log"

        def run() -> None:
            sys.argv = ["fsdp_checkpoint", *words]
            with open(log, "w", encoding="utf-8") as sys.stderr:
                ended = program.main()
            os._exit(ended)

        self.forked(run, code)
        self.assertIn(said, log.read_text(encoding="utf-8"))

    def forked(self, run: Callable[[], None], code: int = 0) -> None:
        process = multiprocessing.get_context("fork").Process(target=run)
        process.start()
        process.join(LIMIT_SECONDS)
        self.assertEqual(process.exitcode, code)

    def expect_second_half(self, half: dict[str, Any], whole: dict[str, Any]) -> None:
        losses = [[[step["loss"] for step in steps] for steps in run["steps"]] for run in (half, whole)]
        self.assertEqual(losses[0], [steps[2:] for steps in losses[1]])
        self.assertEqual(differing(half["parameters"], whole["parameters"]), [])

    def test_ours_read_by_pytorch_as_it_is_and_as_dcp(self) -> None:
        case = Case("mixed", "llama3_2_1b", 2, {**MIXED, **CLIPPED})
        whole = self.ours(case, "whole")
        # Of one micro-batch the sum is the mean, and the index says which.
        self.ours(case, "half", "--checkpoint-dir", str(self.folder / "ours"), "--accumulation", "sum", steps=2)
        step = self.folder / "ours" / "step-00000002"
        self.expect_second_half(self.theirs(case, "direct", "--load", str(step), "--steps-before", "2"), whole)
        self.convert("to-dcp", str(step), str(self.folder / "dcp"))
        self.assertTrue((self.folder / "dcp" / ".metadata").is_file())
        self.expect_second_half(self.theirs(case, "dcp-run", "--load", str(self.folder / "dcp"), "--steps-before", "2"),
                                whole)
        # And back: nothing is lost on the way.
        self.convert("from-dcp", str(self.folder / "dcp"), str(self.folder / "back"), "--seed", "7",
                     "--micro-batches", "4")
        self.assertEqual(differing(contents_of(self.folder / "back"), contents_of(step)), [])
        self.assertEqual(index_of(self.folder / "back")["step"], 2)
        # Nor the place in the data and the learning rate, where nobody names them.
        self.convert("from-dcp", str(self.folder / "dcp"), str(self.folder / "again"))
        kept = [key for key in index_of(step) if key not in ("mesh", "files", "crc32_of_text_before")]
        again = index_of(self.folder / "again")
        self.assertEqual({key: again[key] for key in kept}, {key: index_of(step)[key] for key in kept})

    def test_what_a_stranger_wrote_is_not_run(self) -> None:
        dcp, mark = self.folder / "dcp", self.folder / "mark"
        dcp.mkdir()

        class Command:
            def __reduce__(self) -> tuple[Any, tuple[str]]:
                return os.system, (f"touch {mark}",)

        (dcp / ".metadata").write_bytes(pickle.dumps(Command()))
        self.convert("from-dcp", str(dcp), str(self.folder / "out"), code=2, said="posix.system")
        self.assertFalse(mark.exists())
        self.assertFalse((self.folder / "out").exists())
        for name in "eval", "getattr":
            (dcp / ".metadata").write_bytes(f"cbuiltins\n{name}\n(V1\ntR.".encode())
            self.convert("from-dcp", str(dcp), str(self.folder / "out"), code=2, said=f"builtins.{name}")

    def test_pytorchs_read_by_other_ranks_of_ours(self) -> None:
        case = Case("sgd", "qwen3_0_6b", 3, SGD)
        whole = self.ours(case, "whole", "--checkpoint-dir", str(self.folder / "w"))
        self.theirs(case, "half", "--save", str(self.folder / "dcp"))
        # Tensors alone: a plan says which model they are of.
        dcp, out = str(self.folder / "dcp"), str(self.folder / "c" / "step-00000002")
        self.convert("from-dcp", dcp, out, code=2, said="it does not say of which model it is. Name a plan of that model: --plan")
        plan = json.loads(self.plan(case).read_text(encoding="utf-8"))
        named = self.folder / "named.json"
        named.write_text(json.dumps(plan), encoding="utf-8")
        self.convert("from-dcp", dcp, out, "--plan", str(named), code=2, said="this is not a plan that names its model and fingerprint")
        self.assertFalse((self.folder / "c").exists())
        plan["model"]["fingerprint"] = index_of(self.folder / "w" / "step-00000004")["model_fingerprint"]
        named.write_text(json.dumps(plan), encoding="utf-8")
        # The rate is that of the optimizer's group.
        self.convert("from-dcp", dcp, out, "--plan", str(named), "--seed", "7", "--micro-batches", "6", "--step", "2",
                     said="Assumed: samples 0 (--samples says otherwise).")
        self.assertEqual(index_of(self.folder / "c" / "step-00000002")["learning_rate"], float(RATE))
        self.expect_second_half(self.ours(case, "rest", "--resume", str(self.folder / "c" / "step-00000002")), whole)

    def expect_pytorchs_own_tools_to_read(self, parts: pathlib.Path, parameters: dict[str, Any]) -> None:
        """Where the package safetensors is in one of the environments of the rehearsals: they need it."""
        package = next(ROOT.glob("build/python/*/lib/python3*/site-packages/safetensors"), None)
        if package is None:
            print("PyTorch's own reader is not tried: no environment has safetensors", file=sys.stderr)
            return
        (self.folder / "packages").mkdir()
        (self.folder / "packages" / "safetensors").symlink_to(package)
        whole, read = self.folder / "whole", self.folder / "read"
        whole.mkdir()

        def run() -> None:
            sys.path.insert(0, str(self.folder / "packages"))
            import torch
            import torch.distributed.checkpoint as dcp
            from fsdp_plan_runner.stored import DTYPES
            from torch.distributed.checkpoint._consolidate_hf_safetensors import consolidate_safetensors_files

            consolidate_safetensors_files(str(parts), str(whole), dict.fromkeys(parameters, 1))
            state = {name: torch.empty(shape, dtype=DTYPES[dtype]) for name, (dtype, shape, _) in parameters.items()}
            dcp.load(state, storage_reader=dcp.HuggingFaceStorageReader(str(parts)), no_dist=True)
            equal = all(tensor.view(torch.uint8).numpy().tobytes() == parameters[name][2]
                        for name, tensor in state.items())
            read.write_text(str(equal), encoding="utf-8")

        self.forked(run)
        self.assertEqual(differing(parameters_of(next(whole.glob("*.safetensors"))), parameters), [])
        self.assertEqual(read.read_text(encoding="utf-8"), "True")

    def test_parameters_for_others_as_one_file(self) -> None:
        case = Case("one", "qwen3_0_6b", 3)
        run = self.ours(case, "run", "--checkpoint-dir", str(self.folder / "ours"), steps=1)
        out = self.folder / "model.safetensors"
        self.convert("to-safetensors", str(self.folder / "ours" / "step-00000001"), str(out))
        self.assertEqual(differing(parameters_of(out), run["parameters"]), [])
        parts = self.folder / "ours" / "step-00000001" / "model"
        self.expect_pytorchs_own_tools_to_read(parts, run["parameters"])
        # Both are weights to begin with; at a rate of 0 they stay as they are.
        for name, weights in {"file": out, "parts": parts}.items():
            with started(EXECUTOR, 3, [self.plan(case)], self.folder,
                         ["--steps", "1", "--lr", "0", "--weights", str(weights), "--save-parameters",
                          str(self.folder / name)]) as ranks:
                self.assertEqual([rank.wait() for rank in ranks], [0] * 3, ranks[0].printed)
            self.assertEqual(differing(parameters_of(self.folder / name), run["parameters"]), [])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
