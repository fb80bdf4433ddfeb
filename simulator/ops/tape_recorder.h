#pragma once

// Plays one run of a block and records its tape. For tape*.cpp only; tape.cpp explains how we play autograd.

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/model/model.h"
#include "simulator/ops/kernels.h"
#include "simulator/ops/tape.h"
#include "simulator/ops/tape_flow.h"

namespace fsdp::simulator {

class TapeRecorder {
 public:
  TapeRecorder(const Block& block, const KernelProgram& program, const TapeContext& context);

  Tape record();

 private:
  using Kind = TapeEvent::Kind;

  /// One name of a gradient.
  struct Grad {
    int storage = -1;  // An index of grads_.
    bool is_view = false;
    Shape strides = {};  // Empty for those of its shape.
  };
  struct GradStorage {
    int refs = 0;
    int tape_storage = -1;  // Index of a new one.
    int block_output = -1;  // Index of a gradient from outside.
    int parameter = -1;     // Index of a parameter's gradient.
    int block_input = -1;   // Index of an input of the block that it was written over.
    std::int64_t bytes = 0;
    bool is_shared = false;  // Shared with those that got it as the gradient of a block input.
  };

  bool is_checkpointed() const;
  void find_offloaded();
  bool is_on_host(int input) const { return !is_on_host_.empty() && is_on_host_[input]; }
  bool is_kept(std::size_t kernel) const;

  // References (tape.cpp).
  int storage_of(int slot) const { return program_.slots[slot].storage; }
  /// That of a parameter's slot.
  int parameter_of(int slot) const { return program_.storages[storage_of(slot)].index; }
  /// True for the parameter itself, but not for a view of it.
  bool is_parameter(int slot) const {
    const Storage& storage = program_.storages[storage_of(slot)];
    return storage.kind == Storage::Kind::Parameter && program_.parameter_slot[storage.index] == slot;
  }
  bool is_saved(const Kernel& kernel, const SavedSlot& saved) const { return flow_.is_saved(kernel, saved); }
  void count_uses(std::size_t end);
  bool is_cached(std::size_t storage) const;
  void count_saves();
  /// A returned value has a name to the end, also in a recomputation, whose results are not used.
  bool is_escaping(int storage) const { return is_output_[storage]; }
  void bind_outputs();
  bool is_held_by_active(int storage) const;

  template <class Visit>
  void for_each_logits(Visit visit) {
    if (!program_.returned.empty()) {
      for (const int slot : program_.returned) visit(storage_of(slot));
      return;
    }
    for (const Op& op : block_.ops) {
      if (op.kind == OpKind::CrossEntropy) visit(storage_of(program_.value_slot[op.inputs.front()]));
    }
  }

  /// What the nodes' own objects refer to.
  template <class Visit>
  void for_each_kept(Visit visit) {
    for (std::size_t k = 0; k < program_.kernels.size(); ++k) {
      if (!flow_.active[k]) continue;
      for (const int slot : program_.kernels[k].keeps) visit(storage_of(slot));
    }
  }

  // Events (tape.cpp).
  void emit(Kind kind, int storage, std::int64_t bytes = 0, MemoryCategory category = MemoryCategory::Activation) {
    events_->push_back({kind, false, category, storage, bytes});
  }
  void allocate(int storage, MemoryCategory category);
  void free(int storage);
  void drop_if_dead(int storage);
  int new_storage(std::int64_t bytes, int op);
  std::vector<int> make_temporaries(const std::vector<std::int64_t>& sizes, int op, MemoryCategory category);
  void drop_temporaries(const std::vector<int>& made);
  int make_temporary(std::int64_t bytes, int op, MemoryCategory category);
  void drop_temporary(int storage);
  /// `results`: bytes of its results that do not exist yet.
  void use(const Workspace& workspace, int op, MemoryCategory category, std::int64_t results = 0);
  void note_peak() {
    if (in_backward_) tape_.backward_peak = std::max(tape_.backward_peak, inside_);
  }

  // Forward and recomputation (tape_forward.cpp).
  void forward();
  void checkpointed_forward();
  void keep_input(int storage);
  void recompute();
  void run_forward(std::size_t kernel, bool exists_already);
  void exchange(const Kernel& kernel);
  void call_unit(const Kernel& kernel);
  void run_all_ops();
  void end_of_forward();
  void leave_to_cache();
  void release_inputs();
  std::int64_t kept_inside() const;
  std::size_t end_of_recomputation(std::size_t begin, std::size_t end) const;
  void rename_outputs();
  void find_kept_parameters();
  void copy_inputs_back();
  void end_recomputation(std::size_t end);

  // Reentrant checkpoints.
  bool is_reentrant() const { return context_.mode == CheckpointMode::Reentrant; }
  /// What the node of a reentrant checkpoint names until its backward is over.
  template <class Visit>
  void for_each_named_output(Visit visit) {
    for (std::size_t s = 0; s < is_output_.size() && is_reentrant(); ++s) {
      if (is_output_[s] && program_.storages[s].kind == Storage::Kind::Inside) visit(static_cast<int>(s));
    }
  }

  // Nested checkpoints (tape_nested.cpp).
  /// A checkpoint inside of the block's.
  struct Inner {
    std::size_t begin = 0;  // Its kernels.
    std::size_t end = 0;
    std::vector<int> inputs;  // Storages that are made inside the block, before it.
    bool holds_inputs = false;
    std::size_t last_node = 0;  // The kernel whose node is the last to hold a saved tensor; `end` if none does.
    bool has_run = false;
  };
  bool is_nested() const { return !inners_.empty(); }
  void find_inners();
  template <class Visit>
  void for_each_held_input(Visit visit) {
    for (const Inner& inner : inners_) {
      for (const int storage : inner.inputs) {
        if (inner.holds_inputs) visit(storage);
      }
    }
  }
  Inner* inner_of(std::size_t kernel);
  void recompute_around();
  std::size_t count_saves_around();
  void run_around(std::size_t end);
  void free_unsaved();
  void enter_inner(std::size_t kernel);
  void leave_inner(std::size_t kernel);
  void recompute_inner(Inner& inner);

  // Backward (tape_backward.cpp).
  void backward();
  void begin_backward();
  std::size_t begin_of_early_nodes() const;
  void run_early_nodes();
  void seed(int output);
  void run_backward(const Kernel& kernel);
  void run_steps(const Kernel& kernel, const Grad& grad_out);
  void use_for_all_gradients(const Kernel& kernel);
  /// Unused parts of a split have gradients of zeros.
  void make_zeros_of_parts(const Kernel& kernel, std::vector<int>& temporaries);
  bool is_needed(const Kernel& kernel, const BackwardTemp& temp) const {
    return temp.bytes > 0 && (temp.needed_for < 0 || flow_.requires_grad[kernel.inputs[temp.needed_for].slot]);
  }
  std::vector<int> start_temporaries(const Kernel& kernel);
  Grad copied(const Grad& grad, std::int64_t bytes, int op);
  bool must_flatten(const Kernel& kernel, const Grad& grad) const;
  Shape order_of(const Kernel& kernel, const KernelInput& input, const Grad& grad_out) const;
  void sum_gradient(const Kernel& kernel, const KernelInput& input, int unsummed, Grad& grad, const Grad& grad_out);
  void end_temporaries(const Kernel& kernel, const std::vector<int>& whole);
  Grad gradient_of(const Kernel& kernel, const KernelInput& input, const Grad& grad_out);
  void release(int grad);
  void release_saved(int storage);
  void release_parameter(int parameter);
  void hold_to_the_end(int storage);
  void accumulate(int slot, Grad grad, int op);
  void add_to(Grad& held, int slot, const Grad& grad, int op);
  int innermost_hook(int slot, int op) const;
  int hook_around(int hook, int slot) const;
  Grad& waiting_at(int hook, int slot);
  void find_hooks();
  void pass_hooks(int op);
  void hand_out(int input, const Grad& grad);
  bool owns(const Grad& grad) const {
    const GradStorage& storage = grads_[grad.storage];
    return storage.refs == 1 && !grad.is_view && !storage.is_shared;
  }
  void end_of_backward();

  const Block& block_;
  const KernelProgram& program_;
  const TapeContext& context_;
  const TapeFlow flow_;
  Tape tape_;
  std::vector<TapeEvent>* events_ = nullptr;
  std::vector<int> uses_, saves_;        // [num storages] References by later kernels, and by nodes of the graph.
  std::vector<bool> alive_, is_output_;  // [num storages]
  std::vector<bool> is_on_host_;         // [num inputs] The checkpoint keeps it on the host. Empty if none.
  /// Storages that selective checkpointing kept beside a kernel's outputs, and their names before the recomputation.
  std::vector<int> kept_inputs_, old_names_;
  std::vector<Inner> inners_;              // In forward order. Empty without nested checkpoints.
  std::vector<int> held_gradients_;        // In `grads_`: those of a reentrant checkpoint's outputs.
  std::vector<int> left_over_;             // Storages that selective checkpointing kept without need.
  std::vector<bool> is_parameter_kept_;    // [num parameters] The recomputation holds it. Empty if irrelevant.
  std::vector<int> name_;                  // [num storages] Name on the tape; outputs made again get another.
  std::vector<std::int64_t> extra_bytes_;  // Bytes of storages that only the tape knows.
  /// The gradient of a slot that waits for a hook.
  struct WaitingGrad {
    int hook = 0;  // An index of `TapeContext::hooks`.
    int slot = 0;
    Grad grad;
  };
  std::vector<WaitingGrad> waiting_;
  std::vector<int> maker_of_slot_;    // [num slots] The op that makes it, or -1. Empty without hooks.
  std::vector<int> last_op_of_hook_;  // [num hooks] The op of its module whose backward comes last, or -1.
  std::vector<Grad> grad_of_slot_;
  std::vector<GradStorage> grads_;
  std::vector<bool> is_handed_out_;  // [num inputs] True if a gradient of it was passed out.
  std::size_t num_late_nodes_ = 0;   // Kernels whose nodes do not run before the recomputation.
  std::int64_t inside_ = 0;
  bool checkpointing_ = false;
  bool has_released_inputs_ = false;
  bool recomputing_ = false;
  bool in_backward_ = false;
};

}  // namespace fsdp::simulator
