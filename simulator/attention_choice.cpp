#include "simulator/attention_choice.h"

namespace fsdp::simulator {

AttentionBackend choose_attention(const AttentionCase& which, const Implementations& implementations) {
  if (which.softcap) return AttentionBackend::Eager;
  if (implementations.attention != AttentionBackend::Automatic) return implementations.attention;
  const bool ampere = which.compute_capability >= 80;
  const bool half = which.dtype == Dtype::Float16 || which.dtype == Dtype::BFloat16;
  if (implementations.prefer_cudnn_attention && which.compute_capability >= 90 && half && !which.mask) {
    return AttentionBackend::Cudnn;
  }
  if (ampere && half && !which.mask && which.head_dim <= 256) return AttentionBackend::Flash;
  const bool dtype_is_known = ampere || which.dtype != Dtype::BFloat16;
  if (dtype_is_known && !which.grouped && !which.mask_is_strided) return AttentionBackend::MemoryEfficient;
  return AttentionBackend::Math;
}

}  // namespace fsdp::simulator
