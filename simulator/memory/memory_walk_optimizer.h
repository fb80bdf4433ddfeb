#pragma once

// The part of the memory walk between steps: initialization, gradient clipping, the optimizer.
//
// AdamW's moments are made in the first step, parameter by parameter, before any update. Its foreach implementation,
// the default on CUDA, then needs one temporary of each parameter's size at once (sqrt of the second moments); fused
// needs none; the loop needs two of one parameter at a time, and one of the parameter before.
//
// Sources: torch/optim/adam.py (_init_group, _multi_tensor_adam, _single_tensor_adam), sgd.py, torch/nn/utils/
// clip_grad.py, torch 2.11; memory_walk_library_updates.h for the optimizers of other libraries and Adafactor.

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/plan/optimizer_table.h"
#include "simulator/memory/memory_walk.h"
#include "simulator/memory/memory_walk_initialization.h"
#include "simulator/memory/memory_walk_library_updates.h"
#include "simulator/memory/memory_walk_shards.h"
#include "simulator/ops/reduction_scratch.h"

namespace fsdp::simulator {

template <class Sink>
class OptimizerWalk : private LibraryUpdates<Sink> {
 public:
  OptimizerWalk(const WalkInput& input, Sink& sink) : LibraryUpdates<Sink>(input, sink), model_(*input.index->model) {
    if (uses_kinds_) return;
    is_unpadded_.resize(model_.parameters.size(), false);
    for (std::size_t u = 0; u < in_.layout->units.size(); ++u) {
      for (const int module : in_.layout->units[u].modules) unit_of_module_.emplace_back(module, static_cast<int>(u));
    }
    std::sort(unit_of_module_.begin(), unit_of_module_.end());
  }

  void initialize() {
    if (uses_kinds_) {
      each([&](const ShardedParameter& p, std::int64_t count) { make_shard(p, count); });
      return buffers();
    }
    if (in_.limits.num_sms == 0) return make_shards();
    if (in_.layout->is_replicated) return make_whole();
    switch (in_.plan->initialization) {
      case Initialization::Meta:
        to_empty(0);
        return make_waiting();
      case Initialization::Device:
        buffers();
        for (const ShardedParameter* shard : shards_) make_full(*shard);
        for (const ShardedUnit& unit : in_.layout->units) cut(unit);
        return;
      case Initialization::Cpu: {
        std::vector<bool> is_moved(model_.buffers.size(), false);
        for (const ShardedUnit& unit : in_.layout->units) {
          for (const ShardedParameter& p : unit.parameters) make_full(p);
          move_buffers(unit, is_moved);
          cut(unit);
        }
        return;
      }
    }
  }

  /// With experts of several ranks, the norm of each group by itself: transformers' Trainer (_mixed_mesh_grad_norm).
  void clip() {
    if (has_shards_on_host()) return sink_.collective();
    if (!this->has_groups()) return clip_group(1);
    for (const int group : {0, 1}) {
      optimizer_ = group;
      clip_group(group == 1 && in_.layout->mesh.expert_shard() > 1 ? 2 : 1);
    }
    optimizer_ = -1;
  }

  /// `collectives`: in how many groups of ranks the norms are summed.
  void clip_group(int collectives) {
    constexpr std::int64_t kChunk = 65536;  // Elements that one block of the norm kernel sums.
    std::int64_t count = 0;
    std::int64_t chunks = 1;
    std::int64_t norms = 0;
    each([&](const ShardedParameter& shard, std::int64_t of_kind) {
      if (!shard.receives_gradient || !is_stepped(shard)) return;
      count += of_kind;
      chunks = std::max(chunks, (shard.local_elements + kChunk - 1) / kChunk);
      norms += of_kind * element_size(shard.parameter);
    });
    if (count == 0) return has_whole_gradients() ? void() : sink_.collective();
    const auto make = [&](SingleTensor what, std::int64_t bytes) {
      sink_.alloc(in_.ids->of(what), bytes, MemoryStream::Compute, MemoryCategory::Temp);
    };
    const auto drop = [&](SingleTensor what) { sink_.free(in_.ids->of(what)); };
    using enum SingleTensor;
    const bool has_kernel = in_.limits.num_sms > 0;  // CUDA's own; on CPU each gradient is summed by itself.
    if (has_kernel) make(ClipBuffer, 4 * count * chunks);
    const auto norm_bytes = [&](const ShardedParameter& shard) { return element_size(shard.parameter); };
    const auto has_norm = [&](const ShardedParameter& shard) { return shard.receives_gradient && is_stepped(shard); };
    alloc_of_each(ParameterTensor::OptimizerTemp, has_norm, norm_bytes);
    if (has_kernel) drop(ClipBuffer);
    make(ClipNorms, norms);
    if (!has_whole_gradients()) {
      make(ClipNorms2, norms);
      for (int c = 0; c < collectives; ++c) sink_.collective();
      for (const SingleTensor stack : {ClipNorms3, ClipNorms4}) make(stack, norms);
      for (const SingleTensor stack : {ClipNorms4, ClipNorms3}) drop(stack);
    }
    make(ClipScalar, 4);
    if (!has_whole_gradients()) drop(ClipNorms2);
    drop(ClipNorms);
    free_of_each(ParameterTensor::OptimizerTemp, has_norm, norm_bytes, shards_.begin(), shards_.end());
    for (const SingleTensor scalar : {ClipScalar2, ClipScalar3, ClipScalar4}) make(scalar, 4);
    for (const SingleTensor scalar : {ClipScalar2, ClipScalar3}) drop(scalar);
    make(ClipScalar2, 4);
    for (const SingleTensor scalar : {ClipScalar2, ClipScalar4, ClipScalar}) drop(scalar);
  }

  /// FSDP1's own: norms of the rank's tensors, one by one, and one all-reduced number.
  void clip_flat() {
    using enum SingleTensor;
    const auto make = [&](SingleTensor what, std::int64_t bytes) {
      sink_.alloc(in_.ids->of(what), bytes, MemoryStream::Compute, MemoryCategory::Temp);
    };
    const auto drop = [&](SingleTensor what) { sink_.free(in_.ids->of(what)); };
    if (!std::exchange(has_zero_, true)) make(ClipZero, 4);
    if (in_.layout->mesh.dp_shard() == 1) return clip();
    if (in_.plan->cpu_offload) return clip_offloaded();
    std::int64_t count = 0;
    for (const ShardedParameter* shard : shards_) {
      if (!shard->receives_gradient) continue;
      ++count;
      norm_of(shard->parameter, shard->local_elements);
    }
    if (count > 0) {
      make(ClipNorms, 4 * count);
      for (const ShardedParameter* shard : shards_) {
        if (shard->receives_gradient) sink_.free(in_.ids->of(ParameterTensor::OptimizerTemp, shard->parameter));
      }
      make(ClipScalar, 4);
      drop(ClipNorms);
    }
    make(ClipScalar2, 4);
    sink_.collective();
    make(ClipScalar3, 4);
    drop(ClipScalar2);
    make(ClipScalar2, 4);
    make(ClipScalar4, 4);
    drop(ClipScalar2);
    make(ClipScalar2, 4);
    for (const SingleTensor scalar : {ClipScalar3, ClipScalar4, ClipScalar2}) drop(scalar);
    if (count > 0) drop(ClipScalar);
  }

  /// The norm of gradients on the host goes to the GPU for the all-reduce, and back.
  void clip_offloaded() {
    using enum SingleTensor;
    const bool has_any = std::any_of(shards_.begin(), shards_.end(),
                                     [](const ShardedParameter* shard) { return shard->receives_gradient; });
    const auto make = [&](SingleTensor what) {
      sink_.alloc(in_.ids->of(what), 4, MemoryStream::Compute, MemoryCategory::Temp);
    };
    const auto drop = [&](SingleTensor what) { sink_.free(in_.ids->of(what)); };
    if (has_any) make(ClipScalar);
    make(ClipScalar2);
    sink_.collective();
    make(ClipScalar3);
    drop(ClipScalar2);
    drop(ClipScalar3);
    if (has_any) drop(ClipScalar);
  }

  /// `optimizer`: an index of Model::optimizers, for a step of passes; -1 for all parameters.
  void step(int optimizer = -1) {
    if (has_shards_on_host()) return;
    optimizer_ = optimizer;
    const bool muon_is_last = in_.muon != nullptr && in_.plan->optimizer.muon->steps_last;
    if (in_.muon != nullptr && !muon_is_last) muon_step();
    if (this->has_groups()) {
      for (const int group : {0, 1}) update(group);
      optimizer_ = -1;
    } else {
      update(optimizer);
    }
    if (muon_is_last) muon_step();
  }

  /// An update by zeros: gradients of all updated tensors, the first update, and no gradients again.
  void update_zeros() {
    if (has_shards_on_host()) return;
    const auto has = [&](const ShardedParameter& shard) { return shard.receives_gradient; };
    const auto bytes_of = [&](const ShardedParameter& shard) {
      return shard.local_elements * element_size(shard.parameter);
    };
    alloc_of_each(ParameterTensor::Grad, has, bytes_of);
    step();
    free_of_each(ParameterTensor::Grad, has, bytes_of, shards_.begin(), shards_.end());
  }

  void make_states_once() {
    if (has_shards_on_host()) return;
    if (!std::exchange(has_muon_states_, true)) make_muon_states();
    if (optimizer_of_.empty()) return make_states_of(-1);
    const int groups = this->has_groups() ? 2 : static_cast<int>(model_.optimizers.size());
    for (int o = 0; o < groups; ++o) make_states_of(o);
    if (this->has_groups()) optimizer_ = -1;
  }

 private:
  void make_states_of(int optimizer) {
    if (has_states_of(optimizer)) return;
    has_states_of(optimizer) = true;
    make_states();
  }

  std::vector<bool>::reference has_states_of(int optimizer) {
    optimizer_ = optimizer;
    const auto which = static_cast<std::size_t>(optimizer + 1);
    if (has_states_.size() <= which) has_states_.resize(which + 1, false);
    return has_states_[which];
  }

  // For a step of passes, or of groups: true for parameters of the current optimizer.
  bool is_stepped(const ShardedParameter& shard) const {
    return optimizer_ < 0 || optimizer_of_[static_cast<std::size_t>(shard.parameter)] == optimizer_;
  }

  void update(int optimizer) {
    const UpdateRule rule = optimizer_row(in_.plan->optimizer).update;
    if (rule == UpdateRule::Torch || rule == UpdateRule::OneList) {
      make_states_of(optimizer);
      return rule == UpdateRule::Torch ? torch_temporaries() : list_of_temporaries(ParameterTensor::OptimizerTemp);
    }
    const bool is_first = !has_states_of(optimizer);
    const bool by_turns = is_first && this->makes_states_by_turns();
    if (by_turns) has_states_of(optimizer) = true;
    make_states_of(optimizer);
    const auto one = [&](const ShardedParameter& shard, std::int64_t count) {
      if (!is_updated(shard)) return;
      if (by_turns) this->make_moments(shard, count);
      this->update_one(shard, is_first);
    };
    if (uses_kinds_) each(one);  // Then the list is empty.
    for (const ShardedParameter* shard : shards_) one(*shard, 1);
    this->finish_updates();
  }

  void torch_temporaries() {
    switch (in_.plan->optimizer.implementation) {
      case OptimizerImplementation::Fused:
        return;
      case OptimizerImplementation::Foreach:
        return foreach_temporaries();
      case OptimizerImplementation::ForLoop:
        return loop_temporaries();
    }
  }

  void make_muon_states() {
    for (const ShardedParameter* shard : shards_) {
      if (muon_update_of(*shard) == nullptr) continue;
      const int p = shard->parameter;
      keep(ParameterTensor::FirstMoment, p, shard->local_elements * element_size(p), 1, MemoryCategory::OptState);
    }
  }

  // One matrix after the other. The update of each stays until the next replaces it.
  void muon_step() {
    if (!std::exchange(has_muon_states_, true)) make_muon_states();
    int before = -1;
    int turn = 0;
    for (const ShardedParameter* shard : shards_) {
      const MuonUpdate* update = muon_update_of(*shard);
      if (update == nullptr) continue;
      play(update->making, turn);
      if (before >= 0) sink_.free(before);
      play(update->changing, turn);
      before = in_.ids->muon(update->update, turn);
      turn = 1 - turn;
    }
    if (before >= 0) sink_.free(before);
  }

  void play(const std::vector<MuonEvent>& events, int turn) {
    for (const MuonEvent& event : events) {
      switch (event.what) {
        case MuonEvent::What::Alloc:
          sink_.alloc(in_.ids->muon(event.tensor, turn), event.bytes, MemoryStream::Compute, MemoryCategory::Temp);
          break;
        case MuonEvent::What::Free:
          sink_.free(in_.ids->muon(event.tensor, turn));
          break;
        case MuonEvent::What::Collective:
          sink_.collective();
          break;
      }
    }
  }

  // ZeRO's offload leaves the model itself on the device.
  bool has_shards_on_host() const { return in_.plan->cpu_offload && !in_.layout->updates_parts(); }

  // A norm is no sum over ranks.
  bool has_whole_gradients() const { return in_.layout->has_whole_gradients(); }

  // One number, in fp32, with the kernel's temporaries.
  void norm_of(int p, std::int64_t elements) {
    alloc(ParameterTensor::OptimizerTemp, p, 4, MemoryCategory::Temp);
    if (in_.limits.num_sms == 0) return;
    constexpr std::array kPlaces = {ParameterTensor::SecondOptimizerTemp, ParameterTensor::DecayedGrad};
    const std::vector<std::int64_t> scratch = reduction_scratch(1, elements, false, in_.limits);
    for (std::size_t i = 0; i < scratch.size(); ++i) alloc(kPlaces[i], p, scratch[i], MemoryCategory::Temp);
    for (std::size_t i = 0; i < scratch.size(); ++i) sink_.free(in_.ids->of(kPlaces[i], p));
  }

  // fsdp-exec always makes the shards at once, padded except for SimpleFSDP's.
  void make_shards() {
    for (std::size_t u = 0; u < in_.layout->units.size(); ++u) {
      const ShardedUnit& unit = in_.layout->units[u];
      if (in_.layout->has_flat_units()) {
        make_flat_shard(static_cast<int>(u));
        continue;
      }
      for (const ShardedParameter& p : unit.parameters) in_.layout->gathers_each_read ? make_part(p) : make_shard(p);
    }
    buffers();
  }

  void make_flat_shard(int u) {
    const ShardedUnit& unit = in_.layout->units[u];
    if (unit.parameters.empty()) return;
    sink_.alloc(in_.ids->of(UnitTensor::FlatShard, u), unit.shard_elements * size_of(unit.original_dtype).count(),
                MemoryStream::Compute, MemoryCategory::ShardedParam);
  }

  // An unsharded model: made in place, or moved as in to_empty.
  void make_whole() {
    if (in_.layout->gathers_each_read) return make_parts();
    if (in_.plan->initialization != Initialization::Device) return to_empty(0);
    buffers();
    for (const ShardedParameter* shard : shards_) make_shard(*shard);
  }

  // torch.nn.Module.to_empty: the modules below a module, then its own parameters, then its own buffers.
  void to_empty(int module) {
    for (const int child : model_.modules[module].children) to_empty(child);
    for (const int p : in_.index->own_parameters[module]) make_local(*shard_of_[p]);
    for (const Tie& tie : ties_) {
      if (tie.module != module || tie.shard->local_elements == 0) continue;
      const int p = tie.shard->parameter;
      make_waiting();
      alloc(tie.tensor, p, tie.shard->local_elements * element_size(p), MemoryCategory::ShardedParam);
    }
    for (const int b : in_.index->buffers[module]) {
      make_waiting();
      make_buffer(static_cast<std::size_t>(b));
    }
    auto made = std::lower_bound(unit_of_module_.begin(), unit_of_module_.end(), std::pair(module, 0));
    for (; made != unit_of_module_.end() && made->first == module; ++made) {
      pad(in_.layout->units[made->second]);
    }
  }

  // A shard made by to_empty has its true size,
  void make_local(const ShardedParameter& p) {
    if (has_shards_on_host()) return;
    if (in_.layout->gathers_each_read) return make_part(p);
    if (p.local_elements == p.shard_elements) return TakesAlike<Sink> ? make_with_alike(p) : make_shard(p);
    is_unpadded_[p.parameter] = true;
    if (p.local_elements == 0) return;
    make_waiting();
    sink_.alloc(in_.ids->of(ParameterTensor::Full, p.parameter), p.local_elements * element_size(p.parameter),
                MemoryStream::Compute, MemoryCategory::ShardedParam);
  }

  // Consecutive shards of one size wait for the next of another size.
  void make_with_alike(const ShardedParameter& p) {
    if (in_.layout->is_replicated) return make_shard(p);
    const std::int64_t size = p.shard_elements * element_size(p.parameter);
    if (num_waiting_ > 0 && size != waiting_->shard_elements * element_size(waiting_->parameter)) make_waiting();
    if (num_waiting_++ == 0) waiting_ = &p;
  }

  // Before any other allocation or free.
  void make_waiting() {
    if (num_waiting_ > 0) make_shard(*waiting_, std::exchange(num_waiting_, 0));
  }

  // SimpleFSDP: until names are tied again, each has a parameter of its own.
  void make_parts() {
    for (const ShardedParameter* shard : shards_) {
      const std::vector<std::string>& names = model_.parameters[shard->parameter].tied_names;
      for (std::size_t n = 0; n < std::min(names.size(), kTies.size()); ++n)
        ties_.push_back({in_.index->find(parent_name(names[n])), kTies[n], shard});
    }
    to_empty(0);
    for (const Tie& tie : ties_) {
      if (tie.shard->local_elements > 0) sink_.free(in_.ids->of(tie.tensor, tie.shard->parameter));
    }
    ties_.clear();
  }

  // a DTensor is not padded,
  void make_part(const ShardedParameter& p) {
    if (p.local_elements == 0) return;
    alloc(ParameterTensor::Sharded, p.parameter, p.local_elements * element_size(p.parameter),
          MemoryCategory::ShardedParam);
  }

  // and FSDPModule._apply copies it into one of the padded size (FSDPParam.reset_sharded_param).
  void pad(const ShardedUnit& unit) {
    for (const ShardedParameter& p : unit.parameters) {
      if (!is_unpadded_[p.parameter]) continue;
      is_unpadded_[p.parameter] = false;
      make_waiting();
      make_shard(p);
      if (p.local_elements > 0) sink_.free(in_.ids->of(ParameterTensor::Full, p.parameter));
    }
  }

  void make_shard(const ShardedParameter& p, std::int64_t count = 1) {
    if (has_shards_on_host()) return;
    const std::int64_t bytes = p.shard_elements * element_size(p.parameter);
    if (!in_.layout->is_replicated) {
      return keep(ParameterTensor::Sharded, p.parameter, bytes, count, MemoryCategory::ShardedParam);
    }
    alloc(ParameterTensor::Sharded, p.parameter, bytes, MemoryCategory::ShardedParam);
  }

  void make_full(const ShardedParameter& p) { make_original_parameter(in_, sink_, p.parameter); }

  // With CPUOffloadPolicy each shard is cut on the device before it moves to the host (_init_sharded_param).
  void cut(const ShardedUnit& unit) {
    for (const ShardedParameter& p : unit.parameters) {
      if (has_shards_on_host()) {
        alloc(ParameterTensor::Sharded, p.parameter, p.shard_elements * element_size(p.parameter),
              MemoryCategory::ShardedParam);
        sink_.free(in_.ids->of(ParameterTensor::Sharded, p.parameter));
      } else {
        make_shard(p);
      }
    }
    for (const ShardedParameter& p : unit.parameters) sink_.free(in_.ids->of(ParameterTensor::Full, p.parameter));
  }

  void buffers() {
    for (std::size_t b = 0; b < model_.buffers.size(); ++b) make_buffer(b);
  }

  // Buffers of a unit's modules and of all below them that no earlier unit has moved.
  void move_buffers(const ShardedUnit& unit, std::vector<bool>& is_moved) {
    for (const int top : unit.modules) {
      for (int module = top; module <= in_.index->last_descendant[top]; ++module) {
        for (const int buffer : in_.index->buffers[module]) {
          const auto b = static_cast<std::size_t>(buffer);
          if (!is_moved[b]) make_buffer(b);
          is_moved[b] = true;
        }
      }
    }
  }

  void make_buffer(std::size_t b) { make_model_buffer(in_, sink_, static_cast<int>(b)); }

  // True for parameters of the optimizer that is not Muon.
  bool is_updated(const ShardedParameter& shard) const {
    return shard.receives_gradient && shard.local_elements > 0 && muon_update_of(shard) == nullptr && is_stepped(shard);
  }

  void make_states() {
    const Optimizer& optimizer = in_.plan->optimizer;
    const std::int64_t moments = num_moments(optimizer);
    if (moments == 0) return;
    // PyTorch's fused kernels take the number of steps of each parameter from the device.
    const bool has_count =
        optimizer_row(optimizer).counts_steps && optimizer.implementation == OptimizerImplementation::Fused;
    // Moments of one size alternate: both of a run are twice as many of the first.
    if (TakesAlike<Sink> && !has_count && has_torch_kernels(optimizer)) {
      return each([&](const ShardedParameter& shard, std::int64_t count) {
        if (!is_updated(shard)) return;
        const std::int64_t bytes = moment_bytes(optimizer, shard.local_elements, element_size(shard.parameter)).values;
        keep(ParameterTensor::FirstMoment, shard.parameter, bytes, moments * count, MemoryCategory::OptState);
      });
    }
    const auto make = [&](const ShardedParameter& shard, std::int64_t count) {
      // An empty shard has a step count too.
      if (has_count && shard.receives_gradient && muon_update_of(shard) == nullptr && is_stepped(shard)) {
        keep(ParameterTensor::StepCount, shard.parameter, 4, count, MemoryCategory::OptState);
      }
      if (is_updated(shard)) this->make_moments(shard, count);
    };
    if (uses_kinds_) return each(make);
    for (const ShardedParameter* shard : shards_) make(*shard, 1);
  }

  // One as large as each updated shard.
  void list_of_temporaries(ParameterTensor what) {
    const auto has = [&](const ShardedParameter& shard) { return is_updated(shard); };
    const auto bytes_of = [&](const ShardedParameter& shard) {
      return shard.local_elements * element_size(shard.parameter);
    };
    alloc_of_each(what, has, bytes_of);
    free_of_each(what, has, bytes_of, shards_.rbegin(), shards_.rend());
  }

  // Weight decay that is added to the gradients (Adam, SGD) makes a new list of them; AdamW's works in place. Adam
  // drops that list ("del device_grads") before it takes the roots of the second moments.
  void foreach_temporaries() {
    const Optimizer& optimizer = in_.plan->optimizer;
    if (adds_decay(optimizer)) list_of_temporaries(ParameterTensor::SecondOptimizerTemp);
    if (optimizer_row(optimizer).takes_roots) list_of_temporaries(ParameterTensor::OptimizerTemp);
  }

  // Variables of the loop hold a parameter's tensors until they are reassigned.
  void loop_temporaries() {
    const Optimizer& optimizer = in_.plan->optimizer;
    const bool takes_roots = optimizer_row(optimizer).takes_roots;
    const bool decays = adds_decay(optimizer);
    int before = -1;
    const auto drop = [&](ParameterTensor what, int p) {
      if (p >= 0) sink_.free(in_.ids->of(what, p));
    };
    for (const ShardedParameter* shard : shards_) {
      if (!is_updated(*shard)) continue;
      const int p = shard->parameter;
      const std::int64_t bytes = shard->local_elements * element_size(p);
      if (decays) drop(ParameterTensor::DecayedGrad, before);
      if (decays) alloc(ParameterTensor::DecayedGrad, p, bytes, MemoryCategory::Temp);
      if (takes_roots) {
        alloc(ParameterTensor::OptimizerTemp, p, bytes, MemoryCategory::Temp);
        alloc(ParameterTensor::SecondOptimizerTemp, p, bytes, MemoryCategory::Temp);
        drop(ParameterTensor::OptimizerTemp, p);
        drop(ParameterTensor::SecondOptimizerTemp, before);
      }
      before = p;
    }
    if (decays) drop(ParameterTensor::DecayedGrad, before);
    if (takes_roots) drop(ParameterTensor::SecondOptimizerTemp, before);
  }

  /// Another name of a parameter, while it has a separate tensor.
  struct Tie {
    int module = -1;
    ParameterTensor tensor = ParameterTensor::Full;
    const ShardedParameter* shard = nullptr;
  };
  static constexpr std::array kTies = {ParameterTensor::Full, ParameterTensor::Float, ParameterTensor::HostCopy,
                                       ParameterTensor::SmallerShard, ParameterTensor::PaddedGrad};

  using ShardLists<Sink>::in_;
  using ShardLists<Sink>::sink_;
  using ShardLists<Sink>::uses_kinds_;
  using ShardLists<Sink>::shard_of_;
  using ShardLists<Sink>::shards_;
  using ShardLists<Sink>::optimizer_of_;
  using ShardLists<Sink>::muon_update_of;
  using ShardLists<Sink>::element_size;
  using ShardLists<Sink>::alloc;
  using ShardLists<Sink>::keep;
  using ShardLists<Sink>::each;
  using ShardLists<Sink>::alloc_of_each;
  using ShardLists<Sink>::free_of_each;

  const Model& model_;
  std::vector<std::pair<int, int>> unit_of_module_;  // Modules of units, ascending, with their units.
  std::vector<Tie> ties_;
  std::vector<bool> is_unpadded_;              // [num parameters] True if made and not padded yet.
  const ShardedParameter* waiting_ = nullptr;  // The first of the shards to make next.
  std::int64_t num_waiting_ = 0;
  int optimizer_ = -1;            // The current one, or group. -1 if there is only one.
  std::vector<bool> has_states_;  // [1 + optimizers] The first entry is for a single optimizer.
  bool has_muon_states_ = false;
  bool has_zero_ = false;
};

}  // namespace fsdp::simulator
