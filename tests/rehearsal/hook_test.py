"""Ordinary training scripts on the stub GPU: what was applied, which bytes, how it ends. Needs a Python with torch.

    hook_test.py STUB        STUB: path of libfsdp-stub-gpu.so
"""

import json
import os
import pathlib
import pickle
import signal
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SCRIPTS = pathlib.Path(__file__).resolve().parent / "scripts"
STUB = ""
MIB = 1 << 20


class Run:
    """One rehearsed command: its record, output and exit status."""

    def __init__(self, *command, steps=3, **environment):
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "record.json")
            env = dict(os.environ, **{k: str(v) for k, v in environment.items()})
            env.update(
                PYTHONPATH=str(ROOT / "python" / "hook"),
                FSDP_REHEARSAL="1",
                FSDP_REHEARSAL_STUB=STUB,
                FSDP_REHEARSAL_RECORD=path,
                FSDP_REHEARSAL_STEPS=str(steps),
                TMPDIR=folder,
                OMP_NUM_THREADS="1",
            )
            done = subprocess.run(
                [sys.executable, *map(str, command)], env=env, capture_output=True, text=True, timeout=900, check=False
            )
            self.status, self.output, self.errors = done.returncode, done.stdout, done.stderr
            self.record = json.loads(pathlib.Path(path).read_text()) if os.path.exists(path) else None
            ours = ("record.json", "torchinductor_")  # the second is torch's own
            self.left = sorted(p.name for p in pathlib.Path(folder).iterdir() if not p.name.startswith(ours))

    def __getitem__(self, key):
        assert self.record is not None, f"no record; the script said:\n{self.errors}"
        return self.record[key]

    @property
    def wrapper(self):
        (only,) = self["applied"]["wrappers"]
        return only

    def phase(self, name):
        return next(p for p in self["memory"]["phases"] if p["phase"] == name)

    def steady(self, kind):
        return [c for c in self["collectives"]["steady_step"] if c["kind"] == kind]

    def warnings(self, kind):
        return [w for w in self["warnings"] if w["kind"] == kind]


def torchrun(*arguments):
    return ("-m", "torch.distributed.run", *arguments)


def rank(number, of, **more):
    return {"FSDP_REHEARSAL_RANK": number, "FSDP_REHEARSAL_WORLD_SIZE": of, **more}


class Plain(unittest.TestCase):
    """One GPU: python plain.py, with workers that load data, children, and a script that measures itself."""

    @classmethod
    def setUpClass(cls):
        cls.measured = Run(SCRIPTS / "plain.py", "--measure", "--version", "--workers", 1)
        cls.quiet = Run(SCRIPTS / "plain.py")

    def test_stops_after_the_requested_steps(self):
        self.assertEqual((self.measured.status, self.measured["end"]["why"]), (0, "steps_reached"))
        self.assertEqual(self.measured["steps"], 3)

    def test_nothing_is_left(self):
        self.assertEqual(self.measured.left, [])
        self.assertNotIn("leaked", self.measured.errors)

    def test_applied_settings_are_recorded(self):
        self.assertEqual((self.measured.wrapper["name"], self.measured.wrapper["units"]), ("plain", []))
        # Embedding 512x256; two layers of 4x256^2+8x256^2 weights and 3+1+4+1+4 times 256 of biases and norms; 512x256+512.
        layer = 12 * 256**2 + 13 * 256
        self.assertEqual(self.measured["applied"]["parameters"], 2 * 512 * 256 + 512 + 2 * layer)
        (optimizer,) = self.measured["applied"]["optimizers"]
        self.assertEqual(optimizer["class"], "torch.optim.adamw.AdamW")

    def test_resetting_peaks_hides_nothing(self):
        self.assertEqual(self.measured["memory"]["peaks"], self.quiet["memory"]["peaks"])
        self.assertEqual(self.measured["memory"]["phases"], self.quiet["memory"]["phases"])

    def test_script_that_measures_itself_reads_true_values(self):
        """It reads what it reads on the bare stub."""
        script = [sys.executable, SCRIPTS / "plain.py", "--measure", "--steps", "3"]
        alone = subprocess.run(script, env=dict(os.environ, LD_PRELOAD=STUB), capture_output=True, text=True, check=True)
        lines = [line for line in self.measured.output.splitlines() if line.startswith("peak ")]
        self.assertEqual(lines, alone.stdout.splitlines())
        self.assertEqual(len(set(lines)), 2, "the first step begins with less than the others")

    def test_peaks_match_the_history(self):
        memory = self.quiet["memory"]
        self.assertEqual(memory["peak"]["requested"], memory["peaks"]["requested"])
        self.assertEqual(sum(row["bytes"] for row in memory["at_peak"]), memory["peaks"]["requested"])
        self.assertEqual(memory["peak"]["phase"], "backward")
        self.assertTrue(memory["peak"]["at"]["file"].endswith("plain.py"))
        self.assertIn("loss.backward()", source_line(memory["peak"]["at"]))
        states = sum(r["bytes"] for r in memory["at_peak"] if "optimizer.step()" in source_line(r))
        self.assertEqual(states, 8 * self.quiet["applied"]["parameters"], "AdamW keeps two fp32 numbers per parameter")
        steady = self.quiet.phase("steady_step")
        top = max(memory["over_step"]["allocated"])  # does not know of the remainders of blocks
        self.assertTrue(steady["requested"] <= top <= steady["allocated"] < top + MIB, (top, steady))
        self.assertEqual([m["phase"] for m in memory["over_step"]["marks"]][:3], ["forward", "backward", "optimizer"])

    def test_a_snapshot_shows_the_script_and_none_of_our_frames(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder) / "out.pickle"
            run = Run(SCRIPTS / "plain.py", FSDP_REHEARSAL_SNAPSHOT=path)
            snapshot = pickle.loads(path.read_bytes())
        self.assertEqual(run["memory"]["peaks"], self.quiet["memory"]["peaks"])
        entries = snapshot["device_traces"][0]
        blocks = [block for segment in snapshot["segments"] for block in segment["blocks"]]
        self.assertGreater(sum(e["action"] == "alloc" for e in entries), 100)
        self.assertEqual(sum(b["requested_size"] for b in blocks if b["state"] == "active_allocated"),
                         run["memory"]["at_end_requested"])  # fmt: skip
        files = {f["filename"] for row in (*entries, *blocks) for f in row["frames"]}
        self.assertTrue(any(file.endswith("plain.py") for file in files), files)
        self.assertEqual([file for file in files if "fsdp_rehearsal" in file], [])

    def test_only_python_children_have_the_gpu(self):
        self.assertIn("True\n", self.measured.output)
        self.assertNotIn("LD_PRELOAD", self.measured.output)

    def test_no_probe_failed(self):
        self.assertEqual(self.measured.warnings("probe") + self.quiet.warnings("probe"), [])


def source_line(frame):
    path = pathlib.Path(frame["file"])
    return path.read_text().splitlines()[frame["line"] - 1] if frame["file"] and path.is_file() else ""


class Ddp(unittest.TestCase):
    def test_spawned_and_launched_ranks_reduce_the_same_buckets(self):
        spawned = Run(SCRIPTS / "ddp.py", "--spawn", 4)
        launched = Run(SCRIPTS / "ddp.py", **rank(0, 4))
        self.assertEqual((spawned["steps"], launched["steps"]), (3, 3), spawned.errors + launched.errors)
        self.assertEqual(spawned.wrapper["name"], "DDP")
        self.assertEqual(spawned.wrapper["class"], "torch.nn.parallel.DistributedDataParallel")
        self.assertEqual(spawned.wrapper["autocast"], ["torch.bfloat16"])
        parameters = 8 * (1024**2 + 1024) + 10 * 1024 + 10
        self.assertEqual(spawned["applied"]["parameters"], parameters)
        reduced = spawned.steady("all_reduce")
        self.assertEqual([c["unit"] for c in reduced], [f"bucket {i}" for i in range(len(reduced))])
        self.assertEqual([c["payload_bytes"] for c in reduced], spawned.wrapper["bucket_bytes"])
        self.assertEqual(sum(c["payload_bytes"] for c in reduced), 4 * parameters)
        self.assertEqual({c["group_size"] for c in reduced}, {4})
        self.assertEqual(spawned["memory"]["peaks"], launched["memory"]["peaks"])
        self.assertEqual(spawned["memory"]["phases"], launched["memory"]["phases"])
        self.assertEqual(spawned["job"]["world_size"], 4)
        self.assertEqual(spawned.warnings("probe"), [])


class Fsdp1(unittest.TestCase):
    def test_units_collectives_and_precision(self):
        run = Run(*torchrun("--nproc-per-node", 8, SCRIPTS / "fsdp1.py"))
        self.assertEqual(run["end"]["why"], "steps_reached", run.errors)
        self.assertEqual((run.wrapper["name"], run.wrapper["strategy"]), ("FSDP1", "FULL_SHARD"))
        block = 8 * 256**2 + 5 * 256
        ends = 2 * 1024 * 256
        units = [(u["name"], u["parameters"], u["elements"]) for u in run.wrapper["units"]]
        self.assertEqual(units, [("(root)", 2, ends)] + [(f"blocks.{i}", 4, block) for i in range(3)])
        self.assertEqual(run["applied"]["parameters"], ends + 3 * block)
        precision = run.wrapper["mixed_precision"]
        self.assertEqual((precision["param_dtype"], precision["reduce_dtype"]), ("torch.bfloat16", "torch.float32"))
        # Forward and backward gather each block in bf16; the root is gathered once. Gradients are reduced in fp32.
        gathered, reduced = run.steady("all_gather"), run.steady("reduce_scatter")
        self.assertEqual(sum(c["payload_bytes"] for c in gathered), 2 * (ends + 2 * 3 * block))
        self.assertEqual(sum(c["payload_bytes"] for c in reduced), 4 * (ends + 3 * block))
        self.assertEqual([c["unit"] for c in reduced], ["blocks.2", "blocks.1", "blocks.0", "(root)"])
        self.assertGreater(run["limits"]["allocator_event_queries"], 0, "FSDP1 uses record_stream")
        self.assertEqual(run.warnings("probe") + run.warnings("untied_weights"), [])
        self.assertEqual(run.left, [])

    def test_weights_untied_by_to_empty_are_warned_about(self):
        run = Run(SCRIPTS / "fsdp1.py", "--tied", "--to-empty", steps=1, **rank(0, 2))
        (warning,) = run.warnings("untied_weights")
        self.assertIn("embed.weight and head.weight were one parameter before to_empty", warning["text"])
        self.assertIn("model.to_empty", source_line(warning))
        self.assertEqual(run["steps"], 1)


class Fsdp2(unittest.TestCase):
    """Rank 5 of 8 in two nodes, by the launcher and by the environment."""

    @classmethod
    def setUpClass(cls):
        script = SCRIPTS / "fsdp2.py"
        cls.launched = Run(
            *torchrun("--nproc-per-node", 4, "--nnodes", 2, script), FSDP_REHEARSAL_RANK=5
        )
        cls.run_ = Run(script, **rank(5, 8, FSDP_REHEARSAL_LOCAL_WORLD_SIZE=4))

    block = 12 * 256**2 + 13 * 256
    ends = 2 * 1024 * 256 + 2 * 256

    def test_launched_and_given_rank_agree(self):
        for run in (self.launched, self.run_):
            job = run["job"]
            self.assertEqual((job["rank"], job["world_size"], job["local_rank"], job["local_world_size"]), (5, 8, 1, 4))
        for part in ("memory", "collectives", "applied"):
            self.assertEqual(self.launched[part], self.run_[part], part)

    def test_applied_settings_are_recorded(self):
        wrapper = self.run_.wrapper
        self.assertEqual(wrapper["name"], "FSDP2")
        self.assertEqual(wrapper["class"], "torch.distributed.fsdp.FSDPModule")
        units = [(u["name"], u["class"], u["parameters"], u["elements"]) for u in wrapper["units"]]
        blocks = [(f"blocks.{i}", "Block", 12, self.block) for i in range(4)]
        self.assertEqual(units, [("(root)", "Model", 4, self.ends)] + blocks)
        self.assertTrue(wrapper["reshard_after_forward"])
        self.assertEqual(wrapper["mixed_precision"]["param_dtype"], "torch.bfloat16")
        self.assertEqual(self.run_["applied"]["parameters"], self.ends + 4 * self.block)
        self.assertEqual(self.run_.warnings("one_unit") + self.run_.warnings("probe"), [])

    def test_collectives_of_a_step(self):
        gathered, reduced = self.run_.steady("all_gather"), self.run_.steady("reduce_scatter")
        names = [f"blocks.{i}" for i in range(4)]
        self.assertEqual([c["unit"] for c in gathered], ["(root)"] + names + names[::-1])
        self.assertEqual([c["unit"] for c in reduced], names[::-1] + ["(root)"])
        self.assertEqual(sum(c["payload_bytes"] for c in gathered), 2 * (self.ends + 2 * 4 * self.block))
        self.assertEqual(sum(c["payload_bytes"] for c in reduced), 4 * (self.ends + 4 * self.block))
        self.assertEqual({c["phase"] for c in reduced}, {"backward"})

    def test_sharded_state(self):
        # All first dimensions divide by 8, so a shard is an eighth. Parameters, gradients and two states, all in fp32;
        # AdamW's step counts are on the host.
        share = 4 * (self.ends + 4 * self.block) // 8
        rows = self.run_["memory"]["at_peak"]
        parameters = sum(r["bytes"] for r in rows if "to_empty" in source_line(r))
        states = sum(r["bytes"] for r in rows if "optimizer.step()" in source_line(r))
        self.assertEqual((parameters, states), (share, 2 * share))

    def test_module_at_the_peak_and_one_unit(self):
        run = Run(SCRIPTS / "fsdp2.py", "--one-unit", "--layers", 1, steps=2, **rank(0, 2))
        (warning,) = run.warnings("one_unit")
        self.assertIn("FSDP2 has one unit only", warning["text"])
        self.assertEqual(len(run.steady("all_gather")), 1)


class Ends(unittest.TestCase):
    def test_error_in_the_script_has_its_traceback(self):
        run = Run(SCRIPTS / "plain.py", "--fail-at", 1)
        self.assertEqual((run.status, run["end"]["why"], run["steps"]), (0, "exception", 1))
        error = run["end"]["exception"]
        self.assertEqual((error["type"], error["message"]), ("ValueError", "a problem in the script"))
        for text in (run.errors, error["traceback"]):
            self.assertIn('raise ValueError("a problem in the script")', text)

    def test_out_of_memory_by_a_small_gpu(self):
        run = Run(SCRIPTS / "plain.py", "--tokens", 1024, "--batch", 64, STUB_GPU_BYTES=512 * MIB)
        self.assertEqual((run["end"]["why"], run["steps"]), ("out_of_memory", 0))
        self.assertEqual(run["end"]["exception"]["types"], ["torch.OutOfMemoryError"])
        self.assertEqual(run["memory"]["out_of_memory_errors"], 1)
        failed = run["memory"]["failed_allocation"]
        # The first that fails has the size of a sample's queries, keys and values, 64 x 1024 x 3 x 256 fp32.
        self.assertEqual((failed["phase"], failed["bytes"] % (64 * 1024 * 256 * 4)), ("forward", 0))
        self.assertTrue(failed["module"].startswith("1.layers.0"), failed["module"])
        self.assertIn("model(tokens)", source_line(failed["at"]))
        self.assertLessEqual(run["memory"]["peaks"]["device"], 512 * MIB)

    def test_a_script_without_torch(self):
        run = Run("-c", "import sys; print('hello'); sys.exit(4)")
        self.assertEqual((run["end"]["why"], run["end"]["exit_status"]), ("script_ended", 4))
        self.assertFalse(run["environment"]["torch_imported"])
        self.assertEqual((run.output, run["applied"]["wrappers"]), ("hello\n", []))

    def test_data_parallel_has_one_communicator_on_each_card(self):
        code = (
            "import torch, torch.nn as nn\nmodel = nn.DataParallel(nn.Linear(64, 64).cuda())\n"
            "optimizer = torch.optim.SGD(model.parameters(), 0.1)\n"
            "for _ in range(3): model(torch.zeros(8, 64).cuda()).sum().backward(); optimizer.step()"
        )
        run = Run("-c", code, **rank(0, 4), STUB_GPU_COUNT=4, STUB_GPU_NCCL_BYTES="4:1000000,*:1000000")
        self.assertEqual([t["bytes"] for t in run["memory"]["device_terms"] if t["name"] == "NCCL"], [1000000], run.errors)
        self.assertEqual((run["job"]["rank"], run["job"]["world_size"]), (0, 1))

    def test_cuda_graphs_are_detected(self):
        code = (
            "import torch\nx = torch.zeros(8, device='cuda', requires_grad=True)\n"
            "optimizer = torch.optim.SGD([x], 0.1)\ngraph = torch.cuda.CUDAGraph()\n"
            "with torch.cuda.graph(graph): y = x * 2\ngraph.replay()\nx.sum().backward(); optimizer.step()"
        )
        self.assertTrue(Run("-c", code, steps=1)["limits"]["cuda_graphs"])

    def test_exit_status_of_the_script_is_passed_on(self):
        main = "def main(): return 3\nraise SystemExit(main())"
        caught = "import sys\ntry: sys.exit(1)\nexcept SystemExit: pass"
        for code, status in (("raise SystemExit('there is no data')", 1), (main, 3), (caught, 0), ("import os; os._exit(5)", 5)):
            run = Run("-c", code)
            self.assertEqual((run.status, run["end"]["why"]), (status, "script_ended"), code)

    def test_missing_torch_is_reported(self):
        run = Run("-S", "-c", hooked("import torch"))
        self.assertEqual(run["end"]["exception"]["types"], ["ModuleNotFoundError"])
        self.assertIsNone(run["environment"]["torch"])

    def test_hanging_script_names_its_line(self):
        with tempfile.TemporaryDirectory() as folder:
            env = dict(os.environ, PYTHONPATH=str(ROOT / "python" / "hook"), FSDP_REHEARSAL="1", FSDP_REHEARSAL_STUB=STUB)
            env["FSDP_REHEARSAL_PROGRESS"] = os.path.join(folder, "progress")
            code = "import time\ndef waits_for_ever():\n    print('waiting', flush=True)\n    time.sleep(3600)\nwaits_for_ever()"
            process = subprocess.Popen(
                [sys.executable, "-c", code], env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
            )
            self.assertEqual(process.stdout.readline(), "waiting\n")
            process.send_signal(signal.SIGUSR1)
            errors = ""
            while "waits_for_ever" not in errors:
                line = process.stderr.readline()
                self.assertNotEqual(line, "", f"It ended without saying where it was:\n{errors}")
                errors += line
            process.kill()
            process.communicate()

    def test_position_can_be_requested_at_any_moment(self):
        """The memory of a generator's frame goes back to the system when it is made: who is asked just then has a frame less."""
        with tempfile.TemporaryDirectory() as folder:
            progress = os.path.join(folder, "progress")
            run = Run(SCRIPTS / "asked_often.py", FSDP_REHEARSAL_PROGRESS=progress)
            stacks = pathlib.Path(progress + ".stack").read_text()
        self.assertEqual((run.status, run.output), (0, "still there\n"), run.errors)
        self.assertRegex(stacks, r'File ".*asked_often\.py", line \d+ in <module>')

    def test_the_users_own_sitecustomize_still_runs(self):
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "sitecustomize.py").write_text("print('mine')\n")
            code = hooked(f"import sys; sys.path.insert(0, {folder!r}); import sitecustomize")
            run = Run("-S", "-c", code)
        self.assertEqual(run.output, "mine\n")

    def test_impossible_settings_are_reported(self):
        run = Run("-c", "pass", steps="many", FSDP_REHEARSAL_ROUTING="random")
        self.assertEqual((run.status, run.record), (3, None))
        self.assertIn("FSDP_REHEARSAL_STEPS is 'many'", run.errors)
        self.assertIn("FSDP_REHEARSAL_ROUTING is 'random'", run.errors)


def hooked(code):
    """For a Python that does not look for site-packages: the hook first, then the code."""
    folder = str(ROOT / "python" / "hook")
    return f"import sys; sys.path.insert(0, {folder!r}); import sitecustomize; del sys.modules['sitecustomize']; {code}"


if __name__ == "__main__":
    STUB = sys.argv.pop(1)
    unittest.main()
