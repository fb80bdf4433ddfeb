#pragma once

// What a trainer keeps that holds the loss of the last micro-batch until it assigns the next one: the loss, and with a
// leaf that hooks require a gradient of (the embedding's output, where adapters alone are trained), the leaf and its
// gradient. They go when the next loss replaces the last, before its backward begins.

#include <cstdint>
#include <utility>

#include "core/plan/loss_table.h"
#include "simulator/memory/memory_walk.h"

namespace fsdp::simulator {

template <class Sink>
class LastLoss {
 public:
  LastLoss(const WalkInput& input, Sink& sink)
      : in_(input),
        sink_(sink),
        is_kept_(loss_row(input.plan->runtime.implementations.loss).keeps_last_loss),
        leaf_bytes_(is_kept_ ? find_leaf() : 0) {}

  /// At the start of every micro-batch but the first of a step.
  void hold(std::int64_t loss_bytes) {
    if (!is_kept_) return;
    alloc(SingleTensor::LastLoss, loss_bytes);
    if (leaf_bytes_ > 0) alloc(SingleTensor::LastLeaf, leaf_bytes_);
    if (leaf_bytes_ > 0) alloc(SingleTensor::LastLeafGrad, leaf_bytes_);
    is_held_ = true;
  }

  /// Where the backward of a micro-batch begins.
  void drop() {
    if (!std::exchange(is_held_, false)) return;
    sink_.free(in_.ids->of(SingleTensor::LastLoss));
    if (leaf_bytes_ == 0) return;
    sink_.free(in_.ids->of(SingleTensor::LastLeaf));
    sink_.free(in_.ids->of(SingleTensor::LastLeafGrad));
  }

 private:
  void alloc(SingleTensor what, std::int64_t bytes) {
    sink_.alloc(in_.ids->of(what), bytes, MemoryStream::Compute, MemoryCategory::Activation);
  }

  // Bytes of the value that requires a gradient, although nothing before it does; 0 if there is none.
  std::int64_t find_leaf() const {
    const Model& model = *in_.index->model;
    for (std::size_t c = 0; c < model.calls.size(); ++c) {
      const Block& block = model.blocks[static_cast<std::size_t>(model.calls[c].block)];
      for (std::size_t o = 0; o < block.outputs.size(); ++o) {
        if (block.values[static_cast<std::size_t>(block.outputs[o])].requires_grad) {
          return (*in_.tapes)[c]->output_bytes[o];
        }
      }
    }
    return 0;
  }

  const WalkInput& in_;
  Sink& sink_;
  const bool is_kept_;
  const std::int64_t leaf_bytes_;
  bool is_held_ = false;
};

}  // namespace fsdp::simulator
