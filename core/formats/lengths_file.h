#pragma once

// Lengths of a data set's documents or samples in tokens.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace fsdp {

/// The lengths in a file: an integer above 0 in each line, or a JSON array of them. Empty lines and lines that begin
/// with "#" are passed over. Error, at `where`: a file that cannot be read or has no lengths, and the first lines that
/// are none.
Result<std::vector<std::int64_t>> read_lengths(const std::string& path, std::string_view where);

/// The same for a text. `name` is that of the file in errors.
Result<std::vector<std::int64_t>> parse_lengths(std::string_view text, std::string_view name, std::string_view where);

}  // namespace fsdp
