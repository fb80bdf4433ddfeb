#pragma once

// The plain-PyTorch models whose allocations tests/golden/fsdp2_trace and tests/golden/stub_gpu recorded.

#include <cstdint>
#include <string>
#include <vector>

#include "core/model/model.h"

namespace fsdp {

struct TracedSizes {
  std::int64_t hidden = 768;
  std::int64_t heads = 12;
  std::int64_t kv_heads = 12;
  std::int64_t ffn = 2048;
  std::int64_t layers = 6;
  std::int64_t vocabulary = 16000;  ///< Classes of the ViT.
  std::int64_t seq = 1024;          ///< Patches of the ViT.
  std::int64_t batch = 2;
  std::int64_t patch = 16;  ///< Size for the ViT, in pixels.
  double dropout = 0;
  bool qk_norm = false;      ///< RMSNorm on the heads of q and k.
  bool repeat_kv = false;    ///< K and V are copied to all query heads, before they are transposed.
  bool turns_first = false;  ///< Rotates op by op, the turned halves before x * cos (Hugging Face: after).
  Dtype dtype = Dtype::Float32;
  std::vector<std::string> frozen;  ///< Prefixes of names.

  std::int64_t head_dim() const { return hidden / heads; }
};

/// embed, blocks.*, norm, head; the rotary table was made before training.
Model traced_llama(const TracedSizes& sizes);
/// embed, position, blocks.*, norm; the head is tied to the embedding.
Model traced_gpt2(const TracedSizes& sizes);
/// patch and a position table, blocks.*, norm, mean over the patches, head.
Model traced_vit(const TracedSizes& sizes);

}  // namespace fsdp
