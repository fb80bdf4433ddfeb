#pragma once

// Numbers and counted things as people read them.

#include <cstdint>
#include <string>
#include <string_view>

namespace fsdp::text {

/// Separates the parts of a line.
inline constexpr std::string_view kDot = " · ";

/// "42 %" for 0.42.
std::string percent(double share);

/// "1,234,567"
std::string grouped(std::int64_t number);

/// "1 unit", "1,234 units", "2 batches".
std::string counted(std::int64_t count, std::string_view noun);

}  // namespace fsdp::text
