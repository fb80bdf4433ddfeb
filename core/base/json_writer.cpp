#include "core/base/json_writer.h"

#include <fmt/format.h>

#include <array>
#include <cassert>
#include <charconv>
#include <cmath>

#include "core/base/printable.h"
#include "core/base/utf8.h"

namespace fsdp {

namespace {

constexpr std::size_t kLineWidth = 100;
constexpr std::size_t kIndent = 2;

void append_quoted(std::string& out, std::string_view text) {
  out += '"';
  for (std::size_t i = 0; i < text.size();) {
    const char c = text[i];
    const std::size_t length = utf8_length(text.substr(i));
    if (length == 0) {
      out += "\uFFFD";
      ++i;
      continue;
    }
    if (length > 1) {
      out += printable(text.substr(i, length));  // "\u202e", which JSON reads as that character.
    } else if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '\t') {
      out += "\\t";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      out += c;
    }
    i += length;
  }
  out += '"';
}

}  // namespace

std::string shortest(double real) {
  std::array<char, 32> buffer;
  const auto end = std::to_chars(buffer.data(), buffer.data() + buffer.size(), real);
  return std::string(buffer.data(), end.ptr);
}

std::string json_quoted(std::string_view text) {
  std::string out;
  append_quoted(out, text);
  return out;
}

void JsonWriter::new_line(std::size_t depth) {
  text_ += '\n';
  text_.append(depth * kIndent, ' ');
}

void JsonWriter::separate(bool is_container) {
  if (after_key_) {
    after_key_ = false;
    return;
  }
  if (levels_.empty()) return;
  Level& level = levels_.back();
  if (level.flat && is_container) unfold(level);
  if (!level.empty) text_ += ',';
  if (level.flat) {
    if (!level.empty) text_ += ' ';
    level.breaks.push_back(text_.size());
  } else if (level.one_line) {
    if (!level.empty) text_ += ' ';
  } else {
    new_line(levels_.size());
  }
  level.empty = false;
}

void JsonWriter::begin(char open, JsonLayout layout) {
  separate(true);
  const bool inside_line = !levels_.empty() && levels_.back().one_line;
  Level level;
  level.open = open;
  level.one_line = inside_line || layout == JsonLayout::OneLine;
  level.flat = open == '[' && !level.one_line;
  level.start = text_.size();
  text_ += open;
  levels_.push_back(std::move(level));
}

void JsonWriter::end(char close) {
  assert(!levels_.empty() && !after_key_ && (levels_.back().open == '{') == (close == '}'));
  Level& level = levels_.back();
  const std::size_t line_start = text_.rfind('\n', level.start) + 1;
  if (level.flat && text_.size() + 1 - line_start > kLineWidth) unfold(level);
  const bool closes_a_line = !level.flat && !level.one_line && !level.empty;
  levels_.pop_back();
  if (closes_a_line) new_line(levels_.size());
  text_ += close;
}

// Turns "[1, 2" into one element per line; the blank before each element but the first becomes a line break.
void JsonWriter::unfold(Level& level) {
  level.flat = false;
  if (level.breaks.empty()) return;
  const std::string line = text_.substr(level.start);
  const std::size_t start = level.start;
  text_.resize(start);
  text_ += '[';
  for (std::size_t i = 0; i < level.breaks.size(); ++i) {
    const bool is_last = i + 1 == level.breaks.size();
    const std::size_t begin = level.breaks[i] - start;
    // Up to the blank before the next element; the last one ends with the text.
    const std::size_t end = is_last ? line.size() : level.breaks[i + 1] - start - 1;
    new_line(levels_.size());
    text_ += line.substr(begin, end - begin);
  }
  level.breaks.clear();
}

void JsonWriter::key(std::string_view name) {
  assert(!levels_.empty() && levels_.back().open == '{' && !after_key_);
  separate(false);
  append_quoted(text_, name);
  text_ += ": ";
  after_key_ = true;
}

void JsonWriter::scalar(std::string_view text) {
  assert(levels_.empty() || levels_.back().open == '[' || after_key_);
  separate(false);
  text_ += text;
}

void JsonWriter::value(std::string_view text) {
  scalar(json_quoted(text));
}

void JsonWriter::value(std::int64_t integer) {
  scalar(fmt::format_int(integer).c_str());
}

void JsonWriter::value(double real) {
  scalar(std::isfinite(real) ? shortest(real) : "null");
}

std::string JsonWriter::take() && {
  assert(levels_.empty() && !after_key_);
  text_ += '\n';
  return std::move(text_);
}

}  // namespace fsdp
