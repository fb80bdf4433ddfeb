"""What memory is for, by the code that asked for it and by its owner. Needs no torch."""

import pathlib
import sys
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "python"))
sys.dont_write_bytecode = True

from fsdp_rehearsal.categories import Owners, _add  # noqa: E402


class Categories(unittest.TestCase):
    def category(self, *frames):
        class Ledger:
            places = [[{"function": function, "file": file} for file, function in frames]]

        class Made:
            place, position = 0, 5

            class label:
                phase = "forward"

        return Owners(None, None)._category(Ledger, 7, Made, 0)

    def test_allocations_of_modules_are_activations(self):
        ddp = ("/torch/nn/parallel/distributed.py", "forward")
        conv = [("/torch/nn/modules/conv.py", "_conv_forward"), ("/torch/nn/modules/module.py", "_call_impl")]
        self.assertEqual(self.category(*conv, ("/torch/nn/parallel/distributed.py", "_run_ddp_forward"), ddp), "activations")

    def test_buckets_and_gathered_tensors_are_communication(self):
        around = [("/torch/nn/parallel/distributed.py", "forward"), ("/torch/nn/modules/module.py", "_call_impl")]
        self.assertEqual(self.category(("/torch/nn/parallel/distributed.py", "_pre_forward"), *around), "communication")
        self.assertEqual(self.category(("/_fully_shard/_fsdp_collectives.py", "allocate"), ("/nn/modules/module.py", "x")), "communication")

    def test_batch_moved_by_a_wrapper_is_no_communication(self):
        self.assertEqual(self.category(("/torch/distributed/utils.py", "_to_kwargs"),
                                       ("/torch/nn/parallel/distributed.py", "_pre_forward")), "activations")


class Tensor:
    is_cuda = True

    def __init__(self, address):
        self.address = address

    def untyped_storage(self):
        return self

    def data_ptr(self):
        return self.address


class Sparse:
    """Rows and their numbers, without a storage of its own, as the gradient of an EmbeddingBag."""

    is_cuda = is_sparse = True

    def untyped_storage(self):
        raise NotImplementedError("Cannot access storage of SparseTensorImpl")

    def _indices(self):
        return Tensor(512)

    def _values(self):
        return Tensor(1024)


class Gradients(unittest.TestCase):
    def test_sparse_gradients_count_indices_and_values(self):
        addresses = set()
        _add(addresses, Sparse())
        _add(addresses, Tensor(2048))
        self.assertEqual(addresses, {512, 1024, 2048})


if __name__ == "__main__":
    unittest.main()
