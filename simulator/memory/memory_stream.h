#pragma once

#include <cstdint>

#include "core/model/model.h"

namespace fsdp::simulator {

/// Streams of FSDP2's communication context, as the allocator's pools see them. FSDP1 gathers on AllGatherCopyIn, casts
/// before a gather on Cast, and reduces on ReduceScatter. ZeRO with overlap_comm gathers on AllGatherCopyIn, for which
/// NCCL uses a stream of its own, here AllReduce, and reduces on ReduceScatter.
enum class MemoryStream : std::uint8_t { Compute, AllGatherCopyIn, ReduceScatter, AllReduce, Cast };

inline constexpr int kNumNamedStreams = 5;
inline constexpr int kNumStreamsOfRoot = 3;
/// Each root of FSDP2 has a context: those after the first have streams of their own.
inline constexpr int kNumMemoryStreams = kNumNamedStreams + kNumStreamsOfRoot * (kMostRoots - 1);

/// The stream of a root, as in roots_of, that corresponds to the first one's `first`: all but Compute, which they
/// share.
inline MemoryStream stream_of_root(MemoryStream first, int root) {
  if (root <= 0 || first == MemoryStream::Compute) return first;
  const int base = kNumNamedStreams + kNumStreamsOfRoot * (root - 1);
  return static_cast<MemoryStream>(base + static_cast<int>(first) - 1);
}

}  // namespace fsdp::simulator
