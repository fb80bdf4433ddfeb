// Sources: transformers 5.24.0, hf_argparser.py (HfArgumentParser: flags with an optional value, "--no_" before flags
// that are on, lists, dictionaries as JSON); Python's argparse ("--key=value"); Hydra 1.3, override grammar, whose
// plain values, lists and dictionaries are YAML's.
//
// Not modeled: options that are shortened to their first letters; Hydra's sweeps and functions.

#include "planner/jobs/argument_object.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "core/base/json_parser.h"
#include "core/formats/yaml_document.h"

namespace fsdp::planner {

namespace {

constexpr std::string_view kLine = "command";

/// The object that has the last part of a key: "a.b.c" makes "a" and "a.b". Members stay in the order of their places.
JsonValue& member_of(JsonValue& root, std::string_view key, std::uint32_t offset) {
  JsonValue* object = &root;
  while (true) {
    object->type = JsonType::Object;
    const std::size_t dot = key.find('.');
    const std::string name(key.substr(0, dot));
    const auto found = std::find_if(object->members.begin(), object->members.end(),
                                    [&](const JsonMember& member) { return member.key == name; });
    if (found != object->members.end()) {
      object = &found->value;
    } else {
      object->members.push_back({name, offset, {}});
      object = &object->members.back().value;
      object->offset = offset;
    }
    if (dot == std::string_view::npos) return *object;
    key.remove_prefix(dot + 1);
  }
}

void move_by(JsonValue& value, std::uint32_t offset) {
  value.offset += offset;
  for (JsonValue& element : value.elements) move_by(element, offset);
  for (JsonMember& member : value.members) {
    member.key_offset += offset;
    move_by(member.value, offset);
  }
}

/// One word after an option. Returns the error of JSON, if it is JSON.
std::vector<JsonSyntaxError> read_word(const std::string& word, std::uint32_t offset, JsonValue& out) {
  if (!word.starts_with('{')) {
    out.type = JsonType::String;
    out.text = word;
    out.offset = offset;
    return {};
  }
  std::vector<JsonSyntaxError> errors = parse_json_text(word, out);
  move_by(out, offset);
  return errors;
}

JsonValue text_value(const std::string& text, std::uint32_t offset) {
  JsonValue value;
  value.type = JsonType::String;
  value.text = text;
  value.offset = offset;
  return value;
}

}  // namespace

JsonDocument no_arguments() {
  JsonDocument document;
  document.root.type = JsonType::Object;
  return document;
}

ArgumentLine::ArgumentLine(std::span<const std::string> words) : words_(words) {
  for (const std::string& word : words) {
    if (!text_.empty()) text_ += ' ';
    begins_.push_back(static_cast<std::uint32_t>(text_.size()));
    text_ += word;
  }
}

std::string ArgumentLine::where(std::size_t word) const {
  return fmt::format("{}:1:{}", kLine, begins_[word] + 1);
}

Result<JsonDocument> ArgumentLine::object(std::size_t from, std::size_t to,
                                          std::string (*key_of)(const std::string&)) const {
  JsonDocument document{.name = std::string(kLine), .text = text_, .root = {}};
  document.root.type = JsonType::Object;
  Errors errors;
  for (std::size_t w = from; w < to;) {
    const std::string& word = words_[w];
    if (!word.starts_with("--") || word.size() == 2) {
      errors.push_back({where(w), fmt::format("\"{}\" belongs to no option.", word), "Options begin with --."});
      ++w;
      continue;
    }
    const std::size_t equals = word.find('=');
    std::string name = word.substr(2, equals == std::string::npos ? equals : equals - 2);
    std::replace(name.begin(), name.end(), '-', '_');
    const bool has_value = equals != std::string::npos || (w + 1 < to && !words_[w + 1].starts_with("--"));
    const std::size_t last = name.rfind('.') + 1;  // 0 without a dot.
    const bool negates = !has_value && name.compare(last, 3, "no_") == 0;
    if (negates) name.erase(last, 3);
    const std::string key = key_of(name);
    JsonValue left_out;
    JsonValue& value = key.empty() ? left_out : member_of(document.root, key, begins_[w]);
    if (value.type != JsonType::Null) {
      errors.push_back({where(w), fmt::format("--{} is given twice.", name), "Give it once."});
    }
    value = {};
    value.offset = begins_[w];
    std::vector<std::pair<std::string, std::uint32_t>> given;
    if (equals != std::string::npos) {
      given.emplace_back(word.substr(equals + 1), begins_[w] + static_cast<std::uint32_t>(equals + 1));
    }
    for (++w; w < to && equals == std::string::npos && !words_[w].starts_with("--"); ++w) {
      given.emplace_back(words_[w], begins_[w]);
    }
    if (given.empty()) {
      value.type = JsonType::Bool;
      value.boolean = !negates;
    } else if (given.size() == 1) {
      for (const JsonSyntaxError& wrong : read_word(given[0].first, given[0].second, value)) {
        errors.push_back({document.position(given[0].second + wrong.offset), wrong.what, wrong.hint});
      }
    } else {
      value.type = JsonType::Array;
      for (const auto& [text, offset] : given) read_word(text, offset, value.elements.emplace_back());
    }
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return document;
}

Result<JsonDocument> ArgumentLine::overrides(std::size_t from, std::size_t to) const {
  constexpr std::string_view kGroups = "hydra.";
  JsonDocument document{.name = std::string(kLine), .text = text_, .root = {}};
  document.root.type = JsonType::Object;
  Errors errors;
  for (std::size_t w = from; w < to; ++w) {
    const std::string& word = words_[w];
    const bool is_option = word.starts_with("--config");
    if (is_option && word.find('=') == std::string::npos) {
      if (w + 1 < to) member_of(document.root, "hydra.config_name", begins_[w]) = text_value(words_[w + 1], begins_[w]);
      ++w;
      continue;
    }
    const std::size_t equals = word.find('=');
    if (equals == std::string::npos || word.starts_with('~') || (word.starts_with('-') && !is_option)) {
      errors.push_back({where(w), fmt::format("\"{}\" sets no key.", word), "Write key=value."});
      continue;
    }
    std::string key = word.substr(word.find_first_not_of("+-"), equals - word.find_first_not_of("+-"));
    std::replace(key.begin(), key.end(), '-', '_');
    if (key.find('.') == std::string::npos) key.insert(0, kGroups);
    std::string text = word.substr(equals + 1);
    if (is_option && text.ends_with(".yaml")) text.erase(text.size() - std::string_view(".yaml").size());
    const auto place = begins_[w] + static_cast<std::uint32_t>(equals + 1);
    if (text.find("${") != std::string::npos) {
      errors.push_back({where(w), fmt::format("{} refers to another key: {}.", key, text), "Write its value."});
      continue;
    }
    JsonValue& value = member_of(document.root, key, begins_[w]);
    Result<JsonDocument> parsed = parse_yaml(text, std::string(kLine));
    value = parsed ? std::move(parsed->root) : text_value(text, 0);
    move_by(value, place);
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return document;
}

}  // namespace fsdp::planner
