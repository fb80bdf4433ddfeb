#pragma once

// Reads the text traces of tests/golden/allocator and replays them on the model of the caching allocator. The format,
// and where its files come from, is in the README there.

#include <iosfwd>
#include <string>
#include <string_view>

namespace fsdp::simulator {

/// Replays `trace` and returns it with the model's results behind each operation and the summary at its end, in the
/// same format: replaying a recorded output gives that output, line by line.
/// Problems in the trace (an unknown operation, an id that is not live) are reported as a line that starts with "!!".
std::string replay_allocator_trace(std::string_view trace);

}  // namespace fsdp::simulator
