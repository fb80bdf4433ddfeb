// Plays autograd over the kernels of a block and records the allocations and frees.
//
// Forward: a kernel's outputs are allocated, its temporaries are allocated and freed, then its inputs lose one
// reference. A storage dies if nothing refers to it: no later kernel, no output of the block, and no node of the graph
// that saved it. The inputs of a block live at least as long as the call, because the caller's variables do.
//
// Backward: nodes run in the reverse order of their creation (autograd's queue is sorted by sequence number). A node
//   1. allocates the gradients of its inputs that are not the gradient of its output itself; those of broadcast
//      operands are summed after the node has returned;
//   2. drops the gradient of its output, then its saved tensors;
//   3. passes the gradients on. A second gradient of one tensor is added in place if nothing else owns the first and it
//      is no view; otherwise the sum is a new tensor.
// If a unit lies inside the block, FSDP2's post-backward hook, which is a node, separately sums the gradients of its
// ops for an argument of its module, and passes the sum on after the unit has been reduced.
//
// Full checkpointing keeps only the inputs of the call. The first node of the backward that unpacks a saved tensor runs
// the forward again, up to the last saved tensor; nodes before it, such as that of a product with a number, have run
// already. With `offloads_inputs` the kept inputs are on the host (torch.autograd.graph.save_on_cpu): the forward lets
// go of them, and the recomputation begins with copies. Selective checkpointing also keeps the outputs of some ops and
// does not run them again; the end of the backward frees the kept outputs of ops after that point. For attention that
// is the result of the fused call: the calls around it (copies of K and V, padding, casts) run again, and so does
// written-out attention.
//
// A reentrant checkpoint runs all of the forward again before any node, and its own node holds the output and the
// gradient of it until the backward is over.
//
// Sources: torch/csrc/autograd/engine.cpp (evaluate_function), input_buffer.cpp (accumulate), torch/utils/checkpoint.py
// (early stop, CachedTorchDispatchMode), torch 2.11; checked against an allocation trace of it.
//
// Not modeled: hooks of users, double backward, tensors that a local variable holds beyond the kernels' `holds` and
// `Block::locals`; selective checkpointing may keep the output of the call itself.
#include "simulator/ops/tape.h"

#include <algorithm>

#include "simulator/ops/tape_recorder.h"

namespace fsdp::simulator {

TapeRecorder::TapeRecorder(const Block& block, const KernelProgram& program, const TapeContext& context)
    : block_(block), program_(program), context_(context), flow_(find_flow(block, program, context)) {
  tape_.num_storages = static_cast<int>(program.storages.size());
  for (const Storage& storage : program.storages) {
    name_.push_back(static_cast<int>(name_.size()));
    tape_.storage_op.push_back(storage.op);
  }
  is_output_.assign(program.storages.size(), false);
  for (const int value : block.outputs) is_output_[storage_of(program.value_slot[value])] = true;
}

Tape TapeRecorder::record() {
  tape_.forward_of_op.resize(block_.ops.size());
  tape_.backward_of_op.resize(block_.ops.size());
  tape_.recomputed.assign(block_.ops.size(), false);
  num_late_nodes_ = program_.kernels.size();
  if (!is_checkpointed()) {
    forward();
  } else {
    find_offloaded();
    find_inners();
    checkpointed_forward();
    if (!is_reentrant()) run_early_nodes();
    is_nested() ? recompute_around() : recompute();
  }
  backward();
  bind_outputs();
  tape_.work = measure_work(block_, program_, flow_);
  tape_.largest_convolution = largest_convolution(program_);
  return std::move(tape_);
}

// Without differentiable tensors, checkpointing does nothing.
bool TapeRecorder::is_checkpointed() const {
  return context_.mode != CheckpointMode::None &&
         std::find(flow_.active.begin(), flow_.active.end(), true) != flow_.active.end();
}

// A checkpoint saves its positional arguments, which save_on_cpu copies: the hidden states, and other inputs with a
// gradient. transformers passes masks and the rotary table by keyword.
void TapeRecorder::find_offloaded() {
  if (!context_.offloads_inputs) return;
  is_on_host_.assign(block_.num_inputs, false);
  for (int v = 0; v < block_.num_inputs; ++v) {
    is_on_host_[v] = v == 0 || context_.input_requires_grad[v];
    if (is_on_host_[v]) tape_.on_host.push_back(program_.storages[v].bytes);
  }
}

bool TapeRecorder::is_kept(std::size_t k) const {
  const Kernel& kernel = program_.kernels[k];
  if (context_.mode != CheckpointMode::Selective || !context_.op_is_kept[kernel.op]) return false;
  if (block_.ops[kernel.op].kind == OpKind::Attention) return kernel.kind == KernelKind::Attention;
  if (block_.ops[kernel.op].attributes.float8) return kernel.float8_flops > 0;  // Its casts run again.
  return kernel.kind != KernelKind::View && kernel.kind != KernelKind::Read;
}

// How often the kernels [0, end) read each storage.
void TapeRecorder::count_uses(std::size_t end) {
  uses_.assign(program_.storages.size(), 0);
  for (std::size_t k = 0; k < end; ++k) {
    for (const KernelInput& input : program_.kernels[k].inputs) ++uses_[storage_of(input.slot)];
    for (const int slot : program_.kernels[k].holds) ++uses_[storage_of(slot)];
  }
  for (std::size_t s = 0; s < uses_.size(); ++s) {
    if (is_cached(s)) ++uses_[s];
  }
}

// Autocast caches its copy of a trained parameter until the outermost context exits: that of the forward, or that of
// the recomputation.
bool TapeRecorder::is_cached(std::size_t storage) const {
  const int parameter = program_.storages[storage].cast_of;
  return parameter >= 0 && flow_.requires_grad[program_.parameter_slot[parameter]];
}

void TapeRecorder::count_saves() {
  saves_.assign(program_.storages.size(), 0);
  for (std::size_t k = 0; k < program_.kernels.size(); ++k) {
    if (!flow_.recorded[k]) continue;
    for (const SavedSlot& saved : program_.kernels[k].saved) {
      if (is_saved(program_.kernels[k], saved)) ++saves_[storage_of(saved.slot)];
    }
  }
  if (context_.keep_logits) {
    for_each_logits([&](int storage) { ++saves_[storage]; });
  }
  for_each_kept([&](int storage) { ++saves_[storage]; });
}

bool TapeRecorder::is_held_by_active(int storage) const {
  for (std::size_t k = 0; k < program_.kernels.size(); ++k) {
    if (!flow_.active[k]) continue;
    for (const SavedSlot& saved : program_.kernels[k].saved) {
      if (storage_of(saved.slot) == storage && is_saved(program_.kernels[k], saved)) return true;
    }
  }
  return false;
}

void TapeRecorder::bind_outputs() {
  count_saves();
  for (const int value : block_.outputs) {
    const int storage = storage_of(program_.value_slot[value]);
    Storage where = program_.storages[storage];
    if (where.kind == Storage::Kind::Inside) where.index = storage;
    tape_.output.push_back(where);
    tape_.output_bytes.push_back(program_.slots[program_.value_slot[value]].bytes());
    tape_.output_is_kept.push_back(!is_checkpointed() && is_held_by_active(storage));
  }
}

void TapeRecorder::allocate(int storage, MemoryCategory category) {
  emit(Kind::Alloc, name_[storage], program_.storages[storage].bytes, category);
  inside_ += program_.storages[storage].bytes;
}

// Frees a storage without references from the forward.
void TapeRecorder::drop_if_dead(int storage) {
  if (uses_[storage] > 0 || saves_[storage] > 0) return;
  if (program_.storages[storage].kind != Storage::Kind::Inside || is_escaping(storage)) return;
  free(storage);
}

void TapeRecorder::free(int storage) {
  if (!alive_[storage]) return;
  alive_[storage] = false;
  emit(Kind::Free, name_[storage]);
  inside_ -= program_.storages[storage].bytes;
}

int TapeRecorder::new_storage(std::int64_t bytes, int op) {
  tape_.storage_op.push_back(op);
  extra_bytes_.push_back(bytes);
  return tape_.num_storages++;
}

int TapeRecorder::make_temporary(std::int64_t bytes, int op, MemoryCategory category) {
  const int storage = new_storage(bytes, op);
  emit(Kind::Alloc, storage, bytes, category);
  inside_ += bytes;
  note_peak();
  return storage;
}

// The library allocates and frees its memory within the call.
void TapeRecorder::use(const Workspace& workspace, int op, MemoryCategory category, std::int64_t results) {
  if (workspace.call < 0) return;
  const std::string& call = program_.calls[workspace.call];
  const auto known = context_.workspaces ? context_.workspaces->find(call, context_.threads) : std::nullopt;
  auto& unmeasured = tape_.unmeasured;
  if (!known && std::find(unmeasured.begin(), unmeasured.end(), call) == unmeasured.end()) unmeasured.push_back(call);
  const std::int64_t bytes = known ? known->count() : workspace.assumed;
  if (bytes > 0) drop_temporary(make_temporary(results + bytes, op, category));
}

void TapeRecorder::drop_temporary(int storage) {
  emit(Kind::Free, storage);
  inside_ -= extra_bytes_[storage - program_.storages.size()];
}

std::vector<int> TapeRecorder::make_temporaries(const std::vector<std::int64_t>& sizes, int op,
                                                MemoryCategory category) {
  std::vector<int> made;
  for (const std::int64_t bytes : sizes) {
    if (bytes > 0) made.push_back(make_temporary(bytes, op, category));
  }
  return made;
}

void TapeRecorder::drop_temporaries(const std::vector<int>& made) {
  for (auto i = made.rbegin(); i != made.rend(); ++i) drop_temporary(*i);
}

Tape record_tape(const Block& block, const KernelProgram& program, const TapeContext& context) {
  return TapeRecorder(block, program, context).record();
}

}  // namespace fsdp::simulator
