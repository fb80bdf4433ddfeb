#include "render/render_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/json_writer.h"
#include "core/base/name_ranges.h"
#include "core/plan/framework_traits.h"
#include "core/plan/optimizer_table.h"
#include "core/plan/plan_names.h"
#include "core/plan/unit_rows.h"
#include "planner/space/strategy_names.h"
#include "text/figures.h"

namespace fsdp::render {

namespace {

constexpr std::size_t kMostUnitRows = 6;

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  return fmt::format("{}", fmt::join(parts, separator));
}

std::string describe_modules(const UnitRow& row) {
  if (row.count > 1) {
    return row.modules_per_unit == 1
               ? fmt::format("{} {}", text::counted(row.count, "unit"), row.modules[0])
               : fmt::format("{} of {}: {}", text::counted(row.count, "unit"), row.modules_per_unit, row.modules[0]);
  }
  if (row.modules == std::vector<std::string>{""}) return "root";
  return join(row.modules, " + ");
}

/// With `mixed`, also prints an unusual reshard of the row.
std::string describe_row(const UnitRow& row, bool mixed) {
  std::string text = describe_modules(row);
  if (mixed && row.reshard_after_forward.kind == ReshardAfterForward::Kind::Never) text += " (kept unsharded)";
  return text;
}

std::string describe_units(const Plan& plan) {
  const std::vector<UnitRow> rows = fold_units(plan.units);
  const bool mixed = std::any_of(rows.begin(), rows.end(), [&](const UnitRow& row) {
    return row.reshard_after_forward.kind != ReshardAfterForward::Kind::Default &&
           row.reshard_after_forward != rows.front().reshard_after_forward;
  });
  std::vector<std::string> parts;
  for (const UnitRow& row : rows) {
    if (parts.size() + 1 == kMostUnitRows && rows.size() > kMostUnitRows) {
      const std::size_t rest = rows.size() - parts.size() - 1;
      parts.push_back(fmt::format("{} more rows", rest));
      parts.push_back(describe_row(rows.back(), mixed));
      break;
    }
    parts.push_back(describe_row(row, mixed));
  }
  return fmt::format("{}: {}", text::counted(static_cast<std::int64_t>(plan.units.size()), "unit"),
                     join(parts, text::kDot));
}

/// The sizes except the batch, which is in the sentence.
std::string describe_sizes(const Plan& plan) {
  std::vector<std::string> parts;
  for (const Dimension& dimension : plan.dimensions) {
    if (dimension.name != "batch") parts.push_back(fmt::format("{} {}", dimension.name, shortest(dimension.value)));
  }
  return join(parts, text::kDot);
}

/// " (saves attention, every second linear)": the ops with saved outputs.
std::string what_is_saved(const Checkpointing& checkpointing) {
  std::vector<std::string> kinds;
  for (const OpKind kind : checkpointing.selective_keep) {
    const bool is_halved = kind == OpKind::Linear && checkpointing.every_second_linear;
    kinds.push_back(fmt::format("{}{}", is_halved ? "every second " : "", name_of(kind)));
  }
  return kinds.empty() ? " (saves nothing)" : fmt::format(" (saves {})", join(kinds, ", "));
}

std::string describe_checkpointing(const Checkpointing& checkpointing) {
  std::vector<std::string> parts;
  for (const CheckpointMode mode :
       {CheckpointMode::Full, CheckpointMode::Nested, CheckpointMode::Reentrant, CheckpointMode::Selective}) {
    const std::vector<std::string> names = checkpointing.modules(mode);
    if (names.empty()) continue;
    const std::string saved = mode == CheckpointMode::Selective ? what_is_saved(checkpointing) : "";
    parts.push_back(fmt::format("{} activation checkpointing{}: {}", name_of(kCheckpointModeTable, mode), saved,
                                join(fold_names(names), ", ")));
  }
  return join(parts, text::kDot);
}

/// "bf16 weights, gradients and AdamW states, clip 1".
std::string describe_numbers(const Plan& plan, const planner::ModelFacts& facts) {
  const std::optional<Dtype> weights = plan.parameter_dtype ? plan.parameter_dtype : facts.weights;
  std::string kept = weights ? planner::short_name(*weights) : std::string("checkpoint-dtype");
  if (plan.quantization) {
    kept = fmt::format("{} base, {} adapter", fsdp::to_text(*plan.quantization), kept);
  } else if (plan.lora && facts.weights) {
    kept = fmt::format("{} base, {} adapter", planner::short_name(*facts.weights), kept);
  }
  const bool has_moments = num_moments(plan.optimizer) > 0;
  const bool are_alike =
      plan.optimizer.states == OptimizerStates::AsParameter && has_moments && has_torch_kernels(plan.optimizer);
  std::string text = fmt::format("{} weights{}gradients", kept, are_alike ? ", " : " and ");
  if (are_alike) text += " and optimizer states";
  const MixedPrecision& mixed = plan.mixed_precision;
  if (mixed.param_dtype) text += fmt::format(" · {} compute", planner::short_name(*mixed.param_dtype));
  if (mixed.autocast) text += fmt::format(" · autocast in {}", planner::short_name(*mixed.autocast));
  if (mixed.float_outputs) text += " · logits returned in fp32";
  if (mixed.reduce_dtype) text += fmt::format(" · gradients reduced in {}", planner::short_name(*mixed.reduce_dtype));
  text += fmt::format(" · {}", planner::optimizer_of(plan));
  if (plan.optimizer.clip_grad_norm) text += " · clip " + shortest(*plan.optimizer.clip_grad_norm);
  return text;
}

}  // namespace

std::vector<std::string> describe(const Plan& plan, const planner::ModelFacts& facts, const std::string& batch_origin) {
  const bool has_units = traits_of(plan).wraps_units;
  std::vector<std::string> lines = {planner::job_of(plan),
                                    planner::sentence_of(plan, facts, batch_origin),
                                    has_units ? planner::fsdp2_name(plan) : "",
                                    has_units ? describe_units(plan) : "",
                                    describe_sizes(plan),
                                    describe_checkpointing(plan.checkpointing),
                                    describe_numbers(plan, facts)};
  std::erase(lines, "");
  return lines;
}

}  // namespace fsdp::render
