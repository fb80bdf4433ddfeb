#pragma once

// The record of one rank of a small FSDP2 script, as the hook in Python writes it.

#include <string>

namespace fsdp {

/// Rank 0 of 8: three steps, 2 GiB allocated and 3 GiB reserved at most, 4 GiB on the device, two collectives a step.
std::string recorded_rank();

/// A text with one piece of it replaced. REQUIRES: it is there once.
std::string with(std::string text, const std::string& piece, const std::string& replacement);

}  // namespace fsdp
