#!/usr/bin/env python3
"""fsdp-plan export, run as its users run it, and its files read by other programs' rules.

usage: cli_export_test.py PROJECT_ROOT BINARY
"""

import csv
import json
import pathlib
import pickle
import pickletools
import re
import subprocess
import sys
import tempfile
import tomllib
import unittest

ROOT, BINARY = pathlib.Path(sys.argv[1]).resolve(), pathlib.Path(sys.argv[2]).resolve()
LIMIT_SECONDS = 900  # However busy a machine is, only what hangs takes as long.
# What the machine for pickles of torch/utils/viz/MemoryViz.js knows.
KNOWN_TO_THE_VIEWER = {
    "APPEND", "APPENDS", "BINFLOAT", "BINGET", "BININT", "BININT1", "BININT2", "BINPUT", "BINUNICODE", "DICT", "EMPTY_DICT",
    "EMPTY_LIST", "EMPTY_TUPLE", "FRAME", "LIST", "LONG1", "LONG_BINGET", "LONG_BINPUT", "MARK", "MEMOIZE", "NEWFALSE",
    "NEWTRUE", "NONE", "PROTO", "SETITEM", "SETITEMS", "SHORT_BINUNICODE", "STOP", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3",
}


def run(*words: str | pathlib.Path) -> subprocess.CompletedProcess:
    return subprocess.run([BINARY, *map(str, words)], capture_output=True, cwd=ROOT, timeout=LIMIT_SECONDS, check=False)


class Export(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.TemporaryDirectory()
        cls.plan = pathlib.Path(cls.folder.name) / "plan.json"
        made = run("gpt2", "--gpus", "4", "--mem", "16G", "--quiet", "-o", cls.plan)
        assert made.returncode == 0, made.stderr
        report = run("simulate", cls.plan, "--json")
        cls.report = json.loads(report.stdout)

    @classmethod
    def tearDownClass(cls) -> None:
        cls.folder.cleanup()

    def exported(self, form: str) -> bytes:
        done = run("export", self.plan, "--to", form)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout

    def steady_peak(self) -> int:
        return self.report["memory"]["phases"]["steady_step"]["live_peak_bytes"]

    def test_memviz_is_a_pickle_that_the_viewer_can_read(self) -> None:
        data = self.exported("memviz")
        self.assertLessEqual({op.name for op, _, _ in pickletools.genops(data)}, KNOWN_TO_THE_VIEWER)
        snapshot = pickle.loads(data)
        self.assertEqual(set(snapshot), {"segments", "device_traces"})
        events = snapshot["device_traces"][0]
        self.assertIn("unknown", {event["category"] for event in events})
        live = peak = 0
        for event in events:
            self.assertLess(event["addr"], 2**53)
            live += {"alloc": event["size"], "free_completed": -event["size"]}.get(event["action"], 0)
            peak = max(peak, live)
        self.assertEqual(peak, self.steady_peak())

    def test_chrome_is_a_trace_whose_slices_never_overlap(self) -> None:
        trace = json.loads(self.exported("chrome"))
        self.assertEqual(trace["distributedInfo"]["world_size"], 4)
        ends: dict[int, float] = {}
        communication = 0.0
        for event in trace["traceEvents"]:
            if event["ph"] != "X" or event.get("cat") != "kernel":
                continue
            self.assertGreaterEqual(event["ts"], ends.get(event["tid"], 0) - 1e-3)
            ends[event["tid"]] = event["ts"] + event["dur"]
            communication += event["dur"] if event["name"].startswith("nccl") else 0
        issued = sum(each["time"] for each in self.report["traffic"]["collectives"])
        self.assertAlmostEqual(communication / 1e6, issued, delta=0.01 * issued)
        counters = [e["args"]["live"] for e in trace["traceEvents"] if e["ph"] == "C" and e["name"] == "live bytes"]
        self.assertEqual(max(counters), self.steady_peak())

    def test_csv_has_the_same_peak(self) -> None:
        rows = list(csv.DictReader(self.exported("csv").decode().splitlines()))
        steady = [int(row["live_bytes"]) for row in rows if row["phase"] == "steady_step"]
        self.assertEqual(max(steady), self.steady_peak())

    def test_unknown_format_error_names_the_nearest(self) -> None:
        done = run("export", self.plan, "--to", "crome")
        self.assertEqual(done.returncode, 2)
        self.assertIn(b'Did you mean "chrome"?', done.stderr)
        done = run("export", self.plan)
        self.assertEqual(done.returncode, 2)
        self.assertIn(b"--to memviz", done.stderr)

    def test_existing_file_needs_force(self) -> None:
        path = pathlib.Path(self.folder.name) / "step.json"
        self.assertEqual(run("export", self.plan, "--to", "chrome", "-o", path).returncode, 0)
        self.assertEqual(run("export", self.plan, "--to", "chrome", "-o", path).returncode, 2)
        self.assertEqual(run("export", self.plan, "--to", "chrome", "-o", path, "--force").returncode, 0)


    def test_only_one_of_several_writers_succeeds(self) -> None:
        path = pathlib.Path(self.folder.name) / "race.csv"
        words = [BINARY, "export", str(self.plan), "--to", "csv", "-o", str(path)]
        started = [subprocess.Popen(words, cwd=ROOT, stderr=subprocess.PIPE) for _ in range(8)]
        errors = [each.communicate(timeout=LIMIT_SECONDS)[1].decode() for each in started]
        self.assertEqual(sorted(each.returncode for each in started), [0] + 7 * [2], errors)
        self.assertEqual(sum("The file exists." in each for each in errors), 7, errors)


class ForTrainers(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = tempfile.TemporaryDirectory()
        cls.plan, cls.near = (pathlib.Path(cls.folder.name) / name for name in ("plan.json", "near.json"))
        words = ("--gpu", "H100 SXM", "--gpus", "8", "--nodes", "2", "--strategy", "HYBRID_SHARD", "--wrap", "blocks",
                 "--activation-checkpointing", "full", "--precision", "mixed", "--seq", "2048", "--accumulate", "2", "--offload",
                 "no", "--gradient-sync", "every", "--clip-grad-norm", "1", "--alloc-conf", "expandable_segments:True")  # fmt: skip
        for path, flavor in ((cls.plan, "transformers"), (cls.titan(), "torchtitan")):
            made = run("llama3_1_8b", *words, "--flavor", flavor, "--quiet", "-o", path)
            assert made.returncode in (0, 1), made.stderr

    @classmethod
    def tearDownClass(cls) -> None:
        cls.folder.cleanup()

    @classmethod
    def titan(cls) -> pathlib.Path:
        return pathlib.Path(cls.folder.name) / "titan.json"

    def nearest(self, form: str, plan: pathlib.Path | None = None, *words: str) -> str:
        done = run("export", plan or self.plan, "--to", form, "--nearest", self.near, "--force", *words)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(b"The closest plan needs", done.stderr)
        return done.stdout.decode()

    def test_accelerate_gets_all_machines(self) -> None:
        text = self.nearest("accelerate")
        keys = dict(line.split("#")[0].strip().split(": ", 1) for line in text.splitlines() if re.match(r"[^#]*: .", line))
        self.assertEqual(keys["num_machines"], "2")
        self.assertEqual(keys["num_processes"].strip(), "16")
        self.assertEqual(keys["parallelism_config_dp_replicate_size"], "2")
        self.assertEqual(keys["fsdp_transformer_layer_cls_to_wrap"], "LlamaDecoderLayer")
        self.assertEqual(keys["mixed_precision"], "bf16")
        for note in ("--machine_rank RANK", "PYTORCH_ALLOC_CONF=expandable_segments:True", "num_steps=2, sync_each_batch=True",
                     'gradient_checkpointing_enable({"use_reentrant": False})', "/mixed_precision: "):
            self.assertIn(note, text)

    def test_nearest_plan_is_exported(self) -> None:
        text = self.nearest("trainer")
        compile(text, "exported.py", "exec")
        near = json.loads(self.near.read_text(encoding="utf-8"))
        self.assertEqual(near["units"][-2], {"modules": ["model.norm", "lm_head"], "reshard_after_forward": False})
        self.assertEqual(near["mixed_precision"]["reduce_dtype"], "bfloat16")
        self.assertEqual(near["sync_every_micro_batch"], True)
        self.assertIn('accelerator_config={"gradient_accumulation_kwargs": {"sync_each_batch": True}},', text)
        again = run("export", self.near, "--to", "trainer")
        self.assertEqual(again.returncode, 0, again.stderr)
        self.assertNotIn(b"nearest", again.stdout)
        self.assertEqual(text[text.index("import os"):], again.stdout.decode()[again.stdout.decode().index("import os"):])

    def test_an_older_release_of_accelerate_has_no_units_of_the_ends(self) -> None:
        text = self.nearest("accelerate", None, "--trainer-version", "1.12")
        self.assertIn("cls_to_wrap: Embedding,LlamaDecoderLayer\n", text)
        near = json.loads(self.near.read_text(encoding="utf-8"))
        self.assertEqual(near["units"][-1], {"modules": [""], "reshard_after_forward": True})
        done = run("export", self.plan, "--to", "accelerate", "--trainer-version", "2.0")
        self.assertEqual((done.returncode, done.stdout), (2, b""))
        self.assertIn(b'--trainer-version: No configuration is written for release "2.0". Known are 1.15.0 and 1.12.0.', done.stderr)

    def test_one_process_reads_the_weights_if_planned(self) -> None:
        text = self.nearest("accelerate")
        self.assertIn("  fsdp_cpu_ram_efficient_loading: true\n", text)
        self.assertRegex(text, r"# +loading: +the first process of a node alone .* 15\.0 GiB, .* Without it there are 8 whole copies")
        self.assertIn('"cpu_ram_efficient_loading": True,', self.nearest("trainer"))

    def test_arguments_of_the_trainer_refuse_another_release(self) -> None:
        """The file runs beside modules that are called transformers and accelerate."""
        cases = (("5.24.0", "1.15.0", ""), ("5.30.1", "1.16.0.dev0", ""), ("4.57.3", "1.12.0", "transformers 4.57.3"),
                 ("5.23.0", "1.15.0", "transformers 5.23.0"), ("6.0.0", "1.15.0", "transformers 6.0.0"),
                 ("5.24.0", "1.13.0", "accelerate 1.13.0"))  # fmt: skip
        text = self.nearest("trainer")
        old = self.nearest("trainer", None, "--trainer-version", "4.57.3")
        for code, (transformers, accelerate, refused) in ((text, case) for case in cases):
            self.assertEqual(self.import_error(code, transformers, accelerate).split(" is installed")[0], refused)
        self.assertEqual(self.import_error(old, "4.57.3", "1.12.0"), "")
        self.assertIn("transformers 5.24.0 is installed; this file is for 4.57 to before 5.0", self.import_error(old, "5.24.0", "1.12.0"))

    def import_error(self, code: str, transformers: str, accelerate: str) -> str:
        with tempfile.TemporaryDirectory() as held:
            folder = pathlib.Path(held)
            for name, version, more in (("transformers", transformers, "TrainingArguments = dict"), ("accelerate", accelerate, "")):
                (folder / name).mkdir()
                (folder / name / "__init__.py").write_text(f'__version__ = "{version}"\n{more}\n', encoding="utf-8")
            (folder / "accelerate/parallelism_config.py").write_text("ParallelismConfig = dict\n", encoding="utf-8")
            (folder / "exported.py").write_text(code, encoding="utf-8")
            done = subprocess.run([sys.executable, "-c", "import exported"], cwd=folder, capture_output=True, text=True, check=False)
        last = done.stderr.strip().splitlines()[-1] if done.stderr else ""
        return last.removeprefix("ImportError: ")

    def test_torchtitan_gets_toml(self) -> None:
        read = tomllib.loads(self.nearest("torchtitan", self.titan(), "--trainer-version", "0.2.2"))
        self.assertEqual(read["model"], {"name": "llama3", "flavor": "8B"})
        self.assertEqual(read["training"]["global_batch_size"], 2 * 16 * read["training"]["local_batch_size"])
        self.assertEqual(read["training"]["mixed_precision_reduce"], "float32")
        self.assertEqual(read["parallelism"]["fsdp_reshard_after_forward"], "default")
        self.assertEqual(read["parallelism"]["data_parallel_replicate_degree"], 2)
        self.assertEqual(read["activation_checkpoint"], {"mode": "full", "early_stop": True})

    def test_inexpressible_plan_is_refused_and_writes_nothing(self) -> None:
        path = pathlib.Path(self.folder.name) / "accelerate.yaml"
        done = run("export", self.plan, "--to", "accelerate", "-o", path)
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stdout, b"")
        self.assertFalse(path.exists())
        for part in (b"/units: accelerate makes a unit of", b"/mixed_precision: ", b"Add --nearest FILE", b"this one needs"):
            self.assertIn(part, done.stderr)

    def test_torchtitan_refuses_models_without_a_flavor(self) -> None:
        plan = pathlib.Path(self.folder.name) / "gpt2.json"
        run("gpt2", "--gpus", "4", "--mem", "16G", "--quiet", "-o", plan)
        done = run("export", plan, "--to", "torchtitan", "--nearest", pathlib.Path(self.folder.name) / "none.json")
        self.assertEqual(done.returncode, 2)
        self.assertEqual(done.stderr.count(b"error:"), 1)
        self.assertIn(b"torchtitan has no flavor that is GPT-2.", done.stderr)

    def zero_plan(self, *choices: str) -> pathlib.Path:
        plan = pathlib.Path(self.folder.name) / "zero.json"
        made = run("gpt2", "--gpu", "L4", "--gpus", "4", "--precision", "mixed", "--quiet", "--force", "-o", plan, *choices)
        self.assertEqual(made.returncode, 0, made.stderr)
        return plan

    def test_deepspeed_gets_json(self) -> None:
        plan = self.zero_plan("--runtime", "zero2", "--batch", "2", "--accumulate", "3", "--clip-grad-norm", "0.5",
                              "--alloc-conf", "expandable_segments:True")
        done = run("export", plan, "--to", "deepspeed")
        self.assertEqual(done.returncode, 0, done.stderr)
        read = json.loads(done.stdout)
        self.assertEqual((read["train_micro_batch_size_per_gpu"], read["gradient_accumulation_steps"]), (2, 3))
        self.assertEqual(read["gradient_clipping"], 0.5)
        self.assertEqual(read["zero_optimization"]["stage"], 2)
        self.assertNotIn("optimizer", read)
        for note in (b"PYTORCH_ALLOC_CONF=expandable_segments:True torchrun --nproc-per-node 4 train.py",
                     b"note: optimizer: torch.optim.AdamW(model.parameters(), lr=..., ", b"for each of 3 micro-batches"):
            self.assertIn(note, done.stderr)
        self.assertNotIn(b"note:", run("export", plan, "--to", "deepspeed", "--quiet").stderr)

    def test_deepspeed_plans_and_others_do_not_mix(self) -> None:
        done = run("export", self.plan, "--to", "deepspeed")
        self.assertEqual((done.returncode, done.stdout), (2, b""))
        self.assertIn(b"/runtime/name: The plan is for pytorch-fsdp2, but this configuration is only for DeepSpeed.", done.stderr)
        plan = self.zero_plan("--runtime", "zero1")
        for form in ("fsdp2", "ddp", "accelerate", "trainer", "torchtitan"):
            done = run("export", plan, "--to", form)
            self.assertEqual((done.returncode, done.stdout), (2, b""), form)
            self.assertEqual(done.stderr.count(b"error:"), 1, form)
            self.assertIn(b"/runtime/name: ", done.stderr, form)

    def selective_plan(self, model: str, checkpointing: str, **kept: object) -> pathlib.Path:
        plan = pathlib.Path(self.folder.name) / "selective.json"
        made = run(model, "--gpus", "8", "--gpu", "H100 SXM", "--activation-checkpointing", checkpointing, "--force", "--quiet",
                   "-o", plan)  # fmt: skip
        self.assertEqual(made.returncode, 0, made.stderr)
        written = json.loads(plan.read_text(encoding="utf-8"))
        written["activation_checkpointing"].update(kept)
        plan.write_text(json.dumps(written), encoding="utf-8")
        return plan

    def selective_code(self, model: str, checkpointing: str, **kept: object) -> str:
        done = run("export", self.selective_plan(model, checkpointing, **kept), "--to", "fsdp2")
        self.assertEqual(done.returncode, 0, done.stderr)
        compile(done.stdout, "exported.py", "exec")
        return done.stdout.decode()

    def test_python_saves_the_ops_that_the_plan_saves(self) -> None:
        code = self.selective_code("qwen3_0_6b", "selective:12")
        self.assertIn('*(f"model.layers.{i}" for i in range(12)),', code)
        self.assertIn("use_reentrant=False, context_fn=kept_ops)", code)
        self.assertIn("            keep = count % 2 == 1\n", code)
        code = self.selective_code("qwen3_0_6b", "selective", selective_keep=["linear"], every_second_linear=False)
        self.assertIn("        keep = function in PRODUCTS\n", code)
        self.assertNotIn("ATTENTION", code)
        code = self.selective_code("qwen3_0_6b", "selective", selective_keep=["attention"])
        self.assertIn("        keep = function in ATTENTION\n", code)
        self.assertNotIn("PRODUCTS", code)
        # q, k, v, o and the router; what follows are the experts.
        self.assertIn("keep = count % 2 == 1 and count <= 5\n", self.selective_code("qwen3_30b_a3b", "selective"))

    def test_python_trains_the_parameters_that_the_plan_trains(self) -> None:
        plan = pathlib.Path(self.folder.name) / "frozen.json"
        made = run("qwen3_0_6b", "--gpus", "8", "--gpu", "H100 SXM", "--force", "--quiet", "-o", plan, "--freeze", "model.layers.0.*",
                   "model.layers.1.mlp.*", "model.layers.2.input_layernorm.weight")  # fmt: skip
        self.assertEqual(made.returncode, 0, made.stderr)
        code = run("export", plan, "--to", "fsdp2").stdout.decode()
        for words in ('        "model.layers.0",\n        "model.layers.1.mlp",\n', "model.get_submodule(name).requires_grad_(False)",
                      '"model.layers.2.input_layernorm",\n', "if parameter.requires_grad:\n            parameter.data ="):
            self.assertIn(words, code)

    def test_python_refuses_ops_that_a_script_cannot_save(self) -> None:
        done = run("export", self.selective_plan("qwen3_0_6b", "selective", selective_keep=["silu", "linear"]), "--to", "fsdp2")
        self.assertEqual((done.returncode, done.stdout), (2, b""))
        self.assertIn(b'/activation_checkpointing/selective_keep: The outputs of "silu" are kept, which a script cannot tell from '
                      b'those of other ops. Write ["attention", "linear"], or plan', done.stderr)

    def test_nearest_is_for_trainers_only(self) -> None:
        for words in (("--to", "csv", "--nearest", self.near), ("--to", "trainer", "--nearest", "-")):
            done = run("export", self.plan, *words, "--force")
            self.assertEqual(done.returncode, 2, words)
            self.assertIn(b"--nearest: ", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
