#pragma once

// Which parameters weight decay shrinks.

#include <vector>

#include "core/model/model.h"
#include "core/spec/hyperparameters.h"

namespace fsdp::executor {

/// [num parameters] Whether weight decay shrinks it. Norms are the weights and biases of normalizing ops; other biases
/// are those of linear and convolution ops.
std::vector<bool> decayed_parameters(const Model& model, const Hyperparameters& settings);

}  // namespace fsdp::executor
