#pragma once

// Restores the segments and blocks that existed when a recording began, at their places.

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "replay/replay_snapshot_history.h"
#include "simulator/allocator/allocator_trace.h"

namespace fsdp::replay {

/// Requests after which the allocator has the segments of that moment, with `blocks` (by address) at their places under
/// the ids 0, 1, 2 and so on, and everything else free. `stream_of` numbers a handle. Empty if the layout is unknown:
/// expandable segments, sizes that are rounded to powers of two, blocks that are never split, a block outside of all
/// segments, or no segment.
std::vector<simulator::TraceStep> steps_to_begin_with(const SnapshotHistory& history,
                                                      std::span<const SnapshotEvent> blocks,
                                                      const std::function<std::int16_t(std::int64_t)>& stream_of);

}  // namespace fsdp::replay
