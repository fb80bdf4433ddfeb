"""Runs the forward and backward of every model of the library on PyTorch's meta device, and holds two things to it: the
shape and dtype of each op's outputs, and which parameters receive a gradient.

    plan_runner_models_test.py FSDP_PLAN      run by a Python that has torch; no GPU, no stub

Rows of blocks are cut to two: the blocks of a row are alike. Beside that: what the runner refuses, and that it trains a
small model on the CPU.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = pathlib.Path(sys.argv[1]).resolve()
LIBRARY = ROOT / "model_specs"
sys.dont_write_bytecode = True
sys.path[:0] = [str(ROOT / "python"), str(pathlib.Path(__file__).parent), str(ROOT / "tests" / "support")]

import torch  # noqa: E402
from command import answer  # noqa: E402
from fsdp_plan_runner import kernels  # noqa: E402
from fsdp_plan_runner.expanded_model import DEFAULT_ATTRIBUTES, ExpandedModel  # noqa: E402
from fsdp_plan_runner.forward_program import CallStep, ForwardProgram  # noqa: E402
from fsdp_plan_runner.modules import activation_dtype, build_model  # noqa: E402
from fsdp_plan_runner.plan import Implementations, Plan, unfold  # noqa: E402
from fsdp_plan_runner.training import Batch, run_forward  # noqa: E402
from plan_cases import shrink  # noqa: E402

META = torch.device("meta")


def expand(spec: dict[str, Any], *words: str) -> ExpandedModel:
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "spec.json"
        path.write_text(json.dumps(spec), encoding="utf-8")
        return ExpandedModel(answer(PROGRAM, "models", path, "--expanded", *words))


def library_models() -> list[str]:
    return sorted(path.stem for path in LIBRARY.glob("*.json"))


def spec_named(name: str) -> dict[str, Any]:
    spec = shrink(json.loads((LIBRARY / f"{name}.json").read_text(encoding="utf-8")), 2)
    spec.pop("$schema", None)
    return spec


def plain_plan() -> Plan:
    return Plan({"model": {}, "mesh": {"replicate": 1, "shard": 1}, "units": [{"modules": [""]}]})


class OutputsOfOps:
    """Stands before each kernel and compares what it gives with what the model says."""

    def __init__(self, model: ExpandedModel) -> None:
        self.model = model
        self.problems: list[str] = []
        self.ops = 0

    def __enter__(self) -> OutputsOfOps:
        self._kernels = dict(kernels.KERNELS)
        for kind, kernel in self._kernels.items():
            kernels.KERNELS[kind] = self._checked(kernel)
        return self

    def __exit__(self, *exception: object) -> None:
        kernels.KERNELS.update(self._kernels)

    def _checked(self, kernel: kernels.Kernel) -> kernels.Kernel:
        def run(op: Any, context: Any, inputs: Any, parameters: Any) -> Any:
            result = kernel(op, context, inputs, parameters)
            self.ops += 1
            outputs = (result,) if isinstance(result, torch.Tensor) else result
            for index, output in zip(op.outputs, outputs, strict=True):
                said = self.model.tensors[index]
                dtype = kernels.dtype_of(said.dtype) if said.dtype else context.activation
                if tuple(output.shape) != said.shape:
                    self.problems.append(f"{op.module} {op.kind}: {tuple(output.shape)}, not {said.shape}")
                # Losses, and sums of them, are in fp32 where the logits are.
                if output.dtype != dtype and output.dim() > 0:
                    self.problems.append(f"{op.module} {op.kind}: {output.dtype}, not {dtype}")
            return result

        return run


class EveryModelOfTheLibrary(unittest.TestCase):
    def run_backward(self, model: ExpandedModel, use: Implementations | None = None) -> torch.nn.Module:
        use = use or Implementations()
        with OutputsOfOps(model) as outputs:
            root = build_model(model, use, activation_dtype(model, plain_plan()), META, META)
            batch = Batch(model, root.context.activation, META)
            batch.load()
            loss = run_forward(root, batch.values)
            loss.backward()
        self.assertEqual(outputs.problems, [])
        self.assertEqual(outputs.ops, len(model.ops))
        return root

    def check_gradients(self, model: ExpandedModel, root: torch.nn.Module) -> None:
        said = {p.name for p in model.parameters if p.receives_gradient and p.tied_to is None}
        got = {name for name, parameter in root.named_parameters() if parameter.grad is not None}
        self.assertEqual(sorted(said - got), [], "said to receive a gradient, and got none")
        self.assertEqual(sorted(got - said), [], "got a gradient that nobody said")
        self.assertEqual(len(list(root.parameters())), sum(p.tied_to is None for p in model.parameters))


def check_model(name: str) -> Any:
    def test(self: EveryModelOfTheLibrary) -> None:
        model = expand(spec_named(name))
        self.check_gradients(model, self.run_backward(model))

    return test


for _name in library_models():
    setattr(EveryModelOfTheLibrary, f"test_{_name}", check_model(_name))


class RunnerIsComplete(unittest.TestCase):
    def test_every_op_kind_of_the_program_has_a_kernel(self) -> None:
        schema = json.loads((ROOT / "model_specs" / "schemas" / "model.schema.json").read_text(encoding="utf-8"))
        names = [*schema["definitions"]["op"]["properties"]["op"]["enum"], "experts", "grouped_experts", "dense_experts",
                 "linear_cross_entropy", "linear_4bit", "liger_glu", "low_rank", "causal_conv1d", "decay_rate", "gated_delta_rule",
                 "state_space", "gated_rms_norm"]  # Only blocks make these.
        self.assertGreater(len(names), 40)
        self.assertEqual(sorted(set(names) - set(kernels.KERNELS)), [])
        self.assertEqual(sorted(set(kernels.KERNELS) - set(names)), [])

    def test_every_attribute_that_the_program_writes_has_a_default(self) -> None:
        text = (ROOT / "core" / "model" / "model_json.cpp").read_text(encoding="utf-8")
        names = re.findall(r'member\("(\w+)", (?:name_of\()?(?:attributes|rotary)\.', text) + ["dtype"]
        self.assertEqual(sorted(names), sorted(DEFAULT_ATTRIBUTES))

    def test_frozen_parameters_receive_no_gradient(self) -> None:
        model = expand(spec_named("qwen3_tts"), "--freeze", "talker.model.layers.0.*", "speaker_encoder.*")
        suite = EveryModelOfTheLibrary()
        root = suite.run_backward(model)
        suite.check_gradients(model, root)
        self.assertIsNone(root.get_parameter("talker.model.layers.0.mlp.up_proj.weight").grad)

    def test_other_implementations_give_the_same_shapes(self) -> None:
        model = expand(spec_named("qwen3_0_6b"), "--set", "seq=256")
        for use in (Implementations(rms_norm="composite", attention="eager"),
                    Implementations(rms_norm="fused", repeat_kv=True, upcast_logits=False)):
            EveryModelOfTheLibrary().run_backward(model, use)


class ForwardsOfModules(unittest.TestCase):
    """What each module takes, does and gives, of a layer that a reader knows."""

    def test_decoder_layer_calls_match_its_source(self) -> None:
        model = expand(spec_named("llama3_2_1b"))
        program = ForwardProgram(model)

        def called(module: str) -> list[str]:
            steps = program.runs[module][0].steps
            return [step.module.rpartition(".")[2] if isinstance(step, CallStep) else step.op.kind for step in steps]

        self.assertEqual(called("model.layers.0"),
                         ["input_layernorm", "self_attn", "add", "post_attention_layernorm", "mlp", "add"])
        self.assertEqual(called("model.layers.0.mlp"), ["gate_proj", "act_fn", "up_proj", "mul", "down_proj"])
        layer = program.runs["model.layers.1"][0]
        self.assertEqual([model.tensors[t].name.rpartition(".")[2] for t in layer.arguments], ["add", "cos", "sin"])
        self.assertEqual(len(layer.results), 1)

    def test_tensor_is_freed_after_its_last_use(self) -> None:
        model = expand(spec_named("llama3_2_1b"))
        layer = ForwardProgram(model).runs["model.layers.0"][0]
        names = [[model.tensors[t].name.rpartition(".")[2] for t in step.frees] for step in layer.steps]
        # cos and sin, normed; hidden and attention; middle normed; middle and MLP.
        self.assertEqual([len(frees) for frees in names], [0, 3, 2, 0, 1, 2])

    def test_a_module_that_runs_twice_has_two_forwards(self) -> None:
        program = ForwardProgram(expand(spec_named("qwen3_tts")))
        self.assertEqual(len(program.runs["talker.model.codec_embedding"]), 2)
        self.assertNotIn("talker", program.runs)
        self.assertNotIn("talker.text_projection", program.runs)


class Jobs(unittest.TestCase):
    """The runner as a program."""

    def run_job(self, job: object, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "job.json"
            path.write_text(json.dumps(job), encoding="utf-8")
            done = subprocess.run([sys.executable, "-B", "-m", "fsdp_plan_runner", str(path), *words],
                                  cwd=ROOT / "python", capture_output=True, text=True, timeout=900,
                                  env={**os.environ, "OMP_NUM_THREADS": "1", **environment})
            done.stderr = done.stderr.replace(str(path), "job.json")
        return done

    def job(self, **plan: Any) -> dict[str, Any]:
        model = answer(PROGRAM, "models", "mlp", "--expanded", "--batch", "4")
        return {"format_version": "1.0", "model": model, "steps": 2, "dimensions": {},
                "plan": {"format_version": "1.0", "model": {"name": "mlp", "file": "mlp"},
                         "mesh": {"replicate": 1, "shard": 2}, "units": [{"modules": [""]}], **plan}}

    def test_a_small_model_trains_on_the_cpu(self) -> None:
        done = self.run_job(self.job(), "--device", "cpu", WORLD_SIZE="2", RANK="1")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertRegex(done.stderr, r"parameters, \d+ trained, 1 units, 2 steps\.")

    def test_every_unsupported_feature_is_reported(self) -> None:
        job = self.job(units=[{"modules": ["fc9"]}], optimizer={"states": "8bit"},
                       activation_checkpointing={"modules": [{"module": "fc1", "mode": "full"}]},
                       runtime={"quirks": {"all_reduce_output_kept": False}, "allocator_settings": "a:1"})
        done = self.run_job(job, PYTORCH_ALLOC_CONF="b:2")
        self.assertEqual(done.returncode, 2)
        self.assertEqual([line.split(": ")[1] for line in done.stderr.splitlines()],
                         ["plan/mesh", "plan/units/0", "plan/units", "plan/activation_checkpointing/modules",
                          "plan/optimizer/states", "plan/runtime/quirks/all_reduce_output_kept",
                          "plan/runtime/allocator_settings"])

    def test_a_plan_of_another_pytorch_is_refused(self) -> None:
        installed = torch.__version__.partition("+")[0]
        done = self.run_job(self.job(runtime={"version": "2.4.1"}), "--device", "cpu", WORLD_SIZE="2")
        self.assertEqual((done.returncode, done.stderr), (
            2, f"error: plan/runtime/version: The plan is for PyTorch 2.4.1, and {installed} is installed, which may do "
               "something else. Install torch==2.4.1.\n"))

    def test_every_feature_that_zero_lacks_is_reported(self) -> None:
        job = self.job(mesh={"replicate": 2, "shard": 1}, parameter_dtype="bfloat16", cpu_offload=True, accumulation=2,
                       mixed_precision={"param_dtype": "bfloat16", "reduce_dtype": "float32"},
                       units=[{"modules": ["1"]}, {"modules": [""]}], sync_every_micro_batch=True,
                       runtime={"name": "deepspeed-zero1"},
                       zero={"reduce_bucket_size": 5, "max_reuse_distance": 0, "offload_param": True})
        done = self.run_job(job, "--device", "cpu", WORLD_SIZE="2")
        self.assertEqual(done.returncode, 2)
        places = [line.split(": ")[1] for line in done.stderr.splitlines()]
        self.assertEqual([place for place in places if place != "plan/runtime/name"],  # Whether this Python has DeepSpeed.
                         ["plan/mesh/replicate", "plan/units", "plan/parameter_dtype", "plan/mixed_precision",
                          "plan/zero/offload_param", "plan/sync_every_micro_batch", "plan/zero/max_reuse_distance",
                          "--device cpu"])

    def test_file_that_is_no_job_is_reported(self) -> None:
        for job, message in (({}, 'error: job.json: the key "plan" is missing.'),
                             ({**self.job(), "format_version": "2.0"}, "error: job.json: the format has version 2.0"),
                             ({**self.job(), "plan": {}}, "error: job.json: plan: the key 'model' is missing.")):
            done = self.run_job(job)
            self.assertEqual(done.returncode, 2)
            self.assertIn(message, done.stderr)

    def test_ranges_of_names_are_unfolded(self) -> None:
        self.assertEqual(unfold("layers.{0..2}.mlp"), ["layers.0.mlp", "layers.1.mlp", "layers.2.mlp"])
        self.assertEqual(unfold("layers.{1..6..2}"), ["layers.1", "layers.3", "layers.5"])
        self.assertEqual(unfold(""), [""])
        for wrong in ("layers.{3..1}", "layers.{0..}", "layers.{0..1"):
            self.assertRaises(ValueError, unfold, wrong)
        plan = self.job(units=[{"modules": ["a.{0..4}"], "modules_per_unit": 2}, {"modules": [""]}])["plan"]
        self.assertEqual([unit.modules for unit in Plan(plan).units],
                         [("a.0", "a.1"), ("a.2", "a.3"), ("a.4",), ("",)])


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
