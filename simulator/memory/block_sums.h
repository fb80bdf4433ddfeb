#pragma once

// Tensors of one stream that are allocated and freed together: all unsharded parameters of a unit, all moments of an
// optimizer. For a sink that only counts, they are two numbers; other sinks get them one by one.

#include <cstdint>
#include <utility>
#include <vector>

#include "core/plan/sharding.h"
#include "simulator/memory/memory_stream.h"
#include "simulator/ops/pool_bytes.h"
#include "simulator/ops/tape.h"

namespace fsdp::simulator {

/// A sink that takes sums instead of single tensors.
template <class Sink>
concept CountsSums = requires(Sink& sink, const PoolBytes& sums) {
  sink.free_all(sums, MemoryStream::Compute);
};

/// Sums of an FSDP2 layout that a counting walk needs often: a model of experts has tens of thousands of
/// parameters, of a few kinds.
struct LayoutSums {
  /// Parameters that are equal in everything that memory depends on.
  struct Kind {
    ShardedParameter shard;  ///< One of them.
    std::int64_t count = 0;
  };

  std::int64_t rank = 0;             ///< The rank that the layout is seen from.
  std::vector<Kind> kinds;           ///< Kinds of all units.
  std::vector<PoolBytes> unsharded;  ///< [num units] Unsharded parameters.
  std::vector<std::int64_t> casts;   ///< [num units] Bytes of the rank's shards that are cast before a gather.
  /// [num units] Copies from the host for a gather, with offload: each shard, which is freed if it is cast.
  std::vector<TapeRun> fetches;
};

/// Bytes of an element of a parameter when it is gathered.
std::int64_t gathered_size(const Layout& layout, const ShardedUnit& unit, const MixedPrecision& precision,
                           const ShardedParameter& parameter);

/// True if its shard changes its dtype for the all-gather.
bool is_cast(const Layout& layout, const ShardedUnit& unit, const MixedPrecision& precision,
             const ShardedParameter& parameter);

LayoutSums sums_of(const Layout& layout, const MixedPrecision& precision);

}  // namespace fsdp::simulator
