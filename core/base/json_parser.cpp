// nlohmann/json reads the grammar; this file adds what its SAX events lack: positions, and errors in words.
//
// An event has a value but no position. Between two tokens of a correct text are only blanks, commas and colons, so a
// cursor that skips them is at the token of the event. If the library stops, the last event determines the expected
// token (a key, a colon, a value, a comma), and the byte at the cursor is what was found instead. The library's message
// distinguishes errors inside a string or a number.
//
// Sources: RFC 8259 (JSON); nlohmann/json's documentation of `sax_parse`.
//
// Stricter than the library: keys are unique, a zero byte does not end a text, and depth and number of values are
// limited.

#include "core/base/json_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "core/base/json_writer.h"
#include "core/base/printable.h"
#include "core/base/utf8.h"

namespace fsdp {

namespace {

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

/// Whether a reader would see this character as part of the number or word before it.
bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || is_digit(c) || c == '_' || c == '.' || c == '+' ||
         c == '-' || c == '%';
}

/// The content of a text at a byte, for messages.
class Finding {
 public:
  explicit Finding(std::string_view text) : text_(text) {}

  char at(std::size_t offset) const { return offset < text_.size() ? text_[offset] : '\0'; }

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

  std::string comment_hint(std::size_t offset) const {
    return at(offset) == '/' || at(offset) == '#' ? "JSON has no comments." : "";
  }

  std::string_view word(std::size_t start) const {
    std::size_t end = start;
    while (end < text_.size() && is_word(text_[end])) ++end;
    return text_.substr(start, end - start);
  }

  JsonSyntaxError bad_key(std::size_t offset) const {
    std::string hint = comment_hint(offset);
    if (hint.empty()) hint = "Keys are strings in double quotes.";
    return error(offset, fmt::format("Expected a key, found {}.", found(offset)), std::move(hint));
  }

  /// A number that continues after JSON's would end: `16GiB`, `007`.
  JsonSyntaxError bad_number(std::size_t start) const {
    const std::string_view number = word(start);
    const bool is_digits = number.find_first_not_of("-0123456789.") == std::string_view::npos;
    return error(start, fmt::format("{} is not a JSON number.", excerpt(number)),
                 is_digits ? "Remove the leading zero." : "A value with a unit is a string: put it in quotes.");
  }

  JsonSyntaxError bad_word(std::size_t start) const {
    const std::string_view text = word(start);
    if (text.empty()) {
      std::string hint = comment_hint(start);
      if (hint.empty() && at(start) == '\'') hint = "Strings have double quotes.";
      return error(start, fmt::format("Expected a value, found {}.", found(start)), std::move(hint));
    }
    std::string hint = "A string needs double quotes.";
    if (text == "True" || text == "False" || text == "None") hint = "JSON writes true, false and null.";
    if (text == "NaN" || text == "nan" || text.ends_with("Infinity") || text.ends_with("inf"))
      hint = "JSON has no NaN and no infinity.";
    return error(start, fmt::format("{} is not a JSON value.", excerpt(text)), std::move(hint));
  }

 private:
  static JsonSyntaxError error(std::size_t offset, std::string what, std::string hint) {
    return {static_cast<std::uint32_t>(offset), std::move(what), std::move(hint)};
  }

  static std::string excerpt(std::string_view text) {
    constexpr std::size_t kMost = 30;
    if (text.size() <= kMost) return json_quoted(text);
    return json_quoted(std::string(text.substr(0, kMost)) + "...");
  }

  std::string_view text_;
};

/// Builds the tree from the library's events. An event that returns false stops the parse.
class TreeBuilder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  TreeBuilder(std::string_view text, std::size_t begin, JsonValue& root)
      : text_(text), finding_(text), at_(begin), root_(root) {}

  std::vector<JsonSyntaxError> errors;

  bool null() override { return add(JsonType::Null, 4) != nullptr; }
  bool boolean(bool value) override {
    JsonValue* const made = add(JsonType::Bool, value ? 4 : 5);
    if (made != nullptr) made->boolean = value;
    return made != nullptr;
  }
  bool number_integer(std::int64_t value) override { return add_integer(value, static_cast<double>(value)); }
  bool number_unsigned(std::uint64_t value) override {
    if (std::in_range<std::int64_t>(value))
      return add_integer(static_cast<std::int64_t>(value), static_cast<double>(value));
    return add_number(integer_length(), static_cast<double>(value)) != nullptr;
  }
  bool number_float(double value, const std::string& written) override {
    return add_number(written.size(), value) != nullptr;
  }
  bool string(std::string& value) override {
    JsonValue* const made = add(JsonType::String, string_length());
    if (made != nullptr) made->text = std::move(value);
    return made != nullptr;
  }
  bool binary(nlohmann::json::binary_t& /*value*/) override { return false; }
  bool key(std::string& name) override {
    skip_separators();
    JsonMember& member = open_.back()->members.emplace_back();
    member.key_offset = static_cast<std::uint32_t>(at_);
    at_ += string_length();
    member.key = std::move(name);
    due_ = Due::Colon;
    return true;
  }
  bool start_object(std::size_t /*count*/) override { return open(JsonType::Object); }
  bool start_array(std::size_t /*count*/) override { return open(JsonType::Array); }
  bool end_object() override {
    report_duplicates(*open_.back());
    return close();
  }
  bool end_array() override { return close(); }

  bool parse_error(std::size_t position, const std::string& /*token*/,
                   const nlohmann::json::exception& error) override {
    errors.push_back(syntax_error(position, error.what()));
    return false;
  }

  /// After all events, because the library treats a zero byte as the end.
  void check_end() {
    skip(" \t\r\n");
    if (at_ < text_.size()) errors.push_back(syntax_error(at_, {}));
  }

 private:
  /// The expected next token of the grammar.
  enum class Due { Value, FirstKeyOrEnd, FirstElementOrEnd, Colon, CommaOrEnd, End };

  bool fail(std::string what) {
    errors.push_back({static_cast<std::uint32_t>(at_), std::move(what), {}});
    return false;
  }

  JsonValue* add(JsonType type, std::size_t length) {
    skip_separators();
    if (++num_values_ > kMostJsonValues) {
      fail(fmt::format("The text has more than {} values.", kMostJsonValues));
      return nullptr;
    }
    JsonValue* const parent = open_.empty() ? nullptr : open_.back();
    JsonValue& value = parent == nullptr                  ? root_
                       : parent->type == JsonType::Object ? parent->members.back().value
                                                          : parent->elements.emplace_back();
    value.type = type;
    value.offset = static_cast<std::uint32_t>(at_);
    at_ += length;
    due_ = parent == nullptr ? Due::End : Due::CommaOrEnd;
    number_ = std::string_view::npos;
    return &value;
  }

  JsonValue* add_number(std::size_t length, double real) {
    JsonValue* const made = add(JsonType::Number, length);
    if (made == nullptr) return nullptr;
    made->real = real;
    number_ = made->offset;
    made->text = text_.substr(number_, length);
    return made;
  }

  bool add_integer(std::int64_t value, double real) {
    JsonValue* const made = add_number(integer_length(), real);
    if (made == nullptr) return false;
    made->is_integer = true;
    made->integer = value;
    return true;
  }

  bool open(JsonType type) {
    JsonValue* const made = add(type, 1);
    if (made == nullptr) return false;
    if (open_.size() == static_cast<std::size_t>(kDeepestJson)) {
      --at_;
      return fail(fmt::format("The text is nested deeper than {} levels.", kDeepestJson));
    }
    open_.push_back(made);
    due_ = type == JsonType::Object ? Due::FirstKeyOrEnd : Due::FirstElementOrEnd;
    return true;
  }

  bool close() {
    skip(" \t\r\n");
    ++at_;
    open_.pop_back();
    due_ = open_.empty() ? Due::End : Due::CommaOrEnd;
    number_ = std::string_view::npos;
    return true;
  }

  void skip(std::string_view characters) { at_ = std::min(text_.find_first_not_of(characters, at_), text_.size()); }
  void skip_separators() { skip(" \t\r\n,:"); }

  std::size_t integer_length() {
    skip_separators();
    const std::size_t digit = at_ + (text_[at_] == '-' ? 1 : 0);
    if (text_[digit] == '0') return digit + 1 - at_;
    return std::min(text_.find_first_not_of("0123456789", digit), text_.size()) - at_;
  }

  std::size_t string_length() {
    skip_separators();
    std::size_t end = at_ + 1;
    while (text_[end] != '"') {
      end = text_.find_first_of("\\\"", end);
      if (text_[end] == '\\') end += 2;
    }
    return end + 1 - at_;
  }

  JsonSyntaxError syntax_error(std::size_t position, std::string_view reason) {
    if (number_ != std::string_view::npos && at_ < text_.size() && is_word(text_[at_]))
      return finding_.bad_number(number_);
    skip(" \t\r\n");
    const bool has_separator =
        (due_ == Due::Colon && finding_.at(at_) == ':') || (due_ == Due::CommaOrEnd && finding_.at(at_) == ',');
    if (has_separator) {
      ++at_;
      skip(" \t\r\n");
    }
    if (at_ == text_.size()) return truncated();
    const bool in_object = !open_.empty() && open_.back()->type == JsonType::Object;
    const char close = in_object ? '}' : ']';
    if (due_ == Due::End)
      return wrong(fmt::format("Found {} after the end of the value.", finding_.found(at_)),
                   "Remove it, or the bracket that closes too early.");
    if (due_ == Due::CommaOrEnd && has_separator && text_[at_] == close)
      return wrong(fmt::format("Found a comma before {}.", close),
                   fmt::format("Remove the comma: JSON has none after the last {}.", in_object ? "member" : "element"));
    if (due_ == Due::Colon && !has_separator)
      return wrong(fmt::format("Expected a colon after the key {}, found {}.", last_key(), finding_.found(at_)), {});
    if (due_ == Due::CommaOrEnd && !has_separator)
      return wrong(fmt::format("Expected a comma or {} after {}, found {}.", close,
                               in_object ? "the value of " + last_key() : "an element", finding_.found(at_)),
                   finding_.comment_hint(at_));
    const bool wants_key = due_ == Due::FirstKeyOrEnd || (due_ == Due::CommaOrEnd && in_object);
    if (wants_key && text_[at_] != '"') return finding_.bad_key(at_);
    const bool is_token = text_[at_] == '"' || text_[at_] == '-' || is_digit(text_[at_]);
    return is_token ? bad_token(position, reason) : finding_.bad_word(at_);
  }

  JsonSyntaxError wrong(std::string what, std::string hint) const {
    return {static_cast<std::uint32_t>(at_), std::move(what), std::move(hint)};
  }

  /// A string or number with a bad end, at `position` bytes from the start according to the library.
  JsonSyntaxError bad_token(std::size_t position, std::string_view reason) const {
    reason = reason.substr(0, reason.find("; last read"));
    for (const std::string_view before : {"] ", " - "}) {
      if (const std::size_t begin = reason.find(before); begin != std::string_view::npos)
        reason.remove_prefix(begin + before.size());
    }
    std::string what = fmt::format("{}.", printable(reason));
    what[0] = static_cast<char>(std::toupper(static_cast<unsigned char>(what[0])));
    const bool is_whole = text_[at_] != '"' || position > text_.size();
    return {static_cast<std::uint32_t>(is_whole ? at_ : position - 1), std::move(what), {}};
  }

  std::string last_key() const { return json_quoted(open_.back()->members.back().key); }

  JsonSyntaxError truncated() const {
    if (open_.empty()) return wrong("The text is empty.", "JSON starts with a value, such as {}.");
    // The position of the bracket helps more than that of the end.
    return {open_.back()->offset,
            fmt::format("This {} is never closed: the text ends inside it.",
                        open_.back()->type == JsonType::Object ? "object" : "list"),
            "The file seems to be truncated."};
  }

  void report_duplicates(const JsonValue& object) {
    std::vector<const JsonMember*> sorted;
    sorted.reserve(object.members.size());
    for (const JsonMember& member : object.members) sorted.push_back(&member);
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const JsonMember* a, const JsonMember* b) { return a->key < b->key; });
    for (std::size_t i = 1; i < sorted.size(); ++i) {
      if (sorted[i]->key == sorted[i - 1]->key)
        errors.push_back({sorted[i]->key_offset, fmt::format("The key {} appears twice.", json_quoted(sorted[i]->key)),
                          "Remove one of the two."});
    }
  }

  std::string_view text_;
  Finding finding_;
  std::size_t at_;  ///< The byte after the last token.
  JsonValue& root_;
  std::vector<JsonValue*> open_;  ///< Open objects and lists, outermost first.
  Due due_ = Due::Value;
  std::size_t number_ = std::string_view::npos;  ///< Start of the last token if it is a number.
  std::size_t num_values_ = 0;
};

}  // namespace

std::vector<JsonSyntaxError> parse_json_text(std::string_view text, JsonValue& root) {
  if (text.starts_with("\xFF\xFE") || text.starts_with("\xFE\xFF"))
    return {{0, "The text is UTF-16.", "Save it as UTF-8."}};
  TreeBuilder builder(text, text.starts_with("\xEF\xBB\xBF") ? 3 : 0, root);
  if (nlohmann::json::sax_parse(text, &builder)) builder.check_end();
  std::stable_sort(builder.errors.begin(), builder.errors.end(),
                   [](const JsonSyntaxError& a, const JsonSyntaxError& b) { return a.offset < b.offset; });
  return std::move(builder.errors);
}

}  // namespace fsdp
