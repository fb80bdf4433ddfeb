#pragma once

// What torch.optim's implementations make beside the states while they update one flat fp32 tensor, as ZeRO has it
// (memory_walk_optimizer.h has them for many).
//
// Source: torch/optim/{adam,adamw,sgd}.py, torch 2.11.

#include <cstdint>

#include "simulator/memory/memory_walk.h"

namespace fsdp::simulator {

/// `bytes`: of the tensor. All of it is gone at the end.
template <class Sink>
void make_flat_optimizer_temporaries(const WalkInput& in, Sink& sink, std::int64_t bytes) {
  const Optimizer& optimizer = in.plan->optimizer;
  if (optimizer.implementation == OptimizerImplementation::Fused) return;
  const bool adam = optimizer.kind != OptimizerKind::Sgd;
  const bool is_loop = optimizer.implementation == OptimizerImplementation::ForLoop;
  const bool adds_decay = optimizer.kind != OptimizerKind::AdamW && optimizer.weight_decay != 0;
  const auto alloc = [&](SingleTensor what) {
    sink.alloc(in.ids->of(what), bytes, MemoryStream::Compute, MemoryCategory::Temp);
  };
  const auto drop = [&](SingleTensor what) { sink.free(in.ids->of(what)); };
  using enum SingleTensor;
  if (adds_decay) alloc(ZeroGrad);
  if (adds_decay && !is_loop) drop(ZeroGrad);
  if (adam) alloc(ZeroOptimizerTemp);
  if (adam && is_loop) alloc(ZeroOtherOptimizerTemp);
  if (adam) drop(ZeroOptimizerTemp);
  if (adam && is_loop) drop(ZeroOtherOptimizerTemp);
  if (adds_decay && is_loop) drop(ZeroGrad);
}

}  // namespace fsdp::simulator
