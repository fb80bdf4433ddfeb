#include "core/spec/dimensions.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/expression.h"
#include "core/base/nearest.h"

namespace fsdp {
namespace {

constexpr auto kLargest = static_cast<double>(kLargestInteger);

/// `"seq" is 0`, or `"2 * seq" is 0` for an expression; a plain number stands for itself.
std::string value_of(const SpecNumber& number, double value) {
  const bool is_plain = names_in(number.text).empty();
  return is_plain ? fmt::format("The value is {}", number.text) : fmt::format("\"{}\" is {}", number.text, value);
}

}  // namespace

DimensionValues::DimensionValues(const ModelSpec& spec, const Recipe& recipe, const Workload& workload,
                                 Errors& errors) {
  std::vector<std::string_view> names;
  for (const SpecDimension& dimension : spec.dimensions) {
    written_.insert_or_assign(dimension.name, dimension.value);
    names.push_back(dimension.name);
  }
  for (const SpecDimension& dimension : recipe.dimensions) written_.insert_or_assign(dimension.name, dimension.value);
  for (const Dimension& dimension : workload.dimensions) {
    const std::string where = fmt::format("dimension {}", dimension.name);
    if (!written_.contains(dimension.name)) {
      errors.push_back(Error{.where = where,
                             .what = fmt::format("The model {} has no such dimension.", spec.name),
                             .hint = suggest_name(dimension.name, names)});
      continue;
    }
    if (!std::isfinite(dimension.value)) {
      errors.push_back(Error{.where = where, .what = fmt::format("{} is not a size.", dimension.value), .hint = {}});
      continue;
    }
    written_.insert_or_assign(dimension.name, SpecNumber{.text = fmt::format("{}", dimension.value), .where = where});
  }
  std::map<std::string, int> state;
  for (const SpecDimension& dimension : spec.dimensions) {
    const auto value = resolve(dimension.name, state);
    if (!value) {
      for (const Error& error : value.error()) {
        if (std::find(errors.begin(), errors.end(), error) == errors.end()) errors.push_back(error);
      }
      continue;
    }
    values_.push_back(Dimension{.name = dimension.name, .value = *value});
  }
}

bool DimensionValues::has(std::string_view name) const {
  return known_.contains(name);
}

Result<double> DimensionValues::resolve(const std::string& name, std::map<std::string, int>& state) {
  if (const auto known = known_.find(name); known != known_.end()) return known->second;
  const SpecNumber& written = written_.at(name);
  int& visiting = state[name];
  if (visiting != 0) {
    return failure(written.where, fmt::format("The dimension \"{}\" is defined by itself.", name),
                   "Give one of the dimensions of the circle a number.");
  }
  visiting = 1;
  const auto lookup = [&](std::string_view used) -> Result<double> {
    if (!written_.contains(used)) return failure(written.where, fmt::format("\"{}\" is not a dimension.", used));
    return resolve(std::string(used), state);
  };
  auto value = evaluate(written.text, lookup, written.where);
  state[name] = 0;
  if (!value) return value;
  if (*value <= 0 || *value > kLargest) {
    return failure(written.where, fmt::format("The dimension \"{}\" is {}.", name, *value),
                   "Dimensions are positive, and at most 2^53.");
  }
  known_[name] = *value;
  return value;
}

Result<double> DimensionValues::number(const SpecNumber& number) const {
  const auto lookup = [&](std::string_view used) -> Result<double> {
    const auto found = known_.find(used);
    if (found == known_.end()) return failure(number.where, fmt::format("\"{}\" has no value.", used));
    return found->second;
  };
  return evaluate(number.text, lookup, number.where);
}

Result<std::int64_t> DimensionValues::integer(const SpecNumber& written, std::int64_t min) const {
  FSDP_TRY(const double value, number(written));
  if (value != std::floor(value) || value > kLargest || value < static_cast<double>(min)) {
    const std::string range = min >= 0 ? fmt::format("It must be an integer from {} to 2^53.", min)
                                       : std::string("It must be an integer of at most 2^53.");
    // If the spec cannot fix an error, its place is where the dimension got its value.
    const auto named = written_.find(written.text);
    const bool is_given = named != written_.end() && named->second.where.starts_with("dimension ");
    return failure(is_given ? named->second.where : written.where, value_of(written, value) + ".", range);
  }
  return static_cast<std::int64_t>(value);
}

std::vector<BlockOptions::Evaluated> DimensionValues::options(const std::vector<SpecOption>& options,
                                                              std::span<const OptionRule> rules, Errors& errors) const {
  std::vector<BlockOptions::Evaluated> evaluated;
  const auto min_of = [](OptionType type) {
    constexpr std::int64_t kLowest = -(std::int64_t{1} << 53);
    return type == OptionType::Integer ? kLowest : type == OptionType::Count ? 0 : 1;
  };
  for (const SpecOption& option : options) {
    const auto rule =
        std::find_if(rules.begin(), rules.end(), [&](const OptionRule& r) { return r.name == option.name; });
    if (rule == rules.end()) continue;
    BlockOptions::Evaluated result{.name = option.name, .value = false};
    if (const bool* flag = std::get_if<bool>(&option.value)) {
      result.value = *flag;
    } else if (const auto* text = std::get_if<std::string>(&option.value)) {
      result.value = *text;
    } else if (const auto* written = std::get_if<SpecNumber>(&option.value)) {
      Result<double> value = 0.0;
      if (rule->type == OptionType::Number) {
        value = number(*written);
      } else {
        value = integer(*written, min_of(rule->type)).map([](std::int64_t n) { return static_cast<double>(n); });
      }
      if (!value) {
        append(errors, value.error());
        continue;
      }
      result.value = *value;
    } else {
      std::vector<std::int64_t> sizes;
      for (const SpecNumber& size : std::get<std::vector<SpecNumber>>(option.value)) {
        const auto value = integer(size, 1);
        if (!value) append(errors, value.error());
        sizes.push_back(value.value_or(1));
      }
      result.value = std::move(sizes);
    }
    evaluated.push_back(std::move(result));
  }
  return evaluated;
}

}  // namespace fsdp
