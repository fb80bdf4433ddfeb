// The backward of a block, node by node. tape.cpp says how autograd is played.

#include <algorithm>

#include "simulator/tape_recorder.h"

namespace fsdp::simulator {

void TapeRecorder::backward() {
  events_ = &tape_.backward;
  in_backward_ = true;
  inside_ = std::max(inside_, std::int64_t{0});
  grad_of_slot_.assign(program_.slots.size(), Grad{});
  for (std::size_t o = 0; o < block_.outputs.size(); ++o) seed(static_cast<int>(o));
  int first_active = -1;
  for (std::size_t k = 0; k < program_.kernels.size() && first_active < 0; ++k) {
    if (flow_.active[k]) first_active = program_.kernels[k].op;
  }
  std::size_t k = program_.kernels.size();
  for (int o = static_cast<int>(block_.ops.size()) - 1; o >= 0; --o) {
    tape_.backward_of_op[at(o)].first = static_cast<std::int32_t>(events_->size());
    for (; k > 0 && program_.kernels[k - 1].op == o; --k) {
      if (flow_.active[k - 1]) run_backward(program_.kernels[k - 1]);
    }
    if (o == first_active) end_of_backward();
    tape_.backward_of_op[at(o)].last = static_cast<std::int32_t>(events_->size());
  }
  in_backward_ = false;
}

void TapeRecorder::seed(int output) {
  const int slot = program_.value_slot[at(block_.outputs[at(output)])];
  if (!context_.output_reaches_loss[at(output)] || !flow_.requires_grad[at(slot)]) return;
  // A block input or parameter handed out as it is has no node here; its gradient passes through.
  grads_.push_back({.refs = 1, .tape_storage = -1, .block_output = output, .parameter = -1, .bytes = 0});
  accumulate(slot, {static_cast<int>(grads_.size()) - 1, false}, 0);
}

void TapeRecorder::run_backward(const Kernel& kernel) {
  Grad grad_out;
  for (const int slot : kernel.outputs) {
    if (grad_out.storage < 0) grad_out = grad_of_slot_[at(slot)];
  }
  if (grad_out.storage < 0) return;
  const std::vector<int> whole = start_temporaries(kernel);
  std::vector<std::pair<int, Grad>> made;
  std::vector<int> unsummed;
  const auto is_wanted = [&](const KernelInput& input) {
    return input.grad != GradRule::None && flow_.requires_grad[at(input.slot)];
  };
  for (const KernelInput& input : kernel.inputs) {
    if (!is_wanted(input)) continue;
    const bool is_early = !input.is_summed;
    made.emplace_back(input.slot, is_early ? gradient_of(kernel, input, grad_out) : Grad{});
    unsummed.push_back(input.unsummed > 0 ? make_temporary(input.unsummed, kernel.op, MemoryCategory::Temp) : -1);
    // The first product asks for it, when its result is there.
    if (kernel.kind == KernelKind::Gemm || kernel.kind == KernelKind::GemmLt) emit(Kind::Workspace, 0);
  }
  end_temporaries(kernel, whole);
  std::size_t next = 0;
  for (const KernelInput& input : kernel.inputs) {
    if (!is_wanted(input)) continue;
    if (input.is_summed) sum_gradient(kernel, input, unsummed[next], made[next].second, grad_out);
    ++next;
  }
  for (const int slot : kernel.outputs) {
    if (grad_of_slot_[at(slot)].storage >= 0) release(grad_of_slot_[at(slot)].storage);
    grad_of_slot_[at(slot)] = {};
  }
  for (const SavedSlot& saved : kernel.saved) {
    if (is_saved(kernel, saved)) release_saved(storage_of(saved.slot));
  }
  for (const auto& [slot, grad] : made) accumulate(slot, grad, kernel.op);
}

// `validate_outputs` of the engine sums what has the shape of the output.
void TapeRecorder::sum_gradient(const Kernel& kernel, const KernelInput& input, int unsummed, Grad& grad,
                                const Grad& grad_out) {
  grad = gradient_of(kernel, input, grad_out);
  drop_temporaries(make_temporaries(input.scratch, kernel.op, MemoryCategory::Temp));
  if (unsummed >= 0) drop_temporary(unsummed);
}

std::vector<int> TapeRecorder::start_temporaries(const Kernel& kernel) {
  std::vector<int> whole;
  std::vector<int> early;
  for (const BackwardTemp& temp : kernel.backward_temps) {
    if (!is_needed(kernel, temp) || (temp.life != TempLife::Whole && temp.life != TempLife::Early)) continue;
    auto& made = temp.life == TempLife::Whole ? whole : early;
    made.push_back(make_temporary(temp.bytes, kernel.op, MemoryCategory::Temp));
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
    if (temp.life == TempLife::Late) drop_all(brief);
    auto& made = temp.life == TempLife::Brief ? brief : late;
    made.push_back(make_temporary(temp.bytes, kernel.op, MemoryCategory::Temp));
    if (temp.life == TempLife::Handed) drop_all(brief);
  }
  drop_all(brief);
  drop_all(late);
  for (auto i = whole.rbegin(); i != whole.rend(); ++i) drop_temporary(*i);
}

TapeRecorder::Grad TapeRecorder::gradient_of(const Kernel& kernel, const KernelInput& input, const Grad& grad_out) {
  if (input.grad == GradRule::Alias) {
    ++grads_[at(grad_out.storage)].refs;
    return {grad_out.storage, grad_out.is_view || kernel.kind == KernelKind::View};
  }
  const std::int64_t bytes = program_.slots[at(input.slot)].bytes();
  GradStorage grad{.refs = 1, .tape_storage = -1, .block_output = -1, .parameter = -1, .bytes = bytes};
  if (is_parameter(input.slot)) {
    grad.parameter = program_.storages[at(storage_of(input.slot))].index;
    events_->push_back({Kind::AllocParamGrad, input.grad == GradRule::FreshView, MemoryCategory::UnshardedGrad,
                        grad.parameter, bytes});
  } else {
    grad.tape_storage = new_storage(bytes, kernel.op);
    emit(Kind::Alloc, grad.tape_storage, bytes, MemoryCategory::Temp);
    inside_ += bytes;
    note_peak();
  }
  grads_.push_back(grad);
  return {static_cast<int>(grads_.size()) - 1, input.grad == GradRule::FreshView};
}

void TapeRecorder::release(int grad) {
  GradStorage& storage = grads_[at(grad)];
  if (--storage.refs > 0) return;
  if (storage.block_output >= 0) emit(Kind::ReleaseGradOut, storage.block_output);
  if (storage.tape_storage >= 0) {
    emit(Kind::Free, storage.tape_storage);
    inside_ -= storage.bytes;
  }
}

void TapeRecorder::release_saved(int storage) {
  if (--saves_[at(storage)] > 0) return;
  switch (program_.storages[at(storage)].kind) {
    case Storage::Kind::Parameter:
      return;
    case Storage::Kind::Input:
      if (!is_checkpointed()) emit(Kind::ReleaseInput, storage);
      return;
    case Storage::Kind::Inside:
      if (is_output_[at(storage)] && !is_checkpointed()) {
        emit(Kind::ReleaseOutput, storage);
      } else {
        free(storage);
      }
      return;
  }
}

void TapeRecorder::accumulate(int slot, Grad grad, int op) {
  if (is_parameter(slot)) {
    const Storage& of = program_.storages[at(storage_of(slot))];
    // The gradient of a cast or broadcast parameter can be somebody else's tensor: AccumulateGrad copies it then.
    if (grads_[at(grad.storage)].parameter < 0) {
      emit(Kind::AllocParamGrad, of.index, program_.slots[at(slot)].bytes(), MemoryCategory::UnshardedGrad);
      release(grad.storage);
    }
    emit(Kind::AddParamGrad, of.index);
    return;
  }
  Grad& held = grad_of_slot_[at(slot)];
  if (held.storage < 0) {
    held = grad;
    return;
  }
  if (owns(held)) {
    release(grad.storage);
  } else {
    const std::int64_t bytes = program_.slots[at(slot)].bytes();
    const int sum = new_storage(bytes, op);
    emit(Kind::Alloc, sum, bytes, MemoryCategory::Temp);
    inside_ += bytes;
    note_peak();
    release(held.storage);
    release(grad.storage);
    grads_.push_back({.refs = 1, .tape_storage = sum, .block_output = -1, .parameter = -1, .bytes = bytes});
    held = {static_cast<int>(grads_.size()) - 1, false};
  }
}

void TapeRecorder::end_of_backward() {
  for (int v = 0; v < block_.num_inputs; ++v) {
    const Grad& grad = grad_of_slot_[at(program_.value_slot[at(v)])];
    if (grad.storage < 0) continue;
    GradStorage& storage = grads_[at(grad.storage)];
    const bool passes_on = storage.block_output >= 0;
    events_->push_back({passes_on ? Kind::ForwardGradOut : Kind::EmitGrad, grad.is_view, MemoryCategory::Temp,
                        passes_on ? storage.block_output : storage.tape_storage, v});
    if (passes_on) release(grad.storage);
  }
  if (context_.keep_logits) for_each_logits([&](int storage) { release_saved(storage); });
  if (!is_checkpointed()) return;
  for (int v = 0; v < block_.num_inputs; ++v) emit(Kind::ReleaseInput, v);
}

}  // namespace fsdp::simulator
