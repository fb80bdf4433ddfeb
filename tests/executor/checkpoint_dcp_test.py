"""Passes checkpoints between fsdp-exec and PyTorch's FSDP2 (torch.distributed.checkpoint), and expects the same bits at the
end, whichever program trains which half of the run.

    checkpoint_dcp_test.py FSDP_EXEC FSDP_PLAN      run by a Python that has torch
"""

from __future__ import annotations

import functools
import io
import json
import multiprocessing
import os
import pathlib
import pickle
import random
import struct
import sys
import unittest
import zlib
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


class Converted(InAFolder):
    def plan(self, case: Case) -> pathlib.Path:
        return case.write(self.folder, case.name)

    def ours(self, case: Case, name: str, *options: str, steps: int = 4) -> dict[str, Any]:
        return run_executor(EXECUTOR, self.plan(case), case.ranks, self.folder, name,
                            [*SEED, "--lr", RATE, "--steps", str(steps), "--reduction", "parity", *options])

    def theirs(self, case: Case, name: str, *options: str) -> dict[str, Any]:
        return run_reference(PLANNER, self.plan(case), case.ranks, self.folder, name, 2,
                             [*SEED, "--learning-rate", RATE, *options])

    def convert(self, *words: str, code: int = 0, said: str = "") -> None:
        """Runs in a fork, which has torch already."""
        import fsdp_checkpoint.__main__ as program  # Torch computes nothing before the fork.

        log = self.folder / "convert.log"

        def run() -> None:
            sys.argv = ["fsdp_checkpoint", *words]
            with open(log, "w", encoding="utf-8") as sys.stderr:
                ended = program.main()
            os._exit(ended)

        self.forked(run, code)
        printed = log.read_text(encoding="utf-8")
        self.assertIn(said, printed)
        self.assertNotIn("Traceback", printed)

    def forked(self, run: Callable[[], None], code: int = 0) -> None:
        process = multiprocessing.get_context("fork").Process(target=run)
        process.start()
        process.join(LIMIT_SECONDS)
        self.assertEqual(process.exitcode, code)

    def command(self, mark: pathlib.Path) -> Any:
        """An object that makes the file when it is unpickled."""

        class Command:
            def __reduce__(self) -> tuple[Any, tuple[str]]:
                return os.system, (f"touch {mark}",)

        return Command()

    def put_in_the_place_of(self, dcp: pathlib.Path, end: str, value: Any) -> None:
        """Replaces the value under the key with this ending."""
        def run() -> None:
            import torch

            metadata = pickle.loads((dcp / ".metadata").read_bytes())
            index = next(each for each in metadata.storage_data if each.fqn.endswith(end))
            data = io.BytesIO()
            torch.save(value, data)
            (dcp / "strange").write_bytes(data.getvalue())
            info = metadata.storage_data[index]
            info.relative_path, info.offset, info.length = "strange", 0, len(data.getvalue())
            (dcp / ".metadata").write_bytes(pickle.dumps(metadata))

        self.forked(run)


class AcrossPrograms(Converted):
    def expect_second_half(self, half: dict[str, Any], whole: dict[str, Any]) -> None:
        losses = [[[step["loss"] for step in steps] for steps in run["steps"]] for run in (half, whole)]
        self.assertEqual(losses[0], [steps[2:] for steps in losses[1]])
        self.assertEqual(differing(half["parameters"], whole["parameters"]), [])

    def test_pytorch_reads_ours_directly_and_as_dcp(self) -> None:
        case = Case("mixed", "llama3_2_1b", 2, {**MIXED, **CLIPPED})
        draw = random.Random(1)
        ids = [draw.randrange(257) for _ in range(24 * 4 * 8)]
        (self.folder / "ids.bin").write_bytes(struct.pack(f"<{len(ids)}i", *ids))
        text = ["--tokens", str(self.folder / "ids.bin")]
        data = [*text, "--token-dtype", "int32"]
        whole = self.ours(case, "whole", *data)
        # With one micro-batch the sum is the mean, and the index names it.
        self.ours(case, "half", *data, "--checkpoint-dir", str(self.folder / "ours"), "--accumulation", "sum", steps=2)
        step = self.folder / "ours" / "step-00000002"
        self.assertGreater(index_of(step)["samples"], 0)
        self.expect_second_half(self.theirs(case, "direct", *text, "--load", str(step), "--steps-before", "2"), whole)
        self.convert("to-dcp", str(step), str(self.folder / "dcp"))
        self.assertTrue((self.folder / "dcp" / ".metadata").is_file())
        self.expect_second_half(
            self.theirs(case, "dcp-run", *text, "--load", str(self.folder / "dcp"), "--steps-before", "2"), whole)
        # The way back loses nothing.
        self.convert("from-dcp", str(self.folder / "dcp"), str(self.folder / "back"), "--seed", "7",
                     "--micro-batches", "4")
        self.assertEqual(differing(contents_of(self.folder / "back"), contents_of(step)), [])
        self.assertEqual(index_of(self.folder / "back")["step"], 2)
        # Nor does it lose the place in the data and the learning rate if nobody names them.
        self.convert("from-dcp", str(self.folder / "dcp"), str(self.folder / "again"))
        kept = [key for key in index_of(step) if key not in ("mesh", "files", "crc32_of_text_before")]
        again = index_of(self.folder / "again")
        self.assertEqual({key: again[key] for key in kept}, {key: index_of(step)[key] for key in kept})
        rest = run_executor(EXECUTOR, self.plan(case), case.ranks, self.folder, "rest",
                            ["--resume", str(self.folder / "again"), "--steps", "4", "--reduce", "parity", *data])
        self.expect_second_half(rest, whole)

    def test_code_in_foreign_checkpoints_does_not_run(self) -> None:
        dcp, mark = self.folder / "dcp", self.folder / "mark"
        dcp.mkdir()
        (dcp / ".metadata").write_bytes(pickle.dumps(self.command(mark)))
        self.convert("from-dcp", str(dcp), str(self.folder / "out"), code=2, said="posix.system")
        self.assertFalse(mark.exists())
        self.assertFalse((self.folder / "out").exists())
        for name in "eval", "getattr":
            (dcp / ".metadata").write_bytes(f"cbuiltins\n{name}\n(V1\ntR.".encode())
            self.convert("from-dcp", str(dcp), str(self.folder / "out"), code=2, said=f"builtins.{name}")
        # Nor may it give PyTorch's classes other members.
        (dcp / ".metadata").write_bytes(b"ctorch.distributed.checkpoint.metadata\nMetadata\n(N(Vstorage_meta\nVx\ndtb.")
        self.convert("from-dcp", str(dcp), str(self.folder / "out"), code=2, said="it changes a class")

    def test_pytorch_runner_does_not_run_code_in_checkpoints(self) -> None:
        case = Case("strange", "qwen3_0_6b", 1)
        dcp, mark = self.folder / "dcp", self.folder / "mark"
        self.theirs(case, "half", "--save", str(dcp))
        metadata = (dcp / ".metadata").read_bytes()
        self.put_in_the_place_of(dcp, ".lr", self.command(mark))
        with self.assertRaisesRegex(AssertionError, r"error: 'optim.param_groups.*lr' is not read, because it may run"):
            self.theirs(case, "bytes", "--load", str(dcp))
        (dcp / ".metadata").write_bytes(pickle.dumps(self.command(mark)))
        with self.assertRaisesRegex(AssertionError, "error: .*/.metadata: it names posix.system"):
            self.theirs(case, "metadata", "--load", str(dcp))
        self.assertFalse(mark.exists())
        (dcp / ".metadata").write_bytes(metadata)
        self.theirs(case, "rest", "--load", str(dcp))

    def test_other_rank_counts_read_pytorch_checkpoints(self) -> None:
        case = Case("sgd", "qwen3_0_6b", 3, SGD)
        whole = self.ours(case, "whole", "--checkpoint-dir", str(self.folder / "w"))
        self.theirs(case, "half", "--save", str(self.folder / "dcp"))
        # With tensors only, a plan identifies the model.
        dcp, out = str(self.folder / "dcp"), str(self.folder / "c" / "step-00000002")
        self.convert("from-dcp", dcp, out, code=2, said="it does not say of which model it is. Name a plan of that model: --plan")
        plan = json.loads(self.plan(case).read_text(encoding="utf-8"))
        named = self.folder / "named.json"
        named.write_text(json.dumps(plan), encoding="utf-8")
        self.convert("from-dcp", dcp, out, "--plan", str(named), code=2, said="this is not a plan that names its model and fingerprint")
        self.assertFalse((self.folder / "c").exists())
        plan["model"]["fingerprint"] = index_of(self.folder / "w" / "step-00000004")["model_fingerprint"]
        named.write_text(json.dumps(plan), encoding="utf-8")
        # The rate comes from the optimizer's group.
        self.convert("from-dcp", dcp, out, "--plan", str(named), "--seed", "7", "--micro-batches", "6", "--step", "2",
                     said="Assumed: samples 0 (--samples says otherwise).")
        self.assertEqual(index_of(self.folder / "c" / "step-00000002")["learning_rate"], float(RATE))
        self.expect_second_half(self.ours(case, "rest", "--resume", str(self.folder / "c" / "step-00000002")), whole)

    def expect_pytorchs_own_tools_to_read(self, parts: pathlib.Path, parameters: dict[str, Any]) -> None:
        """Runs if the package safetensors is in one of the environments of the rehearsals, since PyTorch's tools need it."""
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

    def test_parameters_export_as_one_file(self) -> None:
        case = Case("one", "qwen3_0_6b", 3)
        run = self.ours(case, "run", "--checkpoint-dir", str(self.folder / "ours"), steps=1)
        out = self.folder / "model.safetensors"
        self.convert("to-safetensors", str(self.folder / "ours" / "step-00000001"), str(out))
        self.assertEqual(differing(parameters_of(out), run["parameters"]), [])
        parts = self.folder / "ours" / "step-00000001" / "model"
        self.expect_pytorchs_own_tools_to_read(parts, run["parameters"])
        # Both are initial weights; a rate of 0 does not change them.
        for name, weights in {"file": out, "parts": parts}.items():
            with started(EXECUTOR, 3, [self.plan(case)], self.folder,
                         ["--steps", "1", "--lr", "0", "--weights", str(weights), "--save-parameters",
                          str(self.folder / name)]) as ranks:
                self.assertEqual([rank.wait() for rank in ranks], [0] * 3, ranks[0].printed)
            self.assertEqual(differing(parameters_of(self.folder / name), run["parameters"]), [])


def part_of(tensors: dict[str, tuple[list[int], bytes]], **changes: Any) -> bytes:
    """A file of F32 parts. `changes`: members of each tensor's entry; `length` is that of the header."""
    begin, header = 0, {}
    offsets = {name: {"saved_offsets": [0] * len(shape)} for name, (shape, _) in tensors.items()}
    for name, (shape, data) in tensors.items():
        header[name] = {"dtype": "F32", "shape": shape, "data_offsets": [begin, begin + len(data)],
                        **{key: value for key, value in changes.items() if key not in ("length", "offsets")}}
        begin += len(data)
    header["__metadata__"] = {"DCP_SHARDING_INFO": json.dumps(changes.get("offsets", offsets))}
    text = json.dumps(header).encode()
    return struct.pack("<Q", changes.get("length", len(text))) + text + b"".join(data for _, data in tensors.values())


MODEL = {"w": ([2, 3], struct.pack("<6f", *range(6)))}
STATES = {"state.w.step": ([], struct.pack("<f", 4.0)), "state.w.exp_avg": MODEL["w"], "state.w.exp_avg_sq": MODEL["w"]}


class FilesOfStrangers(Converted):
    """A small checkpoint with a stranger's changes."""

    def step(self, folder: str, model: bytes = part_of(MODEL), /, **changes: Any) -> pathlib.Path:
        """`changes`: members of the index, or of its first file if there is no such member."""
        step = self.folder / folder
        files = {"model/a.safetensors": model, "optimizer/a.safetensors": part_of(STATES)}
        for file, data in files.items():
            (step / file).parent.mkdir(parents=True)
            (step / file).write_bytes(data)
        entries = [{"name": file, "bytes": len(data), "crc32": zlib.crc32(data)} for file, data in files.items()]
        index: dict[str, Any] = {
            "format_version": "1.0", "model": "m", "model_fingerprint": "f", "step": 4, "micro_batches": 4, "samples": 8,
            "seed": 7, "learning_rate": 0.25, "training": {}, "optimizer": "adamw", "files": entries}
        for key, value in changes.items():
            (index if key in index else entries[0])[key] = value
        self.write_index(step, {key: value for key, value in index.items() if value is not None})
        return step

    def write_index(self, step: pathlib.Path, index: dict[str, Any]) -> None:
        text = json.dumps(index)[:-1] + ", "
        text += f'"crc32_of_text_before": {zlib.crc32(text.encode())}}}'
        (step / "checkpoint.json").write_text(text, encoding="utf-8")

    def refused(self, what: str, source: pathlib.Path, said: str, *options: str) -> None:
        out = self.folder / "out"
        with self.subTest(said):
            self.convert(what, str(source), str(out), *options, code=2, said=said)
            self.assertEqual([each.name for each in self.folder.iterdir() if "out" in each.name], [])

    def test_checkpoint_with_wrong_names_sizes_or_bytes_is_refused(self) -> None:
        good = self.step("good")
        self.convert("to-safetensors", str(good), str(self.folder / "whole"))
        self.assertEqual(parameters_of(self.folder / "whole")["w"], ("F32", (2, 3), MODEL["w"][1]))
        self.convert("to-safetensors", str(good), str(self.folder / "whole"), code=2, said="it is there already")
        (self.folder / "secret.safetensors").write_bytes(part_of(MODEL))
        wrong = [
            (self.step("elsewhere", name="model/../../secret.safetensors"), "files: 'model/../../secret.safetensors' is not the name"),
            (self.step("root", name=str(self.folder / "secret.safetensors")), "is not the name of a checkpoint file"),
            (self.step("control", name="model/\x1b[2J"), "model/\\x1b[2J: the file is missing"),
            (self.step("long", bytes=1 << 40), "the file is missing, or not as long as it was written"),
            (self.step("nan", bytes=float("nan")), "this is not JSON: NaN is no number"),
            (self.step("sum", crc32=1), "the file is damaged: its checksum is "),
            (self.step("none", files=None), "files: a list was expected"),
            (self.step("text", files=["model/a.safetensors"]), "files: objects with a name were expected"),
            (self.step("version", format_version="2.0"), "the format version is '2.0'; 1.0 is read"),
            (self.step("header", part_of(MODEL, length=1 << 40)), f"its header would have {1 << 40} bytes"),
            (self.step("offsets", part_of(MODEL, data_offsets=[1 << 50, (1 << 50) + 24])), "its header describes others"),
            (self.step("shape", part_of(MODEL, shape=[1 << 40, 3])), "'w' has 24 bytes, which do not fit its shape"),
            (self.step("members", part_of(MODEL, shape="2x3")), "'w': a dtype, a shape and two offsets were expected"),
            (self.step("rows", part_of(MODEL, offsets={"w": {"saved_offsets": [5, 0]}})), "the rows of 'w' begin at 5, and 0"),
            (self.step("parts", part_of(MODEL, offsets={})), "an offset for each dimension was expected"),
        ]
        for step, said in wrong:
            self.refused("to-safetensors", step, said)
        index = self.folder / "sum" / "checkpoint.json"
        index.write_text(index.read_text(encoding="utf-8").replace("0.25", "0.75"), encoding="utf-8")
        self.refused("to-dcp", index.parent, "the index is damaged: its checksum does not match")
        index.write_text("[" * 100000, encoding="utf-8")
        self.refused("to-dcp", index.parent, "this is not JSON")
        index.unlink()
        self.refused("to-dcp", index.parent, "this is not a checkpoint folder")
        (self.folder / "config.json").write_text("{", encoding="utf-8")
        self.refused("to-hf", good, "config.json: this is not JSON", "--config", str(self.folder / "config.json"))

    def test_damaged_file_is_found_before_a_model_reads_it(self) -> None:
        def run(step: pathlib.Path, said: str) -> None:
            import torch
            import torch.distributed.checkpoint as dcp
            from fsdp_checkpoint import CheckpointReader

            state = {"model": {"w": torch.zeros(2, 3)}}
            try:
                dcp.load(state, storage_reader=CheckpointReader(step), no_dist=True)
            except dcp.api.CheckpointException as error:
                os._exit(3 if said in str(error) and not state["model"]["w"].any() else 4)

        for step, said in ((self.step("sum", crc32=1), "its checksum is"), (self.step("long", bytes=3), "not as long as")):
            self.forked(functools.partial(run, step, said), 3)

    def test_options_that_no_run_could_resume_are_refused(self) -> None:
        dcp = self.folder / "dcp"
        self.convert("to-dcp", str(self.step("good")), str(dcp))
        self.convert("from-dcp", str(dcp), str(self.folder / "back"))
        self.assertEqual(index_of(self.folder / "back")["samples"], 8)
        for options, said in ((["--lr", "nan"], "--lr: nan: a number from 0 to"), (["--lr", "inf"], "--lr: inf: a number"),
                              (["--lr", "-1"], "--lr: -1.0: a number"), (["--step", "-1"], "--step: -1: a whole number"),
                              (["--samples", "-8"], "--samples: -8: a whole number"),
                              (["--seed", str(1 << 70)], "a whole number of 64 bits")):
            self.refused("from-dcp", dcp, said, *options)
        for value, said in (('{"learning_rate": -1.0}', "fsdp_exec.index: learning_rate: -1.0: a number from 0 to"),
                            ('{"step": "4"}', "fsdp_exec.index: step: '4': a whole number"),
                            ('{"learning_rate": NaN}', "NaN is no number"), (7, "is not a file of to-dcp")):
            self.put_in_the_place_of(dcp, "fsdp_exec.index", value)
            self.refused("from-dcp", dcp, said)

    def test_metadata_beyond_the_data_is_refused(self) -> None:
        dcp = self.folder / "dcp"
        self.convert("to-dcp", str(self.step("good")), str(dcp))
        good = (dcp / ".metadata").read_bytes()

        def with_changes(change: Callable[[Any, Any], None]) -> None:
            def run() -> None:
                import torch

                metadata = pickle.loads(good)
                change(metadata, torch)
                (dcp / ".metadata").write_bytes(pickle.dumps(metadata))

            self.forked(run)

        def larger(metadata: Any, torch: Any) -> None:
            described = metadata.state_dict_metadata["model.w"]
            described.size = described.chunks[0].sizes = torch.Size([1 << 40, 3])

        def with_holes(metadata: Any, torch: Any) -> None:
            metadata.state_dict_metadata["model.w"].size = torch.Size([3, 3])

        def outside(metadata: Any, torch: Any) -> None:
            next(iter(metadata.storage_data.values())).relative_path = "../good/model/a.safetensors"

        def beyond(metadata: Any, torch: Any) -> None:
            next(iter(metadata.storage_data.values())).length = 1 << 40

        for change, said in ((larger, "bytes, too few for"), (with_holes, "'model.w' has 9 elements, and its parts have 6"),
                             (outside, "which is not in its folder"), (beyond, "that it does not have")):
            with_changes(change)
            self.refused("from-dcp", dcp, said)
        (dcp / ".metadata").write_bytes(good)
        file = next(dcp.glob("*.distcp"))
        file.write_bytes(b"\0" * file.stat().st_size)
        self.refused("from-dcp", dcp, "is not a file of to-dcp")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
