#pragma once

// Temporaries of torch.optim's implementations while they update one flat fp32 tensor, as in ZeRO
// (memory_walk_optimizer.h has them for many), and DeepSpeed's temporaries for the norm of a gradient that it sends to
// the host, and for overflow checks of fp16.
//
// Sources: torch/optim/{adam,adamw,sgd}.py, aten/src/ATen/native/cuda/Reduce.cuh, torch 2.11.

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/plan/optimizer_table.h"
#include "simulator/memory/memory_walk.h"
#include "simulator/ops/reduction_scratch.h"

namespace fsdp::simulator {

/// `bytes`: of the tensor. Frees everything at the end.
template <class Sink>
void make_flat_optimizer_temporaries(const WalkInput& in, Sink& sink, std::int64_t bytes) {
  const Optimizer& optimizer = in.plan->optimizer;
  if (optimizer.implementation == OptimizerImplementation::Fused) return;
  const bool takes_roots = optimizer_row(optimizer).takes_roots;
  const bool is_loop = optimizer.implementation == OptimizerImplementation::ForLoop;
  const bool decays = adds_decay(optimizer);
  const auto alloc = [&](SingleTensor what) {
    sink.alloc(in.ids->of(what), bytes, MemoryStream::Compute, MemoryCategory::Temp);
  };
  const auto drop = [&](SingleTensor what) { sink.free(in.ids->of(what)); };
  using enum SingleTensor;
  if (decays) alloc(ZeroGrad);
  if (decays && !is_loop) drop(ZeroGrad);
  if (takes_roots) alloc(ZeroOptimizerTemp);
  if (takes_roots && is_loop) alloc(ZeroOtherOptimizerTemp);
  if (takes_roots) drop(ZeroOptimizerTemp);
  if (takes_roots && is_loop) drop(ZeroOtherOptimizerTemp);
  if (decays && is_loop) drop(ZeroGrad);
}

/// torch.isinf and torch.isnan of `elements`: their magnitudes, and a byte for each.
template <class Sink>
void look_for_overflows(const WalkInput& in, Sink& sink, std::int64_t elements, std::int64_t size,
                        MemoryStream stream) {
  const int magnitudes = in.ids->of(SingleTensor::ZeroMagnitudes);
  const int flags = in.ids->of(SingleTensor::ZeroFlags);
  sink.alloc(magnitudes, elements * size, stream, MemoryCategory::Temp);
  sink.alloc(flags, elements, stream, MemoryCategory::Temp);
  sink.free(magnitudes);
  sink.free(flags);
  sink.alloc(flags, elements, stream, MemoryCategory::Temp);
  sink.free(flags);
}

/// A gradient of `p` in fp64, and its norm, which alone stays, as an optimizer temporary.
template <class Sink>
void make_norm_in_fp64(const WalkInput& in, Sink& sink, int p, std::int64_t elements, MemoryStream stream) {
  constexpr std::int64_t kSize = 8;
  constexpr std::array kScratch = {ParameterTensor::SecondOptimizerTemp, ParameterTensor::DecayedGrad};
  const auto alloc = [&](int id, std::int64_t bytes) { sink.alloc(id, bytes, stream, MemoryCategory::Temp); };
  const int input = in.ids->of(SingleTensor::ZeroNormInput);
  alloc(input, kSize * elements);
  alloc(in.ids->of(ParameterTensor::OptimizerTemp, p), kSize);
  std::vector<std::int64_t> scratch = reduction_scratch(1, elements, false, in.limits);
  // Partial sums are in fp64, too; semaphores are not.
  if (!scratch.empty()) scratch.front() *= 2;
  for (std::size_t i = 0; i < scratch.size(); ++i) alloc(in.ids->of(kScratch[i], p), scratch[i]);
  for (std::size_t i = 0; i < scratch.size(); ++i) sink.free(in.ids->of(kScratch[i], p));
  sink.free(input);
}

}  // namespace fsdp::simulator
