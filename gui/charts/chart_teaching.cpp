#include "gui/charts/chart_teaching.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/plan/framework_traits.h"
#include "core/plan/optimizer_table.h"

namespace fsdp::gui {

namespace {

class Teacher {
 public:
  Teacher(const simulator::StepCurves& curves, const Plan& plan)
      : curves_(curves),
        ranks_(plan.mesh.dp_shard()),
        replicas_(plan.mesh.dp_replicate()),
        reduces_reads_(traits_of(plan).gathers_each_read) {
    for (const simulator::CurveInstruction& step : curves.instructions) {
      const bool is_known = std::find(lesson_.units.begin(), lesson_.units.end(), step.unit) != lesson_.units.end();
      if (step.kind == InstructionKind::Unshard && !is_known) lesson_.units.push_back(step.unit);
    }
    now_.units.resize(lesson_.units.size());
    lesson_.has_optimizer_states = num_moments(plan.optimizer) > 0;
    lesson_.has_states_on_host = plan.cpu_offload;
  }

  Lesson teach() {
    if (is_whole()) {
      add("The whole model on each GPU",
          fmt::format(
              "Each of the {} GPUs keeps all parameters and all optimizer states. Only gradients are exchanged.",
              replicas_));
    } else {
      add_sharded();
    }
    for (std::size_t i = 0; i < curves_.instructions.size(); ++i) {
      for (UnitFrame& unit : now_.units) unit.is_at_work = false;
      instruction_ = static_cast<int>(i);
      apply(curves_.instructions[i], i);
    }
    return std::move(lesson_);
  }

 private:
  // Nothing is gathered at any time.
  bool is_whole() const { return lesson_.units.empty() && !gathers_reads(); }
  bool gathers_reads() const { return reduces_reads_ && ranks_ > 1; }

  void add_sharded() {
    add("Sharded parameters",
        fmt::format("{} keeps 1/{} of every parameter, of its gradient and of its optimizer states{}. No GPU could "
                    "run a layer now: it has only a part of it.",
                    replicas_ > 1
                        ? fmt::format("The {} GPUs are {} groups of {}. Each", ranks_ * replicas_, replicas_, ranks_)
                        : fmt::format("Each of the {} GPUs", ranks_),
                    ranks_, replicas_ > 1 ? ", and each group holds all of them" : ""));
  }

  void add(std::string heading, std::string sentence) {
    lesson_.frames.push_back(now_);
    lesson_.headings.push_back(std::move(heading));
    lesson_.sentences.push_back(std::move(sentence));
    lesson_.instructions.push_back(instruction_);
  }

  UnitFrame* unit_of(const simulator::CurveInstruction& step) {
    const auto found = std::find(lesson_.units.begin(), lesson_.units.end(), step.unit);
    return found == lesson_.units.end() ? nullptr : &now_.units[found - lesson_.units.begin()];
  }

  // "Backward model.layers.3" without its first word.
  static std::string target_of(const simulator::CurveInstruction& step) {
    const std::size_t blank = step.name.find(' ');
    return blank == std::string::npos ? std::string("the model") : step.name.substr(blank + 1);
  }

  bool reduces_later(const std::string& unit, std::size_t after) const {
    return std::any_of(
        curves_.instructions.begin() + static_cast<std::ptrdiff_t>(after), curves_.instructions.end(),
        [&](const auto& step) { return step.kind == InstructionKind::ReduceGrads && step.unit == unit; });
  }

  void apply(const simulator::CurveInstruction& step, std::size_t number) {
    UnitFrame* unit = unit_of(step);
    if (unit != nullptr) unit->is_at_work = true;
    apply_to_parameters(step, unit);
    apply_to_gradients(step, unit, number);
    apply_optimizer(step);
  }

  // Instructions that compute the forward, and those that move parameters.
  void apply_to_parameters(const simulator::CurveInstruction& step, UnitFrame* unit) {
    const std::string name = target_of(step);
    const bool is_backward = step.phase == StepPhase::Backward;
    switch (step.kind) {
      case InstructionKind::LoadInputs:
        return add("Each GPU loads its own batch",
                   "All GPUs run the same model on different samples: that is data parallelism.");
      case InstructionKind::Unshard:
        if (unit != nullptr) unit->parameters = HeldParameters::Gathering;
        return add(
            fmt::format("All-gather of {}", name),
            fmt::format("Every GPU sends its part of {} to the others. It runs on its own stream, in parallel with "
                        "whatever computes now{}.",
                        name, is_backward ? "; the forward's copy was freed to save memory" : ""));
      case InstructionKind::WaitForUnshard:
        if (unit != nullptr) unit->parameters = HeldParameters::Unsharded;
        return add(fmt::format("{} is unsharded", name),
                   "The computation waits for the all-gather and copies its output into the parameters. Time that it "
                   "waits here is exposed communication.");
      case InstructionKind::LeaveRoot:
        if (step.freed.empty()) return add("The forward of the model has returned", "Its inputs are freed.");
        return add("The buffer of the all-gather is freed", "The parameters were copied out of it.");
      case InstructionKind::Forward:
        if (unit != nullptr) unit->has_activations = true;
        return add(fmt::format("Forward of {}", name),
                   "Each GPU computes with the unsharded parameters on its own batch, and saves what the backward will "
                   "need: the activations.");
      case InstructionKind::Reshard:
        if (unit != nullptr) unit->parameters = HeldParameters::Sharded;
        return add(
            fmt::format("Reshard {}", name),
            fmt::format("Each GPU frees the parts of {} that are not its own. Only 1/{} of it stays.", name, ranks_));
      case InstructionKind::SyncBuffers:
        return add("Broadcast of the buffers", "GPU 0 sends its buffers to all others, so that all have the same.");
      case InstructionKind::GatherParameters:
        if (gathers_reads()) {
          return add("All-gather of a parameter",
                     "An operation reads it next: every GPU sends its part of it to the others, and the computation "
                     "waits.");
        }
        return add(
            "All-gather of the parameters",
            fmt::format("Each of the {} GPUs has updated its part of the parameters, and sends it to all others.",
                        ranks_));
      case InstructionKind::FetchParameters:
        return add("All-gather of parameters", "ZeRO-3 gathers what a module needs now, or what the next ones will.");
      case InstructionKind::RunOther:
        return add("Forward of another model",
                   "It is not trained: nothing of its forward is kept but the log-probabilities that the loss needs.");
      case InstructionKind::ReleaseParameters:
        return add("Parameters are released", "They are not needed soon, so each GPU keeps only its part.");
      default:
        return;
    }
  }

  void apply_to_gradients(const simulator::CurveInstruction& step, UnitFrame* unit, std::size_t number) {
    const std::string name = target_of(step);
    switch (step.kind) {
      case InstructionKind::Backward:
        if (unit != nullptr) {
          unit->has_activations = false;
          if (reduces_later(step.unit, number)) unit->gradients = HeldGradients::Unsharded;
        }
        return add(fmt::format("Backward of {}", name),
                   "Activations are used and freed; unsharded gradients are computed, from this GPU's batch only.");
      case InstructionKind::AccumulateGrads:
        if (unit != nullptr) unit->gradients = HeldGradients::Unsharded;
        return add(fmt::format("Keep the gradients of {}", name),
                   "This micro-batch is not reduced yet: its unsharded gradients are kept and accumulated.");
      case InstructionKind::FlattenGrads:
        return add(fmt::format("The gradients of {} are flattened", name),
                   "FSDP1 reduces one flat gradient for each unit: those of its parameters are copied into it.");
      case InstructionKind::ReduceGrads:
        if (unit != nullptr) unit->gradients = HeldGradients::Sharded;
        return add(
            fmt::format("Reduce-scatter of {}", name),
            fmt::format("The gradients of all {} batches are averaged, and each GPU receives the average of its own "
                        "part only. It overlaps with the backward of the next unit.{}",
                        ranks_,
                        replicas_ > 1 ? " An all-reduce then averages each part over the GPUs that hold it too." : "") +
                (step.freed.empty() ? "" : " Before, the buffer of the reduction before it is freed."));
      case InstructionKind::ReduceBucket:
        if (gathers_reads()) {
          return add("Reduce-scatter of a gradient",
                     fmt::format("The gradients of all {} batches are added up, and each GPU receives the sum of its "
                                 "own part only. The backward waits for it.",
                                 ranks_ * replicas_));
        }
        if (reduces_reads_) {
          return add(
              "All-reduce of a gradient",
              fmt::format("An operation has read a parameter, and the gradient of that read is there. Those of all "
                          "{} batches are added up, whole. The backward waits for it.",
                          ranks_ * replicas_));
        }
        return add("All-reduce of a bucket",
                   fmt::format("The gradients in this bucket are complete. Those of all {} batches are averaged, while "
                               "the backward goes on.",
                               ranks_ * replicas_));
      case InstructionKind::ReduceUsedMap:
        return add("All-reduce of the used-parameter map",
                   "One flag per parameter tells whether it had a gradient on any GPU.");
      case InstructionKind::FinishReduce:
        if (reduces_reads_) return add("The backward is over", "Each gradient was waited for where it was reduced.");
        return add("All reductions are done", "The computation waits for the last reduce-scatter.");
      default:  // Instructions of the parameters or the optimizer, or of nothing visible, such as a Free.
        return;
    }
  }

  void apply_optimizer(const simulator::CurveInstruction& step) {
    switch (step.kind) {
      case InstructionKind::CheckOverflow:
        return add("Check for overflow", "One byte tells every GPU whether any gradient is not finite.");
      case InstructionKind::ClipGradNorm:
        return add("Clip the gradient norm", "Each GPU adds up its part; one small all-reduce gives the norm of all.");
      case InstructionKind::OptimizerStep:
        now_.is_updated = true;
        for (UnitFrame& each : now_.units) each.is_at_work = true;
        if (is_whole()) {
          return add("Optimizer step",
                     "Each GPU updates all parameters. All have the same gradients, so all stay alike.");
        }
        return add(
            "Optimizer step",
            fmt::format("Each GPU updates its own 1/{} of the parameters with its part of the gradients and of the "
                        "states. Nothing is communicated.",
                        ranks_));
      case InstructionKind::ZeroGrad:
        for (UnitFrame& each : now_.units) each.gradients = HeldGradients::None;
        return add("Zero the gradients", "The gradients are freed. The next step begins as this one did.");
      default:
        return;
    }
  }

  const simulator::StepCurves& curves_;
  const std::int64_t ranks_;
  const std::int64_t replicas_;
  const bool reduces_reads_;  // SimpleFSDP.
  int instruction_ = -1;
  Lesson lesson_;
  TeachingFrame now_;
};

}  // namespace

Lesson make_lesson(const simulator::StepCurves& curves, const Plan& plan) {
  return Teacher(curves, plan).teach();
}

}  // namespace fsdp::gui
