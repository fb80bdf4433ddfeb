#pragma once

// The difference of two texts, as patch and git apply read it.

#include <string>
#include <string_view>

namespace fsdp::text {

/// "--- name" and so on, with three lines around each change. Empty if the texts are equal.
std::string unified_diff(std::string_view name, std::string_view before, std::string_view after);

}  // namespace fsdp::text
