#pragma once

// Element types by PyTorch's names.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "core/base/units.h"

namespace fsdp {

enum class Dtype : std::uint8_t { Float64, Float32, BFloat16, Float16, Int64, Int32, Int16, Int8, UInt8, Bool };

inline constexpr std::size_t kNumFloatingPoint = 4;  ///< They come first.

/// Bytes of one element.
constexpr Bytes size_of(Dtype dtype) {
  switch (dtype) {
    case Dtype::Float64:
    case Dtype::Int64:
      return Bytes(8);
    case Dtype::Float32:
    case Dtype::Int32:
      return Bytes(4);
    case Dtype::BFloat16:
    case Dtype::Float16:
    case Dtype::Int16:
      return Bytes(2);
    case Dtype::Int8:
    case Dtype::UInt8:
    case Dtype::Bool:
      return Bytes(1);
  }
  return Bytes(0);
}

constexpr bool is_floating_point(Dtype dtype) {
  return static_cast<std::size_t>(dtype) < kNumFloatingPoint;
}

/// PyTorch's name, such as "bfloat16".
std::string_view name_of(Dtype dtype);

/// Reads PyTorch's name or a usual short form ("bf16", "fp32", "half"). `nullopt` if the text is neither.
std::optional<Dtype> parse_dtype(std::string_view text);

}  // namespace fsdp
