#pragma once

// The part of the memory walk that replays the tapes of the calls and tracks the values that pass between them, and
// their gradients.

#include <algorithm>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "core/plan/input_casts.h"
#include "simulator/memory/memory_walk.h"
#include "simulator/memory/memory_walk_last_loss.h"
#include "simulator/memory/memory_walk_units.h"
#include "simulator/memory/memory_walk_value_grads.h"

namespace fsdp::simulator {

template <class Sink>
class CallWalk {
 public:
  CallWalk(const WalkInput& input, Sink& sink, UnitWalk<Sink>& units)
      : in_(input),
        model_(*input.index->model),
        sink_(sink),
        units_(units),
        refs_(*input.ids),
        storage_of_value_(model_.values.size(), -1),
        grads_(input, sink, refs_),
        last_loss_(input, sink) {
    consumers_.assign(model_.values.size(), 0);
    for (const Call& call : model_.calls) {
      for (const int value : call.inputs) ++consumers_[value];
    }
    find_casts();
    for (const HeldValue& held : model_.held) {
      if (is_held(held)) ++consumers_[held.value];
    }
    for (const HeldArgument& held : in_.index->held_arguments) ++consumers_[held.value];
  }

  /// Called before each op of a call that may run again, and after all of them.
  void on_rerun(std::function<void(int call, int op)> act) { on_rerun_ = std::move(act); }
  /// Called where a loss has the unit of the head do something.
  void on_unit_call(std::function<void(UnitCall)> act) { on_unit_call_ = std::move(act); }
  /// Called with each model parameter that a recomputed call has saved and no longer needs.
  void on_released(std::function<void(int)> act) { on_released_ = std::move(act); }

  void load_inputs() {
    if (in_.shares_batch) {
      must_enter_root_ = !cast_of_value_.empty();
      return;
    }
    for (std::size_t i = 0; i < model_.inputs.size(); ++i) {
      const int index = static_cast<int>(i);
      const Value& value = model_.values[model_.inputs[i]];
      const Dtype dtype = value.dtype.value_or(in_.activation);
      const int id = in_.ids->input(index, turn_);
      sink_.alloc(id, num_elements(value.shape) * size_of(dtype).count(), MemoryStream::Compute,
                  MemoryCategory::Inputs);
      if (has_inputs_) drop(in_.ids->input(index, 1 - turn_));
      // The caller's batch, and the calls that will use it.
      const int readers = consumers_[model_.inputs[i]];
      refs_[id] = 1 + (is_cast(model_.inputs[i]) ? readers - readers_of_cast_[i] : readers);
      storage_of_value_[model_.inputs[i]] = id;
    }
    has_inputs_ = true;
    turn_ = 1 - turn_;
    must_enter_root_ = !cast_of_value_.empty();
  }

  /// The root casts its inputs before its all-gather; its arguments live until its forward returns.
  void enter_root() {
    if (!must_enter_root_) return;
    must_enter_root_ = false;
    for (std::size_t i = 0; i < model_.inputs.size(); ++i) {
      if (!is_cast(model_.inputs[i])) continue;
      const int id = in_.ids->input_cast(static_cast<int>(i));
      sink_.alloc(id, num_elements(model_.values[model_.inputs[i]].shape) * size_of(in_.activation).count(),
                  MemoryStream::Compute, MemoryCategory::Activation);
      refs_[id] = 1 + readers_of_cast_[i];
    }
  }

  /// Workspaces that another forward of this thread has made exist.
  void share_workspaces(const CallWalk& of) {
    std::copy(std::begin(of.has_workspace_), std::end(of.has_workspace_), std::begin(has_workspace_));
  }

  /// After a forward without gradients: frees its results and its batch.
  void end_without_backward() {
    for (const HeldValue& held : model_.held) {
      if (is_held(held)) drop(storage_of_value_[held.value]);
    }
    if (casts_loss()) sink_.free(in_.ids->of(SingleTensor::CastLoss));
    for (const int id : unused_) drop(id);
    unused_.clear();
    if (in_.shares_batch) return;
    for (std::size_t i = 0; i < model_.inputs.size(); ++i) drop(in_.ids->input(static_cast<int>(i), 1 - turn_));
    has_inputs_ = false;
  }

  void leave_root() {
    for (std::size_t i = 0; i < readers_of_cast_.size(); ++i) {
      if (is_cast(model_.inputs[i])) drop(in_.ids->input_cast(static_cast<int>(i)));
    }
  }

  void forward(const Instruction& step) {
    const Tape& tape = tape_of(step.call);
    const std::int32_t first = tape.forward_of_op[step.op_begin].first;
    const std::int32_t last = tape.forward_of_op[step.op_end - 1].last;
    // An input that is also an output must outlive the call's own reference.
    if (step.op_begin == 0) publish_outputs(step.call, tape, Storage::Kind::Input);
    play(tape.forward, {first, last}, tape.forward_runs, step.call);
    if (static_cast<std::size_t>(step.op_end) == tape.forward_of_op.size())
      publish_outputs(step.call, tape, Storage::Kind::Inside);
    return_from_modules(in_.index->call_begin[step.call] + step.op_end);
  }

  void backward(const Instruction& step) {
    const Tape& tape = tape_of(step.call);
    const int call_begin = in_.index->call_begin[step.call];
    if (!in_backward_of_ || current_call_ != step.call) begin_backward(step.call, tape);
    const std::int32_t first = tape.backward_of_op[step.op_end - 1].first;
    const std::int32_t last = tape.backward_of_op[step.op_begin].last;
    play(tape.backward, {first, last}, tape.backward_runs, step.call);
    backward_position_ = call_begin + step.op_begin;
    hooks_are_due_ = true;
  }

  /// The hooks of units after the backward so far have run.
  void end_hooks() {
    if (!is_backward_) return;
    if (in_backward_of_ && std::exchange(hooks_are_due_, false)) {
      const Tape& tape = tape_of(current_call_);
      const int op = backward_position_ - in_.index->call_begin[current_call_];
      if (!tape.hooks_of_op.empty()) {
        play(tape.backward, tape.hooks_of_op[op], tape.backward_runs, current_call_);
      }
    }
    grads_.reach(backward_position_);
  }

  /// The post-backward hook of a unit runs, after those of units inside it.
  void begin_hook(int unit) {
    if (is_backward_) grads_.reach_inside(unit, backward_position_);
  }

  /// `number`: of the micro-batch in its step.
  void begin_micro_batch(std::int64_t number) {
    if (number > 0) last_loss_.hold(loss_bytes());
    num_carried_ = 0;
    next_held_ = 0;
    pass_ = 0;
    begin_pass();
  }

  void begin_pass() {
    backward_position_ = in_.index->num_positions();
    in_backward_of_ = false;
    is_backward_ = false;
  }

  /// The loss is one scalar per loss value; its gradient is a one.
  void begin_whole_backward() {
    if (is_backward_) return;
    is_backward_ = true;
    last_loss_.drop();
    drop_cached();
    for (const HeldValue& held : model_.held) {
      if (is_held(held)) drop(storage_of_value_[held.value]);
    }
    const auto make = [&](SingleTensor what, std::int64_t bytes) {
      sink_.alloc(in_.ids->of(what), bytes, MemoryStream::Compute, MemoryCategory::Temp);
    };
    make(SingleTensor::LossGrad, returned_loss_bytes());
    has_loss_gradient_ = true;
    if (!casts_loss()) return;
    make(SingleTensor::CastLossGrad, loss_bytes());
    const int id = in_.ids->of(SingleTensor::CastLossGrad);
    refs_[id] = 1;
    grads_.begin(loss(), id);
  }

  /// The root's results have output_dtype. Other units return that of activations, which check() enforces.
  std::int64_t returned_loss_bytes() const {
    const std::optional<Dtype>& output = in_.plan->mixed_precision.output_dtype;
    const bool is_returned = model_.calls.empty() || model_.calls.back().module >= 0;
    return output && is_returned ? size_of(*output).count() : loss_bytes();
  }
  bool casts_loss() const { return loss() >= 0 && returned_loss_bytes() != loss_bytes(); }

  std::int64_t loss_bytes() const {
    for (std::size_t c = model_.calls.size(); c-- > 0;) {
      const std::vector<int>& outputs = model_.calls[c].outputs;
      for (std::size_t o = 0; o < outputs.size(); ++o) {
        if (outputs[o] == loss()) return (*in_.tapes)[c]->output_bytes[o];
      }
    }
    return 4;
  }

  /// Autograd has returned; tensors that the script holds still exist.
  void drop_loss_gradient() {
    if (std::exchange(has_loss_gradient_, false)) sink_.free(in_.ids->of(SingleTensor::LossGrad));
  }

  /// After backward: frees the loss and gradients of values that nothing waits for. Tensors that variables of the
  /// script hold stay until the last backward of the step has ended, and some until the variable is reassigned.
  void end_backward() {
    drop_loss_gradient();
    if (casts_loss()) sink_.free(in_.ids->of(SingleTensor::CastLoss));
    if (++pass_ < static_cast<int>(model_.passes.size())) {
      grads_.end_backward();
      return begin_pass();
    }
    for (const int id : unused_) drop(id);
    unused_.clear();
    grads_.end_backward();
    for (std::size_t i = 0; i < num_carried_; ++i) leave(carried_[i]);
  }

 private:
  // The start of this backward.
  int loss() const { return has_passes(model_) ? model_.passes[static_cast<std::size_t>(pass_)].loss : model_.loss; }

  bool is_a_loss(int value) const {
    const auto begins = [&](const Pass& pass) { return pass.loss == value; };
    return value == model_.loss || std::any_of(model_.passes.begin(), model_.passes.end(), begins);
  }

  /// A tensor that a variable of the script holds until the next micro-batch reassigns it. The held tensor keeps its
  /// place, so the next one has another id: the two alternate.
  struct Carried {
    int own = -1;    // Its id, and
    int other = -1;  // the one that alternates with it. Without an own one it is made after the backward.
    std::int64_t bytes = 0;
    bool is_swapped = false;
    int left = -1;  // That of the micro-batch before, if it still exists.
  };

  static int current(const Carried& carried) { return carried.is_swapped ? carried.other : carried.own; }

  // `held`: the tensor, if the event before held it. The end of the backward no longer frees it.
  void carry(int held, int other, std::int64_t bytes) {
    if (num_carried_ == carried_.size()) carried_.push_back({.own = held, .other = other, .bytes = bytes});
    if (carried_[num_carried_++].own >= 0) unused_.pop_back();
  }

  void leave(Carried& carried) {
    const bool is_held = carried.own >= 0;
    if (carried.left >= 0) return is_held ? drop(current(carried)) : void();
    carried.left = is_held ? current(carried) : carried.other;
    if (is_held) {
      carried.is_swapped = !carried.is_swapped;
      return;
    }
    refs_[carried.left] = 1;
    sink_.alloc(carried.left, carried.bytes, MemoryStream::Compute, MemoryCategory::Activation);
  }

  void drop_carried(std::size_t which) {
    if (which < carried_.size() && carried_[which].left >= 0) drop(std::exchange(carried_[which].left, -1));
  }

  // For a storage that a call makes.
  int id_of(int call, int storage) const { return turned(in_.ids->call_base[call] + storage); }

  int turned(int id) const {
    for (const Carried& carried : carried_) {
      if (carried.own == id) return current(carried);
    }
    return id;
  }

  const Tape& tape_of(int call) const { return *(*in_.tapes)[call]; }

  void find_casts() {
    const std::vector<bool> cast = inputs_cast_by_root(model_, *in_.plan);
    if (std::find(cast.begin(), cast.end(), true) == cast.end()) return;
    cast_of_value_.assign(model_.values.size(), -1);
    readers_of_cast_.assign(cast.size(), 0);
    for (std::size_t i = 0; i < cast.size(); ++i) {
      if (!cast[i]) continue;
      cast_of_value_[model_.inputs[i]] = in_.ids->input_cast(static_cast<int>(i));
      for (const Call& call : model_.calls) {
        if (call.module < 0) continue;
        readers_of_cast_[i] += static_cast<int>(std::count(call.inputs.begin(), call.inputs.end(), model_.inputs[i]));
      }
    }
  }
  bool is_cast(int value) const { return !cast_of_value_.empty() && cast_of_value_[value] >= 0; }

  int storage_of_input(const Call& call, int input) const {
    const int value = call.inputs[input];
    return call.module >= 0 && is_cast(value) ? cast_of_value_[value] : storage_of_value_[value];
  }

  bool is_held(const HeldValue& held) const { return !held.if_cached || in_.use_cache; }

  void drop_cached() {
    for (const int id : cached_) sink_.free(id);
    cached_.clear();
  }

  void drop(int id) {
    if (id >= 0 && --refs_[id] == 0) sink_.free(id);
  }

  // Modules around several calls whose forward is over release their arguments.
  void return_from_modules(int position) {
    const std::vector<HeldArgument>& held = in_.index->held_arguments;
    for (; next_held_ < held.size() && held[next_held_].end <= position; ++next_held_) {
      drop(storage_of_value_[held[next_held_].value]);
    }
  }

  void begin_backward(int call, const Tape& tape) {
    begin_whole_backward();
    in_backward_of_ = true;
    current_call_ = call;
    if (!on_rerun_) {
      const Tape::Range all{0, static_cast<std::int32_t>(tape.recompute.size())};
      return play(tape.recompute, all, tape.recompute_runs, call);
    }
    const int ops = static_cast<int>(tape.recompute_of_op.size());
    for (int op = 0; op < ops; ++op) {
      on_rerun_(call, op);
      play(tape.recompute, tape.recompute_of_op[op], tape.recompute_runs, call);
    }
    on_rerun_(call, std::numeric_limits<int>::max());
  }

  void publish_outputs(int c, const Tape& tape, Storage::Kind kind) {
    const Call& call = model_.calls[c];
    for (std::size_t o = 0; o < call.outputs.size(); ++o) {
      const Storage& where = tape.output[o];
      if (where.kind != kind) continue;
      int id = -1;
      if (where.kind == Storage::Kind::Inside) id = id_of(c, where.index);
      if (where.kind == Storage::Kind::Input) id = storage_of_input(call, where.index);
      storage_of_value_[call.outputs[o]] = id;
      if (id < 0) continue;
      const int users = consumers_[call.outputs[o]];
      refs_[id] += users;
      if (where.kind == Storage::Kind::Inside && tape.output_is_kept[o] && is_first_name(tape, o)) ++refs_[id];
      const bool is_loss = is_a_loss(call.outputs[o]);
      if (is_loss && casts_loss()) {
        sink_.alloc(in_.ids->of(SingleTensor::CastLoss), returned_loss_bytes(), MemoryStream::Compute,
                    MemoryCategory::Activation);
      }
      if (refs_[id] > 0) continue;
      if (is_loss && !casts_loss()) {
        refs_[id] = 1;
        unused_.push_back(id);
      } else {
        sink_.free(id);
      }
    }
  }

  // Position of the op whose backward contains an event.
  int position_in_backward(int c, std::int32_t event) const {
    const std::vector<Tape::Range>& of_op = tape_of(c).backward_of_op;
    const auto behind =
        std::partition_point(of_op.begin(), of_op.end(), [&](const Tape::Range& range) { return range.last > event; });
    return in_.index->call_begin[c] + std::max(0, static_cast<int>(behind - of_op.begin()) - 1);
  }

  // Two outputs can be views of one storage, which the call itself holds once.
  static bool is_first_name(const Tape& tape, std::size_t output) {
    for (std::size_t o = 0; o < output; ++o) {
      if (tape.output[o].kind == Storage::Kind::Inside && tape.output[o].index == tape.output[output].index)
        return false;
    }
    return true;
  }

  // A sink that only counts takes all events in runs: it does not see single tensors.
  void play(const std::vector<TapeEvent>& events, Tape::Range range, const Tape::RunsOfPieces& runs, int c) {
    if constexpr (requires { sink_.play(TapeRun{}); }) {
      const Tape::Range& all = runs.front().of;
      if (all.first == range.first && all.last == range.last) return play(events, runs.front(), c);
      for (std::size_t piece = 1; piece < runs.size(); ++piece) {
        const Tape::Range& of = runs[piece].of;
        if (of.first >= range.first && of.last <= range.last) play(events, runs[piece], c);
      }
    } else {
      // Nearly all events are of these two kinds.
      for (std::int32_t e = range.first; e < range.last; ++e) {
        const TapeEvent& event = events[e];
        if (event.kind == TapeEvent::Kind::Alloc) {
          sink_.alloc(id_of(c, event.storage), event.bytes, MemoryStream::Compute, event.category);
        } else if (event.kind == TapeEvent::Kind::Free) {
          sink_.free(id_of(c, event.storage));
        } else {
          play(event, e, c);
        }
      }
    }
  }

  void play(const std::vector<TapeEvent>& events, const Tape::Runs& runs, int c) {
    for (const TapeRun& run : runs.runs) run.event < 0 ? sink_.play(run) : play(events[run.event], run.event, c);
  }

  void play(const TapeEvent& event, std::int32_t e, int c) {
    const Call& call = model_.calls[c];
    const int own = id_of(c, event.storage);
    switch (event.kind) {
      case TapeEvent::Kind::Alloc:
        return sink_.alloc(own, event.bytes, MemoryStream::Compute, event.category);
      case TapeEvent::Kind::Free:
        return sink_.free(own);
      case TapeEvent::Kind::ReleaseInput:
        drop(storage_of_input(call, event.storage));
        break;
      case TapeEvent::Kind::HoldInput:
        unused_.push_back(storage_of_input(call, event.storage));
        break;
      case TapeEvent::Kind::HoldOwn:
        hold_own(own, in_.ids->call_base[c] + event.storage);
        break;
      case TapeEvent::Kind::HoldInForward:
        return cached_.push_back(own);
      case TapeEvent::Kind::LeaveAutocast:
        return drop_cached();
      case TapeEvent::Kind::ReleaseOutput:
        drop(own);
        break;
      case TapeEvent::Kind::ShareGrad:
        ++refs_[own];
        break;
      case TapeEvent::Kind::UnshareGrad:
        drop(own);
        break;
      case TapeEvent::Kind::Carry:
        carry(event.is_view ? last_held_ : -1, in_.ids->call_base[c] + event.storage, event.bytes);
        break;
      case TapeEvent::Kind::DropCarried:
        drop_carried(static_cast<std::size_t>(event.storage));
        break;
      case TapeEvent::Kind::ReleaseParam:
        if (on_released_) on_released_(call.parameters[event.storage]);
        break;
      case TapeEvent::Kind::CallUnit:
        if (on_unit_call_) on_unit_call_(static_cast<UnitCall>(event.storage));
        break;
      case TapeEvent::Kind::Benchmark:
        return benchmark(event.storage, event.bytes);
      case TapeEvent::Kind::Exchange:
        return sink_.collective();
      case TapeEvent::Kind::Workspace:
        workspace(event.storage % 2 == 1, is_backward_ || event.storage >= 2);
        break;
      default:
        play_gradient(event, e, c);
    }
  }

  void play_gradient(const TapeEvent& event, std::int32_t e, int c) {
    const Call& call = model_.calls[c];
    const int own = id_of(c, event.storage);
    switch (event.kind) {
      case TapeEvent::Kind::AllocParamGrad:
        units_.make_grad(call.parameters[event.storage], event.bytes, event.is_view);
        break;
      case TapeEvent::Kind::AddParamGrad:
        units_.add_grad(call.parameters[event.storage]);
        break;
      case TapeEvent::Kind::ReleaseGradOut:
        grads_.release(c, event.storage);
        break;
      case TapeEvent::Kind::ReleaseGradIn:
        grads_.release_input(c, event.storage, position_in_backward(c, e));
        break;
      case TapeEvent::Kind::EmitGrad:
        ++refs_[own];
        grads_.add(c, static_cast<int>(event.bytes), position_in_backward(c, e), own, event.is_view);
        break;
      case TapeEvent::Kind::ForwardGradOut:
        grads_.forward(c, event.storage, static_cast<int>(event.bytes), position_in_backward(c, e), event.is_view);
        break;
      case TapeEvent::Kind::EmitInput:
        grads_.add(c, static_cast<int>(event.bytes), position_in_backward(c, e), storage_of_input(call, event.storage),
                   event.is_view);
        break;
      default:
        break;
    }
  }

  void hold_own(int own, int tensor) {
    refs_[own] = std::max(refs_[own], 1);
    unused_.push_back(own);
    last_held_ = tensor;
  }

  void benchmark(int number, std::int64_t bytes) {
    if (std::find(benchmarked_.begin(), benchmarked_.end(), number) != benchmarked_.end()) return;
    benchmarked_.push_back(number);
    const int id = in_.ids->of(SingleTensor::Benchmark);
    sink_.alloc(id, bytes, MemoryStream::Compute, MemoryCategory::Temp);
    sink_.free(id);
  }

  // A call of cuBLASLt goes through a handle of cuBLAS, which also allocates its workspace if it is kept.
  void workspace(bool lt, bool backward) {
    if (in_.cublas_workspace == Bytes(0)) return;  // The CPU has no cuBLAS.
    const Quirks& quirks = in_.plan->runtime.quirks;
    switch (quirks.cublas_workspaces) {
      case CublasWorkspaces::Kept:
        keep_workspace(false, backward, in_.cublas_workspace);
        if (lt) keep_workspace(true, backward, quirks.cublaslt_workspace);
        return;
      case CublasWorkspaces::LtPerCall:
        if (!lt) return keep_workspace(false, backward, in_.cublas_workspace);
        make_workspace(true, backward, quirks.cublaslt_workspace);
        keep_workspace(false, backward, in_.cublas_workspace);
        return sink_.free(workspace_id(true, backward));
      case CublasWorkspaces::Shared:
        return keep_workspace(false, backward, in_.cublas_workspace);
      case CublasWorkspaces::PerCall:
        make_workspace(lt, backward, lt ? quirks.cublaslt_workspace : in_.cublas_workspace);
        return sink_.free(workspace_id(lt, backward));
    }
  }

  // Per thread: the forward runs on the caller's, the backward on autograd's.
  static int workspace_number(bool lt, bool backward) { return 2 * (lt ? 1 : 0) + (backward ? 1 : 0); }

  int workspace_id(bool lt, bool backward) const {
    constexpr SingleTensor kTensors[] = {SingleTensor::ForwardWorkspace, SingleTensor::BackwardWorkspace,
                                         SingleTensor::ForwardLtWorkspace, SingleTensor::BackwardLtWorkspace};
    return in_.ids->of(kTensors[workspace_number(lt, backward)]);
  }

  void make_workspace(bool lt, bool backward, Bytes bytes) {
    sink_.alloc(workspace_id(lt, backward), bytes.count(), MemoryStream::Compute, MemoryCategory::Temp);
  }

  void keep_workspace(bool lt, bool backward, Bytes bytes) {
    if (!std::exchange(has_workspace_[workspace_number(lt, backward)], true)) make_workspace(lt, backward, bytes);
  }

  const WalkInput& in_;
  const Model& model_;
  Sink& sink_;
  UnitWalk<Sink>& units_;
  std::function<void(int call, int op)> on_rerun_;
  std::function<void(int)> on_released_;
  std::function<void(UnitCall)> on_unit_call_;
  RefCounts refs_;
  std::vector<int> storage_of_value_;  // [num values]
  ValueGradWalk<Sink> grads_;
  std::vector<int> consumers_;        // [num values]
  std::vector<int> cast_of_value_;    // [num values] The root's cast of it, or -1. Empty if the root casts nothing.
  std::vector<int> readers_of_cast_;  // [num inputs] Calls inside the root.
  std::vector<int> unused_;
  std::vector<int> cached_;  // Autocast's copies of parameters that nothing else holds.
  LastLoss<Sink> last_loss_;
  std::vector<Carried> carried_;  // In a micro-batch's order.
  std::size_t num_carried_ = 0;   // In this micro-batch.
  int last_held_ = -1;            // By HoldOwn: its id without alternation.
  bool has_workspace_[4] = {};
  std::vector<int> benchmarked_;  // Numbers of kernels that Triton has measured.
  bool has_inputs_ = false;
  bool must_enter_root_ = false;
  bool in_backward_of_ = false;
  bool hooks_are_due_ = false;
  bool is_backward_ = false;
  bool has_loss_gradient_ = false;
  int current_call_ = -1;
  int backward_position_ = 0;  // Ops from this one on have had their backward.
  int turn_ = 0;
  int pass_ = 0;               // An index of Model::passes.
  std::size_t next_held_ = 0;  // Index of the arguments that modules around several calls hold.
};

}  // namespace fsdp::simulator
