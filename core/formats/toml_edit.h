#pragma once

// One key of a text of TOML with another value, and every other byte as it was.

#include <string>
#include <string_view>

#include "core/base/json_document.h"
#include "core/base/result.h"

namespace fsdp {

/// The text with the scalar `value` at `key`, "training.seq_len": in place of the old one, or as a new line of its
/// table, which comes after the key `beside` if that is there; a table that the text lacks comes at its end. Reads the
/// result again: errors if that is not the old tree with this one change. REQUIRES: parse_toml made `document`.
Result<std::string> with_toml_key(const JsonDocument& document, std::string_view key, const JsonValue& value,
                                  std::string_view beside = {});

}  // namespace fsdp
