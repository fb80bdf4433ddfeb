#pragma once

// Traces for the caching allocator that nobody wrote: at random, and at the places where its rules have an edge.

#include <cstdint>

#include "simulator/allocator/allocator_trace.h"

namespace fsdp::simulator {

/// The same trace for the same seed, on every machine. Seeds take turns through device sizes, settings, streams,
/// events, and ways in which sizes and lifetimes are drawn. Every id is used once.
AllocatorTrace any_trace(std::uint64_t seed);

/// The trace with some steps gone: what would name an id that is not live goes too.
AllocatorTrace with_steps(const AllocatorTrace& trace, std::vector<TraceStep> steps);

/// A number for all that an allocator did with a trace: results, statistics, segments. What depends on the order of
/// PyTorch's table of streams (the sums and the peak of inactive_split, with record_stream) does not count.
std::uint64_t digest_of(const AllocatorTrace& trace, const TraceRunner& runner);

}  // namespace fsdp::simulator
