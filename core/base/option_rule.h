#pragma once

// The options of a block or an op in a spec, beside its inputs.

#include <cstdint>
#include <string_view>
#include <vector>

namespace fsdp {

enum class OptionType : std::uint8_t {
  Size,     ///< An integer of at least 1, or an expression with such a value.
  Count,    ///< The same, but may be 0.
  Integer,  ///< Any integer, or an expression with an integer value.
  Number,   ///< Any finite number or expression.
  Flag,     ///< true or false.
  Text,     ///< One of `allowed`, or any text if that is empty.
  Sizes,    ///< A list of Size.
};

/// One option of a kind: its name in the spec and its type.
struct OptionRule {
  std::string_view name;
  OptionType type = OptionType::Size;
  bool required = true;
  std::string_view doc;
  std::vector<std::string_view> allowed = {};  ///< For Text.
};

}  // namespace fsdp
