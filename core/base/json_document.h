#pragma once

// A JSON text as a light tree with the position of every value.
//
// nlohmann/json reads the text. Its own tree would lose positions, order and duplicates, and without "file:line:column"
// users search for the fault. So its events build this tree: strict RFC 8259, with no extension but a leading byte
// order mark. `core/base/object_reader.h` turns the tree into values.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace fsdp {

enum class JsonType { Null, Bool, Number, String, Array, Object };

struct JsonMember;

/// One value of a document. `type` selects the fields that count; the others are empty.
struct JsonValue {
  JsonType type = JsonType::Null;
  bool boolean = false;
  bool is_integer = false;          ///< A number without fraction and exponent that fits 64 bits; `integer` is exact.
  std::uint32_t offset = 0;         ///< Index of its first byte in the text.
  std::int64_t integer = 0;         ///< For a number with `is_integer`.
  double real = 0;                  ///< For any number.
  std::string text;                 ///< For a string: its content, unescaped. For a number: as written.
  std::vector<JsonValue> elements;  ///< For an array.
  std::vector<JsonMember> members;  ///< For an object, in the order of the file, keys unique.

  /// The value of a member; `nullptr` if there is none.
  const JsonValue* find(std::string_view key) const;
};

struct JsonMember {
  std::string key;
  std::uint32_t key_offset = 0;  ///< Index of the key's opening quote in the text.
  JsonValue value;
};

/// A whole text. Its limits: 64 MiB, 4 Mi values, 100 levels.
struct JsonDocument {
  std::string name;  ///< The text before ":line:column" in messages: the path as typed.
  std::string text;
  JsonValue root;
  bool is_translated = false;  ///< Made from another text of that name, so that its positions mean nothing to users.

  /// "name:12:7" of a byte of the text. Lines and columns count from one; a column is a character, not a byte.
  std::string position(std::uint32_t offset) const;

  /// The JSON pointer (RFC 6901) of the innermost value or key that contains this byte; empty for the root.
  std::string pointer(std::uint32_t offset) const;

  /// "name:12:7: /layers/3/shape": the `where` of an error about the value or key at `offset`; "name" alone if the
  /// document is translated.
  std::string where(std::uint32_t offset) const;
};

/// With more errors than this, a file repeats one mistake.
inline constexpr std::size_t kMostErrors = 50;

inline constexpr std::size_t kLargestJsonText = std::size_t{64} << 20;
inline constexpr std::size_t kMostJsonValues = std::size_t{4} << 20;
inline constexpr int kDeepestJson = 100;

/// Parses a text. Error: the first syntax error with its position, or the duplicate keys of an object.
Result<JsonDocument> parse_json(std::string text, std::string name);

/// Reads and parses a file; "-" is the standard input. Errors: those of `read_text_file` and `parse_json`.
Result<JsonDocument> read_json_file(const std::string& path);

}  // namespace fsdp
