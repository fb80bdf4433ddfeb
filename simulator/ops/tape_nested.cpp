// Checkpoints inside of the checkpoint of a block, all of torch.utils.checkpoint without re-entry.
//
// The forward keeps the inputs of the block, and what inner checkpoints hold (InnerCheckpoint::holds_inputs). The first
// node of the backward that unpacks a saved tensor asks the checkpoint around its op for it, whose own input the
// block's checkpoint has dropped:
//   1. The block runs again, with new checkpoints inside. It saves the inputs of those, and stops at the last one. Its
//      graph holds what the new inner checkpoints hold, until it stops.
//   2. The inner checkpoint takes its input out of what 1 has saved, and runs again up to the last tensor that its
//      nodes save.
// Step 2 is repeated for each inner checkpoint, in the order of the backward, just before its first node that unpacks.
// So each of these ops runs three times forward, and those of the last module twice.
//
// An inner checkpoint holds its inputs until the last of its nodes has released its saved tensors.
//
// Sources: torch/utils/checkpoint.py (_CheckpointFrame, _checkpoint_hook, _recomputation_hook, _NoopSaveInputs,
// "Rule 1" to "Rule 6"), torch 2.11; compared with runs of axolotl 0.19.0.
//
// Not modeled: inputs that both an inner checkpoint holds and another op reads (core/plan/nested_checkpoints.h).

#include <algorithm>
#include <utility>

#include "simulator/ops/tape_recorder.h"

namespace fsdp::simulator {

void TapeRecorder::find_inners() {
  for (const InnerCheckpoint& given : context_.inner) {
    Inner inner{.holds_inputs = given.holds_inputs};
    const auto first = program_.kernels.begin();
    const auto before = [](const Kernel& kernel, int op) { return kernel.op < op; };
    inner.begin = std::lower_bound(first, program_.kernels.end(), given.ops.begin, before) - first;
    inner.end = std::lower_bound(first, program_.kernels.end(), given.ops.end, before) - first;
    inner.last_node = inner.end;
    std::vector<bool> is_made(program_.storages.size(), false);
    for (std::size_t k = inner.end; k-- > inner.begin;) {
      const Kernel& kernel = program_.kernels[k];
      for (const int slot : kernel.outputs) is_made[storage_of(slot)] = true;
      const auto saves = [&](const SavedSlot& saved) { return is_saved(kernel, saved); };
      if (flow_.active[k] && std::any_of(kernel.saved.begin(), kernel.saved.end(), saves)) inner.last_node = k;
    }
    for (std::size_t k = inner.begin; k < inner.end; ++k) {
      for (const KernelInput& input : program_.kernels[k].inputs) {
        const int storage = storage_of(input.slot);
        const bool is_outside = !is_made[storage] && program_.storages[storage].kind == Storage::Kind::Inside;
        const bool is_known = std::find(inner.inputs.begin(), inner.inputs.end(), storage) != inner.inputs.end();
        if (is_outside && !is_known) inner.inputs.push_back(storage);
      }
    }
    // Nothing asks for a checkpoint whose nodes save nothing.
    if (inner.last_node == inner.end) inner.inputs.clear();
    inners_.push_back(std::move(inner));
  }
  if (is_nested()) tape_.recomputed_inside.assign(block_.ops.size(), false);
}

TapeRecorder::Inner* TapeRecorder::inner_of(std::size_t kernel) {
  for (Inner& inner : inners_) {
    if (inner.begin <= kernel && kernel < inner.end) return &inner;
  }
  return nullptr;
}

// Step 1.
void TapeRecorder::recompute_around() {
  events_ = &tape_.recompute;
  recomputing_ = in_backward_ = true;
  rename_outputs();
  std::vector<std::pair<int, int>> held;  // Storages, and their names in the forward.
  for_each_held_input([&](int storage) {
    held.emplace_back(storage, name_[storage]);
    alive_[storage] = false;
    name_[storage] = new_storage(program_.storages[storage].bytes, program_.storages[storage].op);
  });
  count_uses(program_.kernels.size());
  const std::size_t end = count_saves_around();
  for (const auto& [storage, name] : held) ++saves_[storage];
  run_around(end);
  for (const auto& [storage, name] : held) --saves_[storage];
  free_unsaved();
  for (const auto& [storage, name] : held) {
    name_[storage] = name;
    alive_[storage] = true;
    saves_[storage] = 1;
  }
  if (!block_.ops.empty()) tape_.recompute_of_op.back().last = static_cast<std::int32_t>(events_->size());
  recomputing_ = in_backward_ = false;
}

// Counts what the block's checkpoint saves again, and returns one past the last kernel that runs for it.
std::size_t TapeRecorder::count_saves_around() {
  saves_.assign(program_.storages.size(), 0);
  std::size_t end = 0;
  for (const Inner& inner : inners_) {
    if (!inner.holds_inputs) end = std::max(end, inner.begin);
    for (const int storage : inner.inputs) saves_[storage] += inner.holds_inputs ? 0 : 1;
  }
  for (std::size_t k = 0; k < program_.kernels.size(); ++k) {
    if (!flow_.recorded[k] || inner_of(k) != nullptr) continue;
    for (const SavedSlot& saved : program_.kernels[k].saved) {
      if (!is_saved(program_.kernels[k], saved)) continue;
      ++saves_[storage_of(saved.slot)];
      end = std::max(end, end_of_recomputation(k, k + 1));
    }
  }
  return end;
}

void TapeRecorder::run_around(std::size_t end) {
  tape_.recompute_of_op.resize(block_.ops.size());
  std::size_t k = 0;
  for (std::size_t o = 0; o < block_.ops.size(); ++o) {
    Tape::Range& range = tape_.recompute_of_op[o];
    range.first = o == 0 ? 0 : static_cast<std::int32_t>(events_->size());
    for (; k < end && program_.kernels[k].op == static_cast<int>(o); ++k) {
      run_forward(k, false);
      tape_.recomputed[o] = true;
      note_peak();
    }
    range.last = static_cast<std::int32_t>(events_->size());
  }
}

void TapeRecorder::free_unsaved() {
  for (std::size_t s = 0; s < program_.storages.size(); ++s) {
    if (alive_[s] && saves_[s] == 0) free(static_cast<int>(s));
  }
}

// Step 2, before the node of a kernel.
void TapeRecorder::enter_inner(std::size_t kernel) {
  Inner* inner = inner_of(kernel);
  if (inner == nullptr || inner->has_run) return;
  const Kernel& of = program_.kernels[kernel];
  if (std::any_of(of.saved.begin(), of.saved.end(), [&](const SavedSlot& saved) { return is_saved(of, saved); })) {
    recompute_inner(*inner);
  }
}

void TapeRecorder::recompute_inner(Inner& inner) {
  inner.has_run = recomputing_ = true;
  uses_.assign(program_.storages.size(), 0);
  for (std::size_t k = inner.begin; k < inner.end; ++k) {
    const Kernel& kernel = program_.kernels[k];
    for (const KernelInput& input : kernel.inputs) ++uses_[storage_of(input.slot)];
    for (const int slot : kernel.holds) ++uses_[storage_of(slot)];
    if (!flow_.recorded[k]) continue;
    for (const SavedSlot& saved : kernel.saved) {
      if (is_saved(kernel, saved)) ++saves_[storage_of(saved.slot)];
    }
  }
  const std::size_t end = end_of_recomputation(inner.begin, inner.end);
  for (std::size_t k = inner.begin; k < end; ++k) {
    run_forward(k, false);
    tape_.recomputed_inside[program_.kernels[k].op] = true;
    note_peak();
  }
  // What step 1 has saved was an argument of the call.
  for (const int storage : inner.inputs) saves_[storage] -= inner.holds_inputs ? 0 : 1;
  free_unsaved();
  recomputing_ = false;
}

// After the node of a kernel, before its gradients are passed on.
void TapeRecorder::leave_inner(std::size_t kernel) {
  const Inner* inner = inner_of(kernel);
  if (inner == nullptr || !inner->holds_inputs || inner->last_node != kernel) return;
  for (const int storage : inner->inputs) release_saved(storage);
}

}  // namespace fsdp::simulator
