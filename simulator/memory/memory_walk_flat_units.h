#pragma once

// The part of the memory walk for FSDP1's flat parameters.
//
// For a unit with a flat parameter of T elements, of which a rank holds S over N ranks (p / r / o bytes per element of
// param, reduce and original dtype):
//
//   Unshard       [shard cast to p S, on a stream of its own, if p != o], all-gather output p N S, which compute uses;
//                 then the cast is freed. NO_SHARD: the cast of all, p T, if any
//   Reshard       frees that
//   FlattenGrads  copies the gradients of a pass into one, p T, and frees them; zeros for missing ones and padding. A
//                 later one is added to the first, and freed: that of the last pass with the hook if p != o. If p = o,
//                 an earlier micro-batch's receives the sum of all passes, which is freed with the hook. All that on
//                 the stream of the all-gather, which made the views: autograd runs a node's backward on the stream of
//                 its forward
//   ReduceGrads   on the stream of the reduction: [cast r T if r != p], [padded r N S if N S != T], output r S,
//                 [cast to o S if r != o]. NO_SHARD: the flat gradient itself, [cast r T], [cast o T]
//   Free          the reduction's input: frees the flat gradient and its copies when the hook returns
//   ZeroGrad      frees sharded gradients; with use_orig_params when the next forward begins
//
// Before the first forward, each unit's gather buffer is made once, and emptied.
//
// A block that another stream has used (record_stream) returns when the CPU knows that the stream has passed it. A sink
// that `holds` gets the latest time: only the work that the CPU has waited for is done. Live bytes do not depend on it.
// So:
//
//   the cast of a shard         is used by the all-gather,
//   a gathered parameter        by compute, if it is freed after a forward. In a backward, a hook on the stream of the
//                               all-gather frees it: at once,
//   a gradient                  by the sum of its uses and by the flattening, on the stream of the all-gather,
//   a flat gradient             by the reduction, and with HSDP the scattered part by the all-reduce;
//   the CPU waits               at the limiter of all-gathers if two units' frees are outstanding, with CPU offload at
//                               the end of a backward, and if the queue of launches is full.
//
// With CPU offload a shard comes from the host before each pass, gathered or not: uncast (o S), with its cast beside it
// if p != o. Reduced gradients stay on the GPU until the backward ends.
//
// Sources: torch/distributed/fsdp/_flat_param.py, _runtime_utils.py, _init_utils.py, _limiter_utils.py, torch 2.11; for
// the flat gradient split_with_sizes_backward (torch/csrc/autograd/FunctionsManual.cpp), for sums of them
// input_buffer.cpp and functions/accumulate_grad.h there.
//
// Not modeled: gradients that are views, which a separate parameter would have copied, and a flat one does not (a few
// KB, for expanded parameters); a frozen unit of several arguments holds their gradients until all exist.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "core/plan/unit_boundaries.h"
#include "simulator/memory/held_frees.h"
#include "simulator/memory/memory_walk_initialization.h"
#include "simulator/memory/memory_walk_step.h"

namespace fsdp::simulator {

template <class Sink>
class FlatUnitWalk final : public StepWalk<Sink> {
  using Step = StepWalk<Sink>;

 public:
  explicit FlatUnitWalk(const WalkParts<Sink>& parts) : Step(parts), units_(in_.layout->units.size()) {
    grads_.on_use_elsewhere([this](int tensor) { free_behind(tensor, MemoryStream::AllGatherCopyIn); });
    for (const int u : units_in_module_order(layout())) {
      if (!layout().units[u].parameters.empty()) in_module_order_.push_back(u);
    }
  }

  /// Makes each unit's parameters, copies them into a flat one, and shards that.
  void initialize() override {
    if (in_.limits.num_sms == 0) return Step::initialize();
    std::vector<bool> is_made(in_.index->model->buffers.size(), false);
    if (in_.plan->initialization == Initialization::Device) {
      for (std::size_t b = 0; b < is_made.size(); ++b) make_buffer(static_cast<int>(b), is_made);
      for (std::size_t p = 0; p < layout().unit_of_parameter.size(); ++p) make_original(static_cast<int>(p));
    }
    for (std::size_t u = 0; u < units_.size(); ++u) make_flat(static_cast<int>(u), is_made);
    for (const int u : in_module_order_) widen(u);
  }

  /// A forward begins: notices gradients that were set to None.
  void enter_forward() override {
    order_.wait(MemoryStream::AllGatherCopyIn, MemoryStream::Compute);
    order_.wait(MemoryStream::Cast, MemoryStream::Compute);
    if (std::exchange(has_zeroed_, false)) drop_sharded_grads();
    if (std::exchange(has_begun_, true) || in_.limits.num_sms == 0) return;
    for (const int u : in_module_order_) {
      const ShardedUnit& unit = layout().units[u];
      if (is_cast(unit)) touch(UnitTensor::Cast, u, unit.shard_elements * size(unit.param_dtype));
      if (!is_sharded()) continue;
      touch(UnitTensor::AllGather, u, unit.full_elements * size(unit.param_dtype));
      if (is_cast(unit)) touch(UnitTensor::AllGather, u, unit.full_elements * size(unit.original_dtype));
    }
  }

  // An earlier gradient is in the flat one.
  void enter_reduce(const Instruction&) override {}

  void run(const Instruction& step) override {
    switch (step.kind) {
      case InstructionKind::Unshard:
        return unshard(step);
      case InstructionKind::WaitForUnshard:
        return order_.wait(MemoryStream::Compute, MemoryStream::AllGatherCopyIn);
      case InstructionKind::LimitGathers:
        return pass_unshard(step);
      case InstructionKind::Reshard:
        return reshard(step);
      case InstructionKind::FlattenGrads:
        return flatten(step);
      case InstructionKind::AccumulateGrads:
        return accumulate(step);
      case InstructionKind::ReduceGrads:
        return reduce(step);
      case InstructionKind::FinishReduce:
        finish();
        return Step::run(step);
      case InstructionKind::ClipGradNorm:
        return optimizer_.clip_flat();
      case InstructionKind::ZeroGrad:
        return zero_grad();
      default:
        return Step::run(step);
    }
  }

  /// The hook of a reduction returns.
  void free(const Instruction& step) override {
    UnitState& state = units_[step.unit];
    if (state.held >= 0) {
      state.holds_flat ? free_behind(state.held, MemoryStream::ReduceScatter) : sink_.free(state.held);
    }
    if (state.input >= 0 && state.input != state.flat) sink_.free(state.input);
    drop_added(state);
    if (state.flat >= 0 && !state.is_grad) free_behind(state.flat, MemoryStream::ReduceScatter);
    if (!state.is_grad) state.flat = -1;
    state.held = state.input = -1;
    state.is_earlier = false;
  }

  /// On one GPU no reduction waits for others, so that it keeps up.
  void launch(std::int64_t kernels) override {
    if (!held_.are_held()) return;
    if (layout().mesh.world_size() == 1) order_.wait(MemoryStream::Compute, MemoryStream::ReduceScatter);
    held_.launch(MemoryStream::Compute, kernels);
  }

 private:
  using Step::grads_;
  using Step::in_;
  using Step::optimizer_;
  using Step::sink_;

  void unshard(const Instruction& step) {
    const ShardedUnit& unit = unit_of(step);
    const int cast = id(UnitTensor::Cast, step.unit);
    if (has_own_input(unit)) {
      make_input(step.unit);
      order_.wait(MemoryStream::AllGatherCopyIn, MemoryStream::Cast);
    }
    limit_gathers();
    if (is_sharded()) {
      sink_.alloc(id(UnitTensor::AllGather, step.unit), unit.full_elements * size(unit.param_dtype),
                  stream_of_root(MemoryStream::AllGatherCopyIn, in_.root), MemoryCategory::UnshardedParam);
    }
    sink_.collective();
    if (is_sharded()) order_.collective(MemoryStream::AllGatherCopyIn, kShards);
    if (is_sharded() && has_own_input(unit)) free_behind(cast, MemoryStream::AllGatherCopyIn);
  }

  // A pass requests a unit that is gathered already.
  void pass_unshard(const Instruction& step) {
    const bool copies = in_.plan->cpu_offload && has_own_input(unit_of(step));
    if (copies) {
      make_input(step.unit);
      order_.wait(MemoryStream::AllGatherCopyIn, MemoryStream::Cast);
    }
    if (in_.plan->fsdp1.limit_all_gathers) limit_gathers();
    if (!copies) return;
    const int input = id(UnitTensor::Cast, step.unit);
    is_cast(unit_of(step)) ? free_behind(input, MemoryStream::AllGatherCopyIn) : sink_.free(input);
  }

  // The CPU waits, if it is ahead of two frees.
  void limit_gathers() {
    if (freed_.size() < 2) return;
    held_.finish(freed_.front());
    freed_.pop_front();
  }

  void reshard(const Instruction& step) {
    const bool in_hook = std::exchange(flattened_, -1) == step.unit;
    const MemoryStream stream = in_hook ? MemoryStream::AllGatherCopyIn : MemoryStream::Compute;
    if (!is_sharded()) {
      if (is_cast(unit_of(step))) free_behind(id(UnitTensor::Cast, step.unit), stream);
      return;
    }
    const int gathered = id(UnitTensor::AllGather, step.unit);
    in_hook ? sink_.free(gathered) : free_behind(gathered, stream);
    if (in_.plan->fsdp1.limit_all_gathers) freed_.push_back(order_.submit(stream));
  }

  // The backward ends.
  void finish() {
    order_.wait(MemoryStream::Compute, MemoryStream::ReduceScatter);
    order_.wait(MemoryStream::Compute, MemoryStream::AllReduce);
    if (!in_.plan->cpu_offload) return;
    held_.finish(order_.submit(MemoryStream::Compute));
    for (const int u : in_module_order_) {
      if (std::exchange(units_[u].has_sharded_grad, false)) sink_.free(id(UnitTensor::ShardedGrad, u));
    }
  }

  void flatten(const Instruction& step) {
    order_.wait(MemoryStream::AllGatherCopyIn, MemoryStream::Compute);
    flattened_ = step.unit;
    const ShardedUnit& unit = unit_of(step);
    UnitState& state = units_[step.unit];
    const std::int64_t item = size(unit.param_dtype);
    const std::vector<std::pair<int, std::int64_t>> zeros =
        zeros_of(step.unit, [&](int parameter) { return !grads_.has_any(parameter); });
    for (const auto& [zero, elements] : zeros) {
      sink_.alloc(zero, elements * item, MemoryStream::AllGatherCopyIn, MemoryCategory::Temp);
    }
    const bool is_last = is_last_pass(step.unit);
    // A cast flat parameter has an AccumulateGrad for each pass, because set_data with another dtype drops the one
    // before. Otherwise passes share one, and an earlier gradient receives their sum.
    const bool waits = !is_cast(unit) && (state.is_earlier || state.is_grad);
    int& sum = waits ? state.added : state.flat;
    const bool is_first = sum < 0;
    const UnitTensor first = waits ? UnitTensor::NewFlatGrad : UnitTensor::FlatGrad;
    const int made = id(is_first ? first : UnitTensor::NextFlatGrad, step.unit);
    sink_.alloc(made, unit.true_elements * item, MemoryStream::AllGatherCopyIn, MemoryCategory::UnshardedGrad);
    for (const auto& [zero, elements] : zeros) sink_.free(zero);
    for (const ShardedParameter& p : unit.parameters) grads_.drop(p.parameter);
    if (!is_first && !waits) cast_for_sum(step.unit);
    if (is_first) {
      sum = made;
      if (!waits) state.dtype = unit.param_dtype;
    } else if (is_cast(unit) && is_last) {
      state.added = made;  // The hook holds its node's argument.
    } else {
      sink_.free(made);
    }
  }

  void accumulate(const Instruction& step) {
    UnitState& state = units_[step.unit];
    const bool has_views = layout().flat == FlatParameters::Views && !in_.plan->cpu_offload;  // Otherwise on the host.
    if (!state.is_earlier && has_views) make_placeholders(unit_of(step));
    drop_added(state);
    state.is_earlier = true;
  }

  void reduce(const Instruction& step) {
    const ShardedUnit& unit = unit_of(step);
    UnitState& state = units_[step.unit];
    state.input = state.flat;
    state.made_by = MemoryStream::AllGatherCopyIn;
    order_.wait(MemoryStream::ReduceScatter, MemoryStream::AllGatherCopyIn);
    if (state.dtype != unit.reduce_dtype) {
      state.input = id(UnitTensor::CastFlatGrad, step.unit);
      sink_.alloc(state.input, unit.true_elements * size(unit.reduce_dtype), MemoryStream::ReduceScatter,
                  MemoryCategory::ReduceScatter);
    }
    is_sharded() ? scatter(step) : reduce_whole(step);
  }

  void zero_grad() {
    if (in_.plan->cpu_offload) return;
    if (layout().flat == FlatParameters::Views) {
      has_zeroed_ = true;
    } else {
      drop_sharded_grads();
    }
  }

  struct UnitState {
    int flat = -1;            // The unsharded gradient, as a number of MemoryIds,
    Dtype dtype{};            // and its dtype.
    int added = -1;           // The tensor that is added to it, until the hook returns.
    int input = -1;           // Input of the reduction: the flat gradient or a copy.
    int held = -1;            // The same, padded, or the earlier content: until the hook returns.
    bool holds_flat = false;  // `held` is a flat gradient.
    MemoryStream made_by{};   // The stream of `flat`'s memory.
    bool is_grad = false;     // True for NO_SHARD: `flat` is .grad between steps.
    bool is_earlier = false;  // True if `flat` is from a micro-batch without reduction.
    bool has_sharded_grad = false;
    std::ptrdiff_t passes = 0;  // Passes of this backward with a flat gradient.
  };

  const Layout& layout() const { return *in_.layout; }
  const ShardedUnit& unit_of(const Instruction& step) const { return layout().units[step.unit]; }
  bool is_sharded() const { return layout().mesh.dp_shard() > 1; }
  static bool is_cast(const ShardedUnit& unit) { return unit.param_dtype != unit.original_dtype; }
  // True if the all-gather's input is not the shard itself.
  bool has_own_input(const ShardedUnit& unit) const { return is_cast(unit) || in_.plan->cpu_offload; }
  static std::int64_t size(Dtype dtype) { return size_of(dtype).count(); }
  int id(UnitTensor what, int unit) const { return in_.ids->of(what, unit); }

  void alloc_temp(int tensor, std::int64_t bytes) {
    sink_.alloc(tensor, bytes, MemoryStream::Compute, MemoryCategory::Temp);
  }
  // Another stream than that of its memory has used it.
  void free_behind(int tensor, MemoryStream stream) { held_.free_behind(tensor, stream); }

  void drop_sharded_grad(int u) {
    const ShardedUnit& unit = layout().units[u];
    const bool is_used = layout().mesh.dp_replicate() > 1 && unit.reduce_dtype == unit.original_dtype;
    const int grad = id(UnitTensor::ShardedGrad, u);
    is_used ? free_behind(grad, MemoryStream::AllReduce) : sink_.free(grad);
  }

  // The all-gather's input: cast, or copied from the host, or both.
  void make_input(int u) {
    const ShardedUnit& unit = layout().units[u];
    const auto make = [&](UnitTensor what, Dtype dtype, MemoryCategory category) {
      sink_.alloc(id(what, u), unit.shard_elements * size(dtype), stream_of_casts(), category);
    };
    make(UnitTensor::Cast, unit.param_dtype, is_sharded() ? MemoryCategory::AllGather : MemoryCategory::UnshardedParam);
    if (!in_.plan->cpu_offload || !is_cast(unit)) return;
    make(UnitTensor::FlatShard, unit.original_dtype, MemoryCategory::AllGather);
    sink_.free(id(UnitTensor::FlatShard, u));
  }

  // Another model reduces nothing: its stream of reductions stands for that of its casts.
  MemoryStream stream_of_casts() const {
    return in_.root > 0 ? stream_of_root(MemoryStream::ReduceScatter, in_.root) : MemoryStream::Cast;
  }

  void touch(UnitTensor what, int unit, std::int64_t bytes) {
    alloc_temp(id(what, unit), bytes);
    sink_.free(id(what, unit));
  }

  // CPU kernels add a cast copy if dtypes differ: to an average in the original dtype.
  void cast_for_sum(int u) {
    const ShardedUnit& unit = layout().units[u];
    const Dtype dtype = units_[u].dtype;
    if (in_.limits.num_sms > 0 || dtype == unit.param_dtype) return;
    const int cast = id(UnitTensor::ReduceScatterInput, u);
    sink_.alloc(cast, unit.true_elements * size(dtype), MemoryStream::Compute, MemoryCategory::UnshardedGrad);
    sink_.free(cast);
  }

  bool is_last_pass(int u) {
    const std::vector<Window>& windows = layout().units[u].windows;
    const auto passes =
        std::count_if(windows.begin(), windows.end(), [](const Window& w) { return w.pre_backward >= 0; });
    if (++units_[u].passes < passes) return false;
    units_[u].passes = 0;
    return true;
  }

  void drop_added(UnitState& state) {
    if (state.added >= 0) sink_.free(state.added);
    state.added = -1;
  }

  // Views of an unsharded gradient that fit no parameter replace a tensor of the right shape.
  void make_placeholders(const ShardedUnit& unit) {
    for (const ShardedParameter& p : unit.parameters) {
      const bool has_shape = p.local_elements == p.elements &&
                             (!is_sharded() || in_.index->model->parameters[p.parameter].shape.size() == 1);
      if (p.local_elements == 0 || (has_shape && !is_cast(unit))) continue;
      const int placeholder = in_.ids->of(ParameterTensor::MissingGrad, p.parameter);
      sink_.alloc(placeholder, p.local_elements * size(unit.original_dtype), MemoryStream::AllGatherCopyIn,
                  MemoryCategory::Temp);
      sink_.free(placeholder);
    }
  }

  // The zero-filled parts of a flat parameter or gradient, with their elements, in order: padding, and `is_missing`
  // parameters.
  template <class IsMissing>
  std::vector<std::pair<int, std::int64_t>> zeros_of(int u, IsMissing is_missing) const {
    const ShardedUnit& unit = layout().units[u];
    std::vector<std::pair<int, std::int64_t>> zeros;
    std::int64_t end = 0;
    for (const ShardedParameter& p : unit.parameters) {
      if (p.flat_begin > end) {
        zeros.emplace_back(in_.ids->of(ParameterTensor::GradPadding, p.parameter), p.flat_begin - end);
      }
      if (is_missing(p.parameter)) {
        zeros.emplace_back(in_.ids->of(ParameterTensor::MissingGrad, p.parameter), p.elements);
      }
      end = p.flat_begin + p.elements;
    }
    if (unit.true_elements > end) zeros.emplace_back(id(UnitTensor::FlatGradTail, u), unit.true_elements - end);
    return zeros;
  }

  void scatter(const Instruction& step) {
    const ShardedUnit& unit = unit_of(step);
    UnitState& state = units_[step.unit];
    const bool casts = unit.reduce_dtype != unit.original_dtype;
    const bool hybrid = layout().mesh.dp_replicate() > 1;
    if (unit.reduced_full_elements != unit.true_elements) {
      state.held = id(UnitTensor::ReduceScatterInput, step.unit);
      sink_.alloc(state.held, unit.reduced_full_elements * size(unit.reduce_dtype), MemoryStream::ReduceScatter,
                  MemoryCategory::ReduceScatter);
    }
    const int grad = id(state.has_sharded_grad ? UnitTensor::NewShardedGrad : UnitTensor::ShardedGrad, step.unit);
    const int output = casts ? id(UnitTensor::ReduceScatterOutput, step.unit) : grad;
    sink_.alloc(output, unit.reduced_shard_elements * size(unit.reduce_dtype), MemoryStream::ReduceScatter,
                casts || state.has_sharded_grad ? MemoryCategory::ReduceScatter : MemoryCategory::ShardedGrad);
    const int parts = id(UnitTensor::ReceivedParts, step.unit);
    if (in_.reduce_scatter_receives_parts) {
      sink_.alloc(parts, unit.reduced_full_elements * size(unit.reduce_dtype), MemoryStream::ReduceScatter,
                  MemoryCategory::ReduceScatter);
    }
    sink_.collective();
    if (in_.reduce_scatter_receives_parts) sink_.free(parts);
    order_.collective(MemoryStream::ReduceScatter, kShards);
    if (hybrid) {
      sink_.collective();
      order_.wait(MemoryStream::AllReduce, MemoryStream::ReduceScatter);
      order_.collective(MemoryStream::AllReduce, kReplicas);
    }
    if (casts) {
      sink_.alloc(grad, unit.reduced_shard_elements * size(unit.original_dtype),
                  hybrid ? MemoryStream::AllReduce : MemoryStream::ReduceScatter, MemoryCategory::ShardedGrad);
      hybrid ? free_behind(output, MemoryStream::AllReduce) : sink_.free(output);
    }
    if (state.has_sharded_grad) {
      hybrid && !casts ? free_behind(grad, MemoryStream::AllReduce) : sink_.free(grad);
    }
    state.has_sharded_grad = true;
  }

  // Reduces the gradient itself, which stays until it is set to None.
  void reduce_whole(const Instruction& step) {
    const ShardedUnit& unit = unit_of(step);
    UnitState& state = units_[step.unit];
    sink_.collective();
    order_.collective(MemoryStream::ReduceScatter, kShards);
    const bool casts = unit.reduce_dtype != unit.original_dtype;
    // An earlier micro-batch's exists until the hook returns.
    const int first = id(UnitTensor::ShardedGrad, step.unit);
    const int grad = state.flat == first ? id(UnitTensor::NewShardedGrad, step.unit) : first;
    if (casts) {
      sink_.alloc(grad, unit.true_elements * size(unit.original_dtype), MemoryStream::ReduceScatter,
                  MemoryCategory::ShardedGrad);
    }
    const int result = casts ? grad : state.input;
    if (result != state.flat) {
      if (state.input != state.flat && state.input != result) sink_.free(state.input);
      state.held = state.flat;
      state.holds_flat = true;
      state.made_by = MemoryStream::ReduceScatter;
    }
    state.flat = result;
    state.input = result;
    state.dtype = unit.original_dtype;
    state.is_grad = true;
  }

  void drop_sharded_grads() {
    for (const int u : in_module_order_) {
      UnitState& state = units_[u];
      if (state.has_sharded_grad) drop_sharded_grad(u);
      if (state.is_grad && state.flat >= 0) {
        const bool is_used = state.made_by != MemoryStream::ReduceScatter;
        is_used ? free_behind(state.flat, MemoryStream::ReduceScatter) : sink_.free(state.flat);
      }
      if (state.is_grad) state.flat = -1;
      state.has_sharded_grad = state.is_grad = false;
    }
  }

  // ---- initialization ----------------------------------------------------------------------------------------------

  // accelerate loads and shards a model in its own dtype. What is trained becomes float32 when all of it is sharded.
  bool is_widened(const ShardedUnit& unit) const {
    return in_.plan->mixed_precision.float_outputs && in_.plan->initialization == Initialization::Cpu &&
           !unit.parameters.empty() && loaded_size(unit) < size(unit.original_dtype);
  }
  std::int64_t loaded_size(const ShardedUnit& unit) const {
    return size(in_.index->model->parameters[unit.parameters.front().parameter].dtype);
  }
  std::int64_t made_size(const ShardedUnit& unit) const {
    return is_widened(unit) ? loaded_size(unit) : size(unit.original_dtype);
  }

  // The shard in the dtype of the checkpoint has the place of the cast, which does not exist yet.
  int made_shard(int u) const {
    return id(is_widened(layout().units[u]) ? UnitTensor::Cast : UnitTensor::FlatShard, u);
  }

  void widen(int u) {
    const ShardedUnit& unit = layout().units[u];
    if (!is_widened(unit) || in_.plan->cpu_offload) return;
    sink_.alloc(id(UnitTensor::FlatShard, u), unit.shard_elements * size(unit.original_dtype), MemoryStream::Compute,
                MemoryCategory::ShardedParam);
    sink_.free(made_shard(u));
  }

  void make_original(int p) {
    const ShardedUnit& unit = layout().units[layout().unit_of_parameter[p]];
    if (!is_widened(unit)) return make_original_parameter(in_, sink_, p);
    const Parameter& parameter = in_.index->model->parameters[p];
    sink_.alloc(in_.ids->of(ParameterTensor::Full, p), num_elements(parameter.shape) * size(parameter.dtype),
                MemoryStream::Compute, MemoryCategory::ShardedParam);
  }

  void make_buffer(int b, std::vector<bool>& is_made) {
    if (is_made[b]) return;
    is_made[b] = true;
    make_model_buffer(in_, sink_, b);
  }

  // Modules below the unit's that no unit before has, level by level. On the meta device a module's buffers come with
  // its parameters; moved buffers come after all parameters.
  void make_originals(int u, std::vector<bool>& is_made) {
    const Model& model = *in_.index->model;
    const bool is_moved = in_.plan->initialization == Initialization::Cpu;
    std::vector<int> modules = layout().units[u].modules;
    std::vector<bool> is_made_parameter(model.parameters.size(), false);
    for (std::size_t i = 0; i < modules.size(); ++i) {
      const int module = modules[i];
      for (const int p : model.modules[module].parameters) {
        if (layout().unit_of_parameter[p] != u || is_made_parameter[p]) continue;
        is_made_parameter[p] = true;
        make_original(p);
      }
      if (!is_moved) make_buffers(module, is_made);
      for (const int child : model.modules[module].children) {
        if (!is_another_unit(child, u)) modules.push_back(child);
      }
    }
    if (!is_moved) return;
    for (const int module : modules) make_buffers(module, is_made);
  }

  bool is_another_unit(int module, int u) const {
    for (std::size_t other = 0; other < units_.size(); ++other) {
      if (static_cast<int>(other) != u && layout().units[other].modules.front() == module) return true;
    }
    return false;
  }

  void make_buffers(int module, std::vector<bool>& is_made) {
    for (const int b : in_.index->buffers[module]) make_buffer(b, is_made);
  }

  void make_flat(int u, std::vector<bool>& is_made) {
    const ShardedUnit& unit = layout().units[u];
    if (in_.plan->initialization != Initialization::Device) make_originals(u, is_made);
    if (unit.parameters.empty()) return;
    const std::int64_t item = made_size(unit);
    const int shard = made_shard(u);
    const int full = is_sharded() ? id(UnitTensor::FlatFull, u) : shard;
    const std::vector<std::pair<int, std::int64_t>> zeros = zeros_of(u, [](int) { return false; });
    for (const auto& [zero, elements] : zeros) alloc_temp(zero, elements * item);
    sink_.alloc(full, unit.true_elements * item, MemoryStream::Compute, MemoryCategory::ShardedParam);
    for (const auto& [zero, elements] : zeros) sink_.free(zero);
    if (is_sharded()) {
      cut(u);
      sink_.free(full);
    }
    for (const ShardedParameter& p : unit.parameters) sink_.free(in_.ids->of(ParameterTensor::Full, p.parameter));
    if (in_.plan->cpu_offload) sink_.free(shard);
  }

  // A rank whose part ends early copies it, and pads the copy.
  void cut(int u) {
    const ShardedUnit& unit = layout().units[u];
    const std::int64_t item = made_size(unit);
    const std::int64_t own =
        std::clamp<std::int64_t>(unit.true_elements - layout().rank * unit.shard_elements, 0, unit.shard_elements);
    const int part = id(UnitTensor::FlatPadded, u);
    if (own < unit.shard_elements && own > 0) alloc_temp(part, own * item);
    sink_.alloc(made_shard(u), unit.shard_elements * item, MemoryStream::Compute, MemoryCategory::ShardedParam);
    if (own < unit.shard_elements && own > 0) sink_.free(part);
  }

  // Communicators, for the order of their collectives.
  static constexpr int kShards = 0;
  static constexpr int kReplicas = 1;

  HeldFrees<Sink> held_{sink_};
  StreamOrder& order_ = held_.order();
  std::deque<StreamOrder::Mark> freed_;  // Frees that the limiter has not waited for.
  int flattened_ = -1;                   // The unit whose post-backward hook runs.
  std::vector<UnitState> units_;
  std::vector<int> in_module_order_;  // Flat units with parameters.
  bool has_zeroed_ = false;
  bool has_begun_ = false;
};

}  // namespace fsdp::simulator
