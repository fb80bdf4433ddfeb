#pragma once

// Which parameters weight decay shrinks.

#include <vector>

#include "core/model/model.h"
#include "core/spec/hyperparameters.h"

namespace fsdp::executor {

/// [num parameters] Whether weight decay shrinks it. A norm's weight and bias are those of an op that normalizes; other
/// biases are what linear and convolution ops add.
std::vector<bool> decayed_parameters(const Model& model, const Hyperparameters& settings);

}  // namespace fsdp::executor
