// A step of several micro-batches reduces gradients after each of them, or after the last one alone. In the second case
// each rank keeps the unsharded gradients of the whole model between them, in the dtype of the reduction: 4 bytes for
// each trained parameter in fp32, on any number of GPUs. A sentence says so if they are worth a line; if the plan
// reduces each time and a prediction of the other case does not fit, it says that, because the other case is the
// default of accelerate and of transformers' Trainer.
//
// Sources: torch/distributed/fsdp/_fully_shard/_fsdp_param.py (unsharded_accumulated_grad); accelerate 1.15
// (GradientAccumulationPlugin.sync_each_batch); transformers 5.24 (trainer.py, no_sync).

#include "planner/advice/plan_notes.h"

#include <fmt/format.h>

#include "core/base/dtype.h"
#include "core/base/parse_units.h"
#include "core/plan/framework_traits.h"
#include "core/plan/sharding.h"
#include "core/report/device_verdict.h"
#include "planner/advice/upgrade_note.h"
#include "planner/space/plan_choices.h"

namespace fsdp::planner {

namespace {

constexpr double kLeastKept = 0.05;  // A fraction of the device's peak.

Bytes accumulated_of(const Layout& layout) {
  Bytes sum;
  for (const ShardedUnit& unit : layout.units) sum += accumulated_gradients(unit, layout.flat);
  return sum;
}

std::string accumulation_note(const Plan& plan, const StepReport& report, simulator::Predictor& predictor) {
  const FrameworkTraits& traits = traits_of(plan);
  const bool is_cut = traits.wraps_units && plan.mesh.dp_shard() > 1;
  if (plan.accumulation == 1 || !traits.chooses_gradient_sync || !is_cut) return {};
  const Bytes kept = accumulated_of(predictor.layout(plan));
  const double peak = static_cast<double>(report.memory.peaks.device.count());
  if (static_cast<double>(kept.count()) < kLeastKept * peak) return {};
  if (!plan.sync_every_micro_batch) {
    return fmt::format(
        "Until the last of {} micro-batches each GPU keeps the gradients of the whole model, {} on any number of GPUs: "
        "{} every avoids it.",
        plan.accumulation, format_bytes(kept), place_of(PlanChoice::GradientSync));
  }
  Plan last = plan;
  last.sync_every_micro_batch = false;
  const Result<StepReport> other = predictor.report(last);
  if (!other || report.verdict != Verdict::Fits || other->verdict == Verdict::Fits) return {};
  return fmt::format(
      "accelerate and transformers reduce in the last micro-batch unless sync_each_batch is set: each GPU would keep "
      "{} "
      "of gradients, and the step would not fit.",
      format_bytes(kept));
}

}  // namespace

std::vector<std::string> plan_notes(const Plan& plan, const StepReport& report, simulator::Predictor& predictor) {
  std::vector<std::string> notes = {accumulation_note(plan, report, predictor), upgrade_note(plan, report, predictor)};
  std::erase(notes, "");
  return notes;
}

}  // namespace fsdp::planner
