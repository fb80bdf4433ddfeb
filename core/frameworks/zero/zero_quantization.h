#pragma once

// ZeRO++: what DeepSpeed sends in fewer bits.

#include <cstdint>
#include <vector>

#include "core/base/result.h"
#include "core/plan/plan.h"
#include "core/plan/sharding.h"

namespace fsdp {

/// The groups, of one scale each, in which DeepSpeed quantizes so many elements. REQUIRES: elements > 0, a multiple
/// of 8. Source: deepspeed/runtime/zero/partition_parameters.py (CUDAQuantizer.quantize).
std::int64_t quantization_groups(std::int64_t elements);

/// Whether gradients are quantized on GPUs of which so many are in a node: on one node DeepSpeed reduces them as ever.
bool exchanges_gradients(const Plan& plan, std::int64_t gpus_per_node);

/// How the gradient of one parameter gets to its ranks with qgZ.
struct GradientExchange {
  int parameter = -1;         ///< In `Model::parameters`.
  std::int64_t elements = 0;  ///< With the padding of a reduce-scatter.
  std::int64_t groups = 0;    ///< Scales of the whole gradient; 0: it is reduce-scattered as it is, alone.

  bool operator==(const GradientExchange&) const = default;
};

/// Those of a bucket, in DeepSpeed's order. REQUIRES: a layout of ZeRO-3.
/// Source: deepspeed/runtime/comm/coalesced_collectives.py (all_to_all_quant_reduce).
std::vector<GradientExchange> exchanges_of(const GradientBucket& bucket, const Layout& layout, const Model& model);

/// Errors in `zero/quantized_weights` and `zero/quantized_gradients` of a plan.
Errors check_quantization(const Plan& plan, const Model& model);

}  // namespace fsdp
