#pragma once

// The settings of PyTorch's CUDA caching allocator, as the environment variable PYTORCH_ALLOC_CONF spells them
// ("expandable_segments:True,max_split_size_mb:512"). Names, defaults and ranges are those of PyTorch 2.11.

#include <array>
#include <cstdint>
#include <limits>
#include <string_view>

#include "core/base/result.h"
#include "core/base/units.h"

namespace fsdp::simulator {

/// No limit on the size of a block that may be split.
inline constexpr Bytes kUnlimitedSplitSize{std::numeric_limits<std::int64_t>::max()};

struct AllocatorSettings {
  Bytes large_segment_size{20LL << 20};           ///< Segment for requests above 1 MiB and below 10 MiB.
  Bytes max_split_size = kUnlimitedSplitSize;     ///< Blocks of this size and above are never split.
  Bytes max_non_split_rounding_size{20LL << 20};  ///< How much larger an unsplit block may be than its request.
  double garbage_collection_threshold = 0;        ///< Fraction of the allowed memory. 0 turns collection off.
  bool expandable_segments = false;               ///< One growing address range for each stream and pool.
  double per_process_memory_fraction = 1;         ///< Fraction of the device's memory; read at start only.
  /// Entry i is for requests of [2^(20+i), 2^(21+i)) bytes; the first and the last entry also apply beyond. 0 and 1
  /// round up to 512 bytes. k rounds up to one of k steps between two powers of two.
  std::array<std::int64_t, 16> roundup_power2_divisions{};

  // This changes speed or host memory, but no size on the device.
  bool release_lock_on_cudamalloc = false;
  bool graph_capture_record_stream_reuse = false;
  bool pinned_use_cuda_host_register = false;
  bool pinned_use_background_threads = false;
  std::int64_t pinned_num_register_threads = 1;
  std::int64_t pinned_reserve_segment_size_mb = 0;

  bool operator==(const AllocatorSettings&) const = default;
};

/// Reads a settings string. Stricter than PyTorch, which silently ignores some mistakes ("0.5x", "-1"); but accepts
/// every string that PyTorch documents, and the last of repeated keys wins.
///
/// `current`: the settings in force. PyTorch resets `max_split_size_mb`, `garbage_collection_threshold` and
/// `roundup_power2_divisions` to their defaults in every string that does not name them, and keeps the rest. Errors:
/// one for every unknown key and every bad value; `where` is "PYTORCH_ALLOC_CONF: <key>".
Result<AllocatorSettings> parse_allocator_settings(std::string_view text, const AllocatorSettings& current = {});

}  // namespace fsdp::simulator
