// The forward of a block, with and without checkpointing, and its recomputation. tape.cpp explains how we play
// autograd.

#include <algorithm>
#include <utility>

#include "simulator/ops/tape_recorder.h"

namespace fsdp::simulator {

void TapeRecorder::run_forward(std::size_t k, bool exists_already) {
  const Kernel& kernel = program_.kernels[k];
  if (kernel.part == ForwardPart::AfterAutocast && !exists_already) emit(Kind::LeaveAutocast, 0);
  if (kernel.part == ForwardPart::AfterReturn && !exists_already) release_inputs();
  if (!exists_already && flow_.runs(kernel)) {
    const auto make_outputs = [&](std::size_t first, std::size_t last) {
      for (std::size_t o = first; o < last; ++o) {
        const int storage = storage_of(kernel.outputs[o]);
        if (alive_[storage] || program_.storages[storage].kind != Storage::Kind::Inside) continue;
        if (kernel.gradient_of >= 0) {
          events_->push_back({Kind::AllocParamGrad, false, MemoryCategory::UnshardedGrad,
                              parameter_of(kernel.gradient_of), program_.storages[storage].bytes});
          continue;
        }
        alive_[storage] = true;
        const bool is_copy = program_.storages[storage].is_parameter;
        allocate(storage, is_copy ? MemoryCategory::UnshardedParam : MemoryCategory::Activation);
      }
    };
    const std::size_t early = kernel.outputs.size() - static_cast<std::size_t>(kernel.late_outputs);
    make_outputs(0, early);
    const int thread = kernel.is_on_backward_thread ? 2 : 0;
    if (kernel.kind == KernelKind::Gemm) emit(Kind::Workspace, thread);
    if (kernel.kind == KernelKind::GemmLt) emit(Kind::Workspace, thread + 1);
    const std::vector<int> made = make_temporaries(kernel.forward_temps, kernel.op, MemoryCategory::Activation);
    make_outputs(early, kernel.outputs.size());
    if (kernel.benchmark >= 0) emit(Kind::Benchmark, kernel.benchmark, kTritonBenchmarkBytes);
    use(kernel.forward_workspace, kernel.op, MemoryCategory::Activation);
    drop_temporaries(made);
    if (kernel.exchanged > 0) exchange(kernel);
  }
  for (const KernelInput& input : kernel.inputs) --uses_[storage_of(input.slot)];
  for (const int slot : kernel.holds) --uses_[storage_of(slot)];
  for (const KernelInput& input : kernel.inputs) drop_if_dead(storage_of(input.slot));
  for (const int slot : kernel.holds) drop_if_dead(storage_of(slot));
  for (const int slot : kernel.outputs) drop_if_dead(storage_of(slot));
  if (kernel.unit_call != UnitCall::None && flow_.runs(kernel)) call_unit(kernel);
}

void TapeRecorder::exchange(const Kernel& kernel) {
  const Dtype dtype = program_.slots[kernel.outputs.front()].dtype;
  emit(Kind::Exchange, static_cast<int>(dtype), kernel.exchanged * size_of(dtype).count());
}

void TapeRecorder::call_unit(const Kernel& kernel) {
  if (kernel.unit_call == UnitCall::Reduce) emit(Kind::AddParamGrad, parameter_of(kernel.gradient_of));
  emit(Kind::CallUnit, static_cast<int>(kernel.unit_call));
}

void TapeRecorder::run_all_ops() {
  std::size_t k = 0;
  for (std::size_t o = 0; o < block_.ops.size(); ++o) {
    Tape::Range& range = tape_.forward_of_op[o];
    range.first = static_cast<std::int32_t>(events_->size());
    for (; k < program_.kernels.size() && program_.kernels[k].op == static_cast<int>(o); ++k) run_forward(k, false);
    if (o + 1 == block_.ops.size()) end_of_forward();
    range.last = static_cast<std::int32_t>(events_->size());
  }
}

void TapeRecorder::forward() {
  events_ = &tape_.forward;
  count_uses(program_.kernels.size());
  count_saves();
  alive_.assign(program_.storages.size(), false);
  run_all_ops();
  tape_.kept_bytes = kept_inside();
}

// A graph that leads nowhere dies with the call; the caller's variables lose the inputs that were not saved. Not
// modeled: a graph that lives on because a later call reads its output, beyond a detach that comes first there.
void TapeRecorder::end_of_forward() {
  for (std::size_t k = 0; k < program_.kernels.size(); ++k) {
    if (!flow_.recorded[k] || flow_.active[k] || checkpointing_) continue;
    for (const SavedSlot& saved : program_.kernels[k].saved) {
      if (!is_saved(program_.kernels[k], saved)) continue;
      --saves_[storage_of(saved.slot)];
      drop_if_dead(storage_of(saved.slot));
    }
  }
  leave_to_cache();
  release_inputs();
}

void TapeRecorder::release_inputs() {
  if (std::exchange(has_released_inputs_, true)) return;
  for (int v = 0; v < block_.num_inputs; ++v) {
    const bool is_kept_here = checkpointing_ ? !is_on_host(v) : saves_[v] > 0;
    if (!is_kept_here) emit(Kind::ReleaseInput, v);
  }
}

// The graph holds the copies that it has saved longer than autocast does.
void TapeRecorder::leave_to_cache() {
  for (std::size_t s = 0; s < program_.storages.size(); ++s) {
    if (!is_cached(s)) continue;
    --uses_[s];
    if (!alive_[s] || saves_[s] > 0 || uses_[s] > 0) continue;
    alive_[s] = false;
    inside_ -= program_.storages[s].bytes;
    emit(Kind::HoldInForward, name_[s]);
  }
}

std::int64_t TapeRecorder::kept_inside() const {
  std::int64_t bytes = 0;
  for (std::size_t s = 0; s < program_.storages.size(); ++s) {
    if (alive_[s] && !is_output_[s]) bytes += program_.storages[s].bytes;
  }
  return bytes;
}

void TapeRecorder::checkpointed_forward() {
  events_ = &tape_.forward;
  checkpointing_ = true;
  count_uses(program_.kernels.size());
  saves_.assign(program_.storages.size(), 0);
  for (std::size_t k = 0; k < program_.kernels.size(); ++k) {
    if (!is_kept(k)) continue;
    for (const int slot : program_.kernels[k].outputs) ++saves_[storage_of(slot)];
    if (!program_.kernels[k].keeps_inputs) continue;
    for (const KernelInput& input : program_.kernels[k].inputs) keep_input(storage_of(input.slot));
  }
  for_each_held_input([&](int storage) { ++saves_[storage]; });
  alive_.assign(program_.storages.size(), false);
  run_all_ops();
  tape_.kept_bytes = kept_inside();
  checkpointing_ = false;
}

void TapeRecorder::keep_input(int storage) {
  // The result of a linear layer that is kept itself is no other tensor.
  if (program_.storages[storage].kind != Storage::Kind::Inside || is_output_[storage] || saves_[storage] > 0) return;
  ++saves_[storage];
  kept_inputs_.push_back(storage);
}

// One past the last of these kernels that recomputation runs.
std::size_t TapeRecorder::end_of_recomputation(std::size_t begin, std::size_t end) const {
  if (!context_.early_stop || is_reentrant()) return end;
  for (std::size_t k = end; k-- > begin;) {
    if (!flow_.recorded[k]) continue;
    bool saves_an_input = false;
    bool saves_an_output = false;
    for (const SavedSlot& saved : program_.kernels[k].saved) {
      if (!is_saved(program_.kernels[k], saved)) continue;
      const auto& outputs = program_.kernels[k].outputs;
      const bool own = std::find(outputs.begin(), outputs.end(), saved.slot) != outputs.end();
      (own ? saves_an_output : saves_an_input) = true;
    }
    // Autograd packs inputs before the kernel runs, so the stop comes before it; for a Function it comes after.
    if (saves_an_output || (saves_an_input && program_.kernels[k].saves_when_done)) return k + 1;
    if (saves_an_input) return k;
  }
  return begin;
}

// A node holds its saved parameters, even if its module frees the parameter itself.
void TapeRecorder::find_kept_parameters() {
  if (!context_.keeps_parameters) return;
  for (std::size_t s = 0; s < program_.storages.size(); ++s) {
    const Storage& storage = program_.storages[s];
    const bool is_parameter = storage.kind == Storage::Kind::Parameter;
    if (is_parameter && is_held_by_active(static_cast<int>(s))) tape_.kept_parameters.push_back(storage.index);
  }
  is_parameter_kept_.assign(program_.parameter_slot.size(), false);
  for (const int p : tape_.kept_parameters) is_parameter_kept_[p] = true;
}

// A recomputation makes another tensor for the output of the call.
void TapeRecorder::rename_outputs() {
  for (std::size_t s = 0; s < is_output_.size(); ++s) {
    if (!is_output_[s] || program_.storages[s].kind != Storage::Kind::Inside) continue;
    alive_[s] = false;
    name_[s] = new_storage(program_.storages[s].bytes, program_.storages[s].op);
  }
}

void TapeRecorder::recompute() {
  events_ = &tape_.recompute;
  recomputing_ = in_backward_ = true;
  const std::size_t end = end_of_recomputation(0, program_.kernels.size());
  find_kept_parameters();
  rename_outputs();
  std::vector<bool> cached(alive_);
  // So it does for kept inputs, which are no results of kernels that it leaves out.
  for (const int storage : kept_inputs_) {
    old_names_.push_back(name_[storage]);
    cached[storage] = alive_[storage] = false;
    name_[storage] = new_storage(program_.storages[storage].bytes, program_.storages[storage].op);
  }
  // A run that stops early still holds the tensors that it would have used.
  count_uses(program_.kernels.size());
  count_saves();
  for_each_named_output([&](int storage) { ++saves_[storage]; });
  tape_.recompute_of_op.resize(block_.ops.size());
  std::size_t k = 0;
  for (std::size_t o = 0; o < block_.ops.size(); ++o) {
    Tape::Range& range = tape_.recompute_of_op[o];
    range.first = o == 0 ? 0 : static_cast<std::int32_t>(events_->size());
    if (o == 0) copy_inputs_back();
    bool is_spared = false;  // The result of the expensive call was kept: only the calls around it run.
    for (; k < end && program_.kernels[k].op == static_cast<int>(o); ++k) {
      const bool exists =
          is_kept(k) && std::all_of(program_.kernels[k].outputs.begin(), program_.kernels[k].outputs.end(),
                                    [&](int slot) { return cached[storage_of(slot)]; });
      run_forward(k, exists);
      is_spared = is_spared || exists;
      tape_.recomputed[o] = !is_spared;
      note_peak();
    }
    range.last = static_cast<std::int32_t>(events_->size());
  }
  end_recomputation(end);
}

// The checkpoint's arguments name the copies until the recomputation ends.
void TapeRecorder::copy_inputs_back() {
  for (int v = 0; v < block_.num_inputs; ++v) {
    if (!is_on_host(v)) continue;
    name_[v] = new_storage(program_.storages[v].bytes, 0);
    alive_[v] = true;
    allocate(v, MemoryCategory::Activation);
  }
}

void TapeRecorder::end_recomputation(std::size_t end) {
  // A tensor that was never requested stays until the checkpoint itself is freed.
  for (std::size_t k = end; k < program_.kernels.size(); ++k) {
    if (!is_kept(k)) continue;
    for (const int slot : program_.kernels[k].outputs) {
      const int storage = storage_of(slot);
      if (!alive_[storage] || is_output_[storage]) continue;
      ++saves_[storage];
      left_over_.push_back(storage);
    }
  }
  for (std::size_t i = 0; i < kept_inputs_.size(); ++i) {
    emit(Kind::Free, old_names_[i]);
    inside_ -= program_.storages[kept_inputs_[i]].bytes;
  }
  // Tensors kept for the recomputation only.
  for (std::size_t s = 0; s < program_.storages.size(); ++s) {
    if (alive_[s] && saves_[s] == 0) free(static_cast<int>(s));
  }
  if (!block_.ops.empty()) tape_.recompute_of_op.back().last = static_cast<std::int32_t>(events_->size());
  recomputing_ = in_backward_ = false;
}

}  // namespace fsdp::simulator
