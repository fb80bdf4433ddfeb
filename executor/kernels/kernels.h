#pragma once

// One function for each kind of op: its kernel. It calls PyTorch's own functions in the order of the plan's framework,
// so that autograd keeps the same tensors, and equal inputs give equal bits. The simulator's op rules
// (simulator/ops/op_rules.h) name the same sources; python/fsdp_plan_runner is the same in Python.

#include <ATen/core/Tensor.h>

#include <map>
#include <string>
#include <vector>

#include "core/model/model.h"
#include "core/plan/runtime.h"

namespace fsdp::executor {

using Tensors = std::vector<at::Tensor>;

/// The context of kernels besides their op.
struct KernelContext {
  Implementations implementations;
  c10::ScalarType activation = c10::kFloat;  ///< The dtype of values without one.
  c10::Device device = c10::Device(c10::kCPU);
  std::map<std::string, at::Tensor> buffers;  ///< By fully qualified name.
};

/// One op with its context. The caller drops the tensors.
struct OpRun {
  const KernelContext& context;
  const Model& model;
  const Call& call;
  const Op& op;
  const Tensors& inputs;
  const Tensors& parameters;

  const OpAttributes& attributes() const { return op.attributes; }
  const Block& block() const { return model.blocks[call.block]; }
  /// The shape that the model states for an output.
  const Shape& output_shape(std::size_t output = 0) const { return block().values[op.outputs[output]].shape; }
  c10::ScalarType dtype_or_activation() const;
  const std::string& module_name() const;
};

using Kernel = Tensors (*)(const OpRun& run);

/// The kernel of a kind; every kind has one.
Kernel kernel_of(OpKind kind);

/// Runs an op. Throws what PyTorch throws.
Tensors run_op(const OpRun& run);

}  // namespace fsdp::executor
