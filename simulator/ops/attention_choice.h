#pragma once

// The backend that scaled_dot_product_attention takes, and those that refuse.

#include <cstdint>
#include <optional>
#include <string>

#include "core/base/dtype.h"
#include "core/base/result.h"
#include "core/plan/runtime.h"

namespace fsdp::simulator {

/// The inputs of the choice.
struct AttentionCase {
  Dtype dtype = Dtype::BFloat16;
  std::int64_t head_dim = 128;
  std::int64_t value_dim = 128;
  bool grouped = false;          ///< Fewer key heads than query heads, through enable_gqa.
  bool mask = false;             ///< An additive bias or a mask besides causality.
  bool mask_is_strided = false;  ///< Neighbors along its last dimension are not neighbors in memory (T5's bias).
  bool mask_is_trained = false;
  bool causal_cross = false;  ///< Causal with another number of keys than of queries.
  bool dropout = false;
  bool written_out = false;  ///< Scores are capped or have sinks, which no fused backend does.
  int compute_capability = 90;
};

/// The reason why PyTorch refuses to train a case with this backend: "head_dim must be at most 256". Empty if it
/// accepts.
/// Source: the checks in aten/src/ATen/native/transformers/cuda/sdp_utils.cpp, torch 2.11, tried out on the stub GPU
/// for sm_70 to sm_100.
std::string refusal_of(AttentionBackend backend, const AttentionCase& which);

/// The error if the requested backend refuses the case, with the backends that accept. nullopt if it accepts.
std::optional<Error> check_attention(const AttentionCase& which, const Implementations& implementations);

/// The backend for a case, never `Automatic`: the requested one, even if it refuses; otherwise the first that accepts
/// of flash, memory-efficient, and the math path with its score matrices. Capped scores are always written out.
AttentionBackend choose_attention(const AttentionCase& which, const Implementations& implementations);

/// The number of parts into which flash cuts the keys if there are too few blocks of queries to fill the GPU: the
/// fewest that come within 15 % of the best use of whole waves. `blocks`: batch * heads * blocks of 64 queries. Source:
/// aten/src/ATen/native/transformers/cuda/flash_attn/flash_api.cpp (num_splits_heuristic), torch 2.11.
std::int64_t flash_splits(std::int64_t blocks, std::int64_t keys, std::int64_t head_dim, int num_sms);

}  // namespace fsdp::simulator
