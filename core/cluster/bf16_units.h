#pragma once

// How a card without bf16 is spoken of.

#include <string_view>

namespace fsdp {

/// How assumptions begin, after the GPU's name, that a reader must see: it computes bf16 without units for it.
inline constexpr std::string_view kNoBf16Units = "has no bf16 units";

}  // namespace fsdp
