// Positions and pointers. Sources: RFC 6901 (JSON Pointer).
//
// Readers request the position of nearly every value, in case of an error. For a large text, lines and characters are
// counted once, at the start of each stretch; an answer then costs one stretch instead of all text before it.

#include "core/base/json_document.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <iterator>
#include <optional>

#include "core/base/files.h"
#include "core/base/foreign_files.h"
#include "core/base/json_parser.h"
#include "core/base/json_writer.h"

namespace fsdp {

namespace {

/// Appends a key as a token of a JSON pointer. Escapes control characters as in the file, so that a message stays one
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

/// Number of lines before a byte, and of characters before it on its line.
struct Place {
  std::size_t line = 0;
  std::size_t character = 0;
};

bool begins_character(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
}

Place after(Place place, std::string_view text) {
  const std::size_t line_end = text.rfind('\n');
  if (line_end != std::string_view::npos) {
    place = {place.line + static_cast<std::size_t>(std::count(text.begin(), text.end(), '\n')), 0};
    text.remove_prefix(line_end + 1);
  }
  place.character += static_cast<std::size_t>(std::count_if(text.begin(), text.end(), begins_character));
  return place;
}

constexpr std::size_t kStretch = 512;
constexpr std::size_t kLarge = 64 * kStretch;  // Shorter texts are counted from their start.

/// Number of texts that this process parsed. If none was parsed since, the text of a cached place still exists and is
/// the same, because only parsing makes one.
std::atomic<std::uint64_t> num_parsed{0};

/// The start of each stretch of the large text of the last request.
class Stretches {
 public:
  Place at(std::string_view text, std::size_t offset) {
    const std::uint64_t now = num_parsed;
    if (now != parsed_ || text.data() != text_.data() || text.size() != text_.size()) {
      begins_.assign(1, {});
      for (std::size_t begin = 0; begin + kStretch <= text.size(); begin += kStretch) {
        begins_.push_back(after(begins_.back(), text.substr(begin, kStretch)));
      }
      text_ = text;
      parsed_ = now;
    }
    const std::size_t stretch = offset / kStretch;
    return after(begins_[stretch], text.substr(stretch * kStretch, offset % kStretch));
  }

 private:
  std::string_view text_;
  std::optional<std::uint64_t> parsed_;
  std::vector<Place> begins_;  // [stretches + 1]
};

}  // namespace

const JsonValue* JsonValue::find(std::string_view key) const {
  for (const JsonMember& member : members) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

std::string JsonDocument::position(std::uint32_t offset) const {
  thread_local Stretches stretches;
  const std::string_view all(text);
  const std::size_t to = std::min<std::size_t>(offset, all.size());
  Place place = all.size() < kLarge ? after({}, all.substr(0, to)) : stretches.at(all, to);
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  if (place.line == 0 && place.character > 0 && all.starts_with(kByteOrderMark)) --place.character;
  return fmt::format("{}:{}:{}", name, place.line + 1, place.character + 1);
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
  ++num_parsed;
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

/// Enough bytes to recognize the kind of a file.
constexpr std::size_t kRecognizedBytes = 4096;

Result<JsonDocument> read_json_file(const std::string& path) {
  Result<std::string> read = read_text_file(path);
  if (!read) {
    // Weights are too large to be read, so their first bytes identify them.
    if (auto foreign = recognize_text(first_bytes_of(path, kRecognizedBytes), path)) {
      return tl::unexpected(Errors{*std::move(foreign)});
    }
    return tl::unexpected(std::move(read).error());
  }
  std::string text = *std::move(read);
  const std::string name = path == "-" ? "standard input" : path;
  // A file that is not JSON may be of a known kind; a broken file of ours gets an error with its position.
  if (!text.starts_with('{')) {
    if (std::optional<Error> foreign = recognize_text(text, name)) return tl::unexpected(Errors{*std::move(foreign)});
  }
  return parse_json(std::move(text), name);
}

}  // namespace fsdp
