// Sources: transformers 5.24.0, training_args.py and trainer.py; accelerate 1.15.0, utils/dataclasses.py
// (GradientAccumulationPlugin).

#include "planner/jobs/job_reader.h"

#include <fmt/format.h>

#include <cstdint>

namespace fsdp::planner {

void JobReader::say_accumulation() {
  constexpr std::string_view kSteps = "gradient_accumulation_steps";
  constexpr std::string_view kSyncs = "accelerator_config.gradient_accumulation_kwargs.sync_each_batch";
  const std::int64_t steps = keys_.integer(kSteps).value_or(1);
  add(PlanChoice::Accumulate, std::to_string(steps), kSteps);
  if (steps > 1) add(PlanChoice::GradientSync, is_on(kSyncs) ? "every" : "last", kSyncs);
}

void JobReader::say_clipping() {
  constexpr std::string_view kNorm = "max_grad_norm";
  const double norm = keys_.number(kNorm).value_or(1);
  add(PlanChoice::Clip, norm > 0 ? fmt::format("{:g}", norm) : "none", kNorm);
}

void JobReader::say_ddp_arguments(bool finds_unused) {
  constexpr std::string_view kFinds = "ddp_find_unused_parameters";
  const bool finds = keys_.flag(kFinds).value_or(finds_unused);
  add(PlanChoice::Ddp, finds ? "find-unused" : "defaults", kFinds);
  if (!keys_.flag("ddp_broadcast_buffers").value_or(true)) {
    keys_.refuse("ddp_broadcast_buffers", "Buffers that are not broadcast are not predicted.", "Remove it.");
  }
}

}  // namespace fsdp::planner
