"""What a capture makes of a script's loop, without torch: evaluations, sizes of batches, what the script keeps, states of optimizers."""

import math
import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "python"))
sys.dont_write_bytecode = True

from fsdp_capture.evaluations import EvaluationWatch  # noqa: E402
from fsdp_capture.old_tensors import OldTensors, are_copied  # noqa: E402
from fsdp_capture.optimizer_facts import refusal  # noqa: E402
from fsdp_capture.passes import CaptureError  # noqa: E402
from fsdp_capture.trained import check_sizes  # noqa: E402


class Phases:
    evaluations = 0


class Sizes(unittest.TestCase):
    def test_batches_of_other_sizes_are_refused(self):
        check_sizes({("float32", False): [(4, 190), (4,)], ("bfloat16", False): [(4, 190), (4,)]})
        with self.assertRaisesRegex(CaptureError, "sizes from step to step: 4 x 190, then 4 x 176. "):
            check_sizes({("float32", False): [(4,), (4, 190)], ("bfloat16", False): [(4,), (4, 176)]})


class Evaluations(unittest.TestCase):
    def watch(self, *evaluations):
        """`evaluations`: before each step, of which the last one is recorded."""
        phases = Phases()
        watch = EvaluationWatch(phases)
        for count in evaluations[:-1]:
            phases.evaluations += count
            watch.step_ended()
        watch.recording_begins()
        phases.evaluations += evaluations[-1]
        return watch

    def test_evaluation_after_each_step_belongs_to_it(self):
        self.assertFalse(self.watch(0, 1, 1, 1).is_to_be_left_out(1))

    def test_occasional_evaluation_is_left_out(self):
        watch = self.watch(0, 0, 0, 1)
        self.assertTrue(watch.is_to_be_left_out(1))
        watch.recording_begins()
        self.assertFalse(watch.is_to_be_left_out(1))

    def test_evaluation_before_a_micro_batch_is_refused(self):
        watch = self.watch(0, 1, 1, 1)
        self.assertTrue(watch.is_to_be_left_out(2))
        with self.assertRaisesRegex(CaptureError, "after each step of 2 micro-batches"):
            watch.check(2)
        watch.check(1)
        self.watch(0, 0, 0, 1).check(2)


class OnGpu:
    """What is asked of a tensor on a GPU."""

    is_cuda, layout, dtype, requires_grad = True, "strided", "torch.float32", True

    def __init__(self, address, *shape):
        self.address, self.shape = address, shape

    def data_ptr(self):
        return self.address

    def numel(self):
        return math.prod(self.shape)

    def element_size(self):
        return 4

    def dim(self):
        return len(self.shape)

    def __hash__(self):
        return id(self)


class CopiesOfParameters(unittest.TestCase):
    """Copies of the parameters are told from the rest of what a script keeps."""

    def rows(self, held, made_at=10):
        """`held`: allocator event in which each tensor was made, and the tensor."""
        blocks = {t.address: type("Block", (), {"size": 4 * t.numel(), "position": position})() for position, t in held}
        ledger = type("Ledger", (), {"position": 99, "alive_since": lambda self, position: dict(blocks)})()
        history = type("History", (), {"drain": lambda self: None, "ledger": ledger})()
        torch = type("torch", (), {"Tensor": OnGpu, "strided": "strided", "_C": None})
        parameters = [("a", OnGpu(1, 8, 4)), ("b", OnGpu(2, 8)), ("c", OnGpu(3))]
        root = type("Root", (), {"named_parameters": lambda self: parameters})()
        rows = OldTensors(torch, history, root, made_at).rows([])
        return [(row["shape"], row.get("copy_of")) for row in rows]

    def test_one_tensor_per_parameter_is_a_copy(self):
        held = [(20, OnGpu(100, 8, 4)), (21, OnGpu(200, 8)), (22, OnGpu(300)), (23, OnGpu(400, 8, 4))]
        self.assertEqual(self.rows(held), [([128], None), ([8, 4], "a"), ([8], "b"), ([1], "c")])

    def test_tensors_older_than_the_optimizer_are_no_copies(self):
        held = [(5, OnGpu(100, 8, 4)), (6, OnGpu(200, 8)), (7, OnGpu(300))]
        self.assertEqual(self.rows(held), [([128], None), ([32], None), ([4], None)])

    def test_single_tensor_of_equal_shape_is_no_copy(self):
        self.assertEqual(self.rows([(20, OnGpu(100, 8, 4))]), [([128], None)])


    def test_earlier_copies_are_detected(self):
        """A script may move them to the GPU after its optimizer, which makes no shards of them."""
        torch = type("torch", (), {"Tensor": OnGpu, "nn": type("nn", (), {"Parameter": OnGpu})})
        parameters = [OnGpu(1, 5, 7), OnGpu(2, 11)]
        self.assertFalse(are_copied(torch, parameters))
        copies = [OnGpu(3, 5, 7)]
        self.assertFalse(are_copied(torch, parameters))
        copies.append(OnGpu(4, 11))
        self.assertTrue(are_copied(torch, parameters))


class States(unittest.TestCase):
    def test_parameter_of_one_number_is_ignored(self):
        """Its states are as large as a count of steps."""
        large, small = OnGpu(1, 8, 4), OnGpu(2)
        optim = type("optim", (), {"AdamW": int, "Adam": float, "SGD": str})
        torch = type("torch", (), {"Tensor": OnGpu, "optim": optim})

        class Adadelta:
            param_groups = ({"params": [large, small]},)
            state = {large: {"square": OnGpu(3, 8, 4), "delta": OnGpu(4, 8, 4), "step": OnGpu(5)}, small: {"square": OnGpu(6), "delta": OnGpu(7)}}

        self.assertEqual(refusal(torch, [Adadelta()]), "")


if __name__ == "__main__":
    unittest.main(verbosity=2)
