// Which modules become units.
//
// Sources: accelerate 1.15.0, utils/dataclasses.py (FullyShardedDataParallelPlugin: NO_WRAP if unset, the classes are
// split at commas, set_auto_wrap_policy: no policy if min_num_params is 0, "Could not find the transformer layer
// class"), commands/launch.py (fsdp_min_num_params is 100 million if unset), utils/fsdp_utils.py
// (fsdp2_prepare_auto_wrap_policy).

#include <fmt/format.h>

#include <string>
#include <vector>

#include "core/base/nearest.h"
#include "core/base/split.h"
#include "planner/check/rules.h"

namespace fsdp::planner {

namespace {

constexpr std::string_view kByClass = "TRANSFORMER_BASED_WRAP";
constexpr std::string_view kBySize = "SIZE_BASED_WRAP";
constexpr std::int64_t kSizeUnset = 100'000'000;
constexpr std::int64_t kBytesOfBfloat16 = 2;

/// Why the policy makes no unit but the root's; empty if it may make some.
std::string why_root_only(const CheckedRun& run) {
  const std::string policy = run.wrap_policy();
  if (policy.empty()) return "Without fsdp_auto_wrap_policy accelerate wraps no module";
  if (policy == "NO_WRAP") return "NO_WRAP wraps no module";
  if (policy != kBySize) return {};
  const std::int64_t least = run.fsdp("min_num_params").integer().value_or(run.trainer_has_fsdp() ? 0 : kSizeUnset);
  if (least == 0) return "With fsdp_min_num_params: 0 accelerate drops SIZE_BASED_WRAP";
  if (run.model && run.model->largest_module <= least) {
    return fmt::format("No module of {} has more than {} parameters", run.model->name, least);
  }
  return {};
}

std::vector<std::string> named_classes(const Setting& classes) {
  std::vector<std::string> names;
  for (const JsonValue& element : classes.value->elements) names.push_back(element.text);
  const std::string text = classes.text();
  if (text.empty()) return names;
  for (const std::string_view name : split(text, ',')) names.emplace_back(name);
  return names;
}

std::string without_blanks(std::string_view name) {
  const std::size_t begin = name.find_first_not_of(' ');
  if (begin == std::string_view::npos) return {};
  return std::string(name.substr(begin, name.find_last_not_of(' ') - begin + 1));
}

}  // namespace

void find_root_only(const CheckedRun& run, Reporter& report) {
  if (!run.uses_fsdp()) return;
  const std::string why = why_root_only(run);
  if (why.empty()) return;
  const Setting least = run.fsdp("min_num_params");
  const Setting policy = run.fsdp("auto_wrap_policy");
  const Setting at = run.wrap_policy() == kBySize && least ? least : policy ? policy : run.launch("fsdp_config");
  Finding& found = report.add(
      Severity::Warning, at,
      fmt::format("{}, so each GPU gathers all layers at once before the first, and holds their whole gradients.",
                  why));
  if (run.model)
    costs(found, 2 * kBytesOfBfloat16 * run.model->parameters,
          "of gathered parameters and gradients on each GPU, in bf16");
  if (policy) {
    replace(found, policy, std::string(kByClass));
  } else {
    advise(found, fmt::format("Add fsdp_auto_wrap_policy: {} to fsdp_config.", kByClass));
  }
}

void find_unused_classes(const CheckedRun& run, Reporter& report) {
  if (!run.uses_fsdp() || run.wrap_policy() == kByClass) return;
  const Setting classes = run.fsdp("transformer_layer_cls_to_wrap");
  if (!classes || (classes.text().empty() && classes.value->elements.empty())) return;
  advise(report.add(Severity::Error, classes, fmt::format("The classes are ignored: only {} reads them.", kByClass)),
         fmt::format("Write fsdp_auto_wrap_policy: {}.", kByClass));
}

void find_class_lists(const CheckedRun& run, Reporter& report) {
  if (!run.launches_fsdp() || run.trainer_has_fsdp() || run.wrap_policy() != kByClass) return;
  const Setting classes = run.launch_fsdp("transformer_layer_cls_to_wrap");
  if (!classes) return;
  std::string joined;
  for (const std::string& name : named_classes(classes)) {
    joined += (joined.empty() ? "" : ",") + without_blanks(name);
  }
  if (classes.value->type == JsonType::Array) {
    replace(report.add(Severity::Error, classes,
                       "accelerate turns a YAML list into one text, and finds no class of that name in the model."),
            classes, joined);
  } else if (joined != classes.text()) {
    replace(report.add(Severity::Error, classes,
                       "accelerate splits at commas alone, and finds no class whose name begins with a blank."),
            classes, joined);
  }
}

void find_unknown_classes(const CheckedRun& run, Reporter& report) {
  if (!run.uses_fsdp() || run.wrap_policy() != kByClass || !run.model) return;
  const Setting classes = run.fsdp("transformer_layer_cls_to_wrap");
  if (!classes) return;
  const std::vector<std::string> known(run.model->classes.begin(), run.model->classes.end());
  for (const std::string& written : named_classes(classes)) {
    const std::string name = without_blanks(written);
    if (name.empty() || run.model->classes.contains(name)) continue;
    Finding& found = report.add(
        Severity::Error, classes,
        fmt::format("{} has no module of class {}, and accelerate ends with \"Could not find the transformer layer "
                    "class\".",
                    run.model->name, name));
    std::vector<std::string> layers;
    for (const std::string& each : known) {
      if (each.ends_with("Layer") || each.ends_with("Block")) layers.push_back(each);
    }
    if (layers.size() == 1) {
      replace(found, classes, layers.front());
    } else {
      advise(found, suggest_name(name, layers.empty() ? known : layers));
    }
  }
}

}  // namespace fsdp::planner
