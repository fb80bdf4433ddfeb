#pragma once

// The part of the memory walk for the gradients of values that pass between calls.
//
// Each call that reads a value has one or more gradients for it. Autograd sums them where it collects the inputs of a
// node: before the call that made the value. The module of a unit has a collector of its own for each of its arguments,
// FSDP2's post-backward hook, which is a node: it sums the gradients of the calls inside for an argument, and passes
// the sum on after the unit has been reduced. That changes the order if several calls read a value, or ops inside and
// outside a unit within one call. Gradients made within the call are on its tape (`TapeContext::hooks`).
//
// A gradient is added to the existing one in place, if nothing else owns that one and it is no view; otherwise the sum
// is a new tensor.
//
// Sources: torch/csrc/autograd/input_buffer.cpp, torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py
// (_register_post_backward_hook, RegisterPostBackwardFunction), torch 2.11.

#include <algorithm>
#include <utility>
#include <vector>

#include "simulator/memory/memory_walk.h"
#include "simulator/ops/gradient_hooks.h"

namespace fsdp::simulator {

/// Counts the holders of a tensor that passes between calls; parameters have none.
class RefCounts {
 public:
  explicit RefCounts(const MemoryIds& ids)
      : first_(ids.units_base()), counts_(static_cast<std::size_t>(ids.total - first_), 0) {}

  int& operator[](int id) { return counts_[static_cast<std::size_t>(id - first_)]; }

 private:
  int first_;
  std::vector<int> counts_;
};

template <class Sink>
class ValueGradWalk {
 public:
  ValueGradWalk(const WalkInput& input, Sink& sink, RefCounts& refs)
      : in_(input), model_(*input.index->model), sink_(sink), refs_(refs), grads_(model_.values.size()) {
    find_shared_values();
  }

  /// Tensor `id` is the gradient of a value from outside.
  void begin(int value, int id) { grads_[value] = {id, false}; }

  /// The op of a call at a position has tensor `id` as one gradient of the call's input.
  void add(int call, int input, int position, int id, bool is_view) {
    add_to(waiting_for(call, input, position), model_.calls[call].inputs[input], {id, is_view});
  }

  /// The op of a call at a position has used up the gradient of the call's input so far.
  void release_input(int call, int input, int position) { drop(waiting_for(call, input, position)); }

  /// The gradient of output `output` is also one of input `input`, from the op at a position.
  void forward(int call, int output, int input, int position, bool is_view) {
    const Grad grad = grads_[model_.calls[call].outputs[output]];
    if (grad.id < 0) return;
    ++refs_[grad.id];
    add(call, input, position, grad.id, grad.is_view || is_view);
  }

  /// The gradient of output `output` of a call has been used.
  void release(int call, int output) { drop(grads_[model_.calls[call].outputs[output]]); }

  /// The walk has completed everything at and after a position, including the hooks of units.
  void reach(int position) {
    for (Collector& collector : collectors_) {
      if (collector.grad.id >= 0 && position <= collector.first_position) hand_on(collector);
    }
  }

  /// The same for the hooks of units inside a unit: its own runs now.
  void reach_inside(int unit, int position) {
    for (Collector& collector : collectors_) {
      if (collector.grad.id < 0 || position > collector.first_position || collector.unit == unit) continue;
      const std::vector<Window>& windows = in_.layout->units[unit].windows;
      const bool is_inside = std::any_of(windows.begin(), windows.end(), [&](const Window& window) {
        return window.begin <= collector.begin && collector.end <= window.end;
      });
      if (is_inside) hand_on(collector);
    }
  }

  /// After the backward nothing waits.
  void end_backward() {
    for (Collector& collector : collectors_) drop(collector.grad);
    for (Grad& grad : grads_) drop(grad);
  }

 private:
  struct Grad {
    int id = -1;
    bool is_view = false;
  };
  /// For one argument of one pass through a unit.
  struct Collector {
    int value = 0;
    int begin = 0;  // Positions of the pass.
    int end = 0;
    int first_position = 0;  // The first of them with a backward.
    int unit = 0;
    int outer = -1;  // For the unit around it: a later index of the list, or -1.
    Grad grad = {};
  };

  // The sum of the gradients that ops at a position have for an input of their call.
  Grad& waiting_for(int call, int input, int position) {
    const int value = model_.calls[call].inputs[input];
    const int collector = collectors_.empty() ? -1 : innermost(position, value);
    return collector < 0 ? grads_[value] : collectors_[collector].grad;
  }

  void hand_on(Collector& collector) {
    Grad& outside = collector.outer < 0 ? grads_[collector.value] : collectors_[collector.outer].grad;
    add_to(outside, collector.value, std::exchange(collector.grad, {}));
  }

  // Makes collectors for values with several gradients, from several calls or from ops inside and outside a unit within
  // one. Inner units come before outer ones.
  void find_shared_values() {
    const std::vector<HookedPass> passes = hooked_passes(*in_.index, *in_.layout);
    const std::vector<bool> is_parted = calls_parted_by(passes);
    std::vector<int> readers(model_.values.size(), 0);
    const auto has_grad = [&](std::size_t c, std::size_t v) { return in_.index->flow.requires_grad[c][v]; };
    bool any = false;
    for (std::size_t c = 0; c < model_.calls.size(); ++c) {
      const std::vector<int>& inputs = model_.calls[c].inputs;
      for (std::size_t v = 0; v < inputs.size(); ++v) {
        if (!has_grad(c, v)) continue;
        const auto ops = is_parted[c] ? reading_positions(static_cast<int>(c), static_cast<int>(v)).size() : 1;
        readers[inputs[v]] += static_cast<int>(ops);
        any = any || readers[inputs[v]] > 1;
      }
    }
    if (!any) return;
    is_shared_.resize(readers.size());
    for (std::size_t v = 0; v < readers.size(); ++v) is_shared_[v] = readers[v] > 1;
    for (std::size_t c = 0; c < model_.calls.size(); ++c) {
      const Call& call = model_.calls[c];
      for (std::size_t v = 0; v < call.inputs.size(); ++v) {
        if (!is_shared_[call.inputs[v]] || !has_grad(c, v)) continue;
        for (const int position : reading_positions(static_cast<int>(c), static_cast<int>(v))) {
          add_collectors(passes, call.inputs[v], position);
          if (!is_parted[c]) break;
        }
      }
    }
    std::stable_sort(collectors_.begin(), collectors_.end(),
                     [](const Collector& a, const Collector& b) { return a.end - a.begin < b.end - b.begin; });
    for (std::size_t i = 0; i < collectors_.size(); ++i) find_outer(i);
  }

  // [num calls] True if a pass with a hook contains some but not all of the call's ops.
  std::vector<bool> calls_parted_by(const std::vector<HookedPass>& passes) const {
    const std::vector<int>& begins = in_.index->call_begin;
    std::vector<bool> is_parted(model_.calls.size(), false);
    for (const auto& [pass, unit] : passes) {
      const int call = in_.index->call_at(pass.begin);
      if (pass.begin != begins[call] || pass.end < begins[call + 1]) is_parted[call] = true;
    }
    return is_parted;
  }

  // The positions of the ops of a call that read its input; its first if none does and the input is passed on.
  std::vector<int> reading_positions(int call, int input) const {
    const std::vector<Op>& ops = model_.blocks[model_.calls[call].block].ops;
    const int begin = in_.index->call_begin[call];
    std::vector<int> positions;
    for (std::size_t o = 0; o < ops.size(); ++o) {
      if (std::find(ops[o].inputs.begin(), ops[o].inputs.end(), input) != ops[o].inputs.end())
        positions.push_back(begin + static_cast<int>(o));
    }
    if (positions.empty()) positions.push_back(begin);
    return positions;
  }

  void add_collectors(const std::vector<HookedPass>& passes, int value, int position) {
    const int maker = in_.index->made_at[value];
    for (const auto& [pass, unit] : passes) {
      if (position < pass.begin || position >= pass.end || maker >= pass.begin) continue;
      // Clang 14 requires a name for a captured structured binding.
      const auto is_same = [value, &pass = pass](const Collector& other) {
        return other.value == value && other.begin == pass.begin && other.end == pass.end;
      };
      const bool is_new = std::none_of(collectors_.begin(), collectors_.end(), is_same);
      int first = pass.begin;
      while (first < pass.end && !in_.index->in_backward[first]) ++first;
      if (is_new) collectors_.push_back({value, pass.begin, pass.end, first, unit});
    }
  }

  void find_outer(std::size_t inner) {
    Collector& collector = collectors_[inner];
    for (std::size_t i = inner + 1; i < collectors_.size() && collector.outer < 0; ++i) {
      const Collector& other = collectors_[i];
      const bool is_around = other.begin <= collector.begin && collector.end <= other.end;
      if (is_around && other.value == collector.value) collector.outer = static_cast<int>(i);
    }
  }

  int innermost(int position, int value) const {
    if (!is_shared_[value]) return -1;
    for (std::size_t i = 0; i < collectors_.size(); ++i) {
      const Collector& collector = collectors_[i];
      if (collector.value == value && collector.begin <= position && position < collector.end)
        return static_cast<int>(i);
    }
    return -1;
  }

  void add_to(Grad& held, int value, Grad grad) {
    if (held.id < 0) {
      held = grad;
    } else if (refs_[held.id] == 1 && !held.is_view) {
      drop(grad);
    } else {
      const int sum = free_sum(value);
      sink_.alloc(sum, bytes_of(value), MemoryStream::Compute, MemoryCategory::Temp);
      refs_[sum] = 1;
      drop(held);
      drop(grad);
      held = {sum, false};
    }
  }

  std::int64_t bytes_of(int value) const {
    const Value& of = model_.values[value];
    const std::int64_t bytes = num_elements(of.shape) * size_of(of.dtype.value_or(in_.activation)).count();
    if (!in_.plan->mixed_precision.autocast) return bytes;
    // The dtype follows from the ops before.
    for (std::size_t c = 0; c < model_.calls.size(); ++c) {
      const std::vector<int>& outputs = model_.calls[c].outputs;
      const auto found = std::find(outputs.begin(), outputs.end(), value);
      if (found != outputs.end())
        return (*in_.tapes)[c]->output_bytes[static_cast<std::size_t>(found - outputs.begin())];
    }
    return bytes;
  }

  // Before the maker, in a unit, and in a unit inside it there can be one at a time.
  int free_sum(int value) const {
    int which = 0;
    while (which + 1 < kNumGradSums && refs_[in_.ids->grad_sum(value, which)] > 0) ++which;
    return in_.ids->grad_sum(value, which);
  }

  void drop(Grad& grad) {
    if (grad.id >= 0 && --refs_[grad.id] == 0) sink_.free(grad.id);
    grad = {};
  }

  const WalkInput& in_;
  const Model& model_;
  Sink& sink_;
  RefCounts& refs_;
  std::vector<Grad> grads_;  // [num values]
  std::vector<Collector> collectors_;
  std::vector<bool> is_shared_;  // [num values] True if several calls have gradients for it. Empty if none is shared.
};

}  // namespace fsdp::simulator
