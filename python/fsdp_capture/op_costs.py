"""The cost of an op on the device: FLOPs by the shapes of its tensors, bytes by their sizes.

The table is keyed by the op's name. ATen's ops without a row read their inputs and write their outputs once; ops that compute
more have a row. An op of a library has a row, or is reported as having no known cost: the step then takes longer than
predicted, by an unknown amount. The same applies to kernels that a library launches outside of PyTorch, and to kernels of
Triton that multiply matrices.

Sources: schemas of torch 2.11 (aten/src/ATen/native/native_functions.yaml), bitsandbytes 0.50 (_ops.py,
autograd/_functions.py), flash-attn 2.8 (flash_attn_interface.py), xformers 0.0.32 (ops/fmha), torchao 0.18 (ops.py,
kernel/intmm.py), torchvision 0.26 (csrc/ops), transformers 5 (integrations/moe.py), diffusers 0.42
(models/attention_dispatch.py).

Not modeled: fp8 and int8 products are faster than those of their output's dtype; documents of unequal length in one packed
sample; windows of attention.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Optional

VIEW, PRODUCT, CONVOLUTION, ATTENTION, OTHER = "view", "product", "convolution", "attention", "other"
COUNTED = (PRODUCT, CONVOLUTION, ATTENTION)


@dataclass(frozen=True)
class Cost:
    """Cost of one op. Its backward includes all wanted gradients."""

    kind: str = OTHER
    flops: int = 0
    backward_flops: int = 0
    products: int = 0  # products in the backward, of `flops` each
    moved: int = 0  # bytes that kernels other than those of the FLOPs read and write
    backward_moved: int = 0
    kernels: int = 1
    is_known: bool = True
    is_narrow: bool = False  # products of numbers of 8 bits or fewer, which are faster than products of the output's dtype


@dataclass(frozen=True)
class Operands:
    """The arguments of an op."""

    args: Sequence[Any]
    kwargs: dict[str, Any]
    outputs: list[Any]  # tensors

    def tensor(self, place: int) -> Any:
        return self.args[place]

    def wanted(self, *places: int) -> int:
        """How many of these have a gradient."""
        given = [self.args[p] for p in places if p < len(self.args)]
        return sum(bool(getattr(each, "requires_grad", False)) for each in given)


Rule = Callable[[Operands], Cost]


def _product(left: int, right: int, packed: Optional[int] = None) -> Rule:
    """C = A B: each number of C sums over the last dimension of A, argument `left`. `packed`: an argument with the shape of a
    weight that is unpacked to the dtype of A before the product, and again in the backward."""

    def cost(of: Operands) -> Cost:
        a, out = of.tensor(left), of.outputs[0]
        if a.dim() < out.dim() and a.dim() == 2:  # groups along the inner dimension: each has a part of the sum
            flops = 2 * math.prod(out.shape[1:]) * a.shape[-1]
        else:
            flops = 2 * out.numel() * a.shape[-1]
        products = of.wanted(left, right)
        unpacked = 0
        if packed is not None:
            elements = math.prod(of.args[packed])
            unpacked = elements * a.element_size() + elements // 2
        return Cost(PRODUCT, flops, flops * products, products, unpacked, unpacked, is_narrow=a.element_size() < 2)

    return cost


def _summed_product(of: Operands) -> Cost:
    """addbmm: the sum of a batch of products."""
    flops = 2 * of.tensor(1).numel() * of.tensor(2).shape[-1]
    return Cost(PRODUCT, flops, flops * of.wanted(1, 2), of.wanted(1, 2))


def _convolution(transposed: Optional[int] = None, is_transposed: bool = False, deformed: bool = False) -> Rule:
    """`transposed`: the argument that decides whether it is; `deformed`: each output gathers its inputs first."""

    def cost(of: Operands) -> Cost:
        x, weight, out = of.tensor(0), of.tensor(1), of.outputs[0]
        turned = bool(of.args[transposed]) if transposed is not None else is_transposed
        per_point = weight.numel() // max(1, weight.shape[0])  # input channels of a group, times the size of the filter
        flops = 2 * (x if turned else out).numel() * per_point
        gathered = 2 * out.numel() // max(1, out.shape[1]) * per_point * x.element_size() if deformed else 0
        gradients = of.wanted(0, 1)
        return Cost(CONVOLUTION, flops, flops * gradients, 0, gathered, gathered * gradients)

    return cost


# FLOPs of the backward: five products for the forward's two (Dao, "FlashAttention-2", 2023, section 3.1).
_ATTENTION_BACKWARD = 2.5


def _attention(keys_at: int, lengths: Optional[int] = None) -> Rule:
    """softmax(Q K') V. `keys_at`: dimension of K that counts keys; `lengths`: argument with the ends of packed samples,
    assumed to have equal lengths. All scores count, including masked ones, as in the shares of attention."""

    def cost(of: Operands) -> Cost:
        q, k = of.tensor(0), of.tensor(1)
        keys = k.shape[keys_at]
        ends = of.args[lengths] if lengths is not None and lengths < len(of.args) else None
        if ends is not None and hasattr(ends, "numel"):
            keys //= max(1, ends.numel() - 1)
        flops = 4 * math.prod(q.shape) * keys
        wanted = of.wanted(0, 1, 2) > 0
        return Cost(ATTENTION, flops, int(_ATTENTION_BACKWARD * flops) if wanted else 0)

    return cost


def _recurrent(of: Operands) -> Cost:
    """cuDNN's LSTM and GRU: each sample and step reads each weight once; a step waits for the previous one."""
    x, weights = of.tensor(0), of.args[1]
    positions = x.numel() // max(1, x.shape[-1])
    flops = 2 * positions * sum(w.numel() for w in weights if w.dim() > 1)
    gradients = 2 if any(getattr(t, "requires_grad", False) for t in (x, *weights)) else 0
    steps = positions // max(1, x.shape[0 if of.args[10] else 1]) if x.dim() == 3 else 1
    return Cost(PRODUCT, flops, flops * gradients, 0, kernels=max(1, steps * of.args[9]))


def _encoder_layer(of: Operands) -> Cost:
    """The fast path of nn.TransformerEncoderLayer, which runs without gradients."""
    x = of.tensor(0)
    weights = sum(t.numel() for t in of.args[1:] if getattr(t, "dim", lambda: 0)() == 2)
    flops = 2 * (x.numel() // x.shape[-1]) * weights + 4 * x.numel() * x.shape[1]
    return Cost(PRODUCT, flops)


def _by_bytes(of: Operands) -> Cost:
    """Each input is read and each output written once: `cost_of` computes the bytes."""
    return Cost()


def _nothing(of: Operands) -> Cost:
    """No kernel of the compute stream: the op makes a tensor, or the CPU runs it."""
    return Cost(VIEW)


def _unknown(of: Operands) -> Cost:
    """The cost of an op whose work does not follow from sizes, or that was never measured."""
    return Cost(is_known=False)


def _rows(namespace: str, rule: Rule, names: str) -> dict[str, Rule]:
    return {f"{namespace}::{name}": rule for name in names.split()}


_AB = _product(0, 1)

_ATEN: dict[str, Rule] = {
    **_rows("aten", _AB, "mm bmm mv dot vdot _int_mm _scaled_mm _scaled_mm_v2 _grouped_mm _scaled_grouped_mm _scaled_grouped_mm_v2 _sparse_mm smm "
            "hspmm _weight_int4pack_mm _weight_int8pack_mm _weight_int4pack_mm_with_scales_and_zeros _cslt_sparse_mm _mixed_dtypes_linear linear "
            "matmul _cdist_forward fbgemm_linear_fp16_weight _dyn_quant_matmul_4bit _sparse_semi_structured_linear inner linalg_vecdot"),
    **_rows("aten", _product(1, 2), "addmm baddbmm addmv _addmm_activation _sparse_addmm sspaddmm sparse_sampled_addmm _sparse_semi_structured_addmm"),
    **_rows("aten", _product(0, 2), "_sparse_semi_structured_mm"),
    "aten::addbmm": _summed_product,
    **_rows("aten", _convolution(6), "convolution _convolution convolution_overrideable"),
    **_rows("aten", _convolution(), "cudnn_convolution cudnn_convolution_relu cudnn_convolution_add_relu _conv_depthwise2d conv_depthwise3d "
            "slow_conv_dilated2d slow_conv_dilated3d _slow_conv2d_forward slow_conv3d slow_conv3d_forward thnn_conv2d"),
    **_rows("aten", _convolution(is_transposed=True), "cudnn_convolution_transpose slow_conv_transpose2d slow_conv_transpose3d"),
    **_rows("aten", _attention(-2), "_scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention "
            "_scaled_dot_product_cudnn_attention _scaled_dot_product_fused_attention_overrideable scaled_dot_product_attention "
            "_scaled_dot_product_attention_math _scaled_dot_product_flash_attention_for_cpu _triton_scaled_dot_attention"),
    "aten::_flash_attention_forward": _attention(-3, lengths=4),
    "aten::_efficient_attention_forward": _attention(-3, lengths=5),
    "aten::_cudnn_attention_forward": _attention(-2, lengths=5),
    "aten::_cudnn_rnn": _recurrent,
    **_rows("aten", _encoder_layer, "_transformer_encoder_layer_fwd _native_multi_head_attention _triton_multi_head_attention"),
    # Iterative ops, whose number of iterations no size determines, and ops with unmeasured plans.
    **_rows("aten", _unknown, "_trilinear conv_tbc _sparse_sparse_matmul _sparse_mm_reduce_impl _spsolve _pdist_forward linalg_matrix_exp "
            "_linalg_det _linalg_eigh _linalg_eigvals linalg_eig linalg_eigh linalg_eigvalsh linalg_eigvals _linalg_slogdet _linalg_solve_ex _linalg_svd "
            "linalg_cholesky_ex cholesky cholesky_inverse cholesky_solve _cholesky_solve_helper linalg_inv_ex inverse linalg_householder_product "
            "linalg_ldl_factor_ex linalg_ldl_solve linalg_lstsq linalg_lu linalg_lu_factor_ex linalg_lu_solve linalg_pinv linalg_qr linalg_solve_triangular "
            "triangular_solve lu_unpack ormqr geqrf linalg_cond linalg_matrix_rank _compute_linear_combination"),
    # Memory for tensors; another op fills it.
    **_rows("aten", _nothing, "empty empty_like empty_strided empty_permuted new_empty new_empty_strided resize_ resize_as_ set_ record_stream "
            "_unsafe_view detach alias lift_fresh _has_compatible_shallow_copy_type is_pinned _local_scalar_dense _linalg_check_errors"),
}  # fmt: skip

_LIBRARIES: dict[str, Rule] = {
    # bitsandbytes: 4-bit weights are unpacked and multiplied; the backward unpacks them again.
    "bitsandbytes::gemm_4bit": _product(0, 1, packed=2),
    "bitsandbytes::gemv_4bit": _product(0, 1, packed=2),
    **_rows("bitsandbytes", _AB, "int8_linear_matmul int8_scaled_mm int8_mixed_scaled_mm"),
    **_rows("bitsandbytes", _by_bytes, "dequantize_4bit quantize_4bit dequantize_blockwise quantize_blockwise int8_double_quant int8_mm_dequant "
            "int8_vectorwise_dequant int8_vectorwise_quant optimizer_update_32bit optimizer_update_8bit_blockwise"),
    # flash-attn, the same kernels in diffusers and xformers: [batch, positions, heads, head size], or positions first and no batch.
    "flash_attn::_flash_attn_forward": _attention(-3),
    "flash_attn::_flash_attn_varlen_forward": _attention(-3, lengths=4),
    "_diffusers_flash_attn_3::_flash_attn_forward": _attention(-3),
    "flash_attn_3::fwd": _attention(-3, lengths=8),
    **_rows("xformers", _attention(-3), "efficient_attention_forward_cutlass"),
    **_rows("xformers_flash", _attention(-3, lengths=4), "flash_fwd"),
    **_rows("flash_attn", _by_bytes, "_flash_attn_backward _flash_attn_varlen_backward"),
    # torchao
    **_rows("torchao", _AB, "int_matmul int_scaled_matmul mx_fp8_bf16 swizzle_mm swizzle_scaled_mm rowwise_scaled_linear_sparse_cutlass_f8f8 "
            "blockwise_scaled_mm float8_linear_cpu da8w4_linear_cpu"),
    "torchao::qscaled_dot_product": _attention(-2),
    **_rows("torchao", _by_bytes, "choose_qparams_affine choose_scale_float8 quantize_affine dequantize_affine quantize_affine_float8_non_decomposed "
            "dequantize_affine_float8_non_decomposed mx_block_rearrange_2d_M_groups mxfp8_quantize mxfp8_quantize_2d_1x32_cutedsl "
            "mxfp8_quantize_2d_1x32_flydsl mxfp8_quantize_2d_32x1_cutedsl mxfp8_quantize_2d_32x1_flydsl mxfp8_quantize_3d_cutedsl "
            "mxfp8_quantize_3d_flydsl to_sparse_semi_structured_cutlass_sm9x_f8 triton_mx_block_rearrange triton_weight_quantize_2d "
            "triton_rht_quantize_row_col triton_rht_amax _scaled_embedding_bag da8w4_linear_prepack_cpu float8_linear_prepack_cpu "
            "fused_pad_token_groups fused_unpad_token_groups"),
    **_rows("ao", _by_bytes, "mslk_calculate_group_max mslk_quantize_nvfp4 mslk_quantize_nvfp4_stacked"),
    "ao::blockwise_fp8_gemm": _AB,
    "float8_sparse::fp8_sparse_mm": _product(0, 2),
    # transformers: the products of experts.
    "transformers::grouped_mm_fallback": _AB,
    # torchvision
    "torchvision::deform_conv2d": _convolution(deformed=True),
    **_rows("torchvision", _by_bytes, "roi_align roi_pool ps_roi_align ps_roi_pool"),
    "torchvision::nms": _unknown,
    "torchvision::_cuda_version": _nothing,
}  # fmt: skip

# All of these read and write once: PyTorch's own, and conversions.
_BY_BYTES = ("prims", "fsdp", "quantized_decomposed", "_quantized", "inductor", "rngprims")
# None of these computes: collectives, which a plan has of its own, and work of the CPU.
_FREE = ("c10d", "_c10d_functional", "_c10d_functional_autograd", "c10d_functional", "_dtensor", "symm_mem", "streams", "profiler", "image", "prim", "cuda")


def _row_of(name: str) -> Optional[Rule]:
    """The row of "aten::addmm" for "aten::addmm_"."""
    rows = _ATEN if name.startswith("aten::") else _LIBRARIES
    return rows.get(name) or rows.get(name.rstrip("_"))


def has_row(name: str) -> bool:
    """Whether the cost of a library's op is known, or known to be unknowable: "bitsandbytes::gemm_4bit"."""
    return _row_of(name) is not None or name.split("::")[0] in (*_BY_BYTES, *_FREE)


def _rule_of(name: str) -> Rule:
    namespace = name.split("::")[0]
    others = _nothing if namespace in _FREE else _by_bytes if namespace in ("aten", *_BY_BYTES) else _unknown
    return _row_of(name) or others


def cost_of(func: Any, args: Sequence[Any], kwargs: dict[str, Any], tensors: list[Any], outputs: list[Any], flop_formula: Any = None) -> Cost:
    """`tensors`: all of its arguments; `flop_formula`: of torch.utils.flop_counter, for an ATen op that has no row here."""
    name = f"{func.namespace}::{func.overloadpacket.__name__}"
    if func.is_view:
        return Cost(VIEW)
    moved = sum(t.numel() * t.element_size() for t in (*tensors, *outputs))
    wanted = sum(t.numel() * t.element_size() for t in tensors if t.requires_grad)
    by_bytes = Cost(OTHER, moved=moved, backward_moved=moved + wanted if wanted else 0)
    rule = _rule_of(name)
    if rule is _by_bytes and flop_formula is not None:
        flops = int(flop_formula(*args, **kwargs, out_val=outputs[0] if len(outputs) == 1 else tuple(outputs)))
        return Cost(PRODUCT, flops, flops * min(2, sum(t.requires_grad for t in tensors)))
    if rule is _by_bytes:
        return by_bytes
    try:
        cost = rule(Operands(args, kwargs, outputs))
    except (IndexError, AttributeError, TypeError):  # another release of the library, with other arguments
        return Cost(OTHER, moved=moved, backward_moved=by_bytes.backward_moved, is_known=False)
    if cost.kind == OTHER:
        return Cost(OTHER, moved=moved, backward_moved=by_bytes.backward_moved, is_known=cost.is_known)
    return cost


def cost_of_triton(tensors: list[Any], multiplies: bool) -> Cost:
    """For a kernel of Triton that reads or writes each of its tensors once. `multiplies`: it multiplies matrices, whose sizes
    only its code knows."""
    moved = sum(t.numel() * t.element_size() for t in tensors)
    wanted = any(t.requires_grad for t in tensors)
    return Cost(OTHER, moved=moved, backward_moved=moved if wanted else 0, is_known=not multiplies)
