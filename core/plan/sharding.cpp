#include "core/plan/sharding.h"

#include <algorithm>

#include "core/plan/parameter_part.h"

namespace fsdp {

std::int64_t ShardedParameter::local_elements_of(std::int64_t rank) const {
  if (flat_begin >= 0) {
    const std::int64_t begin = std::max(flat_begin, rank * flat_shard);
    return std::max<std::int64_t>(0, std::min(flat_begin + elements, (rank + 1) * flat_shard) - begin);
  }
  return fsdp::local_elements(elements, shard_elements, rank);
}

Bytes accumulated_gradients(const ShardedUnit& unit, FlatParameters flat) {
  return size_of(flat == FlatParameters::None ? unit.reduce_dtype : unit.param_dtype) * unit.reduced_true_elements;
}

const GradientBucket& Layout::bucket(int number) const {
  const auto place = static_cast<std::size_t>(number);
  return place < buckets.size() ? buckets[place] : first_buckets[place - buckets.size()];
}

}  // namespace fsdp
