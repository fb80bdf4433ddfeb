#pragma once

// The optimizer's shards, and one tensor of each of them: one by one, in runs of equal ones, or by kind, depending on
// the listener.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "core/plan/unit_boundaries.h"
#include "simulator/memory/block_sums.h"
#include "simulator/memory/memory_walk.h"

namespace fsdp::simulator {

template <class Sink>
class ShardLists {
 protected:
  ShardLists(const WalkInput& input, Sink& sink)
      : in_(input),
        sink_(sink),
        uses_kinds_(CountsSums<Sink> && input.sums != nullptr && input.plan->initialization == Initialization::Meta &&
                    input.muon == nullptr && !has_passes(*input.index->model)) {
    if (has_passes(*in_.index->model)) {
      for (const Parameter& parameter : in_.index->model->parameters)
        optimizer_of_.push_back(optimizer_of(*in_.index->model, parameter.module));
    }
    if (has_groups()) {
      for (const int unit : in_.layout->unit_of_parameter)
        optimizer_of_.push_back(in_.layout->units[static_cast<std::size_t>(unit)].of_experts ? 1 : 0);
    }
    if (uses_kinds_) return;
    shard_of_.resize(in_.index->model->parameters.size(), nullptr);
    for (const ShardedUnit& unit : in_.layout->units) {
      for (const ShardedParameter& p : unit.parameters) shard_of_[p.parameter] = &p;
    }
    if (in_.layout->has_flat_units()) make_flat();
    for (const ShardedParameter* shard : shard_of_) {
      if (shard != nullptr && flat_.empty()) shards_.push_back(shard);
    }
    for (const ShardedParameter& shard : flat_) shards_.push_back(&shard);
    if (TakesAlike<Sink>) find_alike();
  }

  // Experts of several ranks are on another mesh, and a group of the optimizer: 1, and all else is 0.
  bool has_groups() const { return in_.layout->mesh.ep > 1; }

  const MuonUpdate* muon_update_of(const ShardedParameter& shard) const {
    return in_.muon == nullptr ? nullptr : in_.muon->update_of(shard.parameter);
  }

  std::int64_t element_size(int p) const { return size_of(in_.layout->parameter_dtype[p]).count(); }

  void alloc(ParameterTensor what, int p, std::int64_t bytes, MemoryCategory category) {
    sink_.alloc(in_.ids->of(what, p), bytes, MemoryStream::Compute, category);
  }

  // Until the run is over: one tensor, or one of each parameter of a kind.
  void keep(ParameterTensor what, int p, std::int64_t bytes, std::int64_t count, MemoryCategory category) {
    if constexpr (CountsSums<Sink>) {
      PoolBytes sums;
      sums.add(bytes, count);
      sink_.alloc_all(sums, MemoryStream::Compute);
    } else if constexpr (TakesAlike<Sink>) {
      sink_.alloc_alike(in_.ids->of(what, p), count, bytes, MemoryStream::Compute, category);
    } else {
      alloc(what, p, bytes, category);
    }
  }

  // Each shard, or one of each kind or run with their number.
  template <class Visit>
  void each(const Visit& visit) const {
    if (uses_kinds_) {
      for (const LayoutSums::Kind& kind : in_.sums->kinds) visit(kind.shard, kind.count);
    } else if (TakesAlike<Sink>) {
      for (const Alike& alike : alike_) visit(*shards_[alike.first], alike.count);
    } else {
      for (const ShardedParameter* shard : shards_) visit(*shard, std::int64_t{1});
    }
  }

  template <class Has, class BytesOf>
  PoolBytes sums_of_each(const Has& has, const BytesOf& bytes_of) const {
    PoolBytes sums;
    each([&](const ShardedParameter& shard, std::int64_t count) {
      if (has(shard)) sums.add(bytes_of(shard), count);
    });
    return sums;
  }

  // A temporary of each parameter that has one.
  template <class Has, class BytesOf>
  void alloc_of_each(ParameterTensor what, const Has& has, const BytesOf& bytes_of) {
    if constexpr (CountsSums<Sink>) {
      sink_.alloc_all(sums_of_each(has, bytes_of), MemoryStream::Compute);
    } else if constexpr (TakesAlike<Sink>) {
      each([&](const ShardedParameter& shard, std::int64_t count) {
        if (!has(shard)) return;
        sink_.alloc_alike(in_.ids->of(what, shard.parameter), count, bytes_of(shard), MemoryStream::Compute,
                          MemoryCategory::Temp);
      });
    } else {
      for (const ShardedParameter* shard : shards_) {
        if (has(*shard)) alloc(what, shard->parameter, bytes_of(*shard), MemoryCategory::Temp);
      }
    }
  }

  // In the order of [first, last), which are all of them.
  template <class Has, class BytesOf, class Iterator>
  void free_of_each(ParameterTensor what, const Has& has, const BytesOf& bytes_of, Iterator first, Iterator last) {
    if constexpr (CountsSums<Sink>) {
      sink_.free_all(sums_of_each(has, bytes_of), MemoryStream::Compute);
    } else if constexpr (TakesAlike<Sink>) {
      // Nothing comes between them, so their order does not matter.
      each([&](const ShardedParameter& shard, std::int64_t /*count*/) {
        if (has(shard)) sink_.free_alike(in_.ids->of(what, shard.parameter));
      });
    } else {
      for (; first != last; ++first) {
        if (has(**first)) sink_.free(in_.ids->of(what, (*first)->parameter));
      }
    }
  }

 private:
  /// Consecutive shards that are equal in everything that the optimizer's memory depends on.
  struct Alike {
    std::size_t first = 0;  // An index of shards_.
    std::int64_t count = 0;
  };

  void find_alike() {
    const auto are_alike = [&](const ShardedParameter& a, const ShardedParameter& b) {
      return a.shard_elements == b.shard_elements && a.local_elements == b.local_elements &&
             a.receives_gradient == b.receives_gradient && element_size(a.parameter) == element_size(b.parameter) &&
             (optimizer_of_.empty() || optimizer_of_[a.parameter] == optimizer_of_[b.parameter]) &&
             muon_update_of(a) == nullptr && muon_update_of(b) == nullptr;
    };
    for (std::size_t s = 0; s < shards_.size(); ++s) {
      if (s == 0 || !are_alike(*shards_[s - 1], *shards_[s])) alike_.push_back({s, 0});
      ++alike_.back().count;
    }
  }

  // FSDP1's parameters for the optimizer: flat parameters, in the order of the modules, under the number of their first
  // parameter; or the part of each original parameter in the rank's shard.
  void make_flat() {
    if (in_.layout->flat == FlatParameters::Views) {
      for (const ShardedParameter* shard : shard_of_) {
        if (shard == nullptr) continue;
        flat_.push_back(*shard);
        flat_.back().receives_gradient = shard->receives_gradient && shard->local_elements > 0;
      }
      return;
    }
    for (const int u : units_in_module_order(*in_.layout)) {
      const ShardedUnit& unit = in_.layout->units[u];
      if (unit.parameters.empty()) continue;
      flat_.push_back({.parameter = unit.parameters.front().parameter,
                       .elements = unit.true_elements,
                       .shard_elements = unit.shard_elements,
                       .local_elements = unit.shard_elements,
                       .receives_gradient = unit.reduced_true_elements > 0});
    }
  }

 protected:
  const WalkInput& in_;
  Sink& sink_;
  const bool uses_kinds_;                          // Single parameters are not needed: the lists are empty.
  std::vector<const ShardedParameter*> shard_of_;  // [num parameters]
  std::vector<const ShardedParameter*> shards_;    // In the order of model.parameters().
  std::vector<int> optimizer_of_;                  // [num parameters] For a step of passes: an index of
                                                   // Model::optimizers.

 private:
  std::vector<Alike> alike_;            // All of them, for a sink that takes such together.
  std::vector<ShardedParameter> flat_;  // FSDP1's parameters for the optimizer.
};

}  // namespace fsdp::simulator
