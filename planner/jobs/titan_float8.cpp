// torchtitan converts the layers of its own model, whose names its filter has; a plan has those of transformers.
// Without a filter the output head is converted, too.
//
// Source: torchtitan 0.2.2, components/quantization/float8.py (Float8LinearConverter), config/job_config.py
// (Float8Linear).

#include "planner/jobs/titan_float8.h"

#include <fmt/format.h>

#include <string>
#include <string_view>

#include "planner/trainers/titan_layers.h"

namespace fsdp::planner {

namespace {

constexpr std::string_view kGatherKey = "quantize.linear.float8.enable_fsdp_float8_all_gather";
constexpr std::string_view kPrecomputeKey = "quantize.linear.float8.precompute_float8_dynamic_scale_for_fsdp";
constexpr std::string_view kRecipeKey = "quantize.linear.float8.recipe_name";
constexpr std::string_view kFilterKey = "quantize.linear.float8.filter_fqns";
constexpr std::string_view kEmulateKey = "quantize.linear.float8.emulate";

bool is_set(JobKeys& keys, std::string_view key) {
  return keys.flag(key).value_or(false);
}

bool read_filter(JobKeys& keys, Float8Training& float8) {
  for (const std::string& name : keys.words(kFilterKey)) {
    const std::optional<std::string_view> ours = layer_in_transformers(name);
    if (name == kFloat8AutoFilter) {
      float8.skips_small = true;
    } else if (ours) {
      float8.skip.emplace_back(*ours);
    } else {
      keys.refuse(kFilterKey, fmt::format("No layers of torchtitan's decoders are known by \"{}\".", name),
                  "Write output, attention.wk, feed_forward.w1 and the like, or auto_filter_small_kn.");
      return false;
    }
  }
  float8.skips_none = float8.skip.empty();
  return true;
}

}  // namespace

std::optional<Float8Training> float8_of_titan(JobKeys& keys) {
  const std::optional<std::string> recipe = keys.word(kRecipeKey);
  const bool gathers = is_set(keys, kGatherKey);
  const bool precomputes = is_set(keys, kPrecomputeKey);
  if (is_set(keys, kEmulateKey)) {
    keys.refuse(kEmulateKey, "Emulated products are not predicted.", "Leave it out.");
    return std::nullopt;
  }
  if (recipe && gathers) {
    keys.refuse(kGatherKey, "torchtitan refuses it together with recipe_name.",
                "Leave recipe_name out: the default is tensorwise.");
    return std::nullopt;
  }
  const Result<Float8Training> read = parse_float8(recipe.value_or("tensorwise"), kRecipeKey);
  if (!read) {
    keys.refuse(kRecipeKey, read.error().front().what, read.error().front().hint);
    return std::nullopt;
  }
  Float8Training float8 = *read;
  float8.all_gather = gathers;
  float8.precompute = gathers && precomputes;
  if (!read_filter(keys, float8)) return std::nullopt;
  return float8;
}

}  // namespace fsdp::planner
