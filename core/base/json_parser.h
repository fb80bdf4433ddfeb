#pragma once

// The grammar of JSON; `core/base/json_document.h` is what others use.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json_document.h"

namespace fsdp {

struct JsonSyntaxError {
  std::uint32_t offset = 0;  ///< Index in the text of the byte that is wrong.
  std::string what;
  std::string hint;
};

/// Parses a whole text into `root`. Returns the errors in the order of the text: the first thing that is not JSON, and
/// the keys that an object before it has twice. REQUIRES: at most `kLargestJsonText` bytes.
std::vector<JsonSyntaxError> parse_json_text(std::string_view text, JsonValue& root);

}  // namespace fsdp
