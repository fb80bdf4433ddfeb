// The backward of a block, node by node. tape.cpp explains how we play autograd.

#include <algorithm>
#include <utility>

#include "simulator/ops/strides.h"
#include "simulator/ops/tape_recorder.h"

namespace fsdp::simulator {

// What the backward needs before its first node runs.
void TapeRecorder::begin_backward() {
  tape_.input_grad_strides.resize(static_cast<std::size_t>(block_.num_inputs));
  is_handed_out_.assign(static_cast<std::size_t>(block_.num_inputs), false);
  inside_ = std::max(inside_, std::int64_t{0});
  grad_of_slot_.assign(program_.slots.size(), Grad{});
  find_hooks();
  for (std::size_t o = 0; o < block_.outputs.size(); ++o) seed(static_cast<int>(o));
}

// One before the last kernel whose node unpacks a saved tensor: those after it run before the recomputation, which the
// first unpacking starts. All kernels if a node before it passes a gradient to another call or to a hook.
std::size_t TapeRecorder::begin_of_early_nodes() const {
  const std::size_t all = program_.kernels.size();
  const auto is_of_others = [&](int slot) { return slot < block_.num_inputs || is_parameter(slot); };
  for (const int value : block_.outputs) {
    if (is_of_others(program_.value_slot[value])) return all;
  }
  for (std::size_t k = all; k-- > 0;) {
    const Kernel& kernel = program_.kernels[k];
    if (!flow_.active[k]) continue;
    const auto unpacks = [&](const SavedSlot& saved) { return is_saved(kernel, saved); };
    if (std::any_of(kernel.saved.begin(), kernel.saved.end(), unpacks)) return k + 1;
    const auto begins_later = [&](const Span& hooked) { return hooked.begin >= kernel.op; };
    if (std::any_of(context_.hooks.begin(), context_.hooks.end(), begins_later)) break;
    if (std::any_of(kernel.inputs.begin(), kernel.inputs.end(),
                    [&](const KernelInput& i) { return is_of_others(i.slot); }))
      break;
  }
  return all;
}

void TapeRecorder::run_early_nodes() {
  events_ = &tape_.recompute;
  in_backward_ = true;
  inside_ = tape_.kept_bytes;
  num_late_nodes_ = begin_of_early_nodes();
  if (num_late_nodes_ == program_.kernels.size()) return;
  begin_backward();
  for (std::size_t k = program_.kernels.size(); k-- > num_late_nodes_;) {
    if (flow_.active[k]) run_backward(program_.kernels[k]);
  }
}

void TapeRecorder::backward() {
  events_ = &tape_.backward;
  in_backward_ = true;
  if (num_late_nodes_ == program_.kernels.size()) begin_backward();
  int first_active = -1;
  for (std::size_t k = 0; k < program_.kernels.size() && first_active < 0; ++k) {
    if (flow_.active[k]) first_active = program_.kernels[k].op;
  }
  std::size_t k = program_.kernels.size();
  bool has_begun = false;  // Gradients that pass through belong to the first op that has a backward.
  for (int o = static_cast<int>(block_.ops.size()) - 1; o >= 0; --o) {
    Tape::Range& range = tape_.backward_of_op[o];
    if (has_begun) range.first = static_cast<std::int32_t>(events_->size());
    for (; k > 0 && program_.kernels[k - 1].op == o; --k) {
      if (k > num_late_nodes_) continue;
      has_begun = has_begun || flow_.active[k - 1];
      if (!flow_.active[k - 1]) continue;
      enter_inner(k - 1);
      run_backward(program_.kernels[k - 1]);
    }
    if (o == first_active) end_of_backward();
    if (has_begun) range.last = static_cast<std::int32_t>(events_->size());
    if (!context_.hooks.empty()) pass_hooks(o);
  }
  // A call without one, such as a cast to its own dtype: its first op passes the gradients on.
  if (!has_begun && !block_.ops.empty()) {
    tape_.backward_of_op.front() = {0, static_cast<std::int32_t>(events_->size())};
  }
  in_backward_ = false;
}

// Finds the op that makes each slot, and the op whose backward completes each hook's module.
void TapeRecorder::find_hooks() {
  if (context_.hooks.empty()) return;
  tape_.hooks_of_op.resize(block_.ops.size());
  maker_of_slot_.assign(program_.slots.size(), -1);
  last_op_of_hook_.assign(context_.hooks.size(), -1);
  for (std::size_t k = program_.kernels.size(); k-- > 0;) {
    const Kernel& kernel = program_.kernels[k];
    for (const int slot : kernel.outputs) maker_of_slot_[slot] = kernel.op;
    for (std::size_t h = 0; h < context_.hooks.size(); ++h) {
      const Span& hook = context_.hooks[h];
      if (flow_.active[k] && hook.begin <= kernel.op && kernel.op < hook.end) last_op_of_hook_[h] = kernel.op;
    }
  }
}

void TapeRecorder::seed(int output) {
  const int slot = program_.value_slot[block_.outputs[output]];
  if (!context_.output_reaches_loss[output] || !flow_.requires_grad[slot]) return;
  // A block input or parameter that is also an output has no node here; its gradient passes through.
  const int names = is_reentrant() ? 2 : 1;
  grads_.push_back({.refs = names, .tape_storage = -1, .block_output = output, .parameter = -1, .bytes = 0});
  if (is_reentrant()) held_gradients_.push_back(static_cast<int>(grads_.size()) - 1);
  const auto& strides = context_.output_grad_strides;
  accumulate(slot, {static_cast<int>(grads_.size()) - 1, false, strides.empty() ? Shape{} : strides[output]}, 0);
}

void TapeRecorder::run_backward(const Kernel& kernel) {
  Grad grad_out;
  for (const int slot : kernel.outputs) {
    if (grad_out.storage < 0) grad_out = grad_of_slot_[slot];
  }
  if (grad_out.storage < 0) return;
  if (!kernel.backward_steps.empty()) return run_steps(kernel, grad_out);
  if (must_flatten(kernel, grad_out)) {
    const int slot = kernel.outputs.front();
    grad_out = grad_of_slot_[slot] = copied(grad_out, program_.slots[slot].bytes(), kernel.op);
  }
  std::vector<int> whole;
  const auto copy_for_the_node = [&](GradientOrder::Kind kind) {
    if (kernel.order.kind != kind || grad_out.strides.empty()) return;
    const std::int64_t bytes = program_.slots[kernel.outputs.front()].bytes();
    whole.push_back(make_temporary(bytes, kernel.op, MemoryCategory::Temp));
  };
  copy_for_the_node(GradientOrder::Kind::Copied);
  for (const int temporary : start_temporaries(kernel)) whole.push_back(temporary);
  if (kernel.freed_early >= 0) release_saved(storage_of(kernel.freed_early));
  make_zeros_of_parts(kernel, whole);
  std::vector<std::pair<int, Grad>> made;
  std::vector<int> unsummed;
  const auto is_wanted = [&](const KernelInput& input) {
    return input.grad != GradRule::None && flow_.requires_grad[input.slot];
  };
  use_for_all_gradients(kernel);
  for (const KernelInput& input : kernel.inputs) {
    if (!is_wanted(input)) continue;
    made.emplace_back(input.slot, input.is_summed ? Grad{} : gradient_of(kernel, input, grad_out));
    if (!input.is_summed) drop_temporaries(make_temporaries(input.scratch, kernel.op, MemoryCategory::Temp));
    unsummed.push_back(input.unsummed > 0 ? make_temporary(input.unsummed, kernel.op, MemoryCategory::Temp) : -1);
    // The first product requests it, after it has allocated its result.
    if (kernel.kind == KernelKind::Gemm || kernel.kind == KernelKind::GemmLt) emit(Kind::Workspace, 0);
    if (input.benchmark >= 0) emit(Kind::Benchmark, input.benchmark, kTritonBenchmarkBytes);
    use(input.workspace, kernel.op, MemoryCategory::Temp);
  }
  if (kernel.exchanged > 0 && !made.empty()) exchange(kernel);
  copy_for_the_node(GradientOrder::Kind::CopiedLate);
  end_temporaries(kernel, whole);
  const auto release_all_saved = [&] {
    for (const SavedSlot& saved : kernel.saved) {
      if (saved.slot != kernel.freed_early && is_saved(kernel, saved)) release_saved(storage_of(saved.slot));
    }
  };
  // The node owns a recomputed tensor and frees it when it returns; a Python Function sums before that.
  if (is_checkpointed() && !kernel.saves_when_done) release_all_saved();
  std::vector<std::size_t> deferred;  // In `made`.
  std::vector<const KernelInput*> wanted;
  for (const KernelInput& input : kernel.inputs) {
    if (!is_wanted(input)) continue;
    if (input.is_summed) deferred.push_back(wanted.size());
    wanted.push_back(&input);
  }
  if (kernel.sums_in_reverse) std::reverse(deferred.begin(), deferred.end());
  for (const std::size_t i : deferred) {
    sum_gradient(kernel, *wanted[i], unsummed[i], made[i].second, grad_out);
  }
  if (is_checkpointed() && kernel.saves_when_done) release_all_saved();
  for (const int slot : kernel.outputs) {
    if (grad_of_slot_[slot].storage >= 0) release(grad_of_slot_[slot].storage);
    grad_of_slot_[slot] = {};
  }
  if (!is_checkpointed()) release_all_saved();
  leave_inner(static_cast<std::size_t>(&kernel - program_.kernels.data()));
  for (const auto& [slot, grad] : made) accumulate(slot, grad, kernel.op);
}

void TapeRecorder::make_zeros_of_parts(const Kernel& kernel, std::vector<int>& temporaries) {
  for (const int slot : kernel.outputs) {
    if (kernel.kind != KernelKind::View || grad_of_slot_[slot].storage >= 0) continue;
    temporaries.push_back(make_temporary(program_.slots[slot].bytes(), kernel.op, MemoryCategory::Temp));
  }
}

// One call makes all gradients, and allocates them one after the other at its peak.
void TapeRecorder::use_for_all_gradients(const Kernel& kernel) {
  if (kernel.backward_workspaces.empty()) return;
  std::size_t wanted = 0;
  std::int64_t gradients = 0;
  for (std::size_t i = 0; i < kernel.inputs.size(); ++i) {
    const KernelInput& input = kernel.inputs[i];
    if (input.grad == GradRule::None || !flow_.requires_grad[input.slot]) continue;
    wanted |= std::size_t{1} << i;
    gradients += program_.slots[input.slot].bytes();
  }
  use(kernel.backward_workspaces[wanted], kernel.op, MemoryCategory::Temp, gradients);
}

// Replaces a gradient that is not contiguous by a contiguous copy.
TapeRecorder::Grad TapeRecorder::copied(const Grad& grad, std::int64_t bytes, int op) {
  const int storage = new_storage(bytes, op);
  emit(Kind::Alloc, storage, bytes, MemoryCategory::Temp);
  inside_ += bytes;
  note_peak();
  release(grad.storage);
  grads_.push_back({.refs = 1, .tape_storage = storage, .block_output = -1, .parameter = -1, .bytes = bytes});
  return {static_cast<int>(grads_.size()) - 1, false, {}};
}

bool TapeRecorder::must_flatten(const Kernel& kernel, const Grad& grad) const {
  if (grad.strides.empty()) return false;
  const bool is_flattened =
      kernel.order.kind == GradientOrder::Kind::Flattened || kernel.order.kind == GradientOrder::Kind::Unrolled;
  if (!is_flattened) return kernel.order.kind == GradientOrder::Kind::Dense;
  const Shape& shape = kernel.order.output;
  std::int64_t rows = 1;
  for (std::size_t d = 0; d + 1 < shape.size(); ++d) rows *= shape[d];
  return !strides_as(shape, grad.strides, {rows, shape.back()});
}

// The strides of the gradient of an input. Empty if contiguous.
Shape TapeRecorder::order_of(const Kernel& kernel, const KernelInput& input, const Grad& grad_out) const {
  const GradientOrder& order = kernel.order;
  switch (order.kind) {
    case GradientOrder::Kind::Transposed: {
      Shape strides = grad_out.strides;
      Shape turned = order.input;
      std::swap(turned[order.dim], turned[order.other_dim]);
      if (strides.empty()) strides = dense_strides(turned);
      std::swap(strides[order.dim], strides[order.other_dim]);
      return is_dense(order.input, strides) ? Shape{} : strides;
    }
    case GradientOrder::Kind::Cut: {
      if (input.is_summed) return {};  // A cast part is a copy in order.
      const Shape strides = grad_out.strides.empty() ? dense_strides(order.output) : grad_out.strides;
      Shape part = order.output;
      std::int64_t others = 1;
      for (std::size_t d = 0; d < part.size(); ++d) others *= static_cast<int>(d) == order.dim ? 1 : part[d];
      part[order.dim] = program_.slots[input.slot].elements / others;
      return is_dense(part, strides) ? Shape{} : strides;
    }
    case GradientOrder::Kind::Reshaped:
      if (grad_out.strides.empty()) return {};
      return strides_as(order.output, grad_out.strides, order.input).value_or(Shape{});
    case GradientOrder::Kind::Followed:
      return program_.slots[input.slot].strides;
    case GradientOrder::Kind::Turned: {
      Shape turned = program_.slots[input.slot].shape;
      if (turned.empty()) return {};
      std::swap(turned[order.dim], turned[order.other_dim]);
      Shape strides = dense_strides(turned);
      std::swap(strides[order.dim], strides[order.other_dim]);
      return strides;
    }
    case GradientOrder::Kind::Joined: {
      // at::cat of four dimensions in the order "channels last" keeps it.
      const Shape& shape = order.input;
      const auto is_last = [&](int slot) {
        const Shape& strides = grad_of_slot_[slot].strides;
        return strides.size() == 4 && strides[1] == 1 && strides[3] == shape[1];
      };
      if (!std::all_of(kernel.outputs.begin(), kernel.outputs.end(), is_last)) return {};
      return {shape[1] * shape[2] * shape[3], 1, shape[1] * shape[3], shape[1]};
    }
    case GradientOrder::Kind::Dense:
    case GradientOrder::Kind::Unrolled:
      return {};
    default: {
      const bool is_alike = kernel.outputs.size() == 1 &&
                            program_.slots[input.slot].elements == program_.slots[kernel.outputs.front()].elements;
      const bool passes = kernel.kind == KernelKind::Elementwise || kernel.kind == KernelKind::View;
      return passes && is_alike ? grad_out.strides : Shape{};
    }
  }
}

// The engine's `validate_outputs` sums gradients that have the shape of the output.
void TapeRecorder::sum_gradient(const Kernel& kernel, const KernelInput& input, int unsummed, Grad& grad,
                                const Grad& grad_out) {
  const bool casts = input.sum_bytes > 0;
  const int sum = casts ? make_temporary(input.sum_bytes, kernel.op, MemoryCategory::Temp) : -1;
  if (!casts) grad = gradient_of(kernel, input, grad_out);
  drop_temporaries(make_temporaries(input.scratch, kernel.op, MemoryCategory::Temp));
  if (unsummed >= 0) drop_temporary(unsummed);
  if (!casts) return;
  grad = gradient_of(kernel, input, grad_out);
  drop_temporary(sum);
}

std::vector<int> TapeRecorder::start_temporaries(const Kernel& kernel) {
  std::vector<int> whole;
  std::vector<int> early;
  for (const BackwardTemp& temp : kernel.backward_temps) {
    if (!is_needed(kernel, temp) || (temp.life != TempLife::Whole && temp.life != TempLife::Early)) continue;
    auto& made = temp.life == TempLife::Whole ? whole : early;
    made.push_back(make_temporary(temp.bytes, kernel.op, temp.category));
  }
  for (auto i = early.rbegin(); i != early.rend(); ++i) drop_temporary(*i);
  return whole;
}

void TapeRecorder::end_temporaries(const Kernel& kernel, const std::vector<int>& whole) {
  std::vector<int> late;
  std::vector<int> brief;
  const auto drop_all = [&](std::vector<int>& made) {
    for (auto i = made.rbegin(); i != made.rend(); ++i) drop_temporary(*i);
    made.clear();
  };
  for (const BackwardTemp& temp : kernel.backward_temps) {
    if (!is_needed(kernel, temp) || temp.life == TempLife::Whole || temp.life == TempLife::Early) continue;
    const bool is_brief = temp.life == TempLife::Brief || temp.life == TempLife::Next;
    if (temp.life == TempLife::Late || temp.life == TempLife::Next) drop_all(brief);
    auto& made = is_brief ? brief : late;
    made.push_back(make_temporary(temp.bytes, kernel.op, temp.category));
    if (temp.life == TempLife::Handed) drop_all(brief);
  }
  drop_all(brief);
  drop_all(late);
  for (auto i = whole.rbegin(); i != whole.rend(); ++i) drop_temporary(*i);
}

TapeRecorder::Grad TapeRecorder::gradient_of(const Kernel& kernel, const KernelInput& input, const Grad& grad_out) {
  Shape strides = order_of(kernel, input, grad_out);
  if (input.grad == GradRule::Alias) {
    ++grads_[grad_out.storage].refs;
    const Grad same = {grad_out.storage, grad_out.is_view || kernel.kind == KernelKind::View, std::move(strides)};
    const bool fits = kernel.order.kind != GradientOrder::Kind::Reshaped || grad_out.strides.empty() ||
                      strides_as(kernel.order.output, grad_out.strides, kernel.order.input).has_value();
    return fits ? same : copied(same, program_.slots[input.slot].bytes(), kernel.op);
  }
  const std::int64_t bytes = program_.slots[input.slot].bytes();
  if (input.grad == GradRule::InPlace) {
    const Grad& own = grad_of_slot_[kernel.outputs[input.of_output]];
    if (own.storage >= 0 && own.strides.empty()) {
      ++grads_[own.storage].refs;
      return {own.storage, true, {}};
    }
    strides = {};
  }
  if (input.grad == GradRule::Kept && !is_parameter(input.slot)) {
    // The saved tensor becomes the gradient.
    const int kept = storage_of(input.kept);
    alive_[kept] = false;
    if (program_.storages[kept].kind == Storage::Kind::Input) {
      ++saves_[kept];  // Nobody releases it: it is handed out.
      grads_.push_back({.refs = 1, .block_input = program_.storages[kept].index});
      return {static_cast<int>(grads_.size()) - 1, false, std::move(strides)};
    }
    grads_.push_back({.refs = 1, .tape_storage = name_[kept], .block_output = -1, .parameter = -1, .bytes = bytes});
    return {static_cast<int>(grads_.size()) - 1, false, std::move(strides)};
  }
  // That of a parameter goes, and its size comes again.
  if (input.grad == GradRule::Kept) free(storage_of(input.kept));
  GradStorage grad{.refs = 1, .tape_storage = -1, .block_output = -1, .parameter = -1, .bytes = bytes};
  if (is_parameter(input.slot)) {
    grad.parameter = program_.storages[storage_of(input.slot)].index;
    const bool is_view = input.grad == GradRule::FreshView || program_.slots[input.slot].is_dtensor;
    events_->push_back({Kind::AllocParamGrad, is_view, MemoryCategory::UnshardedGrad, grad.parameter, bytes});
  } else {
    grad.tape_storage = new_storage(bytes, kernel.op);
    emit(Kind::Alloc, grad.tape_storage, bytes, MemoryCategory::Temp);
    inside_ += bytes;
    note_peak();
  }
  grads_.push_back(grad);
  const bool is_view = input.grad == GradRule::FreshView || input.grad == GradRule::InPlace;
  return {static_cast<int>(grads_.size()) - 1, is_view, std::move(strides)};
}

void TapeRecorder::release(int grad) {
  GradStorage& storage = grads_[grad];
  if (--storage.refs > 0) return;
  if (storage.block_output >= 0) emit(Kind::ReleaseGradOut, storage.block_output);
  if (storage.is_shared) return emit(Kind::UnshareGrad, storage.tape_storage);
  if (storage.tape_storage >= 0) {
    emit(Kind::Free, storage.tape_storage);
    inside_ -= storage.bytes;
  }
}

void TapeRecorder::release_saved(int storage) {
  if (--saves_[storage] > 0) return;
  switch (program_.storages[storage].kind) {
    case Storage::Kind::Parameter:
      return release_parameter(program_.storages[storage].index);
    case Storage::Kind::Input:
      if (!is_checkpointed()) emit(Kind::ReleaseInput, storage);
      if (is_on_host(storage)) free(storage);
      return;
    case Storage::Kind::Inside:
      if (is_output_[storage] && !is_checkpointed()) {
        emit(Kind::ReleaseOutput, storage);
      } else {
        free(storage);
      }
      return;
  }
}

void TapeRecorder::release_parameter(int parameter) {
  if (is_parameter_kept_.empty() || !is_parameter_kept_[parameter]) return;
  is_parameter_kept_[parameter] = false;
  emit(Kind::ReleaseParam, parameter);
}

// The caller names the model's outputs until its backward has returned.
void TapeRecorder::hold_to_the_end(int storage) {
  const Storage::Kind kind = program_.storages[storage].kind;
  const bool is_own = kind == Storage::Kind::Inside && !(is_output_[storage] && !is_checkpointed());
  if (kind == Storage::Kind::Parameter || --saves_[storage] > 0 || is_checkpointed()) return;
  if (is_own) {
    alive_[storage] = false;
    inside_ -= program_.storages[storage].bytes;
  }
  emit(kind == Storage::Kind::Input ? Kind::HoldInput : Kind::HoldOwn, storage);
}

void TapeRecorder::accumulate(int slot, Grad grad, int op) {
  if (is_parameter(slot)) {
    const Storage& of = program_.storages[storage_of(slot)];
    // The gradient of a cast or broadcast parameter can be another owner's tensor: then AccumulateGrad copies it.
    if (grads_[grad.storage].parameter < 0) {
      emit(Kind::AllocParamGrad, of.index, program_.slots[slot].bytes(), MemoryCategory::UnshardedGrad);
      release(grad.storage);
    }
    emit(Kind::AddParamGrad, of.index);
    return;
  }
  // The first slots are the block's inputs, to whose gradients other calls may contribute.
  if (slot < block_.num_inputs) return hand_out(slot, grad);
  const int hook = innermost_hook(slot, op);
  add_to(hook < 0 ? grad_of_slot_[slot] : waiting_at(hook, slot), slot, grad, op);
}

// Adds `grad` to the existing gradient.
void TapeRecorder::add_to(Grad& held, int slot, const Grad& grad, int op) {
  if (held.storage < 0) {
    held = grad;
    return;
  }
  if (owns(held)) {
    release(grad.storage);
  } else {
    const std::int64_t bytes = program_.slots[slot].bytes();
    const int sum = new_storage(bytes, op);
    emit(Kind::Alloc, sum, bytes, MemoryCategory::Temp);
    inside_ += bytes;
    note_peak();
    release(held.storage);
    release(grad.storage);
    grads_.push_back({.refs = 1, .tape_storage = sum, .block_output = -1, .parameter = -1, .bytes = bytes});
    held = {static_cast<int>(grads_.size()) - 1, false, held.strides};
  }
}

// The hook that collects an op's gradients for an argument of its module. -1 if there is none.
int TapeRecorder::innermost_hook(int slot, int op) const {
  for (std::size_t h = 0; h < context_.hooks.size(); ++h) {
    const Span& hook = context_.hooks[h];
    if (hook.begin <= op && op < hook.end && maker_of_slot_[slot] < hook.begin) return static_cast<int>(h);
  }
  return -1;
}

int TapeRecorder::hook_around(int hook, int slot) const {
  const Span inner = context_.hooks[hook];
  for (std::size_t h = static_cast<std::size_t>(hook) + 1; h < context_.hooks.size(); ++h) {
    const Span& outer = context_.hooks[h];
    const bool is_around = outer.begin <= inner.begin && inner.end <= outer.end;
    if (is_around && maker_of_slot_[slot] < outer.begin) return static_cast<int>(h);
  }
  return -1;
}

TapeRecorder::Grad& TapeRecorder::waiting_at(int hook, int slot) {
  for (WaitingGrad& waiting : waiting_) {
    if (waiting.hook == hook && waiting.slot == slot) return waiting.grad;
  }
  return waiting_.emplace_back(WaitingGrad{hook, slot, {}}).grad;
}

// The backward has completed modules with its part of an op: their hooks run next, and then pass on what they
// collected.
void TapeRecorder::pass_hooks(int op) {
  const auto first = static_cast<std::int32_t>(events_->size());
  for (std::size_t h = 0; h < context_.hooks.size(); ++h) {
    if (last_op_of_hook_[h] != op) continue;
    for (std::size_t i = 0; i < waiting_.size(); ++i) {
      if (waiting_[i].hook != static_cast<int>(h) || waiting_[i].grad.storage < 0) continue;
      const int slot = waiting_[i].slot;
      const Grad grad = std::exchange(waiting_[i].grad, {});
      const int outer = hook_around(static_cast<int>(h), slot);
      add_to(outer < 0 ? grad_of_slot_[slot] : waiting_at(outer, slot), slot, grad, op);
    }
  }
  tape_.hooks_of_op[op] = {first, static_cast<std::int32_t>(events_->size())};
}

// The caller decides where to sum it, because other calls contribute, too.
void TapeRecorder::hand_out(int input, const Grad& grad) {
  if (!is_handed_out_[input]) tape_.input_grad_strides[input] = grad.strides;
  is_handed_out_[input] = true;
  GradStorage& storage = grads_[grad.storage];
  if (storage.block_output >= 0) {
    events_->push_back({Kind::ForwardGradOut, grad.is_view, MemoryCategory::Temp, storage.block_output, input});
    return release(grad.storage);
  }
  if (storage.block_input >= 0) {
    events_->push_back({Kind::EmitInput, grad.is_view, MemoryCategory::Temp, storage.block_input, input});
    return release(grad.storage);
  }
  const bool is_last = --storage.refs == 0;
  if (!storage.is_shared) inside_ -= storage.bytes;
  if (!is_last && !storage.is_shared) {
    emit(Kind::ShareGrad, storage.tape_storage);
    storage.is_shared = true;
  }
  events_->push_back({Kind::EmitGrad, grad.is_view, MemoryCategory::Temp, storage.tape_storage, input});
  if (is_last && storage.is_shared) emit(Kind::UnshareGrad, storage.tape_storage);
}

void TapeRecorder::end_of_backward() {
  if (context_.keep_logits) for_each_logits([&](int storage) { hold_to_the_end(storage); });
  for_each_kept([&](int storage) { hold_to_the_end(storage); });
  if (!is_checkpointed()) return;
  for (const int storage : left_over_) release_saved(storage);
  for_each_named_output([&](int storage) { release_saved(storage); });
  for (const int grad : held_gradients_) release(grad);
  for (const int parameter : tape_.kept_parameters) release_parameter(parameter);
  for (int v = 0; v < block_.num_inputs; ++v) {
    if (!is_on_host(v)) emit(Kind::ReleaseInput, v);
  }
}

}  // namespace fsdp::simulator
