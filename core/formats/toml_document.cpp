// toml++ makes the nodes and sorts the keys of a table by name; this file puts them back in the order of the text.
//
// Sources: toml.io/en/v1.0.0; Python's tomllib, which refuses a key that appears twice, as toml++ does.
//
// Not modeled: the value of "inf" and "nan" beyond that they are numbers.

#include "core/formats/toml_document.h"

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <utility>
#include <vector>

#define TOML_ENABLE_FORMATTERS 1
#include <toml++/toml.h>

#include "core/base/files.h"

namespace fsdp {

namespace {

class TomlTree {
 public:
  explicit TomlTree(std::string_view text) : text_(text) {
    line_begins_.push_back(0);
    for (std::size_t at = 0; at < text.size(); ++at) {
      if (text[at] == '\n') line_begins_.push_back(static_cast<std::uint32_t>(at + 1));
    }
  }

  /// The byte of a place. toml++ counts lines and characters from one.
  std::uint32_t offset_of(const toml::source_position& place) const {
    if (place.line == 0) return 0;
    const std::size_t line = std::min<std::size_t>(place.line, line_begins_.size()) - 1;
    std::uint32_t at = line_begins_[line];
    for (std::uint32_t column = 1; column < place.column && at < text_.size(); ++column) {
      ++at;
      while (at < text_.size() && (static_cast<unsigned char>(text_[at]) & 0xC0U) == 0x80U) ++at;
    }
    return at;
  }

  void add(const toml::node& node, int depth, JsonValue& out) {
    out.offset = offset_of(node.source().begin);
    if (is_beyond_limits || ++num_values_ > kMostJsonValues || depth > kDeepestJson) {
      is_beyond_limits = true;
    } else if (const toml::table* table = node.as_table()) {
      out.type = JsonType::Object;
      add_members(*table, depth, out);
    } else if (const toml::array* array = node.as_array()) {
      out.type = JsonType::Array;
      for (const toml::node& each : *array) add(each, depth + 1, out.elements.emplace_back());
    } else {
      set_scalar(node, out);
    }
  }

  bool is_beyond_limits = false;

 private:
  void add_members(const toml::table& table, int depth, JsonValue& out) {
    for (const auto& [key, value] : table) {
      JsonMember& added =
          out.members.emplace_back(JsonMember{std::string(key.str()), offset_of(key.source().begin), {}});
      add(value, depth + 1, added.value);
    }
    std::stable_sort(out.members.begin(), out.members.end(),
                     [](const JsonMember& a, const JsonMember& b) { return a.key_offset < b.key_offset; });
  }

  static void set_scalar(const toml::node& node, JsonValue& out) {
    if (const toml::value<std::string>* text = node.as_string()) {
      out.type = JsonType::String;
      out.text = text->get();
    } else if (const toml::value<bool>* flag = node.as_boolean()) {
      out.type = JsonType::Bool;
      out.boolean = flag->get();
    } else if (const toml::value<std::int64_t>* integer = node.as_integer()) {
      out.type = JsonType::Number;
      out.is_integer = true;
      out.integer = integer->get();
      out.real = static_cast<double>(out.integer);
      out.text = fmt::format("{}", out.integer);
    } else if (const toml::value<double>* real = node.as_floating_point()) {
      out.type = JsonType::Number;
      out.real = real->get();
      out.text = fmt::format("{}", out.real);
    } else {
      std::ostringstream text;
      node.visit([&](const auto& value) { text << toml::default_formatter{value}; });
      out.type = JsonType::String;
      out.text = text.str();
    }
  }

  std::string_view text_;
  std::vector<std::uint32_t> line_begins_;
  std::size_t num_values_ = 0;
};

}  // namespace

Result<JsonDocument> parse_toml(std::string text, std::string name) {
  JsonDocument document{.name = std::move(name), .text = std::move(text), .root = {}};
  TomlTree tree(document.text);
  try {
    const toml::table table = toml::parse(std::string_view(document.text));
    tree.add(table, 0, document.root);
    document.root.offset = 0;
  } catch (const toml::parse_error& error) {
    return failure(document.position(tree.offset_of(error.source().begin)),
                   fmt::format("This is no TOML: {}.", error.description()), {});
  }
  if (tree.is_beyond_limits) return failure(document.name, "The file is too large or nested too deeply.", {});
  return document;
}

Result<JsonDocument> read_toml_file(const std::string& path) {
  FSDP_TRY(std::string text, read_text_file(path));
  return parse_toml(std::move(text), path);
}

}  // namespace fsdp
