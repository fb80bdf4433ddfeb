#pragma once

// The part of the memory walk that gathers, frees and reduces units.
//
// For a unit with S elements per rank over N ranks (F = N S whole, p / r / o bytes per element of param, reduce and
// original dtype), in the order of FSDP2:
//
//   Unshard         [cast p S] on the copy-in stream if p != o, all-gather output p F there; then the cast is freed.
//                   With offload each shard comes from the host first, o S, and is cast by itself
//                   Weights in 8 bits of s elements are cast one by one before: |shard|, its maximum, which the ranks
//                   reduce, the shard in fp32, times the scale, clamped, and the result, s, which is sent as bytes
//   WaitForUnshard  unsharded parameters, p F in all, on the compute stream (in forward beside two all-gather outputs:
//                   three units at that moment)
//   Reshard         frees the unsharded parameters, one by one; an integer reshard_after_forward first copies p F / M
//   ReduceGrads     input r F' on the compute stream, frees gradients, output r S' on the reduce-scatter stream, cast
//                   to o S' if r != o: that buffer is the sharded gradient
//   Free            frees the named buffer, at the schedule's moment
//
// F' and S' count only parameters that have a gradient.
//
// Sources: torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py (foreach_all_gather, foreach_all_gather_copy_out,
// foreach_reduce), _fsdp_param.py, _fsdp_param_group.py (wait_for_unshard), torch 2.11;
// torchao 0.18.0, float8/fsdp_utils.py.

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "simulator/memory/block_sums.h"
#include "simulator/memory/memory_walk.h"
#include "simulator/memory/memory_walk_gradients.h"
#include "simulator/ops/copy_metadata.h"

namespace fsdp::simulator {

template <class Sink>
class UnitWalk {
 public:
  UnitWalk(const WalkInput& input, Sink& sink)
      : in_(input), sink_(sink), units_(input.layout->units.size()), grads_(in_, sink) {
    if (has_passes(*input.index->model)) find_roots();
  }

  GradientWalk<Sink>& gradients() { return grads_; }

  void make_grad(int p, std::int64_t bytes, bool is_view) { grads_.make(p, bytes, is_view); }
  void add_grad(int p) { grads_.add(p); }

  void unshard(const Instruction& step) {
    const ShardedUnit& unit = unit_of(step);
    if (!gathers(unit)) return sink_.collective();
    const bool is_smaller = gathers_smaller_shard(*in_.layout, step);
    const bool from_host = in_.plan->cpu_offload && !is_smaller;
    // The shards that an integer reshard_after_forward kept are cast already, and still copied into one piece.
    const std::int64_t parts = is_smaller ? unit.shards / unit.reshard.world_size : 1;
    const std::int64_t cast_size = from_host ? 0 : parts * cast_bytes(step.unit);
    const bool casts = cast_size > 0;
    const int cast = in_.ids->of(UnitTensor::Cast, step.unit);
    // Outside of a forward and a backward it is on the stream of its caller (FSDPCommContext.get_all_gather_streams).
    const MemoryStream stream_of_gather =
        step.call >= 0 ? MemoryStream::Compute : stream(MemoryStream::AllGatherCopyIn, step.unit);
    if (from_host) fetch(step.unit, stream_of_gather);
    const bool in_float8 = unit.num_in_float8() > 0;
    if (in_float8) cast_to_float8(step.unit, stream_of_gather);
    if (casts) sink_.alloc(cast, cast_size, stream_of_gather, MemoryCategory::AllGather);
    sink_.alloc(in_.ids->of(gather_output(step.slot), step.unit), unit.shards * unit.gather_shard_bytes.count(),
                stream_of_gather, MemoryCategory::AllGather);
    sink_.collective();
    if (in_float8) drop_float8(step.unit);
    if (casts) sink_.free(cast);
    if (from_host) drop_fetched(step.unit, stream_of_gather);
  }

  void wait(const Instruction& step) {
    const ShardedUnit& unit = unit_of(step);
    if (!gathers(unit)) return copy_shards(step);
    alloc_unsharded(step.unit);
    UnitState& state = units_[step.unit];
    const std::int64_t group = state.has_smaller ? unit.reshard.world_size : unit.shards;
    if (in_.limits.num_sms > 0) metadata(copy_out_bytes(step.unit, group));
    drop_smaller(step.unit);
    state.unsharded = true;
  }

  void free(const Instruction& step) {
    switch (step.buffer) {
      case BufferKind::AllGatherOutput:
        if (gathers(unit_of(step))) sink_.free(in_.ids->of(gather_output(step.slot), step.unit));
        return;
      case BufferKind::ReduceInput:
        return sink_.free(in_.ids->of(reduce_input(step.slot), step.unit));
      case BufferKind::AllReduceOutput:
        // It has none of its own: it is the sharded gradient.
        if (units_[step.unit].all_reduced >= 0) sink_.free(units_[step.unit].all_reduced);
        units_[step.unit].all_reduced = -1;
        return;
      case BufferKind::FirstBuckets:
        return;
    }
  }

  void reshard(const Instruction& step) {
    const ShardedUnit& unit = unit_of(step);
    UnitState& state = units_[step.unit];
    if (!state.unsharded) {
      // Without a backward the smaller shards are no longer used, and are freed when the next forward makes new ones.
      state.left_smaller = state.left_smaller || state.has_smaller;
      state.has_smaller = false;
      return;
    }
    const bool smaller = step.phase == StepPhase::Forward && unit.reshard.kind == ReshardAfterForward::Kind::Smaller;
    const ParameterTensor left = smaller_shard(state);
    if (smaller && state.left_smaller) state.is_other_smaller = !state.is_other_smaller;
    if (kTakesTogether && !smaller && come_together(unit)) {
      free_unsharded(step.unit);
    } else {
      for (const ShardedParameter& p : unit.parameters) {
        if (smaller) keep_smaller(unit, p, smaller_shard(state));
        if (smaller && state.left_smaller) sink_.free(in_.ids->of(left, p.parameter));
        free_unsharded(unit, p);
      }
    }
    state.has_smaller = state.has_smaller || smaller;
    state.left_smaller = state.left_smaller && !smaller;
    state.unsharded = false;
  }

  void accumulate(const Instruction& step) {
    const ShardedUnit& unit = unit_of(step);
    for (const ShardedParameter& p : unit.parameters) grads_.accumulate(unit, p);
  }

  void add_to_accumulated(const Instruction& step) {
    for (const ShardedParameter& p : unit_of(step).parameters) grads_.add_to_accumulated(p.parameter);
  }

  void reduce(const Instruction& step) {
    const ShardedUnit& unit = unit_of(step);
    UnitState& state = units_[step.unit];
    const std::int64_t reduced = size_of(unit.reduce_dtype).count();
    sink_.alloc(in_.ids->of(reduce_input(step.slot), step.unit),
                elements_of_reduction(*in_.layout, step).full * reduced, MemoryStream::Compute,
                MemoryCategory::ReduceScatter);
    copy_in(step);
    int last = -1;
    for (const ShardedParameter& p : unit.parameters) {
      if (grads_.has_any(p.parameter)) last = p.parameter;
    }
    for (auto p = unit.parameters.rbegin(); p != unit.parameters.rend(); ++p) {
      if (p->parameter != last || !step.keeps_last_gradient) grads_.drop(p->parameter);
    }
    make_sharded_grad(step, unit, state);
    if (last >= 0) grads_.drop(last);
  }

  void end_backward() { grads_.end_backward(); }

  void prepare_reduce() { grads_.prepare_reduce(); }

  /// `clearing`: an index of Model::clearings, for a step of passes; -1 for all parameters.
  void zero_grad(int clearing = -1) {
    if (in_.plan->cpu_offload) return;
    if (in_.layout->is_replicated) return grads_.drop_all();
    // A unit's buffer is freed with the last of its gradients, in the order of the parameters.
    std::vector<std::pair<int, int>> order;
    for (std::size_t u = 0; u < units_.size(); ++u) {
      for (const bool of_loss : {false, true}) {
        if (!has_sharded_grad(units_[u], of_loss) || !is_cleared(u, clearing)) continue;
        int last = -1;
        for (const ShardedParameter& p : in_.layout->units[u].parameters) {
          if (p.receives_gradient && p.from_loss == of_loss) last = std::max(last, p.parameter);
        }
        order.emplace_back(last, in_.ids->of(sharded_grad(of_loss), static_cast<int>(u)));
        has_sharded_grad(units_[u], of_loss) = false;
      }
    }
    std::sort(order.begin(), order.end());
    for (const auto& [parameter, gradient] : order) sink_.free(gradient);
  }

 private:
  // For the root above a unit.
  MemoryStream stream(MemoryStream first, int u) const {
    return stream_of_root(first, root_of_unit_.empty() ? in_.root : root_of_unit_[static_cast<std::size_t>(u)]);
  }

  void find_roots() {
    for (const ShardedUnit& unit : in_.layout->units) {
      root_of_unit_.push_back(root_number(*in_.index->model, unit.modules.front()));
    }
  }

  bool is_cleared(std::size_t u, int clearing) const {
    if (clearing < 0) return true;
    const int module = in_.layout->units[u].modules.front();
    const std::vector<int>& cleared = in_.index->model->clearings[static_cast<std::size_t>(clearing)].modules;
    return std::any_of(cleared.begin(), cleared.end(), [&](int root) { return in_.index->contains(root, module); });
  }

  /// Consecutive unsharded parameters of one size.
  struct Alike {
    int first = 0;  // An index of Model::parameters: its tensor stands for all.
    std::int64_t count = 0;
    std::int64_t bytes = 0;
  };
  struct UnitState {
    std::vector<Alike> unsharded_alike;  // Empty if not computed yet, or not needed.
    std::int64_t cast_bytes = -1;        // Bytes cast before a gather, and
    std::int64_t copy_in_bytes = -1;     // of the tables of the copy after it; -1 if not computed yet.
    bool unsharded = false;
    bool has_smaller = false;   // True if it has shards of an integer reshard_after_forward, which the next all-gather
                                // uses,
    bool left_smaller = false;  // or which are no longer used.
    bool is_other_smaller = false;
    bool has_sharded_grad = false;
    bool has_loss_grad = false;  // The same of what the loss made.
    int all_reduced = -1;        // The all-reduce's output that is kept, as a number of MemoryIds.
  };
  /// Values of a unit that every pass needs.
  struct CopyOut {
    std::int64_t group = 0;  // Ranks of the gather; 0 if not computed yet.
    std::int64_t bytes = 0;  // Bytes of its tables.
  };
  static bool& has_sharded_grad(UnitState& state, bool of_loss) {
    return of_loss ? state.has_loss_grad : state.has_sharded_grad;
  }
  static UnitTensor sharded_grad(bool of_loss) {
    return of_loss ? UnitTensor::LossShardedGrad : UnitTensor::ShardedGrad;
  }
  static UnitTensor reduce_input(std::uint8_t slot) {
    return slot == kSlotOfLoss ? UnitTensor::LossReduceInput : UnitTensor::ReduceScatterInput;
  }
  // What the backward makes of what the loss has made before is added to that.
  bool adds_to_gradients(const Instruction& step, UnitState& state) const {
    const bool of_loss = step.reduces_loss();
    if (has_sharded_grad(state, of_loss)) return true;
    const std::vector<ShardedParameter>& parameters = unit_of(step).parameters;
    return !of_loss && state.has_loss_grad &&
           std::none_of(parameters.begin(), parameters.end(), [](const ShardedParameter& p) {
             return p.receives_gradient && p.from_backward && !p.from_loss;
           });
  }
  const ShardedUnit& unit_of(const Instruction& step) const { return in_.layout->units[step.unit]; }

  std::int64_t unsharded_bytes(const ShardedUnit& unit, const ShardedParameter& p) const {
    return unit.shards * p.shard_elements * gathered_size(unit, p);
  }

  // The tables of the copy out of an all-gather over `group` ranks.
  std::int64_t copy_out_bytes(int u, std::int64_t group) {
    CopyOut& copy_out = copy_outs_[u];
    if (copy_out.group == group) return copy_out.bytes;
    const ShardedUnit& unit = in_.layout->units[u];
    chunks_.clear();
    for (const ShardedParameter& p : unit.parameters) {
      chunks_.push_back(unit.shards / group * p.shard_elements * gathered_size(unit, p));
    }
    copy_out = {group, copy_out_metadata(chunks_, group, in_.limits)};
    return copy_out.bytes;
  }

  static constexpr bool kTakesTogether = CountsSums<Sink> || TakesAlike<Sink>;

  // False if each shard has a copy in between, or is replaced by a smaller shard.
  bool come_together(const ShardedUnit& unit) const {
    if (CountsSums<Sink>) return true;
    return TakesAlike<Sink> && gathers(unit) && unit.reshard.kind != ReshardAfterForward::Kind::Smaller;
  }

  const std::vector<Alike>& unsharded_alike(int u) {
    std::vector<Alike>& all = units_[u].unsharded_alike;
    if (!all.empty()) return all;
    const ShardedUnit& unit = in_.layout->units[u];
    for (const ShardedParameter& p : unit.parameters) {
      const std::int64_t bytes = unsharded_bytes(unit, p);
      if (all.empty() || all.back().bytes != bytes) all.push_back({p.parameter, 0, bytes});
      ++all.back().count;
    }
    return all;
  }

  void alloc_unsharded(int u) {
    const ShardedUnit& unit = in_.layout->units[u];
    if constexpr (CountsSums<Sink>) {
      return sink_.alloc_all(in_.sums->unsharded[u], MemoryStream::Compute);
    } else if constexpr (TakesAlike<Sink>) {
      if (come_together(unit)) {
        for (const Alike& alike : unsharded_alike(u)) {
          sink_.alloc_alike(in_.ids->of(ParameterTensor::Unsharded, alike.first), alike.count, alike.bytes,
                            MemoryStream::Compute, MemoryCategory::UnshardedParam);
        }
        return;
      }
    }
    for (const ShardedParameter& p : unit.parameters) {
      sink_.alloc(in_.ids->of(ParameterTensor::Unsharded, p.parameter), unsharded_bytes(unit, p), MemoryStream::Compute,
                  MemoryCategory::UnshardedParam);
    }
  }

  // REQUIRES: come_together.
  void free_unsharded(int u) {
    if constexpr (CountsSums<Sink>) {
      sink_.free_all(in_.sums->unsharded[u], MemoryStream::Compute);
    } else if constexpr (TakesAlike<Sink>) {
      for (const Alike& alike : unsharded_alike(u))
        sink_.free_alike(in_.ids->of(ParameterTensor::Unsharded, alike.first));
    }
  }

  void free_unsharded(const ShardedUnit& unit, const ShardedParameter& p) {
    if constexpr (CountsSums<Sink>) {
      PoolBytes one;
      one.add(unsharded_bytes(unit, p));
      sink_.free_all(one, MemoryStream::Compute);
    } else {
      sink_.free(in_.ids->of(ParameterTensor::Unsharded, p.parameter));
    }
  }

  static UnitTensor gather_output(std::uint8_t slot) {
    return slot == 0 ? UnitTensor::AllGather : UnitTensor::OtherAllGather;
  }

  // A rank alone in its shard group has all parameters, and calls no collective for them, except before torch 2.9.
  bool gathers(const ShardedUnit& unit) const {
    return unit.shards > 1 || !in_.plan->runtime.quirks.skip_collectives_of_one;
  }

  // Instead of a gather, each shard is cast and copied. A cast one lives until the next one exists.
  void copy_shards(const Instruction& step) {
    const ShardedUnit& unit = unit_of(step);
    int before = -1;
    for (const ShardedParameter& p : unit.parameters) {
      const std::int64_t elements = p.shard_elements;
      int cast = -1;
      if (in_.plan->cpu_offload) {
        cast = in_.ids->of(ParameterTensor::HostCopy, p.parameter);
        sink_.alloc(cast, elements * size_of(in_.layout->parameter_dtype[p.parameter]).count(), MemoryStream::Compute,
                    MemoryCategory::Temp);
      }
      if (is_cast(unit, p)) {
        const int copied = std::exchange(cast, in_.ids->of(ParameterTensor::CastShard, p.parameter));
        sink_.alloc(cast, elements * size_of(unit.param_dtype).count(), MemoryStream::Compute, MemoryCategory::Temp);
        if (copied >= 0) sink_.free(copied);
      }
      if (before >= 0) sink_.free(before);
      before = cast;
      if constexpr (CountsSums<Sink>) {
        PoolBytes one;
        one.add(unsharded_bytes(unit, p));
        sink_.alloc_all(one, MemoryStream::Compute);
      } else {
        sink_.alloc(in_.ids->of(ParameterTensor::Unsharded, p.parameter), unsharded_bytes(unit, p),
                    MemoryStream::Compute, MemoryCategory::UnshardedParam);
      }
    }
    if (before >= 0) sink_.free(before);
    units_[step.unit].unsharded = true;
  }

  std::int64_t gathered_size(const ShardedUnit& unit, const ShardedParameter& p) const {
    return simulator::gathered_size(*in_.layout, unit, in_.plan->mixed_precision, p);
  }

  bool is_cast(const ShardedUnit& unit, const ShardedParameter& p) const {
    return simulator::is_cast(*in_.layout, unit, in_.plan->mixed_precision, p);
  }

  // Only shards that change their dtype are cast; others are copied directly.
  std::int64_t cast_bytes(int u) {
    if (in_.sums != nullptr) return in_.sums->casts[u];
    std::int64_t& bytes = units_[u].cast_bytes;
    if (bytes >= 0) return bytes;
    const ShardedUnit& unit = in_.layout->units[u];
    bytes = 0;
    for (const ShardedParameter& p : unit.parameters) {
      if (is_cast(unit, p)) bytes += p.shard_elements * size_of(unit.param_dtype).count();
    }
    return bytes;
  }

  // fsdp_pre_all_gather, one weight after the other, before the other shards are cast. The maximum of |shard| over all
  // ranks is the scale, unless that was computed ahead.
  void cast_to_float8(int u, MemoryStream stream) {
    const auto make = [&](int id, std::int64_t bytes) { sink_.alloc(id, bytes, stream, MemoryCategory::AllGather); };
    const int magnitudes = in_.ids->of(UnitTensor::Float8Magnitudes, u);
    const int widened = in_.ids->of(UnitTensor::Float8Widened, u);
    const int scaled = in_.ids->of(UnitTensor::Float8Scaled, u);
    const bool asks_ranks = !precomputes_scales(*in_.plan);
    for (const ShardedParameter& p : in_.layout->units[u].parameters) {
      if (!p.in_float8) continue;
      const Dtype own = in_.layout->parameter_dtype[p.parameter];
      const std::int64_t in_single = p.shard_elements * size_of(Dtype::Float32).count();
      if (asks_ranks) {
        make(magnitudes, p.shard_elements * size_of(own).count());
        sink_.free(magnitudes);
        sink_.collective();
      }
      if (asks_ranks && !has_scale_[static_cast<std::size_t>(p.parameter)]) {
        has_scale_[static_cast<std::size_t>(p.parameter)] = true;
        make(in_.ids->of(ParameterTensor::Float8Scale, p.parameter), size_of(Dtype::Float32).count());
      }
      if (own != Dtype::Float32) make(widened, in_single);
      make(scaled, in_single);
      if (own != Dtype::Float32) sink_.free(widened);
      make(magnitudes, in_single);  // Clamped.
      make(in_.ids->of(ParameterTensor::CastShard, p.parameter), p.shard_elements);
      sink_.free(magnitudes);
      sink_.free(scaled);
    }
  }

  void drop_float8(int u) {
    for (const ShardedParameter& p : in_.layout->units[u].parameters) {
      if (p.in_float8) sink_.free(in_.ids->of(ParameterTensor::CastShard, p.parameter));
    }
  }

  // With offload each shard is copied from the host and cast by itself.
  void fetch(int u, MemoryStream stream) {
    if constexpr (CountsSums<Sink>) {
      return sink_.play(in_.sums->fetches[u], stream);
    }
    const ShardedUnit& unit = in_.layout->units[u];
    for (const ShardedParameter& p : unit.parameters) {
      const int copy = in_.ids->of(ParameterTensor::HostCopy, p.parameter);
      sink_.alloc(copy, p.shard_elements * size_of(in_.layout->parameter_dtype[p.parameter]).count(), stream,
                  MemoryCategory::AllGather);
      if (!is_cast(unit, p)) continue;
      sink_.alloc(in_.ids->of(ParameterTensor::CastShard, p.parameter),
                  p.shard_elements * size_of(unit.param_dtype).count(), stream, MemoryCategory::AllGather);
      sink_.free(copy);
    }
  }

  void drop_fetched(int u, MemoryStream stream) {
    if constexpr (CountsSums<Sink>) {
      const TapeRun& fetch = in_.sums->fetches[u];
      return sink_.free_all({.small = fetch.small, .large = fetch.large}, stream);
    }
    const ShardedUnit& unit = in_.layout->units[u];
    for (const ShardedParameter& p : unit.parameters) {
      const bool cast = is_cast(unit, p);
      sink_.free(in_.ids->of(cast ? ParameterTensor::CastShard : ParameterTensor::HostCopy, p.parameter));
    }
  }

  void metadata(std::int64_t bytes) {
    if (in_.limits.num_sms == 0) return;
    const int id = in_.ids->of(SingleTensor::CopyMetadata);
    sink_.alloc(id, bytes, MemoryStream::Compute, MemoryCategory::Temp);
    sink_.free(id);
  }

  // The fused copy takes equal dtypes and bf16 into fp32. Other gradients are copied one by one; those that do not
  // divide are padded first.
  void copy_in(const Instruction& step) {
    const ShardedUnit& unit = unit_of(step);
    const bool of_loss = step.reduces_loss();
    const bool is_narrowed =
        in_.plan->runtime.quirks.casts_gradients_as_they_come && size_of(unit.reduce_dtype) < size_of(unit.param_dtype);
    if (unit.param_dtype == unit.reduce_dtype || is_narrowed ||
        (unit.param_dtype == Dtype::BFloat16 && unit.reduce_dtype == Dtype::Float32)) {
      if (of_loss) return metadata(copy_in_metadata(unit, true));
      std::int64_t& bytes = units_[step.unit].copy_in_bytes;
      if (bytes < 0) bytes = copy_in_metadata(unit);
      return metadata(bytes);
    }
    const std::int64_t shard = unit.shards;
    const auto is_padded = [&](const ShardedParameter& p) {
      return is_in_reduction(p, of_loss) && shard * p.shard_elements != p.elements;
    };
    for (const ShardedParameter& p : unit.parameters) {
      if (!is_padded(p)) continue;
      sink_.alloc(in_.ids->of(ParameterTensor::PaddedGrad, p.parameter),
                  shard * p.shard_elements * size_of(unit.param_dtype).count(), MemoryStream::Compute,
                  MemoryCategory::Temp);
    }
    for (const ShardedParameter& p : unit.parameters) {
      if (is_padded(p)) sink_.free(in_.ids->of(ParameterTensor::PaddedGrad, p.parameter));
    }
  }

  ParameterTensor smaller_shard(const UnitState& state) const {
    return state.is_other_smaller ? ParameterTensor::OtherSmallerShard : ParameterTensor::SmallerShard;
  }

  void keep_smaller(const ShardedUnit& unit, const ShardedParameter& p, ParameterTensor what) {
    sink_.alloc(in_.ids->of(what, p.parameter),
                unit.shards * p.shard_elements * gathered_size(unit, p) / unit.reshard.world_size,
                MemoryStream::Compute, MemoryCategory::ShardedParam);
  }

  void drop_smaller(int u) {
    if (!units_[u].has_smaller) return;
    for (const ShardedParameter& p : in_.layout->units[u].parameters) {
      sink_.free(in_.ids->of(smaller_shard(units_[u]), p.parameter));
    }
    units_[u].has_smaller = false;
  }

  // The output of the reduction is the sharded gradient, or is cast to it. It is added to a gradient of an earlier
  // micro-batch.
  void make_sharded_grad(const Instruction& step, const ShardedUnit& unit, UnitState& state) {
    const int u = step.unit;
    const bool is_added = adds_to_gradients(step, state);
    const UnitTensor grad = is_added ? UnitTensor::NewShardedGrad : sharded_grad(step.reduces_loss());
    const ReducedElements elements = elements_of_reduction(*in_.layout, step);
    const bool casts = unit.reduce_dtype != unit.original_dtype;
    const bool hybrid = in_.layout->mesh.dp_replicate() > 1;
    const int output = in_.ids->of(casts ? UnitTensor::ReduceScatterOutput : grad, u);
    const bool is_grad = !is_added;
    sink_.alloc(output, elements.shard * size_of(unit.reduce_dtype).count(), stream(MemoryStream::ReduceScatter, u),
                casts || !is_grad ? MemoryCategory::ReduceScatter : MemoryCategory::ShardedGrad);
    const int parts = in_.ids->of(UnitTensor::ReceivedParts, u);
    const bool receives_parts = in_.reduce_scatter_receives_parts && gathers(unit);
    if (receives_parts) {
      sink_.alloc(parts, elements.full * size_of(unit.reduce_dtype).count(), stream(MemoryStream::ReduceScatter, u),
                  MemoryCategory::ReduceScatter);
    }
    sink_.collective();
    // A group of one divides out of place (foreach_reduce).
    if (unit.is_alone()) {
      const int divided = in_.ids->of(UnitTensor::ReceivedParts, u);
      sink_.alloc(divided, elements.full * size_of(unit.reduce_dtype).count(), stream(MemoryStream::ReduceScatter, u),
                  MemoryCategory::ReduceScatter);
      sink_.free(divided);
    }
    if (receives_parts) sink_.free(parts);
    if (hybrid) sink_.collective();
    if (casts) {
      sink_.alloc(in_.ids->of(grad, u), elements.shard * size_of(unit.original_dtype).count(),
                  stream(hybrid ? MemoryStream::AllReduce : MemoryStream::ReduceScatter, u),
                  is_grad ? MemoryCategory::ShardedGrad : MemoryCategory::Temp);
      drop_output(output, step.keeps_all_reduce_output, state);
    }
    // Copied to the host, or added to the existing gradient.
    if (in_.plan->cpu_offload || is_added) {
      drop_output(in_.ids->of(grad, u), step.keeps_all_reduce_output && !casts, state);
    } else {
      has_sharded_grad(state, step.reduces_loss()) = true;
    }
  }

  void drop_output(int id, bool is_kept, UnitState& state) {
    if (is_kept) {
      state.all_reduced = id;
    } else {
      sink_.free(id);
    }
  }

  const WalkInput& in_;
  Sink& sink_;
  std::vector<UnitState> units_;
  std::vector<bool> has_scale_ =  // [num parameters] The scale of a weight in 8 bits, which the next one replaces.
      std::vector<bool>(in_.layout->unit_of_parameter.size(), false);
  std::vector<int> root_of_unit_;  // [units] For a step of passes: an index of roots_of.
  GradientWalk<Sink> grads_;
  std::vector<CopyOut> copy_outs_ = std::vector<CopyOut>(units_.size());  // [num units]
  std::vector<std::int64_t> chunks_;                                      // Reused between calls for its memory.
};

}  // namespace fsdp::simulator
