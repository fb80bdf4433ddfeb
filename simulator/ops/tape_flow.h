#pragma once

// Which tensors of a block carry a gradient, and which of its kernels the backward reaches.

#include <vector>

#include "core/model/model.h"
#include "simulator/ops/kernels.h"
#include "simulator/ops/tape.h"

namespace fsdp::simulator {

/// The autograd graph of one run of a block.
struct TapeFlow {
  std::vector<bool> requires_grad;  ///< [num slots]
  std::vector<bool> recorded;       ///< [num kernels] A node of the graph.
  std::vector<bool> active;         ///< [num kernels] A node that the backward reaches.

  /// The kernel's node holds the tensor for its backward.
  bool is_saved(const Kernel& kernel, const SavedSlot& saved) const {
    return saved.needed_for < 0 || requires_grad[kernel.inputs[saved.needed_for].slot];
  }
};

TapeFlow find_flow(const Block& block, const KernelProgram& program, const TapeContext& context);

/// Work of each op on the device, forward and backward [num ops].
std::vector<OpWork> measure_work(const Block& block, const KernelProgram& program, const TapeFlow& flow);

/// Bytes of input, weight and output of the convolution that has most; 0 without one.
std::int64_t largest_convolution(const KernelProgram& program);

}  // namespace fsdp::simulator
