#pragma once

// Makes shards and buffers.

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/model/model_index.h"
#include "core/plan/plan.h"
#include "core/plan/sharding.h"
#include "executor/training/sharded_unit.h"

namespace fsdp::executor {

using Buffers = std::map<std::string, at::Tensor>;  ///< By fully qualified name.

/// Makes the shards of all units, with arbitrary values, and the model's buffers with their values. On a CPU it makes
/// the padded shards at once; on a GPU it follows PyTorch for the plan's `initialization`, whole parameters and shards
/// without padding included.
Buffers make_shards_and_buffers(const ModelIndex& index, const Plan& plan, const Layout& layout,
                                std::vector<std::unique_ptr<RunningUnit>>& units, c10::Device device);

}  // namespace fsdp::executor
