#include "planner/jobs/edited_line.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/json_writer.h"

namespace fsdp::planner {

namespace {

std::string word_of(const JsonValue& value) {
  if (value.type == JsonType::Bool) return value.boolean ? "true" : "false";
  return value.text;
}

/// {"offload": true} of "offload".
std::string object_of(std::string_view key, const JsonValue& value) {
  const std::size_t dot = key.find('.');
  if (dot != std::string_view::npos) {
    return fmt::format("{{{}: {}}}", json_quoted(key.substr(0, dot)), object_of(key.substr(dot + 1), value));
  }
  const std::string word = value.type == JsonType::String ? json_quoted(value.text) : word_of(value);
  return fmt::format("{{{}: {}}}", json_quoted(key), word);
}

/// The option of a word, with "_" for "-"; empty if it is none. LLaMA-Factory takes "key=value" without dashes, and
/// Hydra
/// "+key=value", too.
std::string option_of(const std::string& word) {
  const std::size_t equals = word.find('=');
  const std::size_t begin = word.starts_with("--") ? 2 : std::min(word.find_first_not_of('+'), word.size());
  if ((!word.starts_with("--") && equals == std::string::npos) || word.size() == begin) return {};
  std::string name = word.substr(begin, equals == std::string::npos ? std::string::npos : equals - begin);
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

}  // namespace

Result<OptionEdit> with_option(std::vector<std::string> words, WordRange range, std::string_view key,
                               const JsonValue& value, OptionName naming) {
  const std::size_t dot = key.find('.');
  const bool is_member = naming == OptionName::First && dot != std::string_view::npos;
  const bool is_override = naming == OptionName::Override;
  const std::string name(naming == OptionName::Whole || is_override ? key
                         : naming == OptionName::Last               ? key.substr(key.rfind('.') + 1)
                                                                    : key.substr(0, dot));
  const std::string flag = is_override ? name : "--" + name;
  const std::string word = is_member ? object_of(key.substr(dot + 1), value) : word_of(value);
  const auto position = [](std::size_t place) { return static_cast<std::ptrdiff_t>(place); };
  for (std::size_t w = range.from; w < range.to; ++w) {
    const std::string option = option_of(words[w]);
    const bool is_negated = option == "no_" + name;
    if (option != name && !is_negated) continue;
    if (is_member)
      return failure("command", fmt::format("{} is an object on the line.", flag), "Write it into a file.");
    const std::size_t equals = words[w].find('=');
    if (equals != std::string::npos) {
      words[w].replace(equals + 1, std::string::npos, word);
      return OptionEdit{std::move(words), flag, w, 0};
    }
    if (is_negated) words[w] = flag;
    const bool has_value = w + 1 < range.to && !words[w + 1].starts_with("--");
    if (has_value) {
      words[w + 1] = word;
    } else {
      words.insert(words.begin() + position(w + 1), word);
    }
    return OptionEdit{std::move(words), flag, w, has_value ? 0U : 1U};
  }
  if (is_override) {
    words.insert(words.begin() + position(range.to), fmt::format("{}={}", name, word));
    return OptionEdit{std::move(words), flag, range.to, 1};
  }
  words.insert(words.begin() + position(range.to), {flag, word});
  return OptionEdit{std::move(words), flag, range.to, 2};
}

WordRange moved(WordRange range, const OptionEdit& edit) {
  if (range.from > edit.place) range.from += edit.num_added;
  if (range.to >= edit.place) range.to += edit.num_added;
  return range;
}

}  // namespace fsdp::planner
