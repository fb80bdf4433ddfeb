// yaml-cpp makes the nodes; this file decides what a plain scalar is, resolves "<<", and keeps positions.
//
// Sources: YAML 1.1 (yaml.org/type: bool, int, float, null, merge); PyYAML 6.0.2, yaml/resolver.py (the patterns of
// plain scalars) and yaml/constructor.py (flatten_mapping, construct_yaml_int).
//
// Not modeled: numbers to base 60, which are strings here; tags other than the quoting's own.

#include "core/formats/yaml_document.h"

#include <fmt/format.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>

#include "core/base/files.h"
#include "core/base/json_parser.h"

namespace fsdp {

namespace {

bool is_any_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// The digits of a number without the "_" that may stand between them.
std::string without_underscores(std::string_view word) {
  std::string digits(word);
  std::erase(digits, '_');
  return digits;
}

bool has_only(std::string_view word, std::string_view allowed) {
  return !word.empty() && word.find_first_not_of(allowed) == std::string_view::npos;
}

constexpr std::string_view kDecimal = "0123456789_";

/// "12", "-0x1f", "0b101" or "017", which is octal. `nullopt` for other words, and for integers beyond 64 bits.
std::optional<std::int64_t> as_integer(std::string_view word) {
  const bool is_negative = word.starts_with('-');
  if (is_negative || word.starts_with('+')) word.remove_prefix(1);
  int base = 10;
  if (word.starts_with("0b") && has_only(word.substr(2), "01_")) {
    base = 2;
    word.remove_prefix(2);
  } else if (word.starts_with("0x") && has_only(word.substr(2), "0123456789abcdefABCDEF_")) {
    base = 16;
    word.remove_prefix(2);
  } else if (word.size() > 1 && word.starts_with('0')) {
    if (!has_only(word, "01234567_")) return std::nullopt;
    base = 8;
  } else if (!has_only(word, kDecimal) || word.starts_with('_')) {
    return std::nullopt;
  }
  const std::string digits = (is_negative ? "-" : "") + without_underscores(word);
  try {
    std::size_t read = 0;
    const std::int64_t value = std::stoll(digits, &read, base);
    return read == digits.size() ? std::optional(value) : std::nullopt;
  } catch (const std::exception&) {
    return std::nullopt;
  }
}

/// "1.5", "1.5e+3" or ".5": a fraction needs its point and an exponent its sign, so "2e-5" and "1.0e3" are strings.
std::optional<double> as_real(std::string_view word) {
  std::string_view rest = word;
  const bool is_negative = rest.starts_with('-');
  if (is_negative || rest.starts_with('+')) rest.remove_prefix(1);
  const double sign = is_negative ? -1 : 1;
  if (is_any_of(rest, {".inf", ".Inf", ".INF"})) return sign * std::numeric_limits<double>::infinity();
  if (is_any_of(word, {".nan", ".NaN", ".NAN"})) return std::numeric_limits<double>::quiet_NaN();
  const std::size_t point = rest.find('.');
  if (point == std::string_view::npos) return std::nullopt;
  const std::string_view whole = rest.substr(0, point);
  std::string_view fraction = rest.substr(point + 1);
  if (const std::size_t exponent = fraction.find_first_of("eE"); exponent != std::string_view::npos) {
    const std::string_view power = fraction.substr(exponent + 1);
    const bool is_signed = power.starts_with('-') || power.starts_with('+');
    if (!is_signed || !has_only(power.substr(1), "0123456789")) return std::nullopt;
    fraction = fraction.substr(0, exponent);
  }
  if (!whole.empty() && (!has_only(whole, kDecimal) || whole.starts_with('_'))) return std::nullopt;
  if (whole.empty() && (fraction.empty() || fraction.starts_with('_'))) return std::nullopt;
  if (!fraction.empty() && !has_only(fraction, kDecimal)) return std::nullopt;
  return std::stod(without_underscores(word));
}

void set_plain(std::string_view word, JsonValue& out) {
  const bool is_true = is_any_of(word, {"yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"});
  if (is_any_of(word, {"", "~", "null", "Null", "NULL"})) {
    out.type = JsonType::Null;
  } else if (is_true || is_any_of(word, {"no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"})) {
    out.type = JsonType::Bool;
    out.boolean = is_true;
  } else if (const std::optional<std::int64_t> integer = as_integer(word)) {
    out.type = JsonType::Number;
    out.text = std::string(word);
    out.is_integer = true;
    out.integer = *integer;
    out.real = static_cast<double>(*integer);
  } else if (const std::optional<double> real = as_real(word)) {
    out.type = JsonType::Number;
    out.text = std::string(word);
    out.real = *real;
  } else {
    out.type = JsonType::String;
    out.text = std::string(word);
  }
}

class YamlTree {
 public:
  explicit YamlTree(std::string_view text) {
    line_begins_.push_back(0);
    for (std::size_t at = 0; at < text.size(); ++at) {
      if (text[at] == '\n') line_begins_.push_back(static_cast<std::uint32_t>(at + 1));
    }
    size_ = static_cast<std::uint32_t>(text.size());
  }

  /// The byte of a mark. yaml-cpp counts lines and bytes on them from zero; -1 if it knows none.
  std::uint32_t offset_of(const YAML::Mark& mark) const {
    if (mark.is_null() || mark.line < 0) return 0;
    const std::size_t line = std::min(static_cast<std::size_t>(mark.line), line_begins_.size() - 1);
    return std::min(line_begins_[line] + static_cast<std::uint32_t>(std::max(mark.column, 0)), size_);
  }

  void add(const YAML::Node& node, int depth, JsonValue& out) {
    out.offset = offset_of(node.Mark());
    if (is_beyond_limits_) return;
    if (++num_values_ > kMostJsonValues || depth > kDeepestJson) {
      is_beyond_limits_ = true;
      return fail(out.offset, "The file is too large or nested too deeply.");
    }
    switch (node.Type()) {
      case YAML::NodeType::Scalar:
        // "!" is the tag of quotes.
        if (node.Tag() == "!") {
          out.type = JsonType::String;
          out.text = node.Scalar();
        } else {
          set_plain(node.Scalar(), out);
        }
        return;
      case YAML::NodeType::Sequence:
        out.type = JsonType::Array;
        for (const YAML::Node& each : node) add(each, depth + 1, out.elements.emplace_back());
        return;
      case YAML::NodeType::Map:
        out.type = JsonType::Object;
        return add_members(node, depth, out);
      default:
        out.type = JsonType::Null;
    }
  }

  std::vector<JsonSyntaxError> errors;

 private:
  void fail(std::uint32_t offset, std::string what, std::string hint = {}) {
    errors.push_back({offset, std::move(what), std::move(hint)});
  }

  void add_members(const YAML::Node& node, int depth, JsonValue& out) {
    std::vector<YAML::Node> merged;
    for (const auto& member : node) {
      if (!member.first.IsScalar()) {
        fail(offset_of(member.first.Mark()), "A key must be one word.");
        continue;
      }
      const std::string& key = member.first.Scalar();
      const std::uint32_t offset = offset_of(member.first.Mark());
      if (key == "<<" && member.first.Tag() != "!") {
        merged.push_back(member.second);
      } else if (out.find(key) != nullptr) {
        fail(offset, fmt::format("The key \"{}\" appears twice, and only the last one counts.", key), "Remove one.");
      } else {
        JsonMember& added = out.members.emplace_back(JsonMember{key, offset, {}});
        add(member.second, depth + 1, added.value);
        // A missing value has no mark.
        if (added.value.type == JsonType::Null) added.value.offset = offset;
      }
    }
    for (const YAML::Node& each : merged) merge(each, depth, out);
  }

  /// "<<": adds the members of another map, or of several, that the map itself does not have.
  void merge(const YAML::Node& from, int depth, JsonValue& out) {
    if (from.IsSequence()) {
      for (const YAML::Node& each : from) merge(each, depth, out);
      return;
    }
    JsonValue other;
    add(from, depth, other);
    if (other.type != JsonType::Object) return fail(other.offset, "\"<<\" takes a map, or a list of maps.");
    for (JsonMember& member : other.members) {
      if (out.find(member.key) == nullptr) out.members.push_back(std::move(member));
    }
  }

  std::vector<std::uint32_t> line_begins_;
  std::uint32_t size_ = 0;
  std::size_t num_values_ = 0;
  bool is_beyond_limits_ = false;
};

}  // namespace

Result<JsonDocument> parse_yaml(std::string text, std::string name) {
  JsonDocument document{.name = std::move(name), .text = std::move(text), .root = {}};
  YamlTree tree(document.text);
  try {
    const std::vector<YAML::Node> nodes = YAML::LoadAll(document.text);
    if (nodes.size() > 1) {
      return failure(document.name, fmt::format("It has {} documents.", nodes.size()), "Leave one.");
    }
    if (!nodes.empty()) tree.add(nodes.front(), 0, document.root);
  } catch (const YAML::Exception& error) {
    tree.errors.assign(1, {tree.offset_of(error.mark), fmt::format("This is no YAML: {}.", error.msg), {}});
  }
  if (tree.errors.empty()) return document;
  Errors errors;
  for (JsonSyntaxError& error : tree.errors) {
    errors.push_back({document.position(error.offset), std::move(error.what), std::move(error.hint)});
  }
  return tl::unexpected(std::move(errors));
}

Result<JsonDocument> read_yaml_file(const std::string& path) {
  FSDP_TRY(std::string text, read_text_file(path));
  return parse_yaml(std::move(text), path);
}

}  // namespace fsdp
