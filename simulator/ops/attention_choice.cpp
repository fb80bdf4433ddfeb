#include "simulator/ops/attention_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <string_view>
#include <vector>

#include "core/base/nearest.h"
#include "core/plan/plan_names.h"

namespace fsdp::simulator {

namespace {

bool is_half(Dtype dtype) {
  return dtype == Dtype::Float16 || dtype == Dtype::BFloat16;
}

std::string needs_capability(int least) {
  return fmt::format("it needs compute capability {}.{}", least / 10, least % 10);
}

// Consumer cards have less shared memory, too little for the backward of some sizes.
bool has_small_blocks(int capability) {
  return capability == 86 || capability == 89 || capability >= 120;
}

// aten/src/ATen/native/transformers/sdp_utils_cpp.cpp: use_flash_attention_cpp.
std::string refusal_of_flash_on_cpu(const AttentionCase& which) {
  if (which.dropout) return "it does not support dropout";
  if (which.head_dim != which.value_dim) return "values must have the head_dim of queries";
  if (which.mask_is_trained) return "the mask must not be trained";
  return {};
}

std::string refusal_of_flash(const AttentionCase& which) {
  if (which.compute_capability == 0) return refusal_of_flash_on_cpu(which);
  if (which.compute_capability < 80) return needs_capability(80);
  if (!is_half(which.dtype)) return "it supports float16 and bfloat16";
  if (which.head_dim > 256) return "head_dim must be at most 256";
  if (which.head_dim != which.value_dim) return "values must have the head_dim of queries";
  if (which.mask) return "it does not support masks";
  if (which.causal_cross) return "causal attention needs as many keys as queries";
  const bool is_trained_here = which.head_dim <= 192 || (which.head_dim > 224 && !which.dropout);
  if (has_small_blocks(which.compute_capability) && !is_trained_here) {
    return "its backward does not support head_dim 193 to 224 on this GPU, nor with dropout any above 192";
  }
  return {};
}

// The kernel reads rows 16 bytes at a time if there are tensor cores for the dtype.
std::string refusal_of_memory_efficient(const AttentionCase& which) {
  if (which.compute_capability == 0) return "it needs a GPU";
  if (which.dtype == Dtype::BFloat16 && which.compute_capability < 80)
    return "it supports bfloat16 from compute capability 8.0 on";
  if (!is_half(which.dtype) && which.dtype != Dtype::Float32) return "it supports float16, bfloat16 and float32";
  const bool tensor_cores = which.compute_capability >= 80 || (which.compute_capability >= 70 && is_half(which.dtype));
  const std::int64_t multiple = tensor_cores ? 16 / size_of(which.dtype).count() : 1;
  if (which.head_dim % multiple != 0 || which.value_dim % multiple != 0) {
    return fmt::format("head_dim must be a multiple of {} here", multiple);
  }
  if (which.grouped) return "it does not support grouped-query heads";
  if (which.mask_is_strided) return "masks must be contiguous in their last dimension";
  return {};
}

std::string refusal_of_cudnn(const AttentionCase& which) {
  if (which.compute_capability < 80) return needs_capability(80);
  if (!is_half(which.dtype)) return "it supports float16 and bfloat16";
  const bool is_blackwell_pair = which.compute_capability / 10 == 10 && which.head_dim == 192 && which.value_dim == 128;
  const std::int64_t most = which.compute_capability == 90 ? 256 : 128;
  if (!is_blackwell_pair && (which.head_dim > most || which.value_dim > most)) {
    return fmt::format("head_dim must be at most {} on this GPU", most);
  }
  if (which.head_dim % 8 != 0 || which.value_dim % 8 != 0) return "head_dim must be a multiple of 8";
  if (which.mask_is_trained) return "the mask must not be trained";
  return {};
}

}  // namespace

std::string refusal_of(AttentionBackend backend, const AttentionCase& which) {
  if (which.written_out) return {};  // Written-out attention.
  switch (backend) {
    case AttentionBackend::Flash:
    case AttentionBackend::FlashAttn:
      return refusal_of_flash(which);
    case AttentionBackend::MemoryEfficient:
      return refusal_of_memory_efficient(which);
    case AttentionBackend::Cudnn:
      return refusal_of_cudnn(which);
    default:
      return {};
  }
}

std::optional<Error> check_attention(const AttentionCase& which, const Implementations& implementations) {
  const std::string why = refusal_of(implementations.attention, which);
  if (why.empty()) return std::nullopt;
  std::vector<std::string_view> allowed;
  for (const EnumName<AttentionBackend>& backend : kAttentionBackends) {
    if (refusal_of(backend.value, which).empty()) allowed.push_back(backend.name);
  }
  return Error{"/runtime/implementations/attention",
               fmt::format("PyTorch refuses {} for {}, head_dim {} and compute capability {}.{}: {}.",
                           name_of(kAttentionBackendTable, implementations.attention), name_of(which.dtype),
                           which.head_dim, which.compute_capability / 10, which.compute_capability % 10, why),
               fmt::format("Allowed here are {}.", join_names(allowed))};
}

AttentionBackend choose_attention(const AttentionCase& which, const Implementations& implementations) {
  if (which.written_out) return AttentionBackend::Eager;
  if (implementations.attention != AttentionBackend::Automatic) return implementations.attention;
  const auto takes = [&](AttentionBackend backend) { return refusal_of(backend, which).empty(); };
  const bool cudnn_first = implementations.prefer_cudnn_attention && which.compute_capability >= 90 && !which.mask;
  if (cudnn_first && takes(AttentionBackend::Cudnn)) return AttentionBackend::Cudnn;
  if (takes(AttentionBackend::Flash)) return AttentionBackend::Flash;
  if (takes(AttentionBackend::MemoryEfficient)) return AttentionBackend::MemoryEfficient;
  return AttentionBackend::Math;
}

std::int64_t flash_splits(std::int64_t blocks, std::int64_t keys, std::int64_t head_dim, int num_sms) {
  const std::int64_t tile = head_dim <= 64 ? 256 : (head_dim <= 128 ? 128 : 64);
  const std::int64_t key_blocks = (keys + tile - 1) / tile;
  const std::int64_t slots = std::int64_t{2} * num_sms;
  if (static_cast<double>(blocks) >= 0.8 * static_cast<double>(slots)) return 1;
  const std::int64_t most = std::min({std::int64_t{128}, slots, key_blocks});
  const auto is_new = [&](std::int64_t n) {
    return n == 1 || (key_blocks + n - 1) / n != (key_blocks + n - 2) / (n - 1);
  };
  const auto use_of_waves = [&](std::int64_t n) {
    const double waves = static_cast<double>(blocks * n) / static_cast<double>(slots);
    return waves / std::ceil(waves);
  };
  double best = 0;
  for (std::int64_t n = 1; n <= most; ++n) {
    if (is_new(n)) best = std::max(best, use_of_waves(n));
  }
  for (std::int64_t n = 1; n <= most; ++n) {
    if (is_new(n) && use_of_waves(n) >= 0.85 * best) return n;
  }
  return 1;
}

}  // namespace fsdp::simulator
