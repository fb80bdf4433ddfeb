#pragma once

// Tensors of one stream that come together and go together: all unsharded parameters of a unit, all moments of an
// optimizer. To a sink that only counts they are two numbers, however many they are; the others get them one by one.

#include <cstdint>
#include <utility>
#include <vector>

#include "core/plan/sharding.h"
#include "simulator/memory/memory_stream.h"
#include "simulator/ops/pool_bytes.h"
#include "simulator/ops/tape.h"

namespace fsdp::simulator {

/// A sink that takes sums: it need not know one by one what it gets so.
template <class Sink>
concept CountsSums = requires(Sink& sink, const PoolBytes& sums) {
  sink.free_all(sums, MemoryStream::Compute);
};

/// Sums of an FSDP2 layout that a counting walk needs often: a model of experts has tens of thousands of
/// parameters, of a few kinds.
struct LayoutSums {
  /// Parameters that differ in nothing that memory depends on.
  struct Kind {
    ShardedParameter shard;  ///< One of them.
    std::int64_t count = 0;
  };

  std::int64_t rank = 0;             ///< From which the layout is seen.
  std::vector<Kind> kinds;           ///< Kinds of all units.
  std::vector<PoolBytes> unsharded;  ///< [num units] Unsharded parameters.
  std::vector<std::int64_t> casts;   ///< [num units] Bytes of the rank's shards that are cast before a gather.
  /// [num units] What a gather brings from the host, with offload: each shard, which goes where it is cast.
  std::vector<TapeRun> fetches;
};

/// Bytes of an element of a parameter when it is gathered.
std::int64_t gathered_size(const Layout& layout, const ShardedUnit& unit, const MixedPrecision& precision,
                           int parameter);

/// Whether its shard changes its dtype on the way into an all-gather.
bool is_cast(const Layout& layout, const ShardedUnit& unit, const MixedPrecision& precision, int parameter);

LayoutSums sums_of(const Layout& layout, const MixedPrecision& precision);

}  // namespace fsdp::simulator
