#pragma once

// Writes JSON that reads well in a diff: keys in the given order, two blanks per level, short lists of plain values on
// one line, exact integers, real numbers in the shortest form that reads back the same. The same calls give the same
// bytes.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp {

enum class JsonLayout {
  Lines,    ///< One member or element per line.
  OneLine,  ///< `{"kind": "all_gather", "count": 3}`: everything inside stays on the line where it starts.
};

/// REQUIRES: calls that form one JSON value: inside an object `key` comes before each value, and everything is closed
/// in order.
class JsonWriter {
 public:
  void begin_object(JsonLayout layout = JsonLayout::Lines) { begin('{', layout); }
  void end_object() { end('}'); }
  void begin_array(JsonLayout layout = JsonLayout::Lines) { begin('[', layout); }
  void end_array() { end(']'); }
  void key(std::string_view name);

  /// A string. Escapes quotes, backslashes and control characters of terminals; bytes that are not UTF-8 become U+FFFD.
  void value(std::string_view text);
  void value(const char* text) { value(std::string_view(text)); }
  void value(const std::string& text) { value(std::string_view(text)); }
  void value(bool boolean) { scalar(boolean ? "true" : "false"); }
  void value(std::int64_t integer);
  void value(int integer) { value(static_cast<std::int64_t>(integer)); }
  void value(long long integer) { value(static_cast<std::int64_t>(integer)); }
  void value(std::size_t integer) { value(static_cast<std::int64_t>(integer)); }
  /// Writes NaN and infinity as null, because JSON has neither.
  void value(double real);
  void value(std::nullptr_t) { scalar("null"); }
  /// A list of plain values: on one line if it fits in 100 columns, otherwise one element per line.
  template <class T>
  void value(const std::vector<T>& list) {
    begin_array();
    for (const auto& element : list) value(element);
    end_array();
  }

  template <class T>
  void member(std::string_view name, const T& content) {
    key(name);
    value(content);
  }

  /// The text, with a newline at its end. REQUIRES: every object and list is ended.
  std::string take() &&;

 private:
  struct Level {
    char open = 0;
    bool one_line = false;
    bool empty = true;
    bool flat = false;                ///< A list of plain values that may still fit on one line.
    std::size_t start = 0;            ///< Index in `text_` of a flat list's bracket.
    std::vector<std::size_t> breaks;  ///< Indices in `text_` after which a flat list would break its lines.
  };

  void begin(char open, JsonLayout layout);
  void end(char close);
  void separate(bool is_container);
  void scalar(std::string_view text);
  void unfold(Level& level);
  void new_line(std::size_t depth);

  std::string text_;
  std::vector<Level> levels_;
  bool after_key_ = false;
};

/// The shortest decimal text that reads back as the same double: "0.1", "1e+300". REQUIRES: finite.
std::string shortest(double real);

/// A string as a JSON literal, quotes included.
std::string json_quoted(std::string_view text);

}  // namespace fsdp
