#pragma once

// One key of a text of YAML or JSON with another value, and every other byte as it was.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/json_document.h"
#include "core/base/result.h"

namespace fsdp {

/// A stretch of a text, and what comes in its place.
struct TextEdit {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::string text;
};

/// True for a word that JSON reads as a number, true or false.
bool is_word_of_json(std::string_view word);

/// Another value in place of the scalar that begins at a place. Keeps its quotes. `nullopt` if it is not certain where
/// it ends: one over several lines, in a list, with escapes; and if a quoted one would become another type.
std::optional<TextEdit> replaced_scalar(std::string_view text, std::size_t begin, std::string value);

/// Removes the line of a key in YAML. `nullopt` if it does not hold the whole value, or has no neighbor in its section.
std::optional<TextEdit> removed_line(std::string_view text, std::size_t place, const std::string& key);

/// The tree with a value at a key, "fsdp_config.fsdp_version", and the objects on the way.
void set_value(JsonValue& root, std::string_view key, const JsonValue& value);

/// The value of a plain word or a list: "true", "8", "adamw_torch", "[a, b]". REQUIRES: YAML.
JsonValue value_of(const std::string& yaml);

/// True if both have the same types, texts, elements and members, wherever they are.
bool have_same_values(const JsonValue& a, const JsonValue& b);

/// The text with `value`, a scalar or a list of scalars, at `key`: in place of the old one, at the end of an old list,
/// or as a new line, which comes after the key `beside` if that is in the same object. Reads the result again: errors
/// if that is not the old tree with this one change, as with an object that an anchor names several times.
Result<std::string> with_key(const JsonDocument& document, std::string_view key, const JsonValue& value,
                             std::string_view beside = {});

}  // namespace fsdp
