// An edit is a guess from the places of the tree, and counts only if the edited text reads as the wanted tree. So no
// rule here has to know all of YAML: anchors, tags and block scalars end in an error, never in another configuration.
//
// A new key comes after a key of its object whose value ends on its own line, with the same indentation and the same
// end of the line; between braces, before the first one.
//
// Not modeled: lists of lists and of objects; values that go.

#include "core/formats/yaml_edit.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/json_writer.h"
#include "core/formats/yaml_document.h"

namespace fsdp {

namespace {

constexpr std::string_view kBlanks = " \t";
constexpr std::string_view kWordEnds = " \t\r\n,]}#";

std::size_t indent_of(std::string_view line) {
  return std::min(line.find_first_not_of(' '), line.size());
}

/// The line around a place, with its end.
std::pair<std::size_t, std::size_t> line_at(std::string_view text, std::size_t place) {
  const std::size_t before = place == 0 ? std::string_view::npos : text.rfind('\n', place - 1);
  const std::size_t begin = before == std::string_view::npos ? 0 : before + 1;
  const std::size_t end = text.find('\n', begin);
  return {begin, end == std::string_view::npos ? text.size() : end + 1};
}

/// The end of a scalar on one line, with its quotes; npos if it may be on several.
std::size_t end_of_scalar(std::string_view text, std::size_t begin) {
  if (begin >= text.size()) return std::string_view::npos;
  const char quote = text[begin];
  if (quote == '"' || quote == '\'') {
    const std::size_t end = text.find(quote, begin + 1);
    const bool is_plain = end != std::string_view::npos &&
                          text.substr(begin + 1, end - begin - 1).find_first_of("\\\n") == std::string_view::npos;
    return is_plain ? end + 1 : std::string_view::npos;
  }
  if (std::string_view("[{&*|>!%@").find(quote) != std::string_view::npos) return std::string_view::npos;
  return std::min(text.find_first_of(kWordEnds, begin), text.size());
}

bool is_scalar(const JsonValue& value) {
  return value.type != JsonType::Object && value.type != JsonType::Array;
}

bool is_in_braces(std::string_view text, const JsonValue& value) {
  const char open = value.type == JsonType::Array ? '[' : '{';
  return value.offset < text.size() && text[value.offset] == open;
}

std::string text_of_scalar(const JsonValue& value, bool is_json) {
  if (value.type == JsonType::Bool) return value.boolean ? "true" : "false";
  if (value.type == JsonType::Null) return "null";
  if (value.type == JsonType::Number) return value.text;
  if (!is_json) {
    const Result<JsonDocument> plain = parse_yaml(value.text, "");
    if (plain && plain->root.type == JsonType::String && plain->root.text == value.text) return value.text;
  }
  return json_quoted(value.text);
}

std::string text_of_value(const JsonValue& value, bool is_json) {
  if (is_scalar(value)) return text_of_scalar(value, is_json);
  std::string list;
  for (const JsonValue& each : value.elements) list += (list.empty() ? "" : ", ") + text_of_scalar(each, is_json);
  return fmt::format("[{}]", list);
}

/// The edits that may give a key its value, the best first.
class KeyEdits {
 public:
  KeyEdits(const JsonDocument& document, const JsonValue& value, std::string_view beside)
      : text_(document.text), value_(value), beside_(beside) {}

  std::vector<TextEdit> of(const JsonValue& root, std::string_view key) {
    const JsonValue* object = &root;
    while (object->type == JsonType::Object) {
      const std::string_view name = key.substr(0, key.find('.'));
      const auto member = std::find_if(object->members.begin(), object->members.end(),
                                       [&](const JsonMember& each) { return each.key == name; });
      if (member == object->members.end()) {
        add_member(*object, key);
        break;
      }
      const bool is_last = name.size() == key.size();
      if (!is_last) key.remove_prefix(name.size() + 1);
      if (is_last || member->value.type == JsonType::Null) {
        replace(*object, *member, is_last ? std::string_view{} : key);
        break;
      }
      object = &member->value;
    }
    return std::move(edits_);
  }

 private:
  void add(std::size_t begin, std::size_t end, std::string text) { edits_.push_back({begin, end, std::move(text)}); }

  /// "a: {b: 1}" of "a.b" between braces.
  std::string between_braces(std::string_view key, bool is_json) const {
    const std::size_t dot = key.find('.');
    const std::string_view name = key.substr(0, dot);
    const std::string quoted = is_json ? json_quoted(name) : std::string(name);
    if (dot == std::string_view::npos) return fmt::format("{}: {}", quoted, text_of_value(value_, is_json));
    return fmt::format("{}: {{{}}}", quoted, between_braces(key.substr(dot + 1), is_json));
  }

  /// The lines of "a.b", the first one without its indentation, and none with its end.
  std::string as_lines(std::string_view key, std::size_t indent, std::string_view end) const {
    const std::size_t dot = key.find('.');
    const std::string_view name = key.substr(0, dot);
    const std::string deeper = fmt::format("{}{}", end, std::string(indent + 2, ' '));
    if (dot != std::string_view::npos) {
      return fmt::format("{}:{}{}", name, deeper, as_lines(key.substr(dot + 1), indent + 2, end));
    }
    if (is_scalar(value_)) return fmt::format("{}: {}", name, text_of_scalar(value_, false));
    std::string lines = fmt::format("{}:", name);
    for (const JsonValue& each : value_.elements) lines += deeper + "- " + text_of_scalar(each, false);
    return lines;
  }

  std::string_view line_end_at(std::size_t place) const {
    const auto [begin, end] = line_at(text_, place);
    return text_.substr(begin, end - begin).ends_with("\r\n") ? "\r\n" : "\n";
  }

  /// Lines after the one of a place.
  void add_lines_after(std::size_t place, const std::string& lines) {
    const std::size_t end = line_at(text_, place).second;
    const std::string_view line_end = line_end_at(place);
    const bool is_ended = end > 0 && text_[end - 1] == '\n';
    add(end, end, is_ended ? fmt::format("{}{}", lines, line_end) : fmt::format("{}{}", line_end, lines));
  }

  void add_member(const JsonValue& object, std::string_view key) {
    if (is_in_braces(text_, object)) return add_between_braces(object, key);
    if (object.members.empty()) return;
    std::vector<const JsonMember*> anchors;
    for (const JsonMember& member : object.members) anchors.insert(anchors.begin(), &member);
    std::stable_partition(anchors.begin(), anchors.end(),
                          [&](const JsonMember* member) { return member->key == beside_; });
    for (const JsonMember* anchor : anchors) {
      const std::size_t column = anchor->key_offset - line_at(text_, anchor->key_offset).first;
      const std::string blanks(column, ' ');
      if (!is_on_one_line(*anchor)) continue;
      add_lines_after(anchor->key_offset, blanks + as_lines(key, column, line_end_at(anchor->key_offset)));
    }
    const std::size_t first = object.members.front().key_offset;
    const auto [begin, end] = line_at(text_, first);
    const std::string_view line_end = line_end_at(first);
    add(first, first,
        fmt::format("{}{}{}", as_lines(key, first - begin, line_end), line_end, std::string(first - begin, ' ')));
  }

  bool is_on_one_line(const JsonMember& member) const {
    if (!is_scalar(member.value)) return false;
    if (member.value.type == JsonType::Null) return true;
    const std::size_t end = end_of_scalar(text_, member.value.offset);
    return end != std::string_view::npos && line_at(text_, member.value.offset) == line_at(text_, member.key_offset);
  }

  void add_between_braces(const JsonValue& object, std::string_view key) {
    const std::size_t inside = object.offset + 1;
    if (object.members.empty()) return add(inside, inside, between_braces(key, false));
    const std::size_t first = object.members.front().key_offset;
    const std::string member = between_braces(key, text_[first] == '"');
    const std::size_t begin = line_at(text_, first).first;
    const std::string_view before = text_.substr(begin, first - begin);
    const bool begins_line = before.find_first_not_of(kBlanks) == std::string_view::npos && begin > 0;
    add(first, first,
        begins_line ? fmt::format("{},{}{}", member, line_end_at(first), before) : fmt::format("{}, ", member));
  }

  /// `rest`: the keys below a member that is null; empty if the member itself gets the value.
  void replace(const JsonValue& object, const JsonMember& member, std::string_view rest) {
    const bool is_json = is_in_braces(text_, object);
    if (member.value.type == JsonType::Null) return fill(member, rest, is_json);
    const bool is_quoted = is_json && text_[member.key_offset] == '"';
    if (value_.type == JsonType::Array) return extend(member.value, is_quoted);
    if (!is_scalar(member.value)) return;
    const std::string value = text_of_scalar(value_, is_quoted);
    if (const auto edit = replaced_scalar(text_, member.value.offset, value)) edits_.push_back(*edit);
    const std::size_t end = end_of_scalar(text_, member.value.offset);
    if (end != std::string_view::npos) add(member.value.offset, end, value);
  }

  /// A key without a value, or with one of YAML's words for it.
  void fill(const JsonMember& member, std::string_view rest, bool is_json) {
    const std::size_t colon = text_.find(':', member.key_offset + member.key.size());
    if (colon == std::string_view::npos) return;
    const std::size_t word = std::min(text_.find_first_not_of(kBlanks, colon + 1), text_.size());
    const std::size_t end = std::max(word, std::min(text_.find_first_of(kWordEnds, word), text_.size()));
    const std::string value =
        rest.empty() ? text_of_value(value_, is_json) : fmt::format("{{{}}}", between_braces(rest, is_json));
    if (end > word) add(word, end, value);
    add(colon + 1, colon + 1, " " + value);
  }

  /// More elements at the end of a list.
  void extend(const JsonValue& list, bool is_quoted) {
    if (list.type != JsonType::Array || list.elements.size() >= value_.elements.size()) return;
    const bool is_flow = is_in_braces(text_, list);
    if (list.elements.empty()) return add(list.offset + 1, list.offset + 1, more_elements(0, is_quoted, ""));
    const JsonValue& last = list.elements.back();
    const std::size_t end = end_of_scalar(text_, last.offset);
    if (end == std::string_view::npos) return;
    if (is_flow) return add(end, end, ", " + more_elements(list.elements.size(), text_[last.offset] == '"', ""));
    const std::size_t begin = line_at(text_, last.offset).first;
    const std::string before(text_.substr(begin, last.offset - begin));
    add_lines_after(last.offset, more_elements(list.elements.size(), false, before));
  }

  /// Elements from one on, each on a line that begins with `before`, or separated by commas if that is empty.
  std::string more_elements(std::size_t from, bool is_json, const std::string& before) const {
    std::string all;
    for (std::size_t e = from; e < value_.elements.size(); ++e) {
      if (e > from) all += before.empty() ? ", " : "\n";
      all += before + text_of_scalar(value_.elements[e], is_json);
    }
    return all;
  }

  std::string_view text_;
  const JsonValue& value_;
  std::string_view beside_;
  std::vector<TextEdit> edits_;
};

}  // namespace

bool is_word_of_json(std::string_view word) {
  return word == "true" || word == "false" || (!word.empty() && word.find_first_not_of("0123456789.") == word.npos);
}

std::optional<TextEdit> replaced_scalar(std::string_view text, std::size_t begin, std::string value) {
  if (begin >= text.size()) return std::nullopt;
  const char quote = text[begin];
  if (quote == '"' || quote == '\'') {
    const std::size_t end = text.find(quote, begin + 1);
    if (end == std::string_view::npos || is_word_of_json(value)) return std::nullopt;
    const std::string_view inside = text.substr(begin + 1, end - begin - 1);
    const bool is_plain = inside.find_first_of("\\\n") == std::string_view::npos;
    const bool is_doubled = end + 1 < text.size() && text[end + 1] == quote;
    if (!is_plain || is_doubled) return std::nullopt;
    const bool is_quoted = value.size() > 1 && (value.front() == '\'' || value.front() == '"');
    if (is_quoted) value = value.substr(1, value.size() - 2);
    return TextEdit{begin + 1, end, std::move(value)};
  }
  const std::size_t end = std::min(text.find_first_of(kWordEnds, begin), text.size());
  const std::string_view word = text.substr(begin, end - begin);
  const bool is_scalar = !word.empty() && std::string_view("[{&*|>!%@-").find(word[0]) == std::string_view::npos;
  // A plain value of several words goes on after a blank.
  const std::size_t next = text.find_first_not_of(kBlanks, end);
  const bool goes_on = next != std::string_view::npos && kWordEnds.find(text[next]) == std::string_view::npos;
  if (!is_scalar || goes_on) return std::nullopt;
  return TextEdit{begin, end, std::move(value)};
}

std::optional<TextEdit> removed_line(std::string_view text, std::size_t place, const std::string& key) {
  const auto [begin, end] = line_at(text, place);
  const std::string_view line = text.substr(begin, end - begin);
  const std::size_t indent = indent_of(line);
  if (!line.substr(indent).starts_with(key + ":")) return std::nullopt;
  const std::size_t value = line.find_first_not_of(kBlanks, indent + key.size() + 1);
  if (value == std::string_view::npos ||
      std::string_view("\r\n#[{&*|>!\"'").find(line[value]) != std::string_view::npos) {
    return std::nullopt;
  }
  const auto is_neighbor = [&](std::string_view other) {
    return !other.empty() && other != "\n" && indent_of(other) == indent;
  };
  const auto [above, above_end] = line_at(text, begin == 0 ? 0 : begin - 1);
  const bool has_above = begin > 0 && is_neighbor(text.substr(above, above_end - above));
  const bool has_below = end < text.size() && is_neighbor(text.substr(end, line_at(text, end).second - end));
  if (!has_above && !has_below) return std::nullopt;
  return TextEdit{begin, end, {}};
}

void set_value(JsonValue& root, std::string_view key, const JsonValue& value) {
  JsonValue* object = &root;
  while (true) {
    const std::size_t dot = key.find('.');
    const std::string name(key.substr(0, dot));
    if (object->type != JsonType::Object) {
      *object = {};
      object->type = JsonType::Object;
    }
    const auto found = std::find_if(object->members.begin(), object->members.end(),
                                    [&](const JsonMember& member) { return member.key == name; });
    object = found != object->members.end() ? &found->value
                                            : &object->members.emplace_back(JsonMember{name, object->offset, {}}).value;
    if (dot == std::string_view::npos) break;
    key.remove_prefix(dot + 1);
  }
  const std::uint32_t offset = object->offset;
  *object = value;
  object->offset = offset;
}

JsonValue value_of(const std::string& yaml) {
  Result<JsonDocument> document = parse_yaml(yaml, "");
  return document ? std::move(document->root) : JsonValue{};
}

bool have_same_values(const JsonValue& a, const JsonValue& b) {
  if (a.type != b.type || a.boolean != b.boolean || a.text != b.text) return false;
  if (a.members.size() != b.members.size()) return false;
  // An object has no order.
  return std::equal(a.elements.begin(), a.elements.end(), b.elements.begin(), b.elements.end(), have_same_values) &&
         std::all_of(a.members.begin(), a.members.end(), [&](const JsonMember& member) {
           const JsonValue* other = b.find(member.key);
           return other != nullptr && have_same_values(member.value, *other);
         });
}

Result<std::string> with_key(const JsonDocument& document, std::string_view key, const JsonValue& value,
                             std::string_view beside) {
  JsonValue wanted = document.root;
  set_value(wanted, key, value);
  for (const TextEdit& edit : KeyEdits(document, value, beside).of(document.root, key)) {
    std::string text = document.text;
    text.replace(edit.begin, edit.end - edit.begin, edit.text);
    const Result<JsonDocument> again = parse_yaml(text, document.name);
    if (again && have_same_values(again->root, wanted)) return text;
  }
  return failure(document.name, fmt::format("{} cannot be changed without rewriting more of the file.", key),
                 fmt::format("Write it as a line of its own: {}: {}", key, text_of_value(value, false)));
}

}  // namespace fsdp
