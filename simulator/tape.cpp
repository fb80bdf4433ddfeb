// Plays autograd over the kernels of a block and writes down what is allocated and freed.
//
// Forward: a kernel's outputs are allocated, its temporaries come and go, then its inputs lose one reference. A storage
// dies when nothing refers to it: no later kernel, no output of the block, and no node of the graph that saved it. The
// inputs of a block live at least as long as the call, as the caller's variables do.
//
// Backward: nodes run in the reverse order of their creation (autograd's queue is sorted by sequence number). A node
//   1. allocates the gradients of its inputs, where they are not the gradient of its output itself;
//   2. drops the gradient of its output, then what it had saved;
//   3. hands the gradients on. A second gradient of one tensor is added in place when the first is owned by nobody else
//      and is no view; else the sum is a new tensor.
//
// Full checkpointing keeps the inputs of the call only, and before the backward runs the forward again, up to the last
// tensor that anybody saved. Selective checkpointing also keeps the outputs of some ops and does not run them again.
//
// Sources: torch/csrc/autograd/engine.cpp (evaluate_function), input_buffer.cpp (accumulate), torch/utils/checkpoint.py
// (early stop, CachedTorchDispatchMode), torch 2.11; checked against an allocation trace of it.
//
// Not modelled: hooks of users, double backward, tensors that a local variable holds beyond what the kernels' `holds`
// say.

#include "simulator/tape.h"

#include <algorithm>

namespace fsdp::simulator {

namespace {

std::size_t at(int index) {
  return static_cast<std::size_t>(index);
}

using Kind = TapeEvent::Kind;

// Which slots carry a gradient and which kernels have a backward.
struct Flow {
  std::vector<bool> requires_grad;  // [num slots]
  std::vector<bool> recorded;       // [num kernels] A node of the graph.
  std::vector<bool> active;         // [num kernels] A node that the backward reaches.
};

Flow find_flow(const Block& block, const KernelProgram& program, const TapeContext& context) {
  Flow flow;
  flow.requires_grad.assign(program.slots.size(), false);
  flow.recorded.assign(program.kernels.size(), false);
  flow.active.assign(program.kernels.size(), false);
  for (int v = 0; v < block.num_inputs; ++v) {
    const int slot = program.value_slot[at(v)];
    flow.requires_grad[at(slot)] = context.input_requires_grad[at(v)] && program.slots[at(slot)].differentiable;
  }
  for (std::size_t p = 0; p < program.parameter_slot.size(); ++p) {
    flow.requires_grad[at(program.parameter_slot[p])] = context.parameter_requires_grad[p];
  }
  for (std::size_t k = 0; k < program.kernels.size(); ++k) {
    const Kernel& kernel = program.kernels[k];
    bool any = false;
    for (const KernelInput& input : kernel.inputs) {
      any = any || (input.grad != GradRule::None && flow.requires_grad[at(input.slot)]);
    }
    flow.recorded[k] = any;
    for (const int slot : kernel.outputs) flow.requires_grad[at(slot)] = any && program.slots[at(slot)].differentiable;
  }
  std::vector<bool> reached(program.slots.size(), false);
  for (std::size_t o = 0; o < block.outputs.size(); ++o) {
    if (context.output_reaches_loss[o]) reached[at(program.value_slot[at(block.outputs[o])])] = true;
  }
  for (std::size_t k = program.kernels.size(); k-- > 0;) {
    const Kernel& kernel = program.kernels[k];
    if (!flow.recorded[k]) continue;
    for (const int slot : kernel.outputs)
      flow.active[k] = flow.active[k] || (reached[at(slot)] && flow.requires_grad[at(slot)]);
    if (!flow.active[k]) continue;
    for (const KernelInput& input : kernel.inputs) {
      if (input.grad != GradRule::None) reached[at(input.slot)] = true;
    }
  }
  return flow;
}

class Recorder {
 public:
  Recorder(const Block& block, const KernelProgram& program, const TapeContext& context)
      : block_(block), program_(program), context_(context), flow_(find_flow(block, program, context)) {
    tape_.num_storages = static_cast<int>(program.storages.size());
    for (const Storage& storage : program.storages) tape_.storage_op.push_back(storage.op);
    is_output_.assign(program.storages.size(), false);
    for (const int value : block.outputs) is_output_[at(storage_of(program.value_slot[at(value)]))] = true;
  }

  Tape record() {
    tape_.forward_of_op.resize(block_.ops.size());
    tape_.backward_of_op.resize(block_.ops.size());
    tape_.recomputed.assign(block_.ops.size(), false);
    if (!is_checkpointed()) {
      forward();
    } else {
      checkpointed_forward();
      recompute();
    }
    backward();
    bind_outputs();
    measure_work();
    return std::move(tape_);
  }

 private:
  // Without anything to differentiate, checkpointing does nothing.
  bool is_checkpointed() const {
    return context_.mode != CheckpointMode::None &&
           std::find(flow_.active.begin(), flow_.active.end(), true) != flow_.active.end();
  }

  // ---- references --------------------------------------------------------------------------------------------------

  int storage_of(int slot) const { return program_.slots[at(slot)].storage; }

  bool is_saved(const Kernel& kernel, const SavedSlot& saved) const {
    return saved.needed_for < 0 || flow_.requires_grad[at(kernel.inputs[at(saved.needed_for)].slot)];
  }

  // How often each storage is read by the kernels [0, end) that `runs` lets run.
  template <class Runs>
  void count_uses(std::size_t end, Runs runs) {
    uses_.assign(program_.storages.size(), 0);
    for (std::size_t k = 0; k < end; ++k) {
      if (!runs(k)) continue;
      for (const KernelInput& input : program_.kernels[k].inputs) ++uses_[at(storage_of(input.slot))];
      for (const int slot : program_.kernels[k].holds) ++uses_[at(storage_of(slot))];
    }
  }

  void count_saves() {
    saves_.assign(program_.storages.size(), 0);
    for (std::size_t k = 0; k < program_.kernels.size(); ++k) {
      if (!flow_.recorded[k]) continue;
      for (const SavedSlot& saved : program_.kernels[k].saved) {
        if (is_saved(program_.kernels[k], saved)) ++saves_[at(storage_of(saved.slot))];
      }
    }
    if (context_.keep_logits) {
      for_each_logits([&](int storage) { ++saves_[at(storage)]; });
    }
  }

  template <class Visit>
  void for_each_logits(Visit visit) {
    for (const Op& op : block_.ops) {
      if (op.kind == OpKind::CrossEntropy) visit(storage_of(program_.value_slot[at(op.inputs.front())]));
    }
  }

  // ---- events ------------------------------------------------------------------------------------------------------

  void emit(Kind kind, int storage, std::int64_t bytes = 0, MemoryCategory category = MemoryCategory::Activation) {
    events_->push_back({kind, false, category, storage, bytes});
  }

  void allocate(int storage, MemoryCategory category) {
    emit(Kind::Alloc, storage, program_.storages[at(storage)].bytes, category);
    inside_ += program_.storages[at(storage)].bytes;
  }

  // The forward's references to a storage are gone.
  void drop_if_dead(int storage) {
    if (uses_[at(storage)] > 0 || saves_[at(storage)] > 0) return;
    if (program_.storages[at(storage)].kind != Storage::Kind::Inside || is_escaping(storage)) return;
    free(storage);
  }

  void free(int storage) {
    if (!alive_[at(storage)]) return;
    alive_[at(storage)] = false;
    emit(Kind::Free, storage);
    inside_ -= program_.storages[at(storage)].bytes;
  }

  bool is_escaping(int storage) const { return is_output_[at(storage)] && !recomputing_; }

  int new_storage(std::int64_t bytes, int op) {
    tape_.storage_op.push_back(op);
    extra_bytes_.push_back(bytes);
    return tape_.num_storages++;
  }

  void temporaries(const std::vector<std::int64_t>& sizes, int op, MemoryCategory category) {
    std::vector<int> made;
    for (const std::int64_t bytes : sizes) {
      if (bytes == 0) continue;
      made.push_back(new_storage(bytes, op));
      emit(Kind::Alloc, made.back(), bytes, category);
      inside_ += bytes;
    }
    note_peak();
    for (auto i = made.rbegin(); i != made.rend(); ++i) {
      emit(Kind::Free, *i);
      inside_ -= extra_bytes_[at(*i) - program_.storages.size()];
    }
  }

  void note_peak() {
    if (in_backward_) tape_.backward_peak = std::max(tape_.backward_peak, inside_);
  }

  void workspace(const Kernel& kernel) {
    if (kernel.kind == KernelKind::Gemm) emit(Kind::Workspace, 0);
    if (kernel.kind == KernelKind::GemmLt) emit(Kind::Workspace, 1);
  }

  // ---- forward -----------------------------------------------------------------------------------------------------

  void run_forward(std::size_t k, bool exists_already) {
    const Kernel& kernel = program_.kernels[k];
    if (!exists_already) {
      for (const int slot : kernel.outputs) {
        const int storage = storage_of(slot);
        if (alive_[at(storage)] || program_.storages[at(storage)].kind != Storage::Kind::Inside) continue;
        alive_[at(storage)] = true;
        allocate(storage, MemoryCategory::Activation);
      }
      workspace(kernel);
      temporaries(kernel.forward_temps, kernel.op, MemoryCategory::Activation);
    }
    for (const KernelInput& input : kernel.inputs) --uses_[at(storage_of(input.slot))];
    for (const int slot : kernel.holds) --uses_[at(storage_of(slot))];
    for (const KernelInput& input : kernel.inputs) drop_if_dead(storage_of(input.slot));
    for (const int slot : kernel.holds) drop_if_dead(storage_of(slot));
    for (const int slot : kernel.outputs) drop_if_dead(storage_of(slot));
  }

  template <class Visit>
  void for_each_op(std::vector<Tape::Range>& ranges, Visit visit) {
    std::size_t k = 0;
    for (std::size_t o = 0; o < block_.ops.size(); ++o) {
      ranges[o].first = static_cast<std::int32_t>(events_->size());
      for (; k < program_.kernels.size() && program_.kernels[k].op == static_cast<int>(o); ++k) visit(k);
      if (o + 1 == block_.ops.size()) end_of_forward();
      ranges[o].last = static_cast<std::int32_t>(events_->size());
    }
  }

  void forward() {
    events_ = &tape_.forward;
    count_uses(program_.kernels.size(), [](std::size_t) { return true; });
    count_saves();
    alive_.assign(program_.storages.size(), false);
    for_each_op(tape_.forward_of_op, [&](std::size_t k) { run_forward(k, false); });
    tape_.kept_bytes = kept_inside();
  }

  // A graph that leads nowhere dies with the call; the caller's variables lose the inputs that nobody saved.
  void end_of_forward() {
    for (std::size_t k = 0; k < program_.kernels.size(); ++k) {
      if (!flow_.recorded[k] || flow_.active[k] || checkpointing_) continue;
      for (const SavedSlot& saved : program_.kernels[k].saved) {
        if (!is_saved(program_.kernels[k], saved)) continue;
        --saves_[at(storage_of(saved.slot))];
        drop_if_dead(storage_of(saved.slot));
      }
    }
    if (checkpointing_) return;
    for (int v = 0; v < block_.num_inputs; ++v) {
      if (saves_[at(v)] == 0) emit(Kind::ReleaseInput, v);
    }
  }

  std::int64_t kept_inside() const {
    std::int64_t bytes = 0;
    for (std::size_t s = 0; s < program_.storages.size(); ++s) {
      if (alive_[s] && !is_output_[s]) bytes += program_.storages[s].bytes;
    }
    return bytes;
  }

  bool is_kept(std::size_t k) const {
    return context_.mode == CheckpointMode::Selective && context_.op_is_kept[at(program_.kernels[k].op)] &&
           program_.kernels[k].kind != KernelKind::View;
  }

  void checkpointed_forward() {
    events_ = &tape_.forward;
    checkpointing_ = true;
    count_uses(program_.kernels.size(), [](std::size_t) { return true; });
    saves_.assign(program_.storages.size(), 0);
    for (std::size_t k = 0; k < program_.kernels.size(); ++k) {
      if (!is_kept(k)) continue;
      for (const int slot : program_.kernels[k].outputs) ++saves_[at(storage_of(slot))];
    }
    alive_.assign(program_.storages.size(), false);
    for_each_op(tape_.forward_of_op, [&](std::size_t k) { run_forward(k, false); });
    tape_.kept_bytes = kept_inside();
    checkpointing_ = false;
  }

  // One past the last kernel that recomputation runs.
  std::size_t end_of_recomputation() const {
    if (!context_.early_stop) return program_.kernels.size();
    for (std::size_t k = program_.kernels.size(); k-- > 0;) {
      if (!flow_.recorded[k]) continue;
      bool saves_an_input = false;
      bool saves_an_output = false;
      for (const SavedSlot& saved : program_.kernels[k].saved) {
        if (!is_saved(program_.kernels[k], saved)) continue;
        const auto& outputs = program_.kernels[k].outputs;
        const bool own = std::find(outputs.begin(), outputs.end(), saved.slot) != outputs.end();
        (own ? saves_an_output : saves_an_input) = true;
      }
      // Inputs are packed before the kernel runs, so that the stop comes before it.
      if (saves_an_output) return k + 1;
      if (saves_an_input) return k;
    }
    return 0;
  }

  void recompute() {
    events_ = &tape_.recompute;
    recomputing_ = in_backward_ = true;
    const std::size_t end = end_of_recomputation();
    std::vector<bool> cached(alive_);
    // The output of the call is another tensor this time.
    for (std::size_t s = 0; s < is_output_.size(); ++s) {
      if (is_output_[s]) cached[s] = alive_[s] = false;
    }
    count_uses(end, [](std::size_t) { return true; });
    count_saves();
    inside_ = tape_.kept_bytes;
    for (std::size_t k = 0; k < end; ++k) {
      const bool exists =
          is_kept(k) && std::all_of(program_.kernels[k].outputs.begin(), program_.kernels[k].outputs.end(),
                                    [&](int slot) { return cached[at(storage_of(slot))]; });
      run_forward(k, exists);
      if (!exists) tape_.recomputed[at(program_.kernels[k].op)] = true;
      note_peak();
    }
    // What was kept for the recomputation only.
    for (std::size_t s = 0; s < program_.storages.size(); ++s) {
      if (alive_[s] && saves_[s] == 0) free(static_cast<int>(s));
    }
    recomputing_ = in_backward_ = false;
  }

  // ---- backward ----------------------------------------------------------------------------------------------------

  struct Grad {
    int storage = -1;  // In grads_.
    bool is_view = false;
  };
  struct GradStorage {
    int refs = 0;
    int tape_storage = -1;  // Of a fresh one.
    int block_output = -1;  // Of a gradient that came from outside.
    int parameter = -1;     // Of a parameter's gradient.
    std::int64_t bytes = 0;
  };

  void backward() {
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

  void seed(int output) {
    const int slot = program_.value_slot[at(block_.outputs[at(output)])];
    if (!context_.output_reaches_loss[at(output)] || !flow_.requires_grad[at(slot)]) return;
    // A block input or parameter handed out as it is has no node here; its gradient passes through.
    grads_.push_back({.refs = 1, .tape_storage = -1, .block_output = output, .parameter = -1, .bytes = 0});
    accumulate(slot, {static_cast<int>(grads_.size()) - 1, false}, 0);
  }

  void run_backward(const Kernel& kernel) {
    Grad grad_out;
    for (const int slot : kernel.outputs) {
      if (grad_out.storage < 0) grad_out = grad_of_slot_[at(slot)];
    }
    if (grad_out.storage < 0) return;
    std::vector<std::pair<int, Grad>> made;
    for (const KernelInput& input : kernel.inputs) {
      if (input.grad == GradRule::None || !flow_.requires_grad[at(input.slot)]) continue;
      made.emplace_back(input.slot, gradient_of(kernel, input, grad_out));
    }
    if (kernel.kind != KernelKind::View) workspace(kernel);
    temporaries(kernel.backward_temps, kernel.op, MemoryCategory::Temp);
    for (const int slot : kernel.outputs) {
      if (grad_of_slot_[at(slot)].storage >= 0) release(grad_of_slot_[at(slot)].storage);
      grad_of_slot_[at(slot)] = {};
    }
    for (const SavedSlot& saved : kernel.saved) {
      if (is_saved(kernel, saved)) release_saved(storage_of(saved.slot));
    }
    for (const auto& [slot, grad] : made) accumulate(slot, grad, kernel.op);
  }

  Grad gradient_of(const Kernel& kernel, const KernelInput& input, const Grad& grad_out) {
    if (input.grad == GradRule::Alias) {
      ++grads_[at(grad_out.storage)].refs;
      return {grad_out.storage, grad_out.is_view || kernel.kind == KernelKind::View};
    }
    const std::int64_t bytes = program_.slots[at(input.slot)].bytes();
    const Storage& of = program_.storages[at(storage_of(input.slot))];
    GradStorage grad{.refs = 1, .tape_storage = -1, .block_output = -1, .parameter = -1, .bytes = bytes};
    if (of.kind == Storage::Kind::Parameter) {
      grad.parameter = of.index;
      emit(Kind::AllocParamGrad, of.index, bytes, MemoryCategory::UnshardedGrad);
    } else {
      grad.tape_storage = new_storage(bytes, kernel.op);
      emit(Kind::Alloc, grad.tape_storage, bytes, MemoryCategory::Temp);
      inside_ += bytes;
      note_peak();
    }
    grads_.push_back(grad);
    return {static_cast<int>(grads_.size()) - 1, input.grad == GradRule::FreshView};
  }

  void release(int grad) {
    GradStorage& storage = grads_[at(grad)];
    if (--storage.refs > 0) return;
    if (storage.block_output >= 0) emit(Kind::ReleaseGradOut, storage.block_output);
    if (storage.tape_storage >= 0) {
      emit(Kind::Free, storage.tape_storage);
      inside_ -= storage.bytes;
    }
  }

  void release_saved(int storage) {
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

  void accumulate(int slot, Grad grad, int op) {
    const Storage& of = program_.storages[at(storage_of(slot))];
    if (of.kind == Storage::Kind::Parameter) {
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
    } else if (owns(grad)) {
      release(held.storage);
      held = grad;
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

  bool owns(const Grad& grad) const { return grads_[at(grad.storage)].refs == 1 && !grad.is_view; }

  void end_of_backward() {
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

  // ---- results -----------------------------------------------------------------------------------------------------

  void bind_outputs() {
    count_saves();
    for (const int value : block_.outputs) {
      const int storage = storage_of(program_.value_slot[at(value)]);
      Storage where = program_.storages[at(storage)];
      if (where.kind == Storage::Kind::Inside) where.index = storage;
      tape_.output.push_back(where);
      tape_.output_is_kept.push_back(!is_checkpointed() && is_held_by_active(storage));
    }
  }

  bool is_held_by_active(int storage) const {
    for (std::size_t k = 0; k < program_.kernels.size(); ++k) {
      if (!flow_.active[k]) continue;
      for (const SavedSlot& saved : program_.kernels[k].saved) {
        if (storage_of(saved.slot) == storage && is_saved(program_.kernels[k], saved)) return true;
      }
    }
    return false;
  }

  void add_part(OpWork::Part& part, const Kernel& kernel, double flops, double bytes) {
    if (kernel.kind == KernelKind::View) return;
    ++part.num_kernels;
    if (kernel.kind == KernelKind::Attention) {
      part.attention_flops += flops;
    } else if (flops > 0) {
      part.gemm_flops += flops;
    } else {
      part.bytes += std::max(bytes, 0.0);
    }
  }

  void measure_work() {
    tape_.work.resize(block_.ops.size());
    for (std::size_t k = 0; k < program_.kernels.size(); ++k) {
      const Kernel& kernel = program_.kernels[k];
      double read = 0;
      double written = 0;
      double gradients = 0;
      int num_products = 0;
      for (const KernelInput& input : kernel.inputs) {
        const auto bytes = static_cast<double>(program_.slots[at(input.slot)].bytes());
        read += bytes;
        const bool fresh = input.grad == GradRule::Fresh || input.grad == GradRule::FreshView;
        if (!fresh || !flow_.requires_grad[at(input.slot)]) continue;
        gradients += bytes;
        // A third input is the bias, whose gradient is a sum.
        if (&input - kernel.inputs.data() < 2) ++num_products;
      }
      for (const int slot : kernel.outputs) written += static_cast<double>(program_.slots[at(slot)].bytes());
      OpWork& work = tape_.work[at(kernel.op)];
      add_part(work.forward, kernel, kernel.flops, read + written + kernel.extra_bytes);
      if (!flow_.active[k] || gradients == 0) continue;
      const double flops = kernel.backward_flops > 0 ? kernel.backward_flops : kernel.flops * num_products;
      add_part(work.backward, kernel, flops, written + read + gradients + kernel.extra_bytes);
    }
  }

  const Block& block_;
  const KernelProgram& program_;
  const TapeContext& context_;
  const Flow flow_;
  Tape tape_;
  std::vector<TapeEvent>* events_ = nullptr;
  std::vector<int> uses_, saves_;          // [num storages] References by kernels to come, and by nodes of the graph.
  std::vector<bool> alive_, is_output_;    // [num storages]
  std::vector<std::int64_t> extra_bytes_;  // Of storages that only the tape knows.
  std::vector<Grad> grad_of_slot_;
  std::vector<GradStorage> grads_;
  std::int64_t inside_ = 0;
  bool checkpointing_ = false;
  bool recomputing_ = false;
  bool in_backward_ = false;
};

}  // namespace

Tape record_tape(const Block& block, const KernelProgram& program, const TapeContext& context) {
  return Recorder(block, program, context).record();
}

}  // namespace fsdp::simulator
