#pragma once

// Names for the numbers of memory_ids.h, for people who look at live tensors.

#include <string>

#include "simulator/prepared/prediction.h"

namespace fsdp::simulator {

/// Whose tensor `id` is: that of another model, with its plan and name, or of the trained one. `plan` is null for what
/// another model leaves of its forward.
struct TensorOwner {
  const PreparedPlan* plan = nullptr;
  std::string other;  ///< Empty for the trained model.
};
TensorOwner owner_of(const PreparedPlan& prepared, int id);

/// The name of tensor `id`: "model.layers.3.mlp.gate_proj, linear" with the op that makes it, or "model.norm.weight,
/// gradient". Digits of repeated blocks are replaced by "*", so that equal tensors of all layers share a name.
std::string tensor_name(const PreparedPlan& prepared, int id);

/// The innermost module and op that makes tensor `id`, if a call does: "mlp.down_proj linear". Empty otherwise.
std::string op_name(const PreparedPlan& prepared, int id);

}  // namespace fsdp::simulator
