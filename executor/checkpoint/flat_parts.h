#pragma once

// What ranks hold of parameters under FSDP1 and ZeRO are ranges of their elements; what leaves a run is whole or cut by
// rows, as in FSDP1's SHARDED_STATE_DICT.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

#include "core/model/model.h"
#include "core/plan/sharding.h"
#include "executor/checkpoint/part_file.h"
#include "executor/network/collectives.h"
#include "executor/training/trainer.h"

namespace fsdp::executor {

/// Whether ranks hold ranges of elements, and not rows.
bool holds_ranges(const Plan& plan);

/// A parameter, or a moment of it, from what all ranks of the shard group hold of it. Each of them calls it.
/// `local` [local elements]; undefined: zeros. Returns a tensor of `shape`.
at::Tensor gather_parts(const at::Tensor& local, const ShardedParameter& layout, const Shape& shape,
                        c10::ScalarType dtype, Group& shard);

/// Where the moments lie of what a rank holds of a trained parameter.
struct MomentPart {
  const ParameterState* state = nullptr;
  std::size_t index = 0;   ///< In `Trainer::trained()`,
  std::int64_t begin = 0;  ///< and `local_elements` from here on in those moments: above 0 in flat ones alone.
};
std::vector<MomentPart> moment_parts(Trainer& trainer);

/// The rows of parameters, and of their moments and step counters, that this rank writes where ranks hold ranges. All
/// ranks of its shard group call it.
std::vector<TensorPart> flat_model_parts(Trainer& trainer);
std::vector<TensorPart> flat_optimizer_parts(Trainer& trainer, const char* first_name, const char* second_name);

}  // namespace fsdp::executor
