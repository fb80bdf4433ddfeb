#pragma once

// The wording about a GPU without bf16 units.

#include <string_view>

namespace fsdp {

/// The start, after the GPU's name, of assumptions about it that every reader must see: bf16 is computed without units.
inline constexpr std::string_view kNoBf16Units = "has no bf16 units";

}  // namespace fsdp
