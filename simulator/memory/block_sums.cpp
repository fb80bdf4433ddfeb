#include "simulator/memory/block_sums.h"

#include <algorithm>
#include <tuple>

namespace fsdp::simulator {

namespace {

auto kind_of(const Layout& layout, const ShardedParameter& p) {
  return std::tuple(layout.units[layout.unit_of_parameter[p.parameter]].of_experts, p.shard_elements, p.local_elements,
                    p.receives_gradient, layout.parameter_dtype[p.parameter]);
}

}  // namespace

std::int64_t gathered_size(const Layout& layout, const ShardedUnit& unit, const MixedPrecision& precision,
                           const ShardedParameter& parameter) {
  if (parameter.in_float8) return 1;
  const Dtype own = layout.parameter_dtype[parameter.parameter];
  if (!is_floating_point(own)) return size_of(own).count();
  return size_of(precision.param_dtype ? unit.param_dtype : own).count();
}

bool is_cast(const Layout& layout, const ShardedUnit& unit, const MixedPrecision& precision,
             const ShardedParameter& parameter) {
  const Dtype own = layout.parameter_dtype[parameter.parameter];
  return precision.param_dtype && !parameter.in_float8 && is_floating_point(own) && own != unit.param_dtype;
}

LayoutSums sums_of(const Layout& layout, const MixedPrecision& precision) {
  LayoutSums sums{.rank = layout.rank,
                  .kinds = {},
                  .unsharded = std::vector<PoolBytes>(layout.units.size()),
                  .casts = std::vector<std::int64_t>(layout.units.size(), 0),
                  .fetches = std::vector<TapeRun>(layout.units.size())};
  for (std::size_t u = 0; u < layout.units.size(); ++u) {
    const ShardedUnit& unit = layout.units[u];
    for (const ShardedParameter& p : unit.parameters) {
      sums.unsharded[u].add(unit.shards * p.shard_elements * gathered_size(layout, unit, precision, p));
      const std::int64_t copied = p.shard_elements * size_of(layout.parameter_dtype[p.parameter]).count();
      sums.fetches[u].add(copied, 1);
      if (is_cast(layout, unit, precision, p)) {
        const std::int64_t cast = p.shard_elements * size_of(unit.param_dtype).count();
        sums.casts[u] += cast;
        sums.fetches[u].add(cast, 1);
        sums.fetches[u].add(copied, -1);
      }
      // Those of a kind mostly follow each other, or repeat in the next unit.
      const auto known = std::find_if(sums.kinds.rbegin(), sums.kinds.rend(), [&](const LayoutSums::Kind& kind) {
        return kind_of(layout, kind.shard) == kind_of(layout, p);
      });
      if (known == sums.kinds.rend()) {
        sums.kinds.push_back({p, 1});
      } else {
        ++known->count;
      }
    }
  }
  return sums;
}

}  // namespace fsdp::simulator
