"""What ops of libraries cost: that each is known, and the FLOPs and bytes of some, worked out by hand.

    op_costs_test.py FSDP_PYTHON    run by a Python that has torch and the libraries in which people fine-tune; exit 77 without them
"""

from __future__ import annotations

import importlib
import importlib.util
import re
import sys
import unittest

sys.path.insert(0, sys.argv[1])
from fsdp_capture.op_costs import ATTENTION, CONVOLUTION, OTHER, PRODUCT, VIEW, cost_of, cost_of_triton, has_row  # noqa: E402

LIBRARIES = ("bitsandbytes", "torchao", "torchao.prototype.moe_training", "torchvision", "transformers.integrations.moe",
             "diffusers.models.attention_dispatch", "liger_kernel.transformers", "peft", "timm")
# Symbols of exporters and of PyTorch's own tests, and code that a compiler makes: no step dispatches them.
NOT_OF_STEPS = ("_inductor_test", "onnx", "onnx_symbolic", "cplib", "flex_lib", "_test", "debug_mode_ops", "debugprims", "export", "mkl", "mkldnn",
                "mkldnn_prepacked", "onednn", "prepacked", "quantization", "quantized", "sparse", "static_runtime")
# What ATen computes beyond reading and writing once goes by one of these words.
ARITHMETIC = re.compile(r"(^|_)(mm|bmm|addmm|mv|addmv|baddbmm|addbmm|dot|matmul|linear|einsum|conv\w*|attention\w*|rnn|linalg\w*|svd|qr|eigh?|cholesky"
                        r"|inverse|solve|trilinear|pdist|cdist|pinv|matrix_exp|ormqr|geqrf|spsolve|triangular_solve|hspmm|smm|sspaddmm)(_|$|\d)")
# All of these read and write once: backward passes, which a capture never dispatches, norms, sums of products of vectors, packing, plans.
BY_BYTES = re.compile(r"backward|norm|powsum|linalg_cross|search$|convert|flatten_weight|check_errors|slice_inverse|upsample|unpack")


def schemas() -> set[str]:
    import torch

    return {schema.name for schema in torch._C._jit_get_all_schemas()}


def on_cards() -> set[str]:
    """Ops of ATen that have a kernel for CUDA: the others are put together from these before they are dispatched."""
    import torch

    dispatched = set(torch._C._dispatch_get_registrations_for_dispatch_key("CUDA"))
    return {name.split(".")[0] for name in dispatched if name.startswith("aten::") and not name.startswith("aten::miopen")}


class EveryOpHasARow(unittest.TestCase):
    def test_ops_of_libraries(self) -> None:
        for name in LIBRARIES:
            importlib.import_module(name)
        others = {n for n in schemas() if not n.startswith(("aten::", "mylib::")) and n.split("::")[0] not in NOT_OF_STEPS}
        self.assertGreater(len([n for n in others if n.startswith(("bitsandbytes::", "torchao::"))]), 30)
        backward = re.compile("_backward$")  # a capture sees forwards, and knows the backward from them
        self.assertEqual(sorted(n for n in others if not has_row(n) and not backward.search(n)), [])

    def test_compute_heavy_ops_of_aten(self) -> None:
        from torch.utils.flop_counter import flop_registry

        counted = {str(op).replace(".", "::") for op in flop_registry}
        heavy = {n for n in on_cards() if ARITHMETIC.search(n[6:]) and not BY_BYTES.search(n[6:])}
        self.assertGreater(len(heavy), 60)
        self.assertEqual(sorted(n for n in heavy if not has_row(n) and n not in counted), [])


class Costs(unittest.TestCase):
    def setUp(self) -> None:
        import torch

        self.torch = torch

    def tensor(self, *shape, dtype="bfloat16", grad=False):
        return self.torch.empty(shape, dtype=getattr(self.torch, dtype), device="meta", requires_grad=grad)

    def cost(self, func, *args, outputs, **kwargs):
        leaves = self.torch.utils._pytree.tree_leaves((args, kwargs))
        tensors = [leaf for leaf in leaves if isinstance(leaf, self.torch.Tensor)]
        return cost_of(func, args, kwargs, tensors, outputs)

    def test_a_4_bit_weight_is_unpacked_and_multiplied(self) -> None:
        import bitsandbytes  # noqa: F401

        x = self.tensor(4, 4096, 4096, grad=True)
        packed, absmax = self.tensor(4096 * 4096 // 2, 1, dtype="uint8"), self.tensor(262144, dtype="float32")
        out = self.tensor(4, 4096, 4096)
        cost = self.cost(self.torch.ops.bitsandbytes.gemm_4bit.default, x, packed, [4096, 4096], absmax, 64, "nf4", outputs=[out])
        self.assertEqual((cost.kind, cost.flops), (PRODUCT, 2 * 4 * 4096**3))
        self.assertEqual((cost.products, cost.backward_flops), (1, cost.flops))  # of x; a packed weight has no gradient
        self.assertEqual(cost.moved, 4096 * 4096 * 5 // 2)  # half a byte is read and two are written for each weight
        self.assertEqual(cost.backward_moved, cost.moved)

    def test_products_of_8_bits_are_narrow(self) -> None:
        import bitsandbytes  # noqa: F401

        a, b, out = self.tensor(128, 64, dtype="int8"), self.tensor(256, 64, dtype="int8"), self.tensor(128, 256, dtype="int32")
        cost = self.cost(self.torch.ops.bitsandbytes.int8_linear_matmul.default, a, b, outputs=[out])
        self.assertEqual((cost.flops, cost.is_narrow), (2 * 128 * 64 * 256, True))
        fp8 = [self.tensor(16, 32, dtype="float8_e4m3fn"), self.tensor(32, 48, dtype="float8_e4m3fn"), self.tensor(dtype="float32")]
        cost = self.cost(self.torch.ops.aten._scaled_mm.default, *fp8, fp8[2], outputs=[self.tensor(16, 48)])
        self.assertEqual((cost.kind, cost.flops, cost.is_narrow), (PRODUCT, 2 * 16 * 32 * 48, True))

    def test_groups_of_products(self) -> None:
        func, ends = self.torch.ops.aten._grouped_mm.default, self.tensor(8, dtype="int32")
        x, weight = self.tensor(1000, 64, grad=True), self.tensor(8, 64, 96, grad=True)
        cost = self.cost(func, x, weight, ends, outputs=[self.tensor(1000, 96)])
        self.assertEqual((cost.flops, cost.products), (2 * 1000 * 64 * 96, 2))
        # The gradient of the weights: 1000 is summed over, by parts.
        cost = self.cost(func, self.tensor(64, 1000), self.tensor(1000, 96), ends, outputs=[self.tensor(8, 64, 96)])
        self.assertEqual(cost.flops, 2 * 1000 * 64 * 96)

    def test_attention_with_positions_in_front_of_heads(self) -> None:
        q, k = self.tensor(2, 512, 16, 64, grad=True), self.tensor(2, 768, 4, 64)
        ops = self.torch.ops.aten
        cost = self.cost(ops._flash_attention_forward.default, q, k, k, None, None, 512, 768, 0.0, True, False, outputs=[q])
        self.assertEqual((cost.kind, cost.flops), (ATTENTION, 4 * 2 * 512 * 16 * 64 * 768))
        self.assertEqual(cost.backward_flops, 5 * cost.flops // 2)
        q, ends = self.tensor(2048, 16, 64), self.tensor(5, dtype="int32")  # four samples in one row
        cost = self.cost(ops._flash_attention_forward.default, q, q, q, ends, ends, 512, 512, 0.0, True, False, outputs=[q])
        self.assertEqual((cost.flops, cost.backward_flops), (4 * 2048 * 16 * 64 * 512, 0))
        q = self.tensor(2, 16, 512, 64)
        cost = self.cost(ops._scaled_dot_product_flash_attention.default, q, q, q, outputs=[q])
        self.assertEqual(cost.flops, 4 * 2 * 16 * 512 * 64 * 512)

    def test_a_convolution_counts_input_channels_of_a_group(self) -> None:
        x, weight, bias = self.tensor(4, 32, 28, 28), self.tensor(64, 8, 3, 3, grad=True), self.tensor(64, grad=True)
        args = (x, weight, bias, [1, 1], [1, 1], [1, 1], False, [0, 0], 4)
        cost = self.cost(self.torch.ops.aten.convolution.default, *args, outputs=[self.tensor(4, 64, 28, 28)])
        self.assertEqual((cost.kind, cost.flops), (CONVOLUTION, 2 * 4 * 64 * 28 * 28 * 8 * 9))
        self.assertEqual(cost.backward_flops, cost.flops)  # of the weight alone

    def test_recurrent_layers_meet_each_weight_at_each_step(self) -> None:
        x, h = self.tensor(50, 8, 64, grad=True), self.tensor(1, 8, 128)
        weights = [self.tensor(512, 64), self.tensor(512, 128), self.tensor(512), self.tensor(512)]
        args = (x, weights, 4, None, h, h, 2, 128, 0, 1, False, 0.0, True, False, [], None)
        cost = self.cost(self.torch.ops.aten._cudnn_rnn.default, *args, outputs=[self.tensor(50, 8, 128)])
        self.assertEqual((cost.flops, cost.backward_flops, cost.kernels), (2 * 50 * 8 * 512 * 192, 2 * cost.flops, 50))

    def test_elementwise_ops_go_by_bytes_and_memory_costs_nothing(self) -> None:
        x = self.tensor(1000, grad=True)
        cost = self.cost(self.torch.ops.aten.silu.default, x, outputs=[self.tensor(1000)])
        self.assertEqual((cost.kind, cost.moved, cost.backward_moved), (OTHER, 4000, 6000))
        self.assertEqual(self.cost(self.torch.ops.aten.empty_like.default, x, outputs=[x]).kind, VIEW)

    def test_unknown_ops_have_no_cost(self) -> None:
        self.torch.library.define("mylib::scan", "(Tensor x) -> Tensor")

        x = self.tensor(10, 10)
        self.assertFalse(has_row("mylib::scan"))
        self.assertFalse(self.cost(self.torch.ops.mylib.scan.default, x, outputs=[x]).is_known)
        self.assertFalse(self.cost(self.torch.ops.aten.linalg_matrix_exp.default, x, outputs=[x]).is_known)
        self.assertTrue(cost_of_triton([x, x], multiplies=False).is_known)
        self.assertEqual(cost_of_triton([x, x], multiplies=False).moved, 400)
        self.assertFalse(cost_of_triton([x, x], multiplies=True).is_known)


if __name__ == "__main__":
    if any(importlib.util.find_spec(name.split(".")[0]) is None for name in LIBRARIES):
        sys.exit(77)
    unittest.main(argv=sys.argv[:1], verbosity=2)
