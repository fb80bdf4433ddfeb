#include "render/read_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>

#include "core/base/nearest.h"
#include "core/base/parse_units.h"
#include "core/plan/plan_names.h"

namespace fsdp::render {

Result<Framework> read_runtime(std::string_view text, std::string_view where) {
  for (const std::string_view compiler : {"torch.compile", "compile", "inductor"}) {
    if (!is_same_name(text, compiler)) continue;
    return failure(std::string(where),
                   "torch.compile is not predicted: Inductor's fusions are known after it compiles.",
                   "Rehearse the script, which compiles it: fsdp-plan rehearse -- COMMAND.");
  }
  return read_name(text, kRuntimeTable, where);
}

Result<std::int64_t> read_count(std::string_view text, std::string_view where, std::int64_t min, std::int64_t most) {
  const std::optional<std::int64_t> number = parse_integer(text);
  if (number && *number >= min && *number <= most) return *number;
  return failure(std::string(where), fmt::format("\"{}\" is not a whole number from {} to {}.", text, min, most));
}

Result<std::int64_t> read_length(std::string_view text, std::string_view where) {
  const char unit = text.empty() ? ' ' : text.back();
  const bool in_kibi = unit == 'k' || unit == 'K';
  const bool in_mebi = unit == 'm' || unit == 'M';
  const std::int64_t factor = in_mebi ? 1 << 20 : in_kibi ? 1 << 10 : 1;
  const std::optional<std::int64_t> number = parse_integer(text.substr(0, text.size() - (factor > 1 ? 1 : 0)));
  if (number && *number >= 1 && *number <= kLargestCount / factor) return *number * factor;
  return failure(std::string(where), fmt::format("\"{}\" is not a whole number from 1 to {}.", text, kLargestCount),
                 "Write it as 4096, 4k or 1M.");
}

Result<double> read_number_above_zero(std::string_view text, std::string_view where) {
  const std::optional<double> number = parse_number(text);
  if (number && *number > 0) return *number;
  return failure(std::string(where), fmt::format("\"{}\" is not a number above 0.", text));
}

Result<bool> read_yes_or_no(std::string_view text, std::string_view where) {
  if (text == "yes" || text == "true" || text == "on") return true;
  if (text == "no" || text == "false" || text == "off") return false;
  return failure(std::string(where), fmt::format("\"{}\" is neither yes nor no.", text), "Write yes or no.");
}

bool is_same_name(std::string_view text, std::string_view name) {
  const auto folded = [](char c) {
    return c == '-' ? '_' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  };
  return std::equal(text.begin(), text.end(), name.begin(), name.end(),
                    [&](char a, char b) { return folded(a) == folded(b); });
}

Error unknown_name(std::string_view text, std::string_view noun, const std::vector<std::string_view>& names,
                   std::string_view where) {
  return {std::string(where), fmt::format("Unknown {} \"{}\".", noun, text), suggest_name(text, names)};
}

}  // namespace fsdp::render
