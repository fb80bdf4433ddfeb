#pragma once

// ZeRO++: what DeepSpeed sends in fewer bits.

#include <cstdint>

#include "core/base/result.h"
#include "core/plan/plan.h"

namespace fsdp {

/// The groups, of one scale each, in which DeepSpeed quantizes so many elements. REQUIRES: elements > 0, a multiple
/// of 8. Source: deepspeed/runtime/zero/partition_parameters.py (CUDAQuantizer.quantize).
std::int64_t quantization_groups(std::int64_t elements);

/// What is wrong with `zero/quantized_weights` of a plan.
Errors check_quantized_weights(const Plan& plan, const Model& model);

}  // namespace fsdp
