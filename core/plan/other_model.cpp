#include "core/plan/other_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "core/base/nearest.h"
#include "core/base/split.h"
#include "core/plan/framework_traits.h"

namespace fsdp {

namespace {

constexpr std::array<std::string_view, 5> kOtherKeys = {"wrap", "offload", "dtype", "turn", "training"};
constexpr std::string_view kOtherForm =
    "Write it as MODEL,wrap=root|blocks|none,offload=yes|no,dtype=bf16,turn=after|before.";
constexpr std::array<std::string_view, 3> kOtherWraps = {"root", "blocks", "none"};
constexpr std::array<std::string_view, 2> kOtherTurns = {"after", "before"};

struct OtherDtypeName {
  std::string_view name;
  Dtype dtype;
};
constexpr std::array kOtherDtypes = {OtherDtypeName{"bf16", Dtype::BFloat16}, OtherDtypeName{"fp16", Dtype::Float16},
                                     OtherDtypeName{"fp32", Dtype::Float32}};

template <class E, std::size_t kSize>
std::optional<E> find_name(const std::array<std::string_view, kSize>& names, std::string_view name) {
  const auto found = std::find(names.begin(), names.end(), name);
  if (found == names.end()) return std::nullopt;
  return static_cast<E>(found - names.begin());
}

std::optional<Dtype> read_other_dtype(std::string_view name) {
  for (const OtherDtypeName& each : kOtherDtypes) {
    if (each.name == name) return each.dtype;
  }
  const std::optional<Dtype> dtype = parse_dtype(name);
  return dtype && is_floating_point(*dtype) ? dtype : std::nullopt;
}

class OtherReader {
 public:
  OtherReader(std::string_view where, OtherModel& other, Errors& errors)
      : where_(where), other_(other), errors_(errors) {}

  void read(std::string_view key, std::string_view value) {
    if (key == "wrap") {
      if (!take(find_name<OtherWrap>(kOtherWraps, value), other_.wrap)) wrong(key, value, "root, blocks or none");
    } else if (key == "turn") {
      if (!take(find_name<OtherTurn>(kOtherTurns, value), other_.turn)) wrong(key, value, "after or before");
    } else if (key == "dtype") {
      if (!take(read_other_dtype(value), other_.dtype)) wrong(key, value, "bf16, fp16 or fp32");
    } else if (key == "offload") {
      other_.offload = value == "yes";
      if (value != "yes" && value != "no") wrong(key, value, "yes or no");
    } else if (value == "yes") {
      errors_.push_back({std::string(where_), "A second model that is trained, such as PPO's critic, is not predicted.",
                         "Plan it alone on the same GPUs, with --reserve for the other, or capture a script that "
                         "trains both by turns."});
    } else if (value != "no") {
      wrong(key, value, "no");
    }
  }

 private:
  template <class T, class Member>
  static bool take(const std::optional<T>& value, Member& member) {
    if (value) member = *value;
    return value.has_value();
  }

  void wrong(std::string_view key, std::string_view value, std::string_view allowed) {
    errors_.push_back(
        {std::string(where_), fmt::format("\"{}={}\" is not {}.", key, value, allowed), std::string(kOtherForm)});
  }

  std::string_view where_;
  OtherModel& other_;
  Errors& errors_;
};

}  // namespace

OtherWrap wrap_of(const OtherModel& other, Framework framework) {
  if (other.wrap) return *other.wrap;
  const FrameworkTraits& traits = traits_of(framework);
  if (!traits.wraps_units) return OtherWrap::None;
  return traits.has_flat_parameters ? OtherWrap::Blocks : OtherWrap::Root;
}

Result<OtherModel> parse_other_model(std::string_view text, std::string_view where) {
  OtherModel other;
  Errors errors;
  OtherReader reader(where, other, errors);
  const std::vector<std::string_view> parts = split(text, ',');
  other.file = std::string(parts.front());
  if (other.file.empty() || other.file.find('=') != std::string::npos) {
    errors.push_back(
        {std::string(where), fmt::format("\"{}\" does not begin with a model.", text), std::string(kOtherForm)});
  }
  for (std::size_t i = 1; i < parts.size(); ++i) {
    const std::size_t equals = std::min(parts[i].find('='), parts[i].size());
    const std::string_view key = parts[i].substr(0, equals);
    if (equals == parts[i].size()) {
      errors.push_back(
          {std::string(where), fmt::format("\"{}\" is not a key and a value.", parts[i]), std::string(kOtherForm)});
    } else if (std::find(kOtherKeys.begin(), kOtherKeys.end(), key) == kOtherKeys.end()) {
      errors.push_back({std::string(where), fmt::format("Unknown key \"{}\".", key), suggest_name(key, kOtherKeys)});
    } else {
      reader.read(key, parts[i].substr(equals + 1));
    }
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return other;
}

std::string to_text(const OtherModel& other) {
  std::string text = other.file;
  if (other.wrap) text += fmt::format(",wrap={}", kOtherWraps[static_cast<std::size_t>(*other.wrap)]);
  if (other.offload) text += ",offload=yes";
  if (other.dtype) {
    const auto* const found = std::find_if(kOtherDtypes.begin(), kOtherDtypes.end(),
                                           [&](const OtherDtypeName& each) { return each.dtype == *other.dtype; });
    text += fmt::format(",dtype={}", found != kOtherDtypes.end() ? found->name : name_of(*other.dtype));
  }
  if (other.turn == OtherTurn::Before) text += ",turn=before";
  return text;
}

std::string sentence_of(const OtherModel& other, Framework framework) {
  constexpr std::array<std::string_view, 3> kHeld = {"one unit", "a unit for each block", "whole on each GPU"};
  return fmt::format("{} beside it ({}{})", other.file, kHeld[static_cast<std::size_t>(wrap_of(other, framework))],
                     other.offload ? ", offloaded" : "");
}

}  // namespace fsdp
