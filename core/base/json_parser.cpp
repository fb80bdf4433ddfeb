// A recursive-descent parser of RFC 8259. It keeps only the byte where each value starts; lines, columns and pointers
// are worked out when an error needs them, from the text and the tree.
//
// Sources: RFC 8259 (JSON).
//
// Comments and trailing commas are errors of their own with a hint; a number that a double cannot hold is an error; an
// integer beyond 64 bits is a real number.

#include "core/base/json_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>
#include <string_view>

#include "core/base/json_writer.h"
#include "core/base/utf8.h"

namespace fsdp {

namespace {

class JsonParser {
 public:
  explicit JsonParser(std::string_view text) : text_(text) {}

  bool parse_document(JsonValue& root) {
    if (text_.starts_with("\xFF\xFE") || text_.starts_with("\xFE\xFF"))
      return fail(0, "The text is UTF-16.", "Save it as UTF-8.");
    if (text_.starts_with("\xEF\xBB\xBF")) at_ = 3;
    skip_blanks();
    if (at_ == text_.size()) return fail(at_, "The text is empty.", "JSON starts with a value, such as {}.");
    if (!parse_value(root, 0)) return false;
    skip_blanks();
    if (at_ < text_.size())
      return fail(at_, fmt::format("Found {} after the end of the value.", found(at_)),
                  "Remove it, or the bracket that closes too early.");
    return true;
  }

  std::vector<JsonSyntaxError> errors;

 private:
  bool parse_value(JsonValue& value, int depth) {
    value.offset = static_cast<std::uint32_t>(at_);
    if (++num_values_ > kMostJsonValues)
      return fail(at_, fmt::format("The text has more than {} values.", kMostJsonValues), {});
    switch (peek()) {
      case '{':
        return parse_object(value, depth);
      case '[':
        return parse_array(value, depth);
      case '"':
        value.type = JsonType::String;
        return parse_string(value.text);
      case '-':
        return parse_number(value);
      default:
        return peek() >= '0' && peek() <= '9' ? parse_number(value) : parse_word(value);
    }
  }

  bool parse_object(JsonValue& object, int depth) {
    object.type = JsonType::Object;
    if (depth == kDeepestJson) return too_deep();
    ++at_;
    for (bool first = true;; first = false) {
      skip_blanks();
      if (peek() == '}' && first) break;
      if (at_ == text_.size()) return truncated(object.offset, "object");
      if (peek() != '"') return bad_key(first);
      JsonMember& member = object.members.emplace_back();
      member.key_offset = static_cast<std::uint32_t>(at_);
      if (!parse_string(member.key)) return false;
      skip_blanks();
      if (at_ == text_.size()) return truncated(object.offset, "object");
      if (peek() != ':')
        return fail(
            at_, fmt::format("Expected a colon after the key {}, found {}.", json_quoted(member.key), found(at_)), {});
      ++at_;
      skip_blanks();
      if (at_ == text_.size()) return truncated(object.offset, "object");
      if (!parse_value(member.value, depth + 1)) return false;
      skip_blanks();
      if (at_ == text_.size()) return truncated(object.offset, "object");
      if (peek() == '}') break;
      if (peek() != ',')
        return fail(
            at_,
            fmt::format("Expected a comma or }} after the value of {}, found {}.", json_quoted(member.key), found(at_)),
            comment_hint());
      ++at_;
    }
    ++at_;
    report_duplicates(object);
    return true;
  }

  bool parse_array(JsonValue& array, int depth) {
    array.type = JsonType::Array;
    if (depth == kDeepestJson) return too_deep();
    ++at_;
    for (bool first = true;; first = false) {
      skip_blanks();
      if (at_ == text_.size()) return truncated(array.offset, "list");
      if (peek() == ']') {
        if (first) break;
        return fail(at_, "Found a comma before ].", "Remove the comma: JSON has none after the last element.");
      }
      if (!parse_value(array.elements.emplace_back(), depth + 1)) return false;
      skip_blanks();
      if (at_ == text_.size()) return truncated(array.offset, "list");
      if (peek() == ']') break;
      if (peek() != ',')
        return fail(at_, fmt::format("Expected a comma or ] after an element, found {}.", found(at_)), comment_hint());
      ++at_;
    }
    ++at_;
    return true;
  }

  bool parse_string(std::string& out) {
    const std::size_t start = at_++;
    for (;;) {
      const std::size_t run = at_;
      while (at_ < text_.size() && is_plain(text_[at_])) ++at_;
      out.append(text_, run, at_ - run);
      if (at_ == text_.size()) return fail(start, "This string has no closing quote.", {});
      if (text_[at_] == '"') break;
      if (text_[at_] == '\\') {
        if (!parse_escape(out, start)) return false;
        continue;
      }
      if (static_cast<unsigned char>(text_[at_]) < 0x20)
        return fail(at_, fmt::format("Found {} inside a string.", found(at_)),
                    text_[at_] == '\n' ? "Close the quote, or write \\n for a line break."
                                       : "Write it as an escape, such as \\t.");
      const std::size_t length = utf8_length(text_.substr(at_));
      if (length == 0)
        return fail(at_, fmt::format("Found {}, which is not UTF-8.", found(at_)), "Save the file as UTF-8.");
      out.append(text_, at_, length);
      at_ += length;
    }
    ++at_;
    return true;
  }

  static bool is_plain(char c) {
    return static_cast<unsigned char>(c) >= 0x20 && static_cast<unsigned char>(c) < 0x80 && c != '"' && c != '\\';
  }

  bool parse_escape(std::string& out, std::size_t string_start) {
    constexpr std::string_view letters = "\"\\/bfnrt";
    constexpr std::string_view meanings = "\"\\/\b\f\n\r\t";
    const std::size_t start = at_++;
    if (at_ == text_.size()) return fail(string_start, "This string has no closing quote.", {});
    const char letter = text_[at_++];
    if (const std::size_t index = letters.find(letter); index != std::string_view::npos) {
      out += meanings[index];
      return true;
    }
    if (letter != 'u')
      return fail(start,
                  fmt::format("Unknown escape \\{} in a string.", letter < 0x20 || letter == 0x7F ? '?' : letter),
                  "JSON knows \\\" \\\\ \\/ \\b \\f \\n \\r \\t and \\u.");
    const std::optional<unsigned> first = parse_hex();
    if (!first) return fail(start, "Expected four hexadecimal digits after \\u.", {});
    unsigned code = *first;
    const bool is_high = code >= 0xD800 && code < 0xDC00;
    const bool is_low = code >= 0xDC00 && code < 0xE000;
    if (is_high && text_.substr(at_).starts_with("\\u")) {
      at_ += 2;
      const std::optional<unsigned> second = parse_hex();
      if (second && *second >= 0xDC00 && *second < 0xE000) {
        append_utf8(out, 0x10000 + ((code - 0xD800) << 10) + (*second - 0xDC00));
        return true;
      }
    }
    if (is_high || is_low)
      return fail(start, "This escape is one half of a surrogate pair.", "Write both halves, or the character itself.");
    append_utf8(out, code);
    return true;
  }

  std::optional<unsigned> parse_hex() {
    unsigned code = 0;
    if (text_.size() - at_ < 4) return std::nullopt;
    const char* const begin = text_.data() + at_;
    const auto parsed = std::from_chars(begin, begin + 4, code, 16);
    if (parsed.ec != std::errc{} || parsed.ptr != begin + 4) return std::nullopt;
    at_ += 4;
    return code;
  }

  static void append_utf8(std::string& out, unsigned code) {
    const auto put = [&](unsigned byte) { out += static_cast<char>(byte); };
    if (code < 0x80) {
      put(code);
    } else if (code < 0x800) {
      put(0xC0 | code >> 6);
      put(0x80 | (code & 0x3F));
    } else if (code < 0x10000) {
      put(0xE0 | code >> 12);
      put(0x80 | (code >> 6 & 0x3F));
      put(0x80 | (code & 0x3F));
    } else {
      put(0xF0 | code >> 18);
      put(0x80 | (code >> 12 & 0x3F));
      put(0x80 | (code >> 6 & 0x3F));
      put(0x80 | (code & 0x3F));
    }
  }

  bool parse_number(JsonValue& value) {
    const std::size_t start = at_;
    const auto digits = [&] {
      const std::size_t begin = at_;
      while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9') ++at_;
      return at_ - begin;
    };
    const auto bad = [&](std::string_view hint) {
      while (at_ < text_.size() && is_word(text_[at_])) ++at_;
      return fail(start, fmt::format("{} is not a JSON number.", excerpt(start)), std::string(hint));
    };
    if (peek() == '-') ++at_;
    const std::size_t first_digit = at_;
    const std::size_t num_digits = digits();
    if (num_digits == 0) return bad("JSON has no infinity; a number starts with a digit.");
    if (num_digits > 1 && text_[first_digit] == '0') return bad("Remove the leading zero.");
    bool is_integer = true;
    if (peek() == '.') {
      is_integer = false;
      ++at_;
      if (digits() == 0) return bad("Write a digit after the point.");
    }
    if (peek() == 'e' || peek() == 'E') {
      is_integer = false;
      ++at_;
      if (peek() == '+' || peek() == '-') ++at_;
      if (digits() == 0) return bad("Write a digit in the exponent.");
    }
    if (at_ < text_.size() && is_word(text_[at_])) return bad("A value with a unit is a string: put it in quotes.");
    value.type = JsonType::Number;
    value.text.assign(text_, start, at_ - start);
    const char* const end = value.text.data() + value.text.size();
    if (is_integer) value.is_integer = std::from_chars(value.text.data(), end, value.integer).ec == std::errc{};
    const auto parsed = std::from_chars(value.text.data(), end, value.real);
    // Too small for a double is zero; too large has no value.
    if (parsed.ec == std::errc::result_out_of_range) {
      if (!is_tiny(value.text)) return fail(start, fmt::format("{} is too large for a number.", excerpt(start)), {});
      value.real = 0;
    }
    return true;
  }

  // from_chars does not say at which end a number left the range; strtod gives 0 or infinity.
  static bool is_tiny(const std::string& number) { return std::abs(std::strtod(number.c_str(), nullptr)) < 1; }

  bool parse_word(JsonValue& value) {
    const std::size_t start = at_;
    while (at_ < text_.size() && is_word(text_[at_])) ++at_;
    const std::string_view word = text_.substr(start, at_ - start);
    if (word == "true" || word == "false") {
      value.type = JsonType::Bool;
      value.boolean = word == "true";
      return true;
    }
    if (word == "null") return true;
    at_ = start;
    if (word.empty()) {
      std::string hint = comment_hint();
      if (hint.empty() && peek() == '\'') hint = "Strings have double quotes.";
      return fail(start, fmt::format("Expected a value, found {}.", found(start)), std::move(hint));
    }
    std::string hint = "A string needs double quotes.";
    if (word == "True" || word == "False" || word == "None") hint = "JSON writes true, false and null.";
    if (word == "NaN" || word == "nan" || word == "Infinity" || word == "inf" || word == "Inf")
      hint = "JSON has no NaN and no infinity.";
    at_ += word.size();
    return fail(start, fmt::format("{} is not a JSON value.", excerpt(start)), std::move(hint));
  }

  static bool is_word(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '.' ||
           c == '+' || c == '-' || c == '%';
  }

  void report_duplicates(const JsonValue& object) {
    std::vector<const JsonMember*> sorted;
    sorted.reserve(object.members.size());
    for (const JsonMember& member : object.members) sorted.push_back(&member);
    std::sort(sorted.begin(), sorted.end(), [](const JsonMember* a, const JsonMember* b) {
      const int order = a->key.compare(b->key);
      return order != 0 ? order < 0 : a->key_offset < b->key_offset;
    });
    for (std::size_t i = 1; i < sorted.size(); ++i) {
      if (sorted[i]->key == sorted[i - 1]->key)
        errors.push_back({sorted[i]->key_offset, fmt::format("The key {} appears twice.", json_quoted(sorted[i]->key)),
                          "Remove one of the two."});
    }
  }

  bool fail(std::size_t offset, std::string what, std::string hint) {
    errors.push_back({static_cast<std::uint32_t>(offset), std::move(what), std::move(hint)});
    return false;
  }

  bool too_deep() { return fail(at_, fmt::format("The text is nested deeper than {} levels.", kDeepestJson), {}); }

  bool truncated(std::uint32_t opened, std::string_view container) {
    // The position of the bracket helps more than that of the end.
    return fail(opened, fmt::format("This {} is never closed: the text ends inside it.", container),
                "The file seems to be truncated.");
  }

  bool bad_key(bool first) {
    if (peek() == '}' && !first)
      return fail(at_, "Found a comma before }.", "Remove the comma: JSON has none after the last member.");
    std::string hint = comment_hint();
    if (hint.empty()) hint = "Keys are strings in double quotes.";
    return fail(at_, fmt::format("Expected a key, found {}.", found(at_)), std::move(hint));
  }

  std::string comment_hint() const { return peek() == '/' || peek() == '#' ? "JSON has no comments." : ""; }

  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }

  void skip_blanks() {
    while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\t' || text_[at_] == '\r'))
      ++at_;
  }

  /// The text from `start` to here in quotes, shortened.
  std::string excerpt(std::size_t start) const {
    constexpr std::size_t kMost = 30;
    const std::string_view whole = text_.substr(start, at_ - start);
    if (whole.size() <= kMost) return json_quoted(whole);
    return json_quoted(std::string(whole.substr(0, kMost)) + "...");
  }

  std::string found(std::size_t offset) const {
    if (offset >= text_.size()) return "the end of the text";
    const char c = text_[offset];
    if (c == '\n' || c == '\r') return "a line break";
    if (c == '\t') return "a tab";
    const std::size_t length = utf8_length(text_.substr(offset));
    if (length == 0 || (length == 1 && static_cast<unsigned char>(c) < 0x20) || c == 0x7F)
      return fmt::format("the byte 0x{:02X}", static_cast<unsigned char>(c));
    return fmt::format("'{}'", text_.substr(offset, length));
  }

  std::string_view text_;
  std::size_t at_ = 0;
  std::size_t num_values_ = 0;
};

}  // namespace

std::vector<JsonSyntaxError> parse_json_text(std::string_view text, JsonValue& root) {
  JsonParser parser(text);
  parser.parse_document(root);
  std::sort(parser.errors.begin(), parser.errors.end(),
            [](const JsonSyntaxError& a, const JsonSyntaxError& b) { return a.offset < b.offset; });
  return std::move(parser.errors);
}

}  // namespace fsdp
