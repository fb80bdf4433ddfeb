#pragma once

// The tensors of a block that carry a gradient, and the kernels that the backward reaches.

#include <vector>

#include "core/model/model.h"
#include "simulator/ops/kernels.h"
#include "simulator/ops/tape.h"

namespace fsdp::simulator {

/// The autograd graph of one run of a block.
struct TapeFlow {
  std::vector<bool> requires_grad;  ///< [num slots]
  std::vector<bool> recorded;       ///< [num kernels] True for a node of the graph.
  std::vector<bool> active;         ///< [num kernels] True for a node that the backward reaches.

  /// True if the kernel is called.
  bool runs(const Kernel& kernel) const { return kernel.runs_for < 0 || requires_grad[kernel.runs_for]; }

  /// True if the kernel's node holds the tensor for its backward.
  bool is_saved(const Kernel& kernel, const SavedSlot& saved) const {
    return saved.needed_for < 0 || requires_grad[kernel.inputs[saved.needed_for].slot];
  }
};

TapeFlow find_flow(const Block& block, const KernelProgram& program, const TapeContext& context);

/// [num ops] Work of each op on the device, forward and backward.
std::vector<OpWork> measure_work(const Block& block, const KernelProgram& program, const TapeFlow& flow);

/// Bytes of input, weight and output of the largest convolution; 0 without one.
std::int64_t largest_convolution(const KernelProgram& program);

}  // namespace fsdp::simulator
