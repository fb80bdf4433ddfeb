"""Rehearsals end, and with the right answer: values that nobody computes, loops that wait for them, optimizers in turn.

    ends_test.py STUB        STUB: path of libfsdp-stub-gpu.so
"""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import hook_test
from hook_test import SCRIPTS, Run, rank, source_line


class Values(unittest.TestCase):
    """One run of a script that asks for many."""

    @classmethod
    def setUpClass(cls):
        cls.run_ = Run(SCRIPTS / "values.py", "--wait", "--for-ever", steps=3)

    def test_checks_of_values_hold_and_generation_ends_at_its_length(self):
        self.assertIn("generated 5 21\n", self.run_.output, self.run_.errors)
        self.assertEqual(self.run_["steps"], 2)

    def test_lengths_that_the_host_knows_are_read(self):
        self.assertIn("lengths [4, 5, 6] 15\n", self.run_.output, self.run_.errors)

    def test_accuracy_is_not_mistaken_for_a_router(self):
        self.assertEqual(self.run_.warnings("balanced_routing"), [])

    def test_loop_that_waits_for_a_value_gets_one(self):
        warning, endless = self.run_.warnings("endless_loop")
        self.assertIn("always found false", warning["text"])
        self.assertIn("END).all()", source_line(warning))
        self.assertRegex(self.run_.output, r"rounds [0-9]+\n")
        self.assertIn("sum().item() < 1e30", source_line(endless))

    def test_endless_loop_is_ended_with_its_line(self):
        error = self.run_["end"]["exception"]
        self.assertEqual((self.run_["end"]["why"], error["type"]), ("exception", "fsdp_rehearsal.loops.EndlessLoop"))
        frames = [line for line in error["traceback"].splitlines() if line.startswith("  File ")]
        self.assertTrue(frames and all("values.py" in frame for frame in frames), frames)

    def test_batches_of_different_shapes_are_warned_about(self):
        (warning,) = self.run_.warnings("batches_differ")
        self.assertIn("[4, 12], [4, 16]. The longest", warning["text"])


class Optimizers(unittest.TestCase):
    """A critic that steps five times before the generator does."""

    @classmethod
    def setUpClass(cls):
        cls.run_ = Run(SCRIPTS / "gan.py", steps=1)

    def test_a_step_lasts_until_every_optimizer_has_stepped(self):
        self.assertEqual(self.run_.output.count("critic"), 5)
        self.assertEqual((self.run_["steps"], len(self.run_["applied"]["optimizers"])), (1, 2))
        longer = Run(SCRIPTS / "gan.py", steps=0)
        self.assertEqual(longer["memory"]["peaks"]["requested"], self.run_["memory"]["peaks"]["requested"])
        self.assertEqual(longer["steps"], 40 // 5)
        # A step of every kind has the same batches, so nothing is said about them.
        self.assertEqual(longer.warnings("batches_differ") + longer.warnings("unused_optimizer"), [])

    def test_module_names_include_their_model(self):
        """Both models have a net.1. So little memory is used up where the critic is first called."""
        run = Run(SCRIPTS / "gan.py", STUB_GPU_BYTES=24 << 20, CUBLAS_WORKSPACE_CONFIG=":16:8")
        self.assertEqual(run["memory"]["failed_allocation"]["module"], "Critic.net.1")

    def test_optimizer_that_never_steps_is_warned_about(self):
        run = Run(SCRIPTS / "gan.py", "--critic-steps", 1000, "--rounds", 200)
        self.assertEqual((run["end"]["why"], len(run["applied"]["optimizers"])), ("steps_reached", 1))
        self.assertLess(run.output.count("critic"), 100)
        (warning,) = run.warnings("unused_optimizer")
        self.assertIn("Adam of 4 parameters (1,116,160 numbers) has not stepped", warning["text"])
        self.assertIn("of_generator", source_line(warning))


class Checkpoints(unittest.TestCase):
    def test_a_rank_saves_and_loads_its_own_shards(self):
        """Rank 1 of 4: a quarter of 256 x 256 weights and 256 biases per layer, and two states of each. FSDP2 has two layers."""
        with tempfile.TemporaryDirectory() as folder:
            run = Run(SCRIPTS / "checkpoints.py", folder, steps=0, **rank(1, 4))
        self.assertIn("done\n", run.output, run.errors)
        share = 3 * (256 * 256 + 256) // 4
        for name, layers in (("fsdp2", 2), ("fsdp1", 1)):
            (line,) = [line.split() for line in run.output.splitlines() if line.startswith(name)]
            self.assertEqual(line[:5], [name, "step", "7", "files", "__1_0.distcp"])
            # Beside the shards, each file has the numbers of the optimizer and a few KiB of headers for each tensor.
            self.assertTrue(layers * share <= int(line[-1]) < 1.5 * layers * share, line)


class Pipelines(unittest.TestCase):
    def test_later_stage_runs_after_earlier_ones(self):
        """Rank 2 of 3 waits for what rank 1 sends, and that one for rank 0. The last stage has the logits."""
        last = Run(SCRIPTS / "pipeline.py", **rank(2, 3))
        self.assertEqual(last["end"]["why"], "steps_reached", last.errors)
        self.assertEqual(last["applied"]["techniques"], ["pipeline parallel, stage 2 of 3, the first is 0"])
        # Two blocks of 2 x 4 x 256^2 weights, 5 x 256 biases and two norms, and the head's 4096 x 256 weights.
        self.assertEqual(last["memory"]["categories"]["parameters"], 4 * (2 * (8 * 256**2 + 7 * 256) + 4096 * 256))
        # A microbatch has 2 x 128 tokens; its logits are needed until the loss has been differentiated.
        self.assertGreater(last["memory"]["categories"]["activations"], 2 * 128 * 4096 * 4)

    def test_failed_sender_is_named(self):
        code = (
            "import os, torch.distributed as dist; dist.init_process_group('nccl'); assert dist.get_rank() == 1, 'no sender'; "
            "dist.recv_object_list([None], src=0)"
        )
        run = Run("-c", code, **rank(1, 2))
        self.assertIn("Rank 1 waits for data of rank 0", run["end"]["exception"]["message"])
        self.assertIn("no sender", run.errors)


class Evaluation(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with tempfile.TemporaryDirectory() as folder:
            cls.run_ = Run(SCRIPTS / "evaluates.py", pathlib.Path(folder) / "model.pt", steps=0)

    parameters = 4 * 3 * (8 * 256**2 + 5 * 256)

    def test_peak_is_in_the_evaluation(self):
        peak = self.run_["memory"]["peak"]
        self.assertEqual((peak["phase"], peak["step"]), ("evaluation", 1))
        evaluation, steady = self.run_.phase("evaluation"), self.run_.phase("steady_step")
        self.assertEqual(evaluation["requested"], self.run_["memory"]["peaks"]["requested"])
        # A block's hidden activations before and after GELU, against those of 64 samples.
        self.assertGreater(evaluation["requested"] - steady["requested"], 32768 * 1024 * 4)
        self.assertLess(self.run_.phase("saving")["requested"], evaluation["requested"])

    def test_categories_add_up_and_are_right(self):
        found = self.run_["memory"]["categories"]
        self.assertEqual(sum(found.values()), self.run_["memory"]["peaks"]["requested"])
        # Gradients were zeroed, not dropped.
        self.assertEqual((found["parameters"], found["gradients"], found["optimizer states"]),
                         (self.parameters, self.parameters, 2 * self.parameters))  # fmt: skip
        self.assertGreater(found["activations"], 2 * 32768 * 1024 * 4)

    def test_techniques_are_listed(self):
        self.assertEqual(self.run_["applied"]["techniques"], ["recomputes 3 x Block", "accumulates gradients over 2 backwards"])


class Ends(unittest.TestCase):
    def test_script_that_ends_early_is_reported(self):
        early = Run(SCRIPTS / "gan.py", "--rounds", 2, "--critic-steps", 1)
        (warning,) = early.warnings("ended_early")
        self.assertIn("after 2 of 3 steps", warning["text"])
        never = Run("-c", "import torch; torch.ones(9, device='cuda')")
        self.assertEqual((never["steps"], len(never.warnings("no_steps"))), (0, 1))


if __name__ == "__main__":
    hook_test.STUB = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
