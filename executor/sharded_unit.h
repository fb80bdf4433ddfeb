#pragma once

// One FSDP2 unit on one rank: its shards, its whole parameters while they are there, its gradients, and the buffers of
// its collectives. What each call allocates and frees is what the simulator says (simulator/memory_walk_units.h).

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "core/plan.h"
#include "core/sharding.h"
#include "executor/collectives.h"

namespace fsdp::executor {

/// One parameter of a unit.
struct ParameterState {
  const Parameter* parameter = nullptr;
  ShardedParameter layout;
  c10::ScalarType dtype = c10::kFloat;     ///< Of the shard.
  c10::ScalarType gathered = c10::kFloat;  ///< Of the whole parameter.
  at::Tensor shard;                        ///< [shard_elements] Padded with zeros.
  at::Tensor local;                        ///< The true rows of it, as the optimizer sees them.
  at::Tensor grad;                         ///< Like `local`; undefined: none.
  at::Tensor smaller;    ///< What an integer reshard_after_forward keeps. [shard * shard_elements / world size]
  at::Tensor storage;    ///< [shard * shard_elements] Emptied while the unit is sharded.
  at::Tensor whole;      ///< A view of it with the parameter's shape.
  at::Tensor new_grad;   ///< Gradient of the whole parameter in this backward, and
  at::Tensor kept_grad;  ///< of earlier micro-batches without reduction, in the reduce dtype.

  bool has_gradient() const { return new_grad.defined() || kept_grad.defined(); }
};

/// The groups that a unit communicates in. `smaller` is there where a unit keeps a smaller shard.
struct UnitGroups {
  Group* shard = nullptr;
  Group* replicate = nullptr;  ///< Null: no copies.
  Group* smaller = nullptr;
};

/// A collective as it was called: counted from the tensors that were handed over.
struct CalledCollective {
  CollectiveKind kind = CollectiveKind::AllGather;
  c10::ScalarType dtype = c10::kFloat;
  std::int64_t elements = 0;
  std::int64_t payload = 0;  ///< Bytes of the full tensor.
  MeshDimension group = MeshDimension::Shard;
  std::int64_t group_size = 1;
};

/// Told of every collective when it is called.
class CollectiveListener {
 public:
  virtual ~CollectiveListener() = default;
  virtual void called(int unit, const CalledCollective& collective) = 0;
};

class RunningUnit {
 public:
  /// Makes the shards' storage; their values are the caller's to write.
  RunningUnit(int index, const ShardedUnit& unit, const Layout& layout, const Plan& plan, const Model& model,
              UnitGroups groups, CollectiveListener& listener);

  const ShardedUnit& unit() const { return unit_; }
  std::vector<ParameterState>& parameters() { return parameters_; }
  ParameterState& parameter(int id);
  bool is_whole() const { return is_whole_; }

  /// Starts the all-gather; from the smaller shards where `from_smaller`.
  void unshard(bool from_smaller);
  /// Waits, and copies out into the whole parameters. The buffer stays until `drop_gathered`.
  void wait_for_unshard();
  void drop_gathered();
  /// Frees the whole parameters, and an all-gather that nobody waited for. With `keep_smaller`, what a smaller group
  /// needs is kept.
  void reshard(bool keep_smaller);

  /// A gradient of a whole parameter, in the parameter's gathered dtype; several of one backward are added.
  void add_gradient(int parameter, at::Tensor gradient);
  /// Without gradient sync: keeps the gradients in the reduce dtype.
  void accumulate();
  /// Reduces all gradients that are there, and frees them; the sharded gradients are there after.
  void reduce();
  void drop_reduce_input();
  /// What HSDP keeps until the end of backward.
  void drop_kept_output();
  void zero_grad();

 private:
  void copy_in_shards(bool from_smaller);
  /// Copies them into the input of the reduction; returns which parameters had one, by position.
  std::vector<int> copy_in_gradients();
  double num_ranks() const;  ///< Over which gradients are averaged.
  void reduce_scatter(const at::Tensor& output);
  void all_reduce(const at::Tensor& output);
  void view_gradients(at::Tensor gradient, const std::vector<int>& reduced);

  int index_;
  const ShardedUnit& unit_;
  const Plan& plan_;
  std::int64_t world_ = 1;  ///< Of the shard group.
  UnitGroups groups_;
  CollectiveListener& listener_;
  std::vector<ParameterState> parameters_;
  bool is_whole_ = false;
  bool is_from_smaller_ = false;
  at::Tensor gathered_;  ///< [bytes]
  std::unique_ptr<Pending> gather_;
  at::Tensor reduce_input_;
  at::Tensor kept_output_;
};

}  // namespace fsdp::executor
