"""Plans of the flavor torchtitan-0.3 are held to torchtitan 0.3's own decoder, attention, checkpointing, units and loss under the real
FSDP2: collectives, and requested, allocated and reserved bytes of each phase.

    titan_decoder_test.py STUB FSDP_PLAN ENVIRONMENTS [CASE...]      eager and graphs are all cases of one; exit 77 without PyTorch 2.13 or torchtitan 0.3

torchtitan 0.3 needs PyTorch 2.13: ./scripts/rehearsal_env torch-2.13.0 simple-fsdp finetuning.
"""

from __future__ import annotations

import dataclasses
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from typing import Any

sys.dont_write_bytecode = True
HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path[:0] = [str(HERE), str(HERE.parent / "support")]
from command import answer  # noqa: E402
from plan_cases import shrink  # noqa: E402

STUB, PROGRAM = (pathlib.Path(argument).resolve() for argument in sys.argv[1:3])
PYTHON = pathlib.Path(sys.argv[3]) / "torch-2.13.0" / "bin" / "python"
STEPS = 3
BLOCKS = "model.layers.{0..%d}"


@dataclasses.dataclass
class Case:
    name: str
    model: str  # From the library.
    titan: tuple[str, str]  # torchtitan's model and flavor.
    gpus: int
    checkpoint: str = "none"
    batch: int = 1
    documents: tuple[int, ...] = (1024, 512, 512)
    layers: int = 2
    chunked: bool = True
    graphs: bool = False
    bounds: tuple[float, float, float] = (0.001, 0.001, 0.03)  # Relative differences: requested, allocated, reserved.


LLAMA, QWEN = ("llama3", "8B"), ("qwen3", "8B")
CASES = [
    Case("llama_none", "llama3_1_8b", LLAMA, 4),
    Case("llama_full", "llama3_1_8b", LLAMA, 4, "full"),
    Case("llama_selective", "llama3_1_8b", LLAMA, 4, "selective"),
    Case("llama_rows", "llama3_1_8b", LLAMA, 8, "selective", batch=2),
    Case("llama_whole_loss", "llama3_1_8b", LLAMA, 2, "selective", chunked=False),
    Case("qwen_none", "qwen3_8b", QWEN, 8),
    Case("qwen_selective", "qwen3_8b", QWEN, 8, "selective"),
    Case("qwen_full_rows", "qwen3_8b", QWEN, 16, "full", batch=2),
]
GRAPH_CASES = [
    Case("graph_llama", "llama3_1_8b", LLAMA, 4, "selective", graphs=True),
    Case("graph_llama_none", "llama3_1_8b", LLAMA, 8, graphs=True),
    Case("graph_llama_rows", "llama3_1_8b", LLAMA, 2, "full", batch=2, graphs=True),
    Case("graph_qwen", "qwen3_8b", QWEN, 8, "selective", graphs=True),
    Case("graph_qwen_full", "qwen3_8b", QWEN, 16, "full", graphs=True),
]


def plan_of(case: Case, spec_file: pathlib.Path, spec: dict[str, Any]) -> dict[str, Any]:
    blocks = BLOCKS % (case.layers - 1)
    loss = {"loss": "torchtitan_chunked", "upcast_logits": False} if case.chunked else {}
    modules = {"modules": [{"module": blocks, "mode": case.checkpoint}], "early_stop": False}
    return {
        "format_version": "1.0",
        "model": {"name": spec["name"], "file": str(spec_file), "recipe": "", "dimensions": {"batch": case.batch, "seq": sum(case.documents)},
                  "packing": {"document_length": ",".join(map(str, case.documents)), "attention": "flex"}},
        "mesh": {"replicate": 1, "shard": case.gpus},
        "units": [{"modules": ["model.embed_tokens"]}, {"modules": [blocks], "modules_per_unit": 1},
                  {"modules": ["model.norm", "lm_head"], "reshard_after_forward": False}, {"modules": [""]}],
        "parameter_dtype": "float32",
        "mixed_precision": {"param_dtype": "bfloat16", "reduce_dtype": "float32", "cast_forward_inputs": False},
        **({} if case.checkpoint == "none" else {"activation_checkpointing": modules}),
        "optimizer": {"implementation": "fused", "clip_grad_norm": 1.0},
        **({"cuda_graphs": True} if case.graphs else {}),
        "runtime": {"name": "pytorch-fsdp2", "flavor": "torchtitan-0.3", "version": "2.13", "implementations": loss},
    }


def measure(case: Case, folder: pathlib.Path) -> dict[str, Any]:
    """The record of one rank of torchtitan's decoder."""
    record = folder / "record.json"
    world = str(case.gpus)
    environment = {
        **os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "python" / "hook"), os.environ["PYTHONPATH"]]),
        "FSDP_REHEARSAL": "1", "FSDP_REHEARSAL_STUB": str(STUB), "FSDP_REHEARSAL_RECORD": str(record), "FSDP_REHEARSAL_STEPS": str(STEPS),
        "OMP_NUM_THREADS": "1", "FSDP_REHEARSAL_RANK": "0", "FSDP_REHEARSAL_WORLD_SIZE": world, "RANK": "0", "WORLD_SIZE": world,
        "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": world, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500", "STUB_GPU_COUNT": world,
        "STUB_GPU_CUDNN_WORKSPACE_BYTES": "0", "STUB_GPU_EVENTS": "done"}  # fmt: skip
    choices = {"model": case.titan[0], "flavor": case.titan[1], "layers": case.layers, "batch": case.batch, "documents": case.documents,
               "checkpoint": case.checkpoint, "attention": "flex", "chunked": case.chunked, "graphs": case.graphs}
    done = subprocess.run([PYTHON, "-B", HERE / "scripts" / "titan_decoder.py", json.dumps(choices)], env=environment, capture_output=True,
                          text=True, timeout=900)
    if not record.is_file():
        raise AssertionError(f"no record, exit status {done.returncode}\n{done.stdout}\n{done.stderr}")
    return json.loads(record.read_text(encoding="utf-8"))


def collectives_of(entries: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    return [(c["kind"], c["elements"], c["dtype"], c["group_size"]) for c in entries]


class TorchtitansDecoder(unittest.TestCase):
    def check(self, case: Case) -> None:
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            spec = shrink(json.loads((ROOT / "model_specs" / f"{case.model}.json").read_text(encoding="utf-8")), case.layers)
            spec.pop("$schema", None)
            (folder / "spec.json").write_text(json.dumps(spec), encoding="utf-8")
            (folder / "plan.json").write_text(json.dumps(plan_of(case, folder / "spec.json", spec)), encoding="utf-8")
            gpus = min(case.gpus, 8)
            predicted = answer(PROGRAM, "simulate", str(folder / "plan.json"), "--gpu", "H100 SXM", "--gpus", str(gpus), "--nodes",
                               str(case.gpus // gpus), "--json")
            given = os.environ.get("TITAN_RECORDS")
            measured = json.loads((pathlib.Path(given) / f"{case.name}.json").read_text()) if given else measure(case, folder)
        self.compare(case, measured, predicted)

    def compare(self, case: Case, measured: dict[str, Any], predicted: dict[str, Any]) -> None:
        rows = []
        for phase in measured["memory"]["phases"]:
            # The script compiles attention before it makes the decoder, and the initialization of a rehearsal ends at the first forward.
            # Inductor stores what it compiles, which counts as saving.
            if phase["phase"] == "initialization" or phase["phase"] not in predicted["memory"]["phases"]:
                continue
            said = predicted["memory"]["phases"][phase["phase"]]
            for kind, key, most in zip(("requested", "allocated", "reserved"),
                                       ("live_peak_bytes", "allocated_peak_bytes", "reserved_peak_bytes"), case.bounds):
                rows.append((phase["phase"], kind, phase[kind], said[key], most))
                print(f"{case.name:20} {phase['phase']:15} {kind:10} {phase[kind]:14} {said[key] - phase[kind]:+13} "
                      f"{100 * (said[key] - phase[kind]) / phase[kind]:+.3f} %", flush=True)
        self.assertEqual(collectives_of(measured["collectives"]["steady_step"]), collectives_of(predicted["traffic"]["collectives"]))
        for phase, kind, found, said, most in rows:
            with self.subTest(case.name, phase=phase, kind=kind):
                self.assertLessEqual(abs(said - found), most * found)


GROUPS = {"eager": CASES, "graphs": GRAPH_CASES}
for _group, _case in [(group, case) for group, cases in GROUPS.items() for case in cases]:
    if not sys.argv[4:] or {_case.name, _group} & set(sys.argv[4:]):
        setattr(TorchtitansDecoder, f"test_{_case.name}", lambda self, case=_case: self.check(case))

if __name__ == "__main__":
    if not PYTHON.is_file() or any(importlib.util.find_spec(package) is None for package in ("torchtitan", "datasets")):
        print("Write: ./scripts/rehearsal_env torch-2.13.0 simple-fsdp finetuning", file=sys.stderr)
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)
