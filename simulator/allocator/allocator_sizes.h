#pragma once

// Compiled-in sizes of PyTorch's CUDA caching allocator, in bytes.
// Source: pytorch, c10/core/AllocatorConfig.h and c10/cuda/CUDACachingAllocator.cpp (kMinBlockSize, kSmallSize,
// kSmallBuffer, kMinLargeAlloc, kRoundLarge).

#include <cstdint>

namespace fsdp::simulator {

inline constexpr std::int64_t kMebibyte = std::int64_t{1} << 20;
inline constexpr std::int64_t kMinBlockSize = 512;              ///< Blocks are multiples of it.
inline constexpr std::int64_t kSmallSize = kMebibyte;           ///< The largest request that small segments serve.
inline constexpr std::int64_t kSmallSegment = 2 * kMebibyte;    ///< Size of a small segment, or of a page of expandable
                                                                ///< ones.
inline constexpr std::int64_t kMinOwnSegment = 10 * kMebibyte;  ///< Requests from this size on get their own segment.
inline constexpr std::int64_t kDriverUnit = 2 * kMebibyte;      ///< The driver rounds a segment up to this.

}  // namespace fsdp::simulator
