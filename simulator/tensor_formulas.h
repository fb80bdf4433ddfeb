#pragma once

// The arithmetic of a tensor's size, for people who ask why it is so large.

#include <cstdint>
#include <string>

#include "simulator/prediction.h"

namespace fsdp::simulator {

/// How `bytes` of tensor `id` come about: "2 x 512 x 2048 x 2 B (bfloat16)", "ceil(11008 / 4) x 4096 x 4 B (float32)".
/// Its value is always `bytes`; empty where no formula that is known gives them.
std::string tensor_formula(const PreparedPlan& prepared, int id, std::int64_t bytes);

}  // namespace fsdp::simulator
