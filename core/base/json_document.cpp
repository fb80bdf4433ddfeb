// Positions and pointers. Sources: RFC 6901 (JSON Pointer).

#include "core/base/json_document.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>

#include "core/base/files.h"
#include "core/base/foreign_files.h"
#include "core/base/json_parser.h"
#include "core/base/json_writer.h"

namespace fsdp {

namespace {

/// Appends a key as a token of a JSON pointer. Control characters are escaped as in the file, so that a message is a
/// line.
void append_token(std::string& pointer, std::string_view key) {
  const std::string quoted = json_quoted(key);
  pointer += '/';
  for (const char c : std::string_view(quoted).substr(1, quoted.size() - 2)) {
    if (c == '~') {
      pointer += "~0";
    } else if (c == '/') {
      pointer += "~1";
    } else {
      pointer += c;
    }
  }
}

}  // namespace

const JsonValue* JsonValue::find(std::string_view key) const {
  for (const JsonMember& member : members) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

std::string JsonDocument::position(std::uint32_t offset) const {
  const std::string_view before = std::string_view(text).substr(0, offset);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t line_start = before.rfind('\n') + 1;
  std::string_view in_line = before.substr(line_start);
  if (line == 1 && in_line.starts_with("\xEF\xBB\xBF")) in_line.remove_prefix(3);
  const auto is_start = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) != 0x80; };
  const auto column = 1 + std::count_if(in_line.begin(), in_line.end(), is_start);
  return fmt::format("{}:{}:{}", name, line, column);
}

std::string JsonDocument::pointer(std::uint32_t offset) const {
  std::string result;
  const JsonValue* value = &root;
  while (offset > value->offset) {
    const auto member =
        std::upper_bound(value->members.begin(), value->members.end(), offset,
                         [](std::uint32_t wanted, const JsonMember& m) { return wanted < m.key_offset; });
    const auto element = std::upper_bound(value->elements.begin(), value->elements.end(), offset,
                                          [](std::uint32_t wanted, const JsonValue& e) { return wanted < e.offset; });
    if (member != value->members.begin()) {
      append_token(result, std::prev(member)->key);
      value = &std::prev(member)->value;
    } else if (element != value->elements.begin()) {
      result += fmt::format("/{}", std::prev(element) - value->elements.begin());
      value = &*std::prev(element);
    } else {
      break;
    }
  }
  return result;
}

std::string JsonDocument::where(std::uint32_t offset) const {
  if (is_translated) return name;
  const std::string path = pointer(offset);
  return path.empty() ? position(offset) : fmt::format("{}: {}", position(offset), path);
}

Result<JsonDocument> parse_json(std::string text, std::string name) {
  JsonDocument document{.name = std::move(name), .text = std::move(text), .root = {}, .is_translated = false};
  if (document.text.size() > kLargestJsonText) {
    return failure(document.name, "The text has more than 64 MiB.", {});
  }
  std::vector<JsonSyntaxError> found = parse_json_text(document.text, document.root);
  if (found.empty()) return document;
  Errors errors;
  for (JsonSyntaxError& error : found) {
    errors.push_back({document.position(error.offset), std::move(error.what), std::move(error.hint)});
    if (errors.size() == kMostErrors) break;
  }
  return tl::unexpected(std::move(errors));
}

/// Enough to tell what a file is by how it begins.
constexpr std::size_t kRecognizedBytes = 4096;

Result<JsonDocument> read_json_file(const std::string& path) {
  Result<std::string> read = read_text_file(path);
  if (!read) {
    // Weights are too large to be read, and are known by how they begin.
    if (auto foreign = recognize_text(first_bytes_of(path, kRecognizedBytes), path)) {
      return tl::unexpected(Errors{*std::move(foreign)});
    }
    return tl::unexpected(std::move(read).error());
  }
  std::string text = *std::move(read);
  const std::string name = path == "-" ? "standard input" : path;
  // What is no JSON may be known for what it is; a file of ours that is broken keeps its position.
  if (!text.starts_with('{')) {
    if (std::optional<Error> foreign = recognize_text(text, name)) return tl::unexpected(Errors{*std::move(foreign)});
  }
  return parse_json(std::move(text), name);
}

}  // namespace fsdp
