#include "core/spec/captured_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "core/spec/dimensions.h"
#include "core/spec/trainable_patterns.h"

namespace fsdp {

namespace {

constexpr std::string_view kCapturedKind = "captured_model";

/// "batch 4, seq 1024".
std::string sizes_of(const std::vector<Dimension>& dimensions) {
  std::string text;
  for (const Dimension& dimension : dimensions) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", dimension.name, dimension.value);
  }
  return text;
}

/// A dimension of a workload that no point has: one with an unknown value, or the last one that it names.
std::string dimension_in_vain(const CapturedModel& captured, const Workload& workload) {
  std::string name = "batch";
  for (const Dimension& wanted : workload.dimensions) {
    name = wanted.name;
    const bool is_anywhere = std::any_of(captured.points.begin(), captured.points.end(), [&](const Model& point) {
      const Dimension* found = find_dimension(point.dimensions, wanted.name);
      return found != nullptr && found->value == wanted.value;
    });
    if (!is_anywhere) break;
  }
  return name;
}

Error not_captured(const ModelSpec& spec, const Workload& workload, const std::vector<Dimension>& wanted) {
  std::string captured;
  for (const Model& point : spec.captured->points) {
    captured += fmt::format("{}{}", captured.empty() ? "" : "; ", sizes_of(point.dimensions));
  }
  return {fmt::format("dimension {}", dimension_in_vain(*spec.captured, workload)),
          fmt::format("{} was not captured with {}.", spec.name, sizes_of(wanted)),
          fmt::format("It was with {}: take one of these, or capture the script with other sizes.", captured)};
}

/// Training other parameters than the script did would need other tapes.
Errors check_trained(const Workload& workload, Model model) {
  const std::vector<Parameter> before = model.parameters;
  const auto is_fixed = [](std::size_t) { return false; };
  Errors errors = apply_patterns(patterns_of(workload.trainable, "--trainable"),
                                 patterns_of(workload.frozen, "--freeze"), is_fixed, model);
  if (!errors.empty()) return errors;
  for (std::size_t p = 0; p < before.size(); ++p) {
    if (before[p].trainable == model.parameters[p].trainable) continue;
    return {{workload.trainable.empty() ? "--freeze" : "--trainable",
             fmt::format("The captured script {} \"{}\"; another choice's memory was not recorded.",
                         before[p].trainable ? "trains" : "does not train", before[p].name),
             "Leave it out, or change the script and capture it again."}};
  }
  return {};
}

}  // namespace

bool is_captured_model(const JsonDocument& document) {
  const JsonValue* kind = document.root.find("kind");
  return kind != nullptr && kind->type == JsonType::String && kind->text == kCapturedKind;
}

Result<Model> captured_point(const ModelSpec& spec, const Workload& workload) {
  FSDP_TRY(const Recipe recipe, find_recipe(spec, workload.recipe));
  Errors errors;
  const DimensionValues dimensions(spec, recipe, workload, errors);
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  for (const Model& point : spec.captured->points) {
    if (point.dimensions != dimensions.values()) continue;
    if (workload.packing) {
      return failure("--packing", fmt::format("{} is a capture, and has the rows that its script made.", spec.name),
                     "Capture a script that packs, or plan a model of the library or a Hugging Face folder.");
    }
    if (workload.lora) {
      return failure("--lora", fmt::format("{} is a capture, and has the adapters that its script made.", spec.name),
                     "Leave it out, or add them in the script and capture it again.");
    }
    if (workload.quantization) {
      return failure("--quantize", fmt::format("{} is a capture, and has the weights that its script made.", spec.name),
                     "Leave it out, or quantize the base in the script and capture it again.");
    }
    if (workload.liger) {
      return failure("--liger", fmt::format("{} is a capture, and has the kernels that its script ran.", spec.name),
                     "Leave it out, or use Liger's kernels in the script and capture it again.");
    }
    if (workload.float8) {
      return failure("--fp8", fmt::format("{} is a capture, and has the layers that its script made.", spec.name),
                     "Leave it out, or convert the layers in the script and capture it again.");
    }
    if (workload.trainable.empty() && workload.frozen.empty()) return point;
    errors = check_trained(workload, point);
    if (!errors.empty()) return tl::unexpected(std::move(errors));
    return point;
  }
  return tl::unexpected(Errors{not_captured(spec, workload, dimensions.values())});
}

std::int64_t batch_of(const Model& point) {
  return static_cast<std::int64_t>(find_dimension(point.dimensions, "batch")->value);
}

std::vector<std::int64_t> batches_of(const CapturedModel& captured) {
  std::set<std::int64_t> batches;
  for (const Model& point : captured.points) batches.insert(batch_of(point));
  return {batches.begin(), batches.end()};
}

bool can_checkpoint(const Model& model, Dtype activation) {
  return std::all_of(model.calls.begin(), model.calls.end(), [&](const Call& call) {
    const std::optional<Recording>& recorded = model.blocks[call.block].recorded;
    return !call.repeated || !recorded || recorded->find(activation, true) != nullptr;
  });
}

std::optional<Error> refuse_captured(const ModelSpec& spec) {
  if (spec.captured == nullptr) return std::nullopt;
  return Error{spec.file_name,
               fmt::format("It is a capture of {}: it has a step's costs, not its computation.", spec.name),
               "It can be planned, simulated and explained; to run it, run the script itself."};
}

}  // namespace fsdp
