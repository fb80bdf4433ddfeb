// The order of events of one training step under PyTorch FSDP1 (FullyShardedDataParallel).
//
// Forward: entering a module gathers its unit and waits for it, unless it was prefetched or kept. Leaving the module
// frees the unit: all but the root under FULL_SHARD, none under SHARD_GRAD_OP. With forward_prefetch, entering also
// gathers the unit that is entered next for the first time.
//
// Backward: a hook on the outputs of a unit gathers it and waits for it, and with BACKWARD_PRE starts the gather of the
// unit that was left just before it. Its gradients meet in the node that split its flat parameter into views. They
// become one flat gradient when every op after the split has had its backward. Then a hook frees the unit, starts the
// gather of the next one (BACKWARD_POST), and reduces:
//
//   FlattenGrads, Reshard, [Unshard of the next], ReduceGrads
//
// FSDP1 makes the views when it gathers the unit for its forward. So forward_prefetch moves a reduction after the
// backward of the unit that was entered just before.
//
// A module that is called several times has views, and a flat gradient, for each pass; the hook runs after the last.
// A frozen unit is freed when the gradients of all its arguments are there. The rest is freed at the end.
//
// _unshard() asks the rate limiter before it finds that a unit is still gathered, and with CPU offload has copied the
// shard to the GPU by then: LimitGathers.
//
// A checkpointed block runs again when the first saved tensor is asked for. Its units inside are gathered and freed as
// in a forward, but those whose backward has begun: these stay as they are. The views that this makes have no backward.
//
// no_sync() keeps flat gradients unsharded. FULL_SHARD frees parameters then, too; SHARD_GRAD_OP does not, so the next
// forward gathers nothing. NO_SHARD gathers nothing, but casts its parameters to param_dtype before each pass and drops
// the casts after it: here as Unshard and Reshard.
//
// Sources: torch/distributed/fsdp/_runtime_utils.py, _exec_order_utils.py, _flat_param.py
// (_use_unsharded_flat_param), torch 2.11.
//
// Not modeled: a forward without gradients in between.

#include "core/frameworks/fsdp1/lower_fsdp1.h"

#include <algorithm>

#include "core/frameworks/fsdp1/flat_units.h"
#include "core/plan/schedule_writer.h"
#include "core/plan/unit_boundaries.h"

namespace fsdp {

namespace {

class Fsdp1Lowering {
 public:
  Fsdp1Lowering(const ModelIndex& index, const Plan& plan, const Layout& layout, bool is_first_step)
      : index_(index),
        plan_(plan),
        layout_(layout),
        is_first_step_(is_first_step),
        frees_after_forward_(reshards_after_forward(plan)),
        begins_(unit_begins(layout)),
        ends_(unit_ends(layout)),
        forward_order_(distinct_units(begins_, layout)),
        checkpoint_modes_(checkpoint_modes(index, plan.checkpointing)) {
    units_.resize(layout.units.size());
    for (std::size_t u = 0; u < layout.units.size(); ++u) {
      if (layout.units[u].is_root) root_ = static_cast<int>(u);
      if (is_frozen(layout.units[u])) units_[u].free_at = maker_of_arguments(layout.units[u]);
    }
    find_hooks();
  }

  Schedule run() {
    for (std::int64_t m = 0; m < plan_.accumulation; ++m) {
      sync_ = m + 1 == plan_.accumulation || plan_.sync_every_micro_batch;
      out_.begin_micro_batch(m);
      forward();
      out_.phase = StepPhase::Backward;
      backward();
    }
    out_.phase = StepPhase::Optimizer;
    if (plan_.optimizer.clip_grad_norm) {
      out_.emit({.kind = InstructionKind::ClipGradNorm, .reduces_each_norm = false, .ranks = shard_group()});
    }
    out_.emit({.kind = InstructionKind::OptimizerStep});
    out_.emit({.kind = InstructionKind::ZeroGrad});
    return std::move(out_.schedule);
  }

 private:
  struct UnitState {
    bool gathering = false;
    bool unsharded = false;
    bool prefetched = false;
    bool needs_forward = false;   // Not entered yet in this forward.
    bool needs_backward = false;  // Its pre-backward hook is still to come.
    bool ran_pre_backward = false;
    bool is_freed = false;       // In this backward.
    int post_forward_index = 0;  // 0 counts as none (ExecOrderData.record_post_forward).
    bool has_index = false;
    int passes_left = 0;  // That have gradients for its flat parameter.
    int free_at = -1;     // Frozen: the gradients of its arguments are there when this op's backward begins.
  };

  bool has_parameters(int unit) const { return !layout_.units[unit].parameters.empty(); }
  bool is_trained(int unit) const { return layout_.units[unit].reduced_true_elements > 0; }
  bool is_frozen(const ShardedUnit& unit) const {
    return !unit.parameters.empty() && !index_.model->parameters[unit.parameters.front().parameter].trainable;
  }
  bool is_sharded() const { return layout_.mesh.dp_shard() > 1; }

  void find_hooks() {
    for (const UnitBoundary& pass : unit_passes(layout_)) {
      const int position = window_of(layout_, pass).pre_backward;
      if (position >= 0) pre_backwards_.push_back({position, pass.unit, pass.window});
    }
    // Hooks on one tensor run in the order in which they were registered, which is that of post-forward hooks. The list
    // is walked from its end.
    sort_outer_first(pre_backwards_, layout_);
  }

  // The earliest op in whose backward the gradient of an argument of the unit's first pass is used; -1: none is.
  int maker_of_arguments(const ShardedUnit& unit) const {
    if (unit.windows.empty()) return -1;
    const Window& window = unit.windows.front();
    int earliest = -1;
    for (std::size_t c = 0; c + 1 < index_.call_begin.size(); ++c) {
      const Call& call = index_.model->calls[c];
      const Block& block = index_.model->blocks[call.block];
      for (int o = 0; o < static_cast<int>(block.ops.size()); ++o) {
        const int position = index_.call_begin[c] + o;
        if (position < window.begin || position >= window.end) continue;
        for (const int value : block.ops[o].inputs) {
          const bool flows = index_.flow.requires_grad[c][value] && index_.flow.reaches_loss[c][value];
          const int maker = flows ? maker_of(static_cast<int>(c), value) : -1;
          if (maker >= 0 && maker < window.begin) earliest = earliest < 0 ? maker : std::min(earliest, maker);
        }
      }
    }
    return earliest;
  }

  // The position of the op that makes a value of a block; -1: none does.
  int maker_of(int call, int value) const {
    const Model& model = *index_.model;
    const Block& block = model.blocks[model.calls[call].block];
    for (std::size_t o = 0; o < block.ops.size(); ++o) {
      const std::vector<int>& outputs = block.ops[o].outputs;
      if (std::find(outputs.begin(), outputs.end(), value) != outputs.end())
        return index_.call_begin[call] + static_cast<int>(o);
    }
    if (value >= static_cast<int>(model.calls[call].inputs.size())) return -1;
    const int given = model.calls[call].inputs[value];
    for (int c = call - 1; c >= 0; --c) {
      const std::vector<int>& outputs = model.calls[c].outputs;
      const auto found = std::find(outputs.begin(), outputs.end(), given);
      if (found != outputs.end())
        return maker_of(c, model.blocks[model.calls[c].block].outputs[found - outputs.begin()]);
    }
    return -1;
  }

  // ---- forward -----------------------------------------------------------------------------------------------------

  void forward() {
    splits_.clear();
    post_forward_order_.clear();
    for (std::size_t u = 0; u < units_.size(); ++u) {
      UnitState& unit = units_[u];
      unit.needs_forward = true;
      unit.needs_backward = unit.ran_pre_backward = unit.is_freed = unit.has_index = unit.prefetched = false;
      unit.post_forward_index = unit.passes_left = 0;
    }
    walk_forward(
        index_, begins_, ends_, [&](const UnitBoundary& begin) { pre_forward(begin); },
        [&](int call, int begin, int end) { out_.emit_ops(InstructionKind::Forward, index_, call, begin, end); },
        [&](const UnitBoundary& end) { post_forward(end); });
  }

  void pre_forward(const UnitBoundary& begin) {
    const int unit = begin.unit;
    if (!has_parameters(unit)) return;
    UnitState& state = units_[unit];
    if (!state.prefetched) gather_for_forward(unit, begin.window, begin.position);
    state.needs_forward = false;
    wait(unit);
    if (!plan_.fsdp1.forward_prefetch || (is_first_step_ && out_.micro_batch == 0)) return;
    const auto self = std::find(forward_order_.begin(), forward_order_.end(), unit);
    if (self + 1 == forward_order_.end()) return;
    const int next = *(self + 1);
    if (!units_[next].needs_forward || units_[next].prefetched) return;
    gather_for_forward(next, 0, begin.position);
    units_[next].prefetched = true;
  }

  void gather_for_forward(int unit, int window, int position) {
    unshard(unit);
    splits_.push_back({position, unit, window});
    const std::vector<Window>& windows = layout_.units[unit].windows;
    if (is_trained(unit) && !windows.empty() && windows[window].pre_backward >= 0) ++units_[unit].passes_left;
  }

  void post_forward(const UnitBoundary& end) {
    if (has_parameters(end.unit)) leave(end);
    if (end.unit == root_) out_.emit({.kind = InstructionKind::LeaveRoot});
  }

  void leave(const UnitBoundary& end) {
    UnitState& state = units_[end.unit];
    if (!state.has_index || state.post_forward_index == 0) {
      state.post_forward_index = static_cast<int>(post_forward_order_.size());
      state.has_index = true;
    }
    post_forward_order_.push_back(end.unit);
    reshard(end.unit, !is_sharded() || (end.unit != root_ && frees_after_forward_));
    state.needs_backward = layout_.units[end.unit].windows[end.window].pre_backward >= 0 && !runs_without_graph(end);
    state.ran_pre_backward = false;
  }

  // The forward of a reentrant checkpoint has no graph for the hooks of units inside.
  bool runs_without_graph(const UnitBoundary& end) const {
    if (out_.phase != StepPhase::Forward || end.position == 0) return false;
    const int call = index_.call_at(end.position - 1);
    if (checkpoint_modes_[call] != CheckpointMode::Reentrant) return false;
    const std::vector<int>& modules = layout_.units[end.unit].modules;
    const int module = index_.model->calls[call].module;
    return layout_.units[end.unit].windows[end.window].begin >= index_.call_begin[call] &&
           std::find(modules.begin(), modules.end(), module) == modules.end();
  }

  // ---- backward ----------------------------------------------------------------------------------------------------

  void backward() {
    std::size_t next_pre = pre_backwards_.size();
    std::size_t next_split = splits_.size();
    int position = index_.num_positions();
    int recomputed_call = -1;
    while (position > 0) {
      finish_splits(position, next_split);
      if (!index_.in_backward[position - 1]) {
        --position;
        continue;
      }
      enter_units(position - 1, next_pre);
      free_frozen(position - 1);
      int stop = position - 1;
      const int call = index_.call_at(stop);
      if (call != recomputed_call) recompute(call, stop, next_pre);
      recomputed_call = call;
      const int call_begin = index_.call_begin[call];
      while (stop > call_begin && index_.in_backward[stop - 1] && !is_boundary(stop, next_pre, next_split)) --stop;
      out_.emit_ops(InstructionKind::Backward, index_, call, stop, position);
      position = stop;
    }
    finish_splits(0, next_split);
    final_callback();
  }

  void recompute(int call, int position, std::size_t& next_pre) {
    if (checkpoint_modes_[call] == CheckpointMode::None) return;
    const bool is_reentrant = checkpoint_modes_[call] == CheckpointMode::Reentrant;
    if (!is_reentrant) {
      position = first_use_of_saved(index_, call, position);
      enter_units(position, next_pre);
    }
    const int begin = index_.call_begin[call];
    const int end = index_.call_begin[call + 1];
    const int module = index_.model->calls[call].module;
    const int stop = plan_.checkpointing.early_stop && !is_reentrant ? position : end;
    // The hooks of the block itself are outside of what runs again.
    const auto runs_again = [&](const UnitBoundary& boundary) {
      const std::vector<int>& modules = layout_.units[boundary.unit].modules;
      const bool is_inside = std::find(modules.begin(), modules.end(), module) == modules.end();
      return is_inside && has_parameters(boundary.unit) && !units_[boundary.unit].ran_pre_backward;
    };
    auto next_end = first_from(ends_, begin + 1);
    const auto leave_units = [&](int at) {
      for (; next_end != ends_.end() && next_end->position <= std::min(at, stop); ++next_end) {
        if (runs_again(*next_end)) leave(*next_end);
      }
    };
    auto next_begin = first_from(begins_, begin);
    for (; next_begin != begins_.end() && next_begin->position < end; ++next_begin) {
      if (!runs_again(*next_begin)) continue;
      leave_units(next_begin->position);
      unshard(next_begin->unit);
      wait(next_begin->unit);
    }
    leave_units(end);
  }

  // Something happens between the ops `position` and `position - 1`.
  bool is_boundary(int position, std::size_t next_pre, std::size_t next_split) const {
    if (next_pre > 0 && pre_backwards_[next_pre - 1].position == position - 1) return true;
    if (next_split > 0 && splits_[next_split - 1].position == position) return true;
    return std::any_of(units_.begin(), units_.end(),
                       [&](const UnitState& unit) { return unit.free_at == position - 1; });
  }

  void enter_units(int position, std::size_t& next_pre) {
    for (; next_pre > 0 && pre_backwards_[next_pre - 1].position >= position; --next_pre) {
      pre_backward(pre_backwards_[next_pre - 1].unit);
    }
  }

  void pre_backward(int unit) {
    if (!has_parameters(unit)) return;
    UnitState& state = units_[unit];
    if (state.ran_pre_backward) return;
    if (state.needs_backward) {
      if (!state.prefetched) unshard(unit);
      wait(unit);
    }
    state.needs_backward = false;
    if (plan_.fsdp1.backward_prefetch == BackwardPrefetch::Pre) prefetch_before(unit);
    state.ran_pre_backward = true;
  }

  // The unit that was left one earlier, where its backward is still to come.
  void prefetch_before(int unit) {
    const UnitState& state = units_[unit];
    if (!state.has_index || state.post_forward_index == 0) return;
    const int target = post_forward_order_[state.post_forward_index - 1];
    if (!units_[target].needs_backward || units_[target].prefetched) return;
    unshard(target);
    units_[target].prefetched = true;
  }

  // The youngest views come first.
  void finish_splits(int position, std::size_t& next_split) {
    for (; next_split > 0 && splits_[next_split - 1].position >= position; --next_split) {
      const UnitBoundary& split = splits_[next_split - 1];
      const std::vector<Window>& windows = layout_.units[split.unit].windows;
      if (!is_trained(split.unit) || windows.empty() || windows[split.window].pre_backward < 0) continue;
      out_.emit(InstructionKind::FlattenGrads, split.unit);
      if (--units_[split.unit].passes_left == 0) post_backward(split.unit);
    }
  }

  void post_backward(int unit) {
    free_in_backward(unit);
    if (!sync_) return out_.emit(InstructionKind::AccumulateGrads, unit);
    // A shard group of one rank reduces with its copies alone, and calls that all-reduce without copies, too.
    out_.emit({.kind = InstructionKind::ReduceGrads,
               .ranks = shard_group(),
               .copies = layout_.mesh.group_along(MeshAxis::DpReplicate, !is_sharded()),
               .unit = unit});
    out_.emit({.kind = InstructionKind::Free, .buffer = BufferKind::ReduceInput, .ends_previous = true, .unit = unit});
  }

  void free_in_backward(int unit) {
    reshard(unit, !is_sharded() || sync_ || frees_after_forward_);
    units_[unit].is_freed = true;
    if (plan_.fsdp1.backward_prefetch == BackwardPrefetch::Post) prefetch_before(unit);
  }

  void free_frozen(int position) {
    for (std::size_t u = 0; u < units_.size(); ++u) {
      if (units_[u].free_at == position) free_in_backward(static_cast<int>(u));
    }
  }

  // In the order of the modules. A sharded unit stays so.
  void final_callback() {
    for (const int unit : units_in_module_order(layout_)) {
      if (!units_[unit].is_freed) reshard(unit, !is_sharded() || sync_ || frees_after_forward_);
      units_[unit].prefetched = false;
    }
    out_.emit({.kind = InstructionKind::FinishReduce});
  }

  // ---- units -------------------------------------------------------------------------------------------------------

  RankGroup shard_group() const { return layout_.mesh.group_along(MeshAxis::DpShard); }

  void unshard(int unit) {
    UnitState& state = units_[unit];
    if (state.unsharded || state.gathering) {
      const bool is_seen = plan_.fsdp1.limit_all_gathers || plan_.cpu_offload;
      if (is_seen && is_sharded()) out_.emit(InstructionKind::LimitGathers, unit);
      return;
    }
    state.gathering = true;
    out_.emit({.kind = InstructionKind::Unshard, .ranks = shard_group(), .unit = unit});
  }

  void wait(int unit) {
    UnitState& state = units_[unit];
    if (!state.gathering) return;
    state.gathering = false;
    state.unsharded = true;
    out_.emit(InstructionKind::WaitForUnshard, unit);
  }

  void reshard(int unit, bool frees) {
    UnitState& state = units_[unit];
    state.prefetched = false;
    if (!frees || (!state.unsharded && !state.gathering)) return;
    state.unsharded = state.gathering = false;
    out_.emit(InstructionKind::Reshard, unit);
  }

  const ModelIndex& index_;
  const Plan& plan_;
  const Layout& layout_;
  const bool is_first_step_;  // The order of units is known from its first backward on.
  const bool frees_after_forward_;
  std::vector<UnitState> units_;
  const std::vector<UnitBoundary> begins_, ends_;
  std::vector<UnitBoundary> pre_backwards_;
  const std::vector<int> forward_order_;                // Units with parameters, each once.
  const std::vector<CheckpointMode> checkpoint_modes_;  // [num calls]
  std::vector<int> post_forward_order_;
  // Views of this forward's passes, in the order in which they were made: their node in the graph is older than
  // whatever ran after the position.
  std::vector<UnitBoundary> splits_;
  ScheduleWriter out_;
  int root_ = 0;
  bool sync_ = true;
};

}  // namespace

Schedule lower_fsdp1(const ModelIndex& index, const Plan& plan, const Layout& layout, bool is_first_step) {
  return Fsdp1Lowering(index, plan, layout, is_first_step).run();
}

StepSchedules lower_fsdp1_steps(const ModelIndex& index, const Plan& plan, const Layout& layout) {
  StepSchedules steps{.first = {}, .steady = lower_fsdp1(index, plan, layout)};
  if (plan.fsdp1.forward_prefetch) steps.first = lower_fsdp1(index, plan, layout, true);
  return steps;
}

}  // namespace fsdp
