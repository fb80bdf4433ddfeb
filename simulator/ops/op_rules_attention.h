#pragma once

// Helpers that the files of attention share.

#include <cstdint>
#include <vector>

#include "simulator/ops/kernel_writer.h"

namespace fsdp::simulator {

struct AttentionSizes {
  std::int64_t batch, queries, keys, heads, kv_heads, dim, value_dim;
  bool repeated = false;           // K and V were copied to all query heads.
  bool viewed = false;             // A single head of each is a view for all query heads.
  int mask = -1;                   // Slot of an additive bias or mask; -1 if there is none.
  bool mask_is_converted = false;  // The call made it from booleans, and drops it once it is copied.
  double share = 1;                // The share of the scores that a kernel with boundaries of documents computes.

  std::int64_t q_elements() const { return batch * queries * heads * dim; }
  std::int64_t scores() const { return batch * heads * queries * keys; }
};

/// Holds a function's local variables until it returns.
void hold(KernelWriter& w, const std::vector<int>& slots);

/// K or V for all query heads by expand() and reshape(), as in Hugging Face: a single head becomes a view without a
/// copy.
int expand_heads(KernelWriter& w, int x, const AttentionSizes& s);

/// aten::_scaled_dot_product_attention_math: everything in fp32, q and k scaled, scores, softmax, times v.
int math_attention(KernelWriter& w, int q, int k, int v, const AttentionSizes& s);

/// Hugging Face's eager_attention_forward: scores in the activations' dtype, softmax in fp32.
int eager_attention(KernelWriter& w, int q, int k, int v, const AttentionSizes& s);

}  // namespace fsdp::simulator
