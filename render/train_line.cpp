#include "render/train_line.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <optional>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/plan/plan_names.h"
#include "planner/trainers/trainers.h"
#include "render/plan_code.h"

namespace fsdp::render {

namespace {

std::string_view target_of(planner::Trainer trainer) {
  switch (trainer) {
    case planner::Trainer::Accelerate:
      return "accelerate";
    case planner::Trainer::Transformers:
      return "trainer";
    case planner::Trainer::Torchtitan:
      return "torchtitan";
    case planner::Trainer::DeepSpeed:
      return "deepspeed";
  }
  return {};
}

}  // namespace

std::string train_line(const Plan& plan, const Model& model, const std::string& plan_file,
                       const std::optional<planner::TrainerRelease>& wanted) {
  const std::string_view begin = plan_file.empty() ? "add -o plan.json, then " : "";
  const std::string_view file = plan_file.empty() ? "plan.json" : std::string_view(plan_file);
  if (has_passes(model)) return fmt::format("{}fsdp-plan run {} -- and the command of the script", begin, file);
  if (plan.mesh.ep > 1) {
    return fmt::format(
        "from_pretrained(..., distributed_config=DistributedConfig({}fsdp_size={}, ep_size={}{}))",
        plan.mesh.dp_replicate() > 1 ? fmt::format("dp_replicate_size={}, ", plan.mesh.dp_replicate()) : "",
        plan.mesh.dp_shard(), plan.mesh.ep, plan.mixed_precision.param_dtype ? ", fsdp_mixed_precision=True" : "");
  }
  std::vector<std::string> targets;
  const bool has_wanted = wanted && unsaid(*wanted, plan, model).empty();
  if (has_wanted) {
    const bool is_newest = wanted->version == planner::TrainerRelease(wanted->trainer).version;
    targets.push_back(fmt::format("{}{}{}", target_of(wanted->trainer), is_newest ? "" : " --trainer-version ",
                                  is_newest ? "" : wanted->version));
  }
  for (const planner::Trainer trainer : planner::said_exactly_by(plan, model)) {
    if (!has_wanted || trainer != wanted->trainer) targets.emplace_back(target_of(trainer));
  }
  const Errors unsaid = unsaid_of_code(plan, model);
  if (unsaid.empty()) targets.emplace_back(name_of(kRuntimeTable, plan.runtime.framework));
  if (targets.empty()) return fmt::format("no trainer by this plan: {} {}", unsaid.front().what, unsaid.front().hint);
  const std::vector<std::string> others(targets.begin() + 1, targets.end());
  return fmt::format("{}fsdp-plan export {} --to {}{}", begin, file, targets.front(),
                     others.empty() ? "" : fmt::format(" (also {})", fmt::join(others, ", ")));
}

}  // namespace fsdp::render
