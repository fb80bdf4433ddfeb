"""Sizes that are read back from the device: masks, the choice of experts; and where following them ends.

    known_values_test.py STUB        STUB: path of libfsdp-stub-gpu.so
"""

import pathlib
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import hook_test
from hook_test import SCRIPTS, Run


class Experts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.balanced = Run(SCRIPTS / "experts.py")
        cls.one = Run(SCRIPTS / "experts.py", FSDP_REHEARSAL_ROUTING="none")

    def test_balanced_routing_reaches_every_expert(self):
        # The gate, and two matrices of each of 8 experts.
        self.assertIn("with gradient 17", self.balanced.output)

    def test_balanced_routing_is_noted_with_the_routers_line(self):
        (warning,) = self.balanced.warnings("balanced_routing")
        self.assertIn("each of 8 experts", warning["text"])
        line = (SCRIPTS / "experts.py").read_text().split("\n")[warning["line"] - 1]
        self.assertIn("torch.topk", line)
        self.assertEqual(self.balanced.warnings("readback"), [])

    def test_reads_without_balanced_routing_are_warned_about(self):
        """Zeros send every token nowhere, so the script finds nothing to learn from."""
        self.assertIn("does not require grad", self.one["end"]["exception"]["message"])
        self.assertEqual(self.one.warnings("balanced_routing"), [])
        lines = (SCRIPTS / "experts.py").read_text().split("\n")
        found = {lines[w["line"] - 1].strip() for w in self.one.warnings("readback")}
        self.assertTrue(any(".nonzero()" in line for line in found), found)
        self.assertTrue(self.one["limits"]["data_dependent_routing"])

    def test_more_tokens_take_more_memory(self):
        """What is kept for backward grows by the experts' own activations: two of 512 and two of 256 numbers for each of the
        two choices of a token, at least."""
        twice = Run(SCRIPTS / "experts.py", "--tokens", 2048)
        grown = twice.phase("steady_step")["requested"] - self.balanced.phase("steady_step")["requested"]
        self.assertGreater(grown, 1024 * 2 * (2 * 512 + 2 * 256) * 4)


class Masks(unittest.TestCase):
    def test_mask_from_the_host_selects_its_elements(self):
        run = Run(SCRIPTS / "experts.py", "--padded")
        self.assertIn("tokens 512\n", run.output)
        self.assertIn("rows 256\n", run.output)  # backward looks through this mask again, and through that of a scatter
        self.assertEqual((run["end"]["why"], run.warnings("readback")), ("steps_reached", []))


class Numbers(unittest.TestCase):
    """What an image is cut into is computed on the GPU, and handed on as it is: each number is read where a size is asked for."""

    def test_sizes_in_tensors_have_their_values(self):
        run = Run(SCRIPTS / "numbers_on_device.py", FSDP_REHEARSAL_STEPS=3)
        # For 8 x 6 patches: 4 rows of 3, padded by 1 to 5 and 4, and so on.
        self.assertIn("shapes (4, 3) (5, 4) (4, 3) (16, 3) (2, 3) (4,) (2, 4)\n", run.output)
        self.assertIn("shapes (2, 2) (5, 5) (2, 2) (8, 2) (2, 2) (2,) (2, 2)\n", run.output)
        self.assertIn("most (2, 3) [0, 2] [False, True]\n", run.output)
        self.assertIn("drawn [8, 8, 8, 8] [8, 8, 8, 8] True\n", run.output)
        self.assertIn("ends [48, 64, 80] [48, 16, 16]\n", run.output)
        self.assertEqual((run["end"]["why"], run.warnings("readback")), ("steps_reached", []))


class Kernels(unittest.TestCase):
    """What a kernel of Triton writes through an address is known to nobody, whatever was there before."""

    @classmethod
    def setUpClass(cls):
        cls.run_of_kernels = Run(SCRIPTS / "followed_kernels.py", FSDP_REHEARSAL_STEPS=3)

    def test_size_that_depends_on_a_kernel_is_warned_about(self):
        self.assertEqual(self.run_of_kernels.errors, "")
        lines = (SCRIPTS / "followed_kernels.py").read_text().split("\n")
        found = {lines[w["line"] - 1].strip() for w in self.run_of_kernels.warnings("readback")}
        self.assertEqual(found, {'print("positive", len(positive.nonzero()))'})

    def test_backward_never_runs_on_host_copies(self):
        self.assertIn("backwards begin on cuda cuda cuda\n", self.run_of_kernels.output)


class Intrusion(unittest.TestCase):
    def test_following_values_changes_no_allocation(self):
        """Where nothing steers sizes, every event of the allocator is the same with and without it."""
        with tempfile.TemporaryDirectory() as folder:
            traces = []
            for values in ("follow", "zeros"):
                trace = pathlib.Path(folder) / values
                run = Run(
                    SCRIPTS / "fsdp2.py",
                    FSDP_REHEARSAL_VALUES=values,
                    FSDP_REHEARSAL_TRACE=trace,
                    FSDP_REHEARSAL_RANK=0,
                    FSDP_REHEARSAL_WORLD_SIZE=4,
                )
                self.assertEqual(run["end"]["why"], "steps_reached", run.errors)
                traces.append(trace.read_text().split("\n"))
        self.assertGreater(len(traces[0]), 1000)
        self.assertEqual(traces[0], traces[1])


class Compiled(unittest.TestCase):
    def test_triton_runs_and_following_ends(self):
        run = Run(SCRIPTS / "compiled.py")
        self.assertEqual(run["end"]["why"], "steps_reached", run.errors)
        self.assertTrue(run["limits"]["triton"])
        self.assertEqual(run["limits"]["missing_functions"], [])
        (warning,) = run.warnings("not_followed")
        self.assertIn("torch.compile", warning["text"])
        # 2 x 512 x 2048 weights and their biases, in float32, with gradients and two states.
        parameters = 2 * 512 * 2048 + 2048 + 512
        self.assertGreater(run["memory"]["peaks"]["requested"], 16 * parameters)


if __name__ == "__main__":
    hook_test.STUB = str(pathlib.Path(sys.argv.pop(1)).resolve())
    unittest.main()
