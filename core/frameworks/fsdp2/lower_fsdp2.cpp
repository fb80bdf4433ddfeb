// The order of events of one training step under PyTorch FSDP2.
//
// The forward walks over all ops. At the begin of the forward of a unit's module, FSDP2's pre-forward hook gathers the
// unit and waits for it. At its end the post-forward hook frees the unsharded parameters (`reshard_after_forward`) and
// appends the unit to the post-forward order. The backward walks back. When the gradient of a unit's output arrives,
// the pre-backward hook gathers and waits again, and starts the gather of the previous unit in the post-forward order.
// When the gradients of its inputs are ready, the post-backward hook reshards and reduces. So for a root around units
// 1..L the order of collectives is (units of experts that ranks share have their own ranks)
//
//   AG root, AG 1, .., AG L | AG L, AG L-1, RS L, AG L-2, RS L-1, .., AG 1, RS 2, RS 1, RS root
//
// Explicit prefetch is modeled as these calls: with forward_prefetch = k, set_modules_to_forward_prefetch of each unit
// with the k units that are entered next for the first time; with backward_prefetch = k > 1,
// set_modules_to_backward_prefetch with the k units whose forward ended before it for the first time.
//
// A unit without a post-backward hook, because none of its inputs needs a gradient (the root, embeddings, the first
// block after raw data), is reduced in the callback at the end of backward: first the root, then the others in the
// order of the modules.
//
// Buffers live as long as FSDP2 refers to them:
//
//   all-gather output   forward: until the next unit's is copied out, or the root is left; backward: until its own is.
//                       One that nobody waited for goes with the reshard
//   reduce input        until as many units as reduce_scatter_buffers are reduced after it, or the backward ends; from
//                       torch 2.12 on a unit without gradients counts as reduced, too
//   all-reduce output   of HSDP: until the backward ends, or the same unit is reduced once more in it
//
// A unit of several modules of which one does not run in the root's forward (the head of a loss that calls it) waits
// for that module and stays gathered. From torch 2.13 on the root's post-forward hook leaves it, after the root itself,
// and its pre-backward hook hangs on the root's result.
//
// A loss that calls the head (torchtitan's ChunkedLossWrapper) runs after the root's forward: it gathers the head's
// unit, reduces the gradients that it makes, reshards the unit and sets it to reshard after later forwards: a unit that
// is not to be resharded is gathered once in the first forward, and twice in all others.
//
// A step of several passes (a GAN's) has several models. Each is a root by itself, with its own order of post-forwards,
// its own buffers and its own callback at the end of a backward. The callback runs if the backward ran through the
// model; units that another model has gathered, and the order of its forwards, stay until that model's own callback. So
// a generator whose root is not resharded after forward is still gathered while the critic's optimizer steps. The next
// step finds units gathered that the step before left so: the second of two steps is a steady one.
//
// Sources: torch/distributed/fsdp/_fully_shard/_fsdp_state.py (_pre_forward, _post_forward, _pre_backward,
// _root_post_backward_final_callback), _fsdp_param_group.py (pre_forward, post_forward, pre_backward, post_backward,
// wait_for_unshard, _wait_for_post_backward, _backward_prefetch, finalize_backward), torch 2.11.0; what is otherwise
// from 2.8 to 2.15 is a value of Quirks.
//
// Not modeled: set_unshard_in_backward(False), set_reshard_after_backward(False), a forward without gradients in
// between, but in a step of passes; a frozen unit inside a checkpointed block that is called again and whose first pass
// needs no backward, which FSDP2 leaves unsharded between steps; a group of one rank, which keeps no output of a gather
// from one unit to the next; with several reduce_scatter_buffers a unit that is reduced twice inside as many
// reductions.

#include "core/frameworks/fsdp2/lower_fsdp2.h"

#include <algorithm>
#include <cstdint>
#include <utility>

#include "core/frameworks/fsdp2/unit_buffers.h"
#include "core/plan/schedule_writer.h"
#include "core/plan/unit_boundaries.h"

namespace fsdp {

namespace {

class Fsdp2Lowering : Fsdp2Buffers {
 public:
  Fsdp2Lowering(const ModelIndex& index, const Plan& plan, const Layout& layout)
      : Fsdp2Buffers(index, plan, layout),
        index_(index),
        checkpoint_modes_(checkpoint_modes(index, plan.checkpointing)),
        begins_(layout.hooks.begins),
        ends_(layout.hooks.ends),
        pre_backwards_(&layout.hooks.pre_backwards),
        post_backwards_(&layout.hooks.post_backwards),
        forward_order_(layout.hooks.forward_order),
        backward_order_(layout.hooks.backward_order) {
    for (std::size_t u = 0; u < layout.units.size(); ++u) {
      if (layout.units[u].is_root) root_ = static_cast<int>(u);
    }
  }

  StepSchedules run_steps() {
    if (layout_.loss.unit < 0) return {.first = {}, .steady = run()};
    loss_has_run_ = false;
    Schedule first = run();
    out_ = {};
    units_.assign(units_.size(), {});
    Schedule steady = run();
    if (first == steady) first = {};
    return {.first = std::move(first), .steady = std::move(steady)};
  }

  StepSchedules run_passes() {
    Schedule first = step_of_passes();
    Schedule steady = step_of_passes();
    if (first == steady) first = {};
    return {.first = std::move(first), .steady = std::move(steady)};
  }

  Schedule run() {
    out_.schedule.instructions.reserve(14 * units_.size() + 3 * index_.call_begin.size());
    for (std::int64_t m = 0; m < plan_.accumulation; ++m) {
      const bool last = m + 1 == plan_.accumulation;
      sync_ = last || plan_.sync_every_micro_batch;
      out_.begin_micro_batch(m);
      forward();
      out_.phase = StepPhase::Backward;
      backward(index_.num_positions());
      if (m == 0) reserve();
    }
    out_.phase = StepPhase::Optimizer;
    if (plan_.optimizer.clip_grad_norm) {
      out_.emit({.kind = InstructionKind::ClipGradNorm,
                 .reduces_each_norm = quirks_.clip_reduces_each_norm && !plan_.runtime.implementations.norm_in_float64,
                 .reduces_in_float64 = plan_.runtime.implementations.norm_in_float64,
                 .ranks = layout_.mesh.group_along(MeshAxis::DpShard, !quirks_.skip_collectives_of_one),
                 .copies = layout_.mesh.expert_group()});
    }
    out_.emit({.kind = InstructionKind::OptimizerStep});
    out_.emit({.kind = InstructionKind::ZeroGrad});
    return std::move(out_.schedule);
  }

 private:
  // ---- passes ------------------------------------------------------------------------------------------------------

  Schedule step_of_passes() {
    out_.schedule = {};
    const Model& model = *index_.model;
    std::size_t next_clearing = 0;
    const auto clear = [&](int pass, int call) {
      for (; next_clearing < model.clearings.size(); ++next_clearing) {
        const Clearing& clearing = model.clearings[next_clearing];
        if (clearing.pass > pass || (clearing.pass == pass && clearing.call > call)) return;
        emit_of_optimizer(InstructionKind::ZeroGrad, static_cast<int>(next_clearing));
      }
    };
    out_.begin_micro_batch(0);
    int call = 0;
    for (pass_ = 0; pass_ < static_cast<int>(model.passes.size()); ++pass_) {
      const Pass& pass = model.passes[static_cast<std::size_t>(pass_)];
      out_.phase = StepPhase::Forward;
      forward({call, pass.call_end}, [&](int next) { clear(pass_, next); });
      clear(pass_, pass.call_end);
      call = pass.call_end;
      out_.phase = StepPhase::Backward;
      find_hooks_of_pass();
      backward(index_.call_begin[static_cast<std::size_t>(call)]);
      for (const int optimizer : pass.optimizers) emit_of_optimizer(InstructionKind::OptimizerStep, optimizer);
    }
    clear(pass_, call);
    return std::move(out_.schedule);
  }

  void emit_of_optimizer(InstructionKind kind, int part) {
    const StepPhase phase = std::exchange(out_.phase, StepPhase::Optimizer);
    out_.emit({.kind = kind, .part = part});
    out_.phase = phase;
  }

  bool is_of_pass(int position) const {
    return pass_ < 0 || index_.model->calls[static_cast<std::size_t>(index_.call_at(position))].backward == pass_;
  }

  void find_hooks_of_pass() {
    hooks_of_pass_ = {};
    for (const UnitBoundary& hook : layout_.hooks.pre_backwards) {
      if (is_of_pass(hook.position)) hooks_of_pass_.pre_backwards.push_back(hook);
    }
    for (const UnitBoundary& hook : layout_.hooks.post_backwards) {
      if (is_of_pass(window_of(layout_, hook).pre_backward)) hooks_of_pass_.post_backwards.push_back(hook);
    }
    pre_backwards_ = &hooks_of_pass_.pre_backwards;
    post_backwards_ = &hooks_of_pass_.post_backwards;
  }

  // Whether this backward runs through some pass of the unit and has gradients for it.
  bool has_gradients(int unit) const {
    if (pass_ < 0) return true;
    const ShardedUnit& of = layout_.units[static_cast<std::size_t>(unit)];
    return gives_gradients(*index_.model, pass_, of.modules.front()) &&
           std::any_of(of.windows.begin(), of.windows.end(), [&](const Window& window) {
             return window.pre_backward >= 0 && is_of_pass(window.pre_backward);
           });
  }

  // Micro-batches are alike, but for the reductions of the last.
  void reserve() {
    std::vector<Instruction>& list = out_.schedule.instructions;
    list.reserve(list.size() * static_cast<std::size_t>(plan_.accumulation) + 4 * units_.size() + 3);
  }

  bool has_parameters(int unit) const { return !layout_.units[unit].parameters.empty(); }

  // ---- forward -----------------------------------------------------------------------------------------------------

  void forward() {
    trees_.front().forget_forward();
    for (Fsdp2Unit& unit : units_) unit.forget_backward();
    if (has_parameters(root_) && !units_[root_].unsharded) {
      unshard(root_);
      wait(root_);
    }
    forward({0, static_cast<int>(index_.model->calls.size())}, [](int) {});
  }

  template <class BeforeCall>
  void forward(Span calls, BeforeCall before_call) {
    walk_forward(
        index_, begins_, ends_, calls, [&](const UnitBoundary& begin) { pre_forward(begin.unit); },
        [&](int call, int begin, int end) {
          if (begin == index_.call_begin[static_cast<std::size_t>(call)]) before_call(call);
          if (call == layout_.loss.call) gather_for_loss();
          out_.emit_ops(InstructionKind::Forward, index_, call, begin, end);
          if (call == layout_.loss.call) reduce_loss();
        },
        [&](const UnitBoundary& end) { post_forward(end); });
  }

  // Outside of a forward: nothing keeps the output of the gather.
  void gather_for_loss() {
    unshard(layout_.loss.unit, layout_.loss.call);
    wait(layout_.loss.unit, false);
  }

  void reduce_loss() {
    if (layout_.loss.true_elements > 0) reduce(layout_.loss.unit, kSlotOfLoss);
    reshard(layout_.loss.unit);
    loss_has_run_ = true;
  }

  void pre_forward(int unit) {
    if (!has_parameters(unit)) return;
    units_[unit].post_backward = false;
    unshard(unit);
    wait(unit);
    if (plan_.forward_prefetch == 0) return;
    prefetch(std::find(forward_order_.begin(), forward_order_.end(), unit) + 1, forward_order_.end(),
             plan_.forward_prefetch);
  }

  template <class Iterator>
  void prefetch(Iterator next, Iterator end, std::int64_t count) {
    for (; next != end && count > 0; ++next, --count) unshard(*next);
  }

  void post_forward(const UnitBoundary& end) {
    if (has_parameters(end.unit) && layout_.units[end.unit].windows[end.window].runs_post_forward) leave(end.unit);
    if (tree_of_unit_[end.unit] < 0 || tree(end.unit).root != end.unit) return;
    leave_partial_units(tree_of_unit_[end.unit]);
    free_held_gather(tree(end.unit), kBegins);
    out_.emit({.kind = InstructionKind::LeaveRoot});
  }

  void leave(int unit) {
    using Kind = ReshardAfterForward::Kind;
    Fsdp2Unit& state = units_[unit];
    const bool is_set = unit == layout_.loss.unit && loss_has_run_;
    const Kind kind = is_set ? Kind::Always : layout_.units[unit].reshard.kind;
    if (kind != Kind::Never && state.unsharded) {
      state.smaller = kind == Kind::Smaller;
      reshard(unit);
    }
    note_left(unit);
  }

  void leave_partial_units(int tree) {
    const std::vector<int> units = units_in_module_order(layout_);
    for (auto u = units.rbegin(); u != units.rend(); ++u) {
      const std::vector<Window>& windows = layout_.units[*u].windows;
      const bool is_partial = tree_of_unit_[*u] == tree && has_parameters(*u) && !windows.empty();
      if (is_partial && windows.back().is_left_by_root) leave(*u);
    }
  }

  void note_left(int unit) {
    Fsdp2Tree& of = tree(unit);
    of.left_before.push_back(std::exchange(units_[unit].last_left, static_cast<int>(of.post_forward_order.size())));
    of.post_forward_order.push_back(unit);
  }

  // ---- backward ----------------------------------------------------------------------------------------------------

  // From the position after the forward.
  void backward(int position) {
    std::size_t next_pre = pre_backwards_->size();
    std::size_t next_post = post_backwards_->size();
    int recomputed_call = -1;
    while (position > 0) {
      if (!index_.in_backward[position - 1] || !is_of_pass(position - 1)) {
        const int next = next_post > 0 ? (*post_backwards_)[next_post - 1].position : 0;
        position = std::max(index_.alike_from[position - 1], next);
        finish_units(position, next_post);
        continue;
      }
      const int call = index_.call_at(position - 1);
      if (call != recomputed_call && checkpoint_modes_[call] == CheckpointMode::Reentrant) {
        run_again(call, next_pre);
      } else {
        enter_units(position - 1, next_pre);
        if (call != recomputed_call) recompute(call, position - 1, next_pre);
      }
      recomputed_call = call;
      const int stop = next_stop(position, next_pre, next_post);
      out_.emit_ops(InstructionKind::Backward, index_, call, stop, position);
      position = stop;
      finish_units(position, next_post);
    }
    final_callback();
  }

  // A checkpointed block is recomputed when the first saved tensor is asked for. That runs the pre-forward hooks of the
  // units inside that have not been entered by then, with their prefetches; the units stay unsharded afterwards, unless
  // they are left as in a forward.
  void recompute(int call, int position, std::size_t& next_pre) {
    if (checkpoint_modes_[call] == CheckpointMode::None) return;
    const int begin = index_.call_begin[call];
    const int end = index_.call_begin[call + 1];
    position = first_use_of_saved(index_, call, position);
    enter_units(position, next_pre);
    const int module = index_.model->calls[call].module;
    // The hooks of the block itself are outside of what runs again.
    const auto is_inside = [&](const UnitBoundary& boundary) {
      const std::vector<int>& modules = layout_.units[boundary.unit].modules;
      return std::find(modules.begin(), modules.end(), module) == modules.end();
    };
    const int stop = plan_.checkpointing.early_stop ? position : end;
    auto next_end = first_from(ends_, begin + 1);
    const auto leave_units = [&](int at) {
      for (; next_end != ends_.end() && next_end->position <= std::min(at, stop); ++next_end) {
        if (quirks_.recomputation_reshards && is_inside(*next_end)) leave_recomputed(next_end->unit);
      }
    };
    auto next_begin = first_from(begins_, begin);
    for (; next_begin != begins_.end() && next_begin->position < end; ++next_begin) {
      if (!is_inside(*next_begin)) continue;
      leave_units(next_begin->position);
      const std::size_t first = out_.schedule.instructions.size();
      if (!units_[next_begin->unit].pre_backward) pre_forward(next_begin->unit);
      if (layout_.units[next_begin->unit].of_experts) place_in_rerun(first, begin, *next_begin);
    }
    leave_units(end);
  }

  // A reentrant checkpoint is around the hooks of its block, whose unit is then the root of a forward of its own: it
  // frees the output of the last gather at its end. The block's node makes the graph before any hook of the backward.
  void run_again(int call, std::size_t& next_pre) {
    const int begin = index_.call_begin[call];
    const int end = index_.call_begin[call + 1];
    std::vector<Instruction>& list = out_.schedule.instructions;
    const auto place = [&](std::size_t first, int position) {
      for (std::size_t i = first; i < list.size(); ++i) list[i].rerun_op = position - begin;
    };
    runs_again_ = true;
    auto next = first_from(begins_, begin);
    for (; next != begins_.end() && next->position < end; ++next) {
      const std::size_t first = list.size();
      pre_forward(next->unit);
      place(first, next->position);
    }
    runs_again_ = false;
    const std::size_t last = list.size();
    for (Fsdp2Tree& tree : trees_) free_held_gather(tree, kBegins);
    enter_units(end - 1, next_pre);
    place(last, end);
  }

  // Experts are gathered when what runs again comes to them, and keep the output of the gather until they are left:
  // each is then the root of a forward of its own (FSDPState._post_forward).
  void place_in_rerun(std::size_t first, int call_begin, const UnitBoundary& begin) {
    const int end = layout_.units[begin.unit].windows[begin.window].end;
    std::vector<Instruction>& list = out_.schedule.instructions;
    for (std::size_t i = first; i < list.size(); ++i) {
      list[i].rerun_op = (list[i].kind == InstructionKind::Free ? end : begin.position) - call_begin;
    }
  }

  // Before torch 2.10 the post-forward hook did in a backward what it does in a forward.
  void leave_recomputed(int unit) {
    Fsdp2Unit& state = units_[unit];
    if (state.pre_backward || !has_parameters(unit)) return;
    if (layout_.units[unit].reshard.kind != ReshardAfterForward::Kind::Never) reshard(unit);
    note_left(unit);
  }

  // Where the ops before `position` end that run at once: after a hook, a gap, or what is before their call.
  int next_stop(int position, std::size_t next_pre, std::size_t next_post) const {
    int stop = index_.alike_from[position - 1];
    if (next_pre > 0) stop = std::max(stop, (*pre_backwards_)[next_pre - 1].position + 1);
    if (next_post > 0) stop = std::max(stop, (*post_backwards_)[next_post - 1].position);
    return std::min(stop, position - 1);
  }

  void enter_units(int position, std::size_t& next_pre) {
    for (; next_pre > 0 && (*pre_backwards_)[next_pre - 1].position >= position; --next_pre) {
      pre_backward((*pre_backwards_)[next_pre - 1].unit);
    }
  }

  void finish_units(int position, std::size_t& next_post) {
    for (; next_post > 0 && (*post_backwards_)[next_post - 1].position >= position; --next_post) {
      const UnitBoundary& hook = (*post_backwards_)[next_post - 1];
      post_backward(hook.unit, is_first_pass(hook));
    }
  }

  void pre_backward(int unit) {
    if (!has_parameters(unit)) return;
    Fsdp2Unit& state = units_[unit];
    // A unit that is entered once more before it has been left, such as an embedding that is used twice, has done this.
    const bool again = state.pre_backward;
    state.pre_backward = true;
    state.post_backward = false;
    const int tree = tree_of_unit_[unit];
    if (std::find(in_backward_.begin(), in_backward_.end(), tree) == in_backward_.end()) in_backward_.push_back(tree);
    if (!again) {
      unshard(unit);
      wait(unit);
    }
    const auto self = std::find(backward_order_.begin(), backward_order_.end(), unit);
    if (plan_.backward_prefetch > 1 && self + 1 != backward_order_.end()) {
      prefetch(self + 1, backward_order_.end(), plan_.backward_prefetch);
    } else if (!again) {
      prefetch_by_default(state, trees_[tree]);
    }
  }

  // The unit whose forward ended one earlier, passes of one module counted apart, whether it needs a backward or not.
  void prefetch_by_default(Fsdp2Unit& state, const Fsdp2Tree& tree) {
    const int self = state.last_left;
    if (self < 0) return;
    state.last_left = tree.left_before[static_cast<std::size_t>(self)];
    if (self > 0) unshard(tree.post_forward_order[static_cast<std::size_t>(self) - 1]);
  }

  // The gradient of a parameter that several passes use is complete after the backward of the first of them.
  bool is_first_pass(const UnitBoundary& hook) const {
    const std::vector<Window>& windows = layout_.units[hook.unit].windows;
    return std::none_of(windows.begin(), windows.begin() + hook.window, [&](const Window& window) {
      return window.pre_backward >= 0 && is_of_pass(window.pre_backward);
    });
  }

  // Reduces the present gradients: between two passes, only those of earlier micro-batches.
  void post_backward(int unit, bool gradients_complete) {
    if (!has_parameters(unit)) return;
    Fsdp2Unit& state = units_[unit];
    state.pre_backward = false;
    state.post_backward = true;
    reshard(unit);
    const bool fresh =
        gradients_complete && has_gradients(unit) && layout_.units[unit].reduced_true_elements > 0 && !state.reduced;
    if (fresh && !sync_) out_.emit(InstructionKind::AccumulateGrads, unit);
    const bool reduces = fresh || state.accumulated;
    if (sync_ && reduces) reduce(unit);
    if (sync_ && !reduces && quirks_.frozen_units_free_reduce_input) recycle_reduce_inputs(tree(unit));
    state.accumulated = !sync_ && (state.accumulated || fresh);
    state.reduced = state.reduced || fresh;
  }

  // For each root in turn, in the order in which the backward came to them.
  void final_callback() {
    if (pass_ < 0) in_backward_.assign(1, 0);
    for (const int tree : in_backward_) final_callback(tree);
    in_backward_.clear();
    out_.emit({.kind = InstructionKind::FinishReduce});
  }

  void final_callback(int number) {
    Fsdp2Tree& tree = trees_[static_cast<std::size_t>(number)];
    for (const int unit : units_in_module_order(layout_)) {
      if (tree_of_unit_[unit] != number) continue;
      if (!units_[unit].post_backward) post_backward(unit, true);
      // finalize_backward drops the output of a prefetch that nobody waited for. A smaller shard that an integer
      // reshard_after_forward kept is not gathered again if the unit had no backward: the unit counts as sharded.
      if (units_[unit].gathering) reshard(unit);
      if (units_[unit].smaller) out_.emit(InstructionKind::Reshard, unit);
      units_[unit].smaller = false;
    }
    while (!tree.reduce_inputs.empty()) free_oldest_reduce_input(tree);
    for (const Fsdp2Reduction& of : tree.all_reduced) free(BufferKind::AllReduceOutput, of.unit, of.slot, kBegins);
    tree.all_reduced.clear();
    if (pass_ < 0) return;
    tree.forget_forward();
    for (std::size_t u = 0; u < units_.size(); ++u) {
      if (tree_of_unit_[u] == number) units_[u].forget_backward();
    }
  }

  const ModelIndex& index_;
  std::vector<CheckpointMode> checkpoint_modes_;  // [num_calls]
  const std::vector<UnitBoundary>&begins_, &ends_;
  const std::vector<UnitBoundary>*pre_backwards_, *post_backwards_;  // For this backward.
  const std::vector<int>&forward_order_, &backward_order_;           // The orders of explicit prefetch.
  int root_ = 0;
  bool sync_ = true;
  bool loss_has_run_ = true;      // In this run of the program.
  int pass_ = -1;                 // In Model::passes; -1: there are none.
  HookOrder hooks_of_pass_;       // The hooks of its backward.
  std::vector<int> in_backward_;  // Trees that this backward has come to, in order.
};

}  // namespace

Schedule lower_fsdp2(const ModelIndex& index, const Plan& plan, const Layout& layout) {
  Fsdp2Lowering lowering(index, plan, layout);
  return has_passes(*index.model) ? lowering.run_passes().steady : lowering.run();
}

StepSchedules lower_fsdp2_steps(const ModelIndex& index, const Plan& plan, const Layout& layout) {
  if (has_passes(*index.model)) return Fsdp2Lowering(index, plan, layout).run_passes();
  return Fsdp2Lowering(index, plan, layout).run_steps();
}

}  // namespace fsdp
