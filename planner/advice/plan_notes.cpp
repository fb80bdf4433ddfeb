// A step of several micro-batches reduces gradients after each of them, or after the last one alone. In the second case
// each rank keeps the unsharded gradients of the whole model between them, in the dtype of the reduction: 4 bytes for
// each trained parameter in fp32, on any number of GPUs. A sentence says so if they are worth a line; if the plan
// reduces each time and a prediction of the other case does not fit, it says that, because the other case is the
// default of accelerate and of transformers' Trainer. A rejected plan whose gradients are what it lacks is named, too.
//
// Weights are loaded before the first step. Where a node's memory cannot hold them then, the plan's own verdict, which
// is that of its steps, does not show it.
//
// Sources: torch/distributed/fsdp/_fully_shard/_fsdp_param.py (unsharded_accumulated_grad); accelerate 1.15
// (GradientAccumulationPlugin.sync_each_batch); transformers 5.24 (trainer.py, no_sync).

#include "planner/advice/plan_notes.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/base/dtype.h"
#include "core/base/parse_units.h"
#include "core/plan/framework_traits.h"
#include "core/plan/sharding.h"
#include "core/report/device_verdict.h"
#include "planner/advice/upgrade_note.h"
#include "planner/space/batches.h"
#include "planner/space/plan_choices.h"
#include "simulator/phases/job_phases.h"
#include "text/figures.h"

namespace fsdp::planner {

namespace {

constexpr double kLeastKept = 0.05;  // A fraction of the device's peak.

Bytes accumulated_of(const Layout& layout) {
  Bytes sum;
  for (const ShardedUnit& unit : layout.units) sum += accumulated_gradients(unit, layout.flat);
  return sum;
}

bool keeps_gradients(const Plan& plan) {
  return plan.accumulation > 1 && !plan.sync_every_micro_batch && traits_of(plan).wraps_units &&
         plan.mesh.dp_shard() > 1;
}

// Training is counted in the verdict.
std::string loading_note(const Plan& plan, simulator::Predictor& predictor) {
  const Cluster& cluster = predictor.cluster();
  const bool is_unknown = !cluster.host_memory || plan.quantization.has_value();  // Weights are quantized on the way.
  if (is_unknown || cluster.gpu.compute_capability == 0) return {};
  for (const JobPhaseNeed& need :
       simulator::job_phases_on_host(cluster, plan, predictor.model(), predictor.layout(plan), Bytes(0))) {
    if (need.phase != JobPhase::Loading || need.fits()) continue;
    return fmt::format("{}: {}. --phases has what else a job needs.",
                       first_misfit({need}, cluster.gpu.usable_memory.value), need.how);
  }
  return {};
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

/// Bytes that one more document of a row takes in the backward of a kernel with boundaries: 128 rows of two fp32
/// tensors.
Bytes scratch_of_document(const Model& model) {
  std::int64_t most = 0;
  for (const Block& block : model.blocks) {
    for (const Op& op : block.ops) {
      if (op.kind == OpKind::Attention) most = std::max(most, op.attributes.heads * (op.attributes.head_dim + 1));
    }
  }
  return size_of(Dtype::Float32) * (128 * most);
}

/// What packing saves, or what a mask of the row's square costs.
std::string packing_note(const Plan& plan, const simulator::Predictor& predictor) {
  const Dimension* seq = find_dimension(plan.dimensions, kSequenceDimension);
  if (!plan.packing || seq == nullptr) return {};
  const auto tokens = static_cast<std::int64_t>(seq->value);
  const auto documents = documents_of_row(tokens, plan.packing->lengths, {});
  if (!documents || documents->size() < 2) return {};
  if (plan.packing->attention == PackedAttention::Sdpa) {
    const Bytes mask(tokens * tokens);
    const Bytes in_layer = mask * size_of(activation_dtype(predictor.model(), plan)).count();
    return fmt::format(
        "PyTorch's attention keeps documents apart by a mask of {0} x {0}: {1} for the model and {2} in each layer "
        "that is not checkpointed, and it computes all {0} x {0} scores. {3} flash_attn keeps none.",
        text::grouped(tokens), format_bytes(mask), format_bytes(in_layer), place_of(PlanChoice::PackedAttentionName));
  }
  const double share = 1 - 1 / static_cast<double>(documents->size());
  if (plan.packing->attention == PackedAttention::Flex) {
    return fmt::format(
        "A row has {} documents. Each of them padded to the row, {:.0f} % of a step's tokens would be padding.",
        documents->size(), 100 * share);
  }
  return fmt::format(
      "A row has {} documents. Each of them padded to the row, {:.0f} % of a step's tokens would be padding. The "
      "documents of other rows add {} each to the backward of attention if there are more.",
      documents->size(), 100 * share, format_bytes(scratch_of_document(predictor.model())));
}

/// A reference model that adapters make needless.
std::string reference_note(const Plan& plan, const StepReport& report) {
  for (std::size_t i = 0; i < report.others.size() && i < plan.also.size(); ++i) {
    const OtherReport& other = report.others[i];
    if (other.name != plan.model) continue;
    return fmt::format(
        "{} TRL takes the base with its adapters turned off as the reference, and no second model: without {} {} each "
        "GPU needs {} less between forwards.",
        plan.lora ? "With --lora" : "With --lora r=16", place_of(PlanChoice::Also), plan.also[i].file,
        format_bytes(other.resident));
  }
  return {};
}

}  // namespace

std::vector<std::string> plan_notes(const Plan& plan, const StepReport& report, simulator::Predictor& predictor) {
  std::vector<std::string> notes = {accumulation_note(plan, report, predictor), loading_note(plan, predictor),
                                    upgrade_note(plan, report, predictor), packing_note(plan, predictor),
                                    reference_note(plan, report)};
  std::erase(notes, "");
  return notes;
}

std::string note_on_rejected(const std::vector<Candidate>& rejected, simulator::Predictor& predictor) {
  std::string first;
  int count = 0;
  for (const Candidate& candidate : rejected) {
    if (!keeps_gradients(candidate.plan)) continue;
    const Bytes kept = accumulated_of(predictor.layout(candidate.plan));
    if (candidate.missing > kept || count++ > 0) continue;
    first = fmt::format(
        "{} lacks {}: until the last of its {} micro-batches each GPU would keep the gradients of the whole model, {} "
        "on any number of GPUs",
        candidate.label, format_bytes(candidate.missing), candidate.plan.accumulation, format_bytes(kept));
  }
  if (count == 0) return {};
  return first + (count == 1 ? "." : fmt::format("; so would {} more of the faster plans.", count - 1));
}

}  // namespace fsdp::planner
