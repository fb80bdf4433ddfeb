#pragma once

// What ranks hold of FSDP1's original parameters are ranges of their elements; what leaves a run is whole or cut by
// rows, as in FSDP1's SHARDED_STATE_DICT.

#include <ATen/core/Tensor.h>

#include <cstdint>

#include "core/model/model.h"
#include "core/plan/sharding.h"
#include "executor/network/collectives.h"

namespace fsdp::executor {

/// A parameter, or a moment of it, from what all ranks of the shard group hold of it. Each of them calls it.
/// `local` [local elements]; undefined: zeros. Returns a tensor of `shape`.
at::Tensor gather_parts(const at::Tensor& local, const ShardedParameter& layout, const Shape& shape,
                        c10::ScalarType dtype, Group& shard);

/// Rows of a whole tensor that a rank writes: so many for each, the last ones fewer or none.
struct RowsOfRank {
  std::int64_t first = 0;
  std::int64_t count = 0;
};
RowsOfRank rows_of_rank(const Shape& shape, std::int64_t ranks, std::int64_t rank);

}  // namespace fsdp::executor
