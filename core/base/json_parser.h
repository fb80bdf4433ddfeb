#pragma once

// The grammar of JSON. Other files use `core/base/json_document.h`.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json_document.h"

namespace fsdp {

struct JsonSyntaxError {
  std::uint32_t offset = 0;  ///< Index of the wrong byte in the text.
  std::string what;
  std::string hint;
};

/// Parses a whole text into `root`. Returns the errors in the order of the text: duplicate keys, and the first syntax
/// error, which ends the parse. REQUIRES: at most `kLargestJsonText` bytes.
std::vector<JsonSyntaxError> parse_json_text(std::string_view text, JsonValue& root);

}  // namespace fsdp
