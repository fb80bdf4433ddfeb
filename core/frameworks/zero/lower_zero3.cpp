// The order of events of one training step under DeepSpeed's ZeRO-3.
//
// Every module has hooks. Before its forward, and when its outputs' gradients arrive, a module gathers its parameters;
// after its forward, and when the gradients of its inputs are ready, it releases them. The coordinator
// (zero_coordinator.cpp) decides which are gathered ahead and which stay. A module whose inputs need no gradient
// releases at the end of the backward.
//
// A checkpointed block reruns its forward, hooks and all, up to the last saved tensor: it enters the modules around
// that place, and does not leave them.
//
// Gradients go into a buffer as they become ready, in every micro-batch; when the next one does not fit, DeepSpeed
// reduce-scatters the buffer. The optimizer first releases everything; in fp16 it looks for overflows; it takes the
// norm per sub-group; at the end it gathers the persistent parameters.
//
// The first micro-batch of a run gathers nothing ahead and keeps nothing, so the first step differs. All later steps
// are alike. If a micro-batch begins in the same state as the one before it, it and all after it repeat that one.
//
// Sources: deepspeed/runtime/zero/parameter_offload.py (hooks), stage3.py (step, reduce_independent_p_g_buckets,
// independent_gradient_partition_epilogue), torch/utils/checkpoint.py (_StopRecomputationError), DeepSpeed 0.19.8.
//
// Not modeled: a module that is called again before its first backward (its hooks count inputs of the last call only);
// external parameters, which another module's forward reads, are gathered when that begins, and not when it reads them.

#include "core/frameworks/zero/lower_zero3.h"

#include <algorithm>
#include <optional>
#include <tuple>
#include <utility>

#include "core/frameworks/zero/zero_coordinator.h"
#include "core/plan/unit_boundaries.h"

namespace fsdp {

namespace {

class Zero3Lowering {
 public:
  Zero3Lowering(const ModelIndex& index, const Plan& plan, const Layout& layout)
      : index_(index),
        plan_(plan),
        layout_(layout),
        checkpoint_modes_(checkpoint_modes(index, plan.checkpointing)),
        coordinator_(layout, plan, index.model->parameters.size()) {
    hooks_.units = layout.hooked;
    begins_ = unit_begins(hooks_);
    ends_ = unit_ends(hooks_);
    for (const UnitBoundary& pass : unit_passes(hooks_)) {
      const Window& window = window_of(hooks_, pass);
      if (window.pre_backward >= 0) pre_backwards_.push_back({window.pre_backward, pass.unit, pass.window});
      for (const int position : window.further_pre_backwards)
        pre_backwards_.push_back({position, pass.unit, pass.window});
      if (window.has_post_backward) post_backwards_.push_back(pass);
    }
    // Among modules that end with the same output, the outer one's hook comes later, so that its gradient comes first;
    // among modules that begin with the same input the inner one's. The lists are read from their ends.
    sort_inner_first(pre_backwards_);
    sort_outer_first(post_backwards_, hooks_);
    sort_inner_first(ends_);
  }

  Schedule step() {
    out_ = {};
    coordinator_.write_to(out_);
    micro_batches();
    out_.phase = StepPhase::Optimizer;
    coordinator_.release_all();
    if (zero_dtype(plan_) == Dtype::Float16)
      out_.emit({.kind = InstructionKind::CheckOverflow, .ranks = ranks_along(MeshAxis::DpShard)});
    out_.emit(
        {.kind = InstructionKind::ClipGradNorm, .reduces_each_norm = false, .ranks = ranks_along(MeshAxis::DpShard)});
    out_.emit({.kind = InstructionKind::OptimizerStep});
    coordinator_.gather_persistent();
    out_.emit({.kind = InstructionKind::ZeroGrad});
    coordinator_.end_step();
    return std::move(out_.schedule);
  }

 private:
  // ---- micro-batches -----------------------------------------------------------------------------------------------

  // A search asks for hundreds of schedules with tens of micro-batches.
  void micro_batches() {
    std::optional<ZeroCoordinator::Remembered> before;
    for (std::int64_t m = 0; m < plan_.accumulation; ++m) {
      std::optional<ZeroCoordinator::Remembered> now = coordinator_.remembered();
      if (now && now == before) return repeat_last(m);
      before = std::move(now);
      first_instruction_ = out_.schedule.instructions.size();
      first_group_ = out_.schedule.groups.size();
      micro_batch(m);
    }
  }

  void micro_batch(std::int64_t m) {
    out_.begin_micro_batch(m);
    forward();
    out_.phase = StepPhase::Backward;
    out_.emit({.kind = InstructionKind::PrepareReduce});
    backward();
  }

  // The micro-batches from `first` on are the one before it again, each with groups of its own.
  void repeat_last(std::int64_t first) {
    std::vector<Instruction>& instructions = out_.schedule.instructions;
    std::vector<ParameterGroup>& groups = out_.schedule.groups;
    const std::size_t last_instruction = instructions.size();
    const std::size_t last_group = groups.size();
    const auto times = static_cast<std::size_t>(plan_.accumulation - first);
    constexpr std::size_t kRoomForTheRest = 64;
    instructions.reserve(last_instruction + times * (last_instruction - first_instruction_) + kRoomForTheRest);
    groups.reserve(last_group + times * (last_group - first_group_) + kRoomForTheRest);
    for (std::size_t t = 1; t <= times; ++t) {
      for (std::size_t i = first_instruction_; i < last_instruction; ++i) {
        Instruction again = instructions[i];
        again.micro_batch += static_cast<int>(t);
        if (again.group >= 0) again.group += static_cast<int>(t * (last_group - first_group_));
        instructions.push_back(again);
      }
      for (std::size_t g = first_group_; g < last_group; ++g) groups.push_back(ParameterGroup(groups[g]));
    }
    out_.micro_batch = static_cast<int>(plan_.accumulation) - 1;
  }

  // At one position inner modules come before those around them.
  void sort_inner_first(std::vector<UnitBoundary>& boundaries) const {
    const auto rank = [&](const UnitBoundary& boundary) {
      const Window& window = window_of(hooks_, boundary);
      return std::tuple(boundary.position, window.end - window.begin, -boundary.unit);
    };
    std::stable_sort(boundaries.begin(), boundaries.end(),
                     [&](const UnitBoundary& a, const UnitBoundary& b) { return rank(a) < rank(b); });
  }

  // ---- forward -----------------------------------------------------------------------------------------------------

  void forward() {
    coordinator_.begin_forward();
    bool has_left = false;
    const auto leave_root = [&] {
      if (!std::exchange(has_left, true)) out_.emit({.kind = InstructionKind::LeaveRoot});
    };
    walk_forward(
        index_, begins_, ends_, [&](const UnitBoundary& begin) { coordinator_.fetch(begin.unit, true); },
        [&](int call, int begin, int end) { out_.emit_ops(InstructionKind::Forward, index_, call, begin, end); },
        [&](const UnitBoundary& end) {
          coordinator_.release(end.unit, true);
          if (hooks_.units[end.unit].is_root) leave_root();
        });
    leave_root();
  }

  // ---- backward ----------------------------------------------------------------------------------------------------

  void backward() {
    std::size_t next_pre = pre_backwards_.size();
    std::size_t next_post = post_backwards_.size();
    next_bucket_ = 0;
    int position = index_.num_positions();
    int recomputed_call = -1;
    while (position > 0) {
      if (!index_.in_backward[position - 1]) {
        --position;
        leave(position, next_post);
        continue;
      }
      enter(position - 1, next_pre);
      int stop = position - 1;
      const int call = index_.call_at(stop);
      const int call_begin = index_.call_begin[call];
      if (call != recomputed_call) recompute(call, stop, next_pre);
      recomputed_call = call;
      while (stop > call_begin && index_.in_backward[stop - 1] && !is_boundary(stop, next_pre, next_post)) --stop;
      out_.emit_ops(InstructionKind::Backward, index_, call, stop, position);
      position = stop;
      reduce_ready(position);
      leave(position, next_post);
    }
    reduce_ready(0);
    out_.emit({.kind = InstructionKind::FinishReduce});
    coordinator_.release_left();
  }

  void recompute(int call, int position, std::size_t& next_pre) {
    if (checkpoint_modes_[call] == CheckpointMode::None) return;
    const int begin = index_.call_begin[call];
    const int end = index_.call_begin[call + 1];
    position = first_use_of_saved(index_, call, position);
    enter(position, next_pre);
    coordinator_.set_recomputing(true);
    const auto runs_again = [&](const UnitBoundary& boundary) {
      // The hooks of the block itself are outside of what runs again.
      return boundary.position >= begin && boundary.position <= end &&
             index_.model->calls[call].module != hooks_.units[boundary.unit].modules.front() &&
             window_of(hooks_, boundary).begin >= begin && window_of(hooks_, boundary).end <= end;
    };
    std::size_t next = out_.schedule.instructions.size();
    const auto place_in_front_of = [&](int at) {
      for (; next < out_.schedule.instructions.size(); ++next) out_.schedule.instructions[next].rerun_op = at - begin;
    };
    auto next_end = ends_.begin();
    const auto leave_until = [&](int until) {
      for (; next_end != ends_.end() && next_end->position <= until; ++next_end) {
        if (!runs_again(*next_end)) continue;
        coordinator_.release(next_end->unit, true);
        place_in_front_of(next_end->position);
      }
    };
    for (const UnitBoundary& boundary : begins_) {
      if (!runs_again(boundary) || boundary.position > position) continue;
      leave_until(boundary.position);
      coordinator_.fetch(boundary.unit, true);
      place_in_front_of(boundary.position);
    }
    leave_until(position);
    coordinator_.set_recomputing(false);
  }

  bool is_ready(int position) const {
    return next_bucket_ < layout_.buckets.size() && layout_.buckets[next_bucket_].ready >= position;
  }

  void reduce_ready(int position) {
    for (; is_ready(position); ++next_bucket_) {
      out_.emit({.kind = InstructionKind::ReduceBucket,
                 .ranks = layout_.mesh.group_along(MeshAxis::DpShard),
                 .bucket = static_cast<int>(next_bucket_)});
    }
  }

  // Something happens between the ops `position` and `position - 1`.
  bool is_boundary(int position, std::size_t next_pre, std::size_t next_post) const {
    return is_ready(position) || (next_pre > 0 && pre_backwards_[next_pre - 1].position == position - 1) ||
           (next_post > 0 && post_backwards_[next_post - 1].position == position);
  }

  void enter(int position, std::size_t& next_pre) {
    for (; next_pre > 0 && pre_backwards_[next_pre - 1].position >= position; --next_pre) {
      coordinator_.fetch(pre_backwards_[next_pre - 1].unit, false);
    }
  }

  void leave(int position, std::size_t& next_post) {
    for (; next_post > 0 && post_backwards_[next_post - 1].position >= position; --next_post) {
      coordinator_.release(post_backwards_[next_post - 1].unit, false);
    }
  }

  const ModelIndex& index_;
  const Plan& plan_;
  const Layout& layout_;
  std::vector<CheckpointMode> checkpoint_modes_;  // [num_calls]
  Layout hooks_;                                  // Modules in the place of units.
  std::vector<UnitBoundary> begins_, ends_, pre_backwards_, post_backwards_;
  ZeroCoordinator coordinator_;
  ScheduleWriter out_;
  std::size_t next_bucket_ = 0;
  // Where the last micro-batch begins in the schedule.
  std::size_t first_instruction_ = 0;
  std::size_t first_group_ = 0;
};

}  // namespace

StepSchedules lower_zero3(const ModelIndex& index, const Plan& plan, const Layout& layout) {
  Zero3Lowering lowering(index, plan, layout);
  Schedule first = lowering.step();
  return {.first = std::move(first), .steady = lowering.step()};
}

}  // namespace fsdp
