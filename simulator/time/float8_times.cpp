// A cast of s elements of b bytes reads and writes |shard| and reads that for the maximum (3 b s; with scales computed
// ahead none of it), then makes the shard in fp32 if it is not, times the scale, clamped, and in 8 bits: 21 s bytes,
// and b + 4 s more for the copy in fp32. The copy that every unit makes already counts b + 1 of them.

#include "simulator/time/float8_times.h"

namespace fsdp::simulator {

namespace {

constexpr int kKernelsOfScale = 7;  // |x|, its maximum, and five on single numbers.
constexpr int kKernelsOfCast = 4;

}  // namespace

Seconds float8_cast_time(const Layout& layout, const ShardedUnit& unit, const Plan& plan, const CollectiveCost& cost,
                         const ComputeCosts& costs) {
  Seconds time{0};
  const bool asks_ranks = !precomputes_scales(plan);
  for (const ShardedParameter& p : unit.parameters) {
    if (!p.in_float8) continue;
    const Dtype own = layout.parameter_dtype[p.parameter];
    const auto item = static_cast<double>(size_of(own).count());
    const double of_scale = asks_ranks ? 3 * item : 0;
    const double widened = own == Dtype::Float32 ? 0 : item + 4;
    time += Seconds(static_cast<double>(p.shard_elements) * (of_scale + widened + 20 - item) / costs.memory.count());
    time += (kKernelsOfCast + (asks_ranks ? kKernelsOfScale : 0)) * costs.kernel_floor;
    if (asks_ranks) time += collective_time(cost, CollectiveKind::AllReduce, size_of(own));
  }
  return time;
}

Seconds float8_scales_time(const Layout& layout, const Plan& plan, const CollectiveCost& shard,
                           const ComputeCosts& costs) {
  if (!precomputes_scales(plan)) return Seconds(0);
  double bytes = 0;
  std::int64_t weights = 0;
  for (const ShardedUnit& unit : layout.units) {
    weights += unit.num_in_float8();
    for (const ShardedParameter& p : unit.parameters) {
      if (!p.in_float8) continue;
      bytes += static_cast<double>((size_of(layout.parameter_dtype[p.parameter]) * p.shard_elements).count());
    }
  }
  return Seconds(bytes / costs.memory.count()) +
         collective_time(shard, CollectiveKind::AllReduce, size_of(Dtype::Float32) * weights);
}

}  // namespace fsdp::simulator
