#pragma once

// A memory snapshot by itself: the live blocks at each moment, and the lines of Python that allocated them.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "gui/overlay/overlay_reader.h"
#include "render/render_replay.h"
#include "replay/replay.h"

namespace fsdp::gui {

/// Blocks that were live at one moment and were allocated by the same stack.
struct RecordedSite {
  std::vector<PythonFrame> stack;  ///< Innermost first. Empty if it was not recorded.
  bool was_before = false;         ///< It was live before the recording began.
  std::int64_t count = 0;
  Bytes bytes;
};

struct RecordedMemory {
  std::string name;
  replay::Recording recording;
  replay::ReplayRequest as_was;
  replay::ReplayResult recorded;      ///< The allocator model's replay of the recording, under its own settings.
  std::vector<std::int64_t> live;     ///< [steps of the recording] Bytes as requested.
  std::size_t peak = 0;               ///< The first step with the most live bytes.
  std::vector<RecordedSite> at_peak;  ///< `sites_at(peak)`.

  /// The memory of the device; nullopt if the recording does not have it.
  std::optional<Bytes> device() const;
};

/// Errors: those of OverlayReader and of the recording.
Result<RecordedMemory> read_recorded_memory(const std::string& path, const OverlayLimits& limits,
                                            const OverlayProgress& progress);

/// Memory live after a step, by stack, the largest first.
std::vector<RecordedSite> sites_at(const RecordedMemory& memory, std::size_t step);

/// "train.py:41 main": the innermost frame outside of PyTorch, or the innermost frame if all are inside.
std::string line_of(const RecordedSite& site);

/// Replays the recording under other settings or on another device. Errors: those of the settings and of the size, with
/// the options of `replay` as their places.
Result<render::ReplayAnswer> replay_with(const RecordedMemory& memory, const std::string& settings,
                                         const std::string& device_memory);

}  // namespace fsdp::gui
