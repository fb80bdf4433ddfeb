#pragma once

// When a backward has finished the gradient of each parameter.

#include <vector>

#include "core/model/model_index.h"

namespace fsdp {

/// Trained parameters in the order in which a backward finishes their gradients, each with the position after which it
/// is ready. ready_gradients.cpp says how the order inside an op is known.
struct ReadyGradient {
  int parameter = 0;
  int position = 0;

  bool operator==(const ReadyGradient&) const = default;
};
/// `zero3_linear`: as of `Implementations`. `casts_weights`: autocast casts the parameters of products.
std::vector<ReadyGradient> gradients_as_they_are_ready(const ModelIndex& index, bool zero3_linear = false,
                                                       bool casts_weights = false);

}  // namespace fsdp
