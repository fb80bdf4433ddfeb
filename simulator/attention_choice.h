#pragma once

// Which backend scaled_dot_product_attention takes.

#include <cstdint>

#include "core/dtype.h"
#include "core/runtime.h"

namespace fsdp::simulator {

/// What the choice depends on.
struct AttentionCase {
  Dtype dtype = Dtype::BFloat16;
  std::int64_t head_dim = 128;
  bool grouped = false;          ///< Fewer key heads than query heads, asked for by enable_gqa.
  bool mask = false;             ///< An additive bias or a mask besides causality.
  bool mask_is_strided = false;  ///< Neighbours along its last dimension are not neighbours in memory (T5's bias).
  bool softcap = false;          ///< Scores are capped, which no fused backend does.
  int compute_capability = 90;
};

/// The backend for a case, never `Automatic`.
/// Source: aten/src/ATen/native/transformers/cuda/sdp_utils.cpp, torch 2.11: flash needs sm_80 and 16-bit types, no
/// mask and heads of at most 256; memory-efficient takes masks (in order along their last dimension) and fp32 but no
/// enable_gqa, and bf16 from sm_80 on only;
/// what neither takes falls to the math path with its score matrices.
AttentionBackend choose_attention(const AttentionCase& which, const Implementations& implementations);

}  // namespace fsdp::simulator
