#include "planner/render_plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/json_writer.h"
#include "core/name_ranges.h"
#include "core/plan_names.h"
#include "core/unit_rows.h"
#include "planner/strategy_names.h"

namespace fsdp::planner {

namespace {

constexpr std::size_t kMostUnitRows = 6;
constexpr std::string_view kDot = " · ";

std::string join(const std::vector<std::string>& parts, std::string_view separator) {
  return fmt::format("{}", fmt::join(parts, separator));
}

std::string describe_modules(const UnitRow& row) {
  if (row.count > 1) {
    return row.modules_per_unit == 1
               ? fmt::format("{} {}", counted(row.count, "unit"), row.modules[0])
               : fmt::format("{} of {}: {}", counted(row.count, "unit"), row.modules_per_unit, row.modules[0]);
  }
  if (row.modules == std::vector<std::string>{""}) return "root";
  return join(row.modules, " + ");
}

/// With `mixed`, the reshard of the row is said where it is not the usual one.
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
  return fmt::format("{}: {}", counted(static_cast<std::int64_t>(plan.units.size()), "unit"), join(parts, kDot));
}

std::string describe_batch(const Plan& plan) {
  std::vector<std::string> parts;
  for (const Dimension& dimension : plan.dimensions) {
    if (dimension.name != "batch") {
      parts.push_back(fmt::format("{} {}", dimension.name, shortest(dimension.value)));
      continue;
    }
    const auto batch = static_cast<std::int64_t>(dimension.value);
    const std::int64_t ranks = plan.mesh.world_size();
    parts.insert(parts.begin(),
                 fmt::format("batch {} × {} × {} = {} a step", batch, counted(plan.accumulation, "micro-batch"),
                             counted(ranks, "GPU"), counted(batch * plan.accumulation * ranks, "sample")));
  }
  return join(parts, kDot);
}

std::string describe_checkpointing(const Checkpointing& checkpointing) {
  std::vector<std::string> parts;
  for (const CheckpointMode mode : {CheckpointMode::Full, CheckpointMode::Selective}) {
    std::vector<std::string> names;
    for (const Checkpointing::Entry& entry : checkpointing.entries) {
      if (entry.mode == mode) names.push_back(entry.module);
    }
    if (names.empty()) continue;
    parts.push_back(fmt::format("{} activation checkpointing of {}: {}", name_of(kCheckpointModeTable, mode),
                                counted(static_cast<std::int64_t>(names.size()), "block"),
                                join(fold_names(names), ", ")));
  }
  return parts.empty() ? "no activation checkpointing" : join(parts, kDot);
}

std::string describe_flow(const Plan& plan) {
  std::vector<std::string> parts = {describe_checkpointing(plan.checkpointing)};
  if (plan.cpu_offload) parts.emplace_back("CPU offload");
  if (plan.forward_prefetch != 0) parts.push_back(fmt::format("forward prefetch {}", plan.forward_prefetch));
  if (plan.backward_prefetch != 1) parts.push_back(fmt::format("backward prefetch {}", plan.backward_prefetch));
  if (plan.accumulation > 1 && !plan.sync_every_micro_batch) parts.emplace_back("gradients reduced once a step");
  return join(parts, kDot);
}

std::string describe_numbers(const Plan& plan) {
  const auto name = [](const std::optional<Dtype>& dtype) {
    return dtype ? std::string(name_of(*dtype)) : std::string("as in the checkpoint");
  };
  std::vector<std::string> parts = {fmt::format("weights {}", name(plan.parameter_dtype))};
  const MixedPrecision& mixed = plan.mixed_precision;
  if (mixed.param_dtype) parts.push_back(fmt::format("compute {}", name(mixed.param_dtype)));
  if (mixed.reduce_dtype) parts.push_back(fmt::format("reduce {}", name(mixed.reduce_dtype)));
  std::string optimizer = fmt::format("{} ({})", name_of(kOptimizerKindTable, plan.optimizer.kind),
                                      name_of(kOptimizerImplementationTable, plan.optimizer.implementation));
  if (plan.optimizer.states != OptimizerStates::AsParameter) {
    optimizer += fmt::format(" with {} states", name_of(kOptimizerStatesTable, plan.optimizer.states));
  }
  parts.push_back(optimizer);
  if (plan.optimizer.clip_grad_norm) parts.push_back("clip " + shortest(*plan.optimizer.clip_grad_norm));
  return join(parts, kDot);
}

}  // namespace

std::string grouped(std::int64_t number) {
  std::string digits = fmt::format("{}", number);
  const std::size_t first = digits[0] == '-' ? 1 : 0;
  for (std::size_t i = digits.size(); i > first + 3; i -= 3) digits.insert(i - 3, ",");
  return digits;
}

std::string counted(std::int64_t count, std::string_view noun) {
  const bool ends_in_ch = noun.ends_with("ch");
  return fmt::format("{} {}{}", grouped(count), noun, count == 1 ? "" : ends_in_ch ? "es" : "s");
}

std::vector<std::string> describe(const Plan& plan) {
  std::vector<std::string> lines = {fmt::format("{} (FSDP2: {})", fsdp1_name(plan), fsdp2_name(plan)),
                                    describe_units(plan)};
  if (!plan.dimensions.empty()) lines.push_back(describe_batch(plan));
  lines.push_back(describe_flow(plan));
  lines.push_back(describe_numbers(plan));
  return lines;
}

}  // namespace fsdp::planner
