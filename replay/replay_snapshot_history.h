#pragma once

// The checked history of a memory snapshot, before its interpretation.

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/formats/pickle.h"
#include "simulator/allocator/allocator_settings.h"

namespace fsdp::replay {

enum class SnapshotAction { Alloc, FreeRequested, FreeCompleted, SegmentMade, SegmentGone, OutOfMemory, Other };

struct SnapshotEvent {
  SnapshotAction action = SnapshotAction::Other;
  std::int64_t address = 0;  ///< For OutOfMemory: free bytes of the device.
  std::int64_t size = 0;     ///< As requested; for segments, their own size.
  std::int64_t stream = 0;   ///< The driver's handle.
};

struct SnapshotHistory {
  std::size_t device = 0;             ///< The one with the longest history.
  std::vector<SnapshotEvent> events;  ///< [events of the snapshot]
  std::vector<SnapshotEvent> at_end;  ///< Blocks that are allocated at the end.
  std::vector<SnapshotEvent> segments_at_end;
  bool has_expandable_segments = false;
  std::int64_t reserved_at_end = 0;
  std::string settings_text;  ///< PYTORCH_ALLOC_CONF
  simulator::AllocatorSettings settings;
  std::vector<std::string> notes;  ///< Uncertainties, one sentence each.
};

/// Errors: it is no snapshot, it has no history, and every event and block that lacks a required member; "NAME:
/// device_traces[0][17]" is their place.
Result<SnapshotHistory> read_snapshot_history(const PickleDocument& document, const std::string& name);

}  // namespace fsdp::replay
