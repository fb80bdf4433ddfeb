#include "executor/checkpoint/flat_parts.h"

#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <vector>

namespace fsdp::executor {

at::Tensor gather_parts(const at::Tensor& local, const ShardedParameter& layout, const Shape& shape,
                        c10::ScalarType dtype, Group& shard) {
  std::int64_t most = 0;
  for (int rank = 0; rank < shard.size(); ++rank) most = std::max(most, layout.local_elements_of(rank));
  const at::Tensor own = at::zeros({most}, dtype);
  if (local.defined()) own.narrow(0, 0, local.numel()).copy_(local.view({-1}));
  if (shard.size() == 1) return own.view(shape);
  const at::Tensor all = at::empty({shard.size() * most}, dtype);
  shard.all_gather(all, own)->wait();
  std::vector<at::Tensor> parts;
  for (int rank = 0; rank < shard.size(); ++rank) {
    parts.push_back(all.narrow(0, rank * most, layout.local_elements_of(rank)));
  }
  return at::cat(parts).view(shape);
}

RowsOfRank rows_of_rank(const Shape& shape, std::int64_t ranks, std::int64_t rank) {
  const std::int64_t each = (shape.front() + ranks - 1) / ranks;
  const std::int64_t first = std::min(rank * each, shape.front());
  return {.first = first, .count = std::min(each, shape.front() - first)};
}

}  // namespace fsdp::executor
