#pragma once

#include <cstdint>

namespace fsdp::simulator {

/// Streams of FSDP2's communication context, as the allocator's pools see them. FSDP1 gathers on AllGatherCopyIn, casts
/// what it gathers on Cast, and reduces on ReduceScatter. ZeRO with overlap_comm gathers on AllGatherCopyIn, where NCCL
/// works on a stream of its own, which has the place of AllReduce, and reduces on ReduceScatter.
enum class MemoryStream : std::uint8_t { Compute, AllGatherCopyIn, ReduceScatter, AllReduce, Cast };
inline constexpr int kNumMemoryStreams = 5;

}  // namespace fsdp::simulator
