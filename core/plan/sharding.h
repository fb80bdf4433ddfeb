#pragma once

// How FSDP2 forms units from modules and cuts their parameters: the owner of each parameter, its place in the
// all-gather buffer, and the number of elements on each rank, padding included.

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/result.h"
#include "core/model/model.h"
#include "core/model/model_index.h"
#include "core/plan/plan.h"

namespace fsdp {

/// One parameter of a unit. Dim-0 sharding over N ranks gives each rank ceil(rows / N) rows; the last ones are padded.
struct ShardedParameter {
  int parameter = 0;                ///< In `Model::parameters`.
  std::int64_t elements = 0;        ///< True elements.
  std::int64_t shard_elements = 0;  ///< Padded: ceil(rows / N) * row elements; the same on every rank.
  std::int64_t local_elements = 0;  ///< True elements on the layout's rank; 0 on empty trailing ranks.
  bool receives_gradient = true;
  bool from_loss = false;        ///< The loss makes a gradient of it in the forward, which its unit reduces by itself;
  bool from_backward = true;     ///< the backward makes one.
  bool in_float8 = false;        ///< Its part is cast to 8 bits before it is gathered.
  bool is_external = false;      ///< For `Layout::hooked`: it belongs to a module that does not run.
  std::int64_t flat_begin = -1;  ///< For FSDP1: its begin in the flat parameter, -1 otherwise. Elements of each
  std::int64_t flat_shard = 0;   ///< shard of the flat parameter.

  /// `local_elements` of any rank of the shard group.
  std::int64_t local_elements_of(std::int64_t rank) const;

  bool operator==(const ShardedParameter&) const = default;
};

/// One pass through the forward of a unit: positions [begin, end) in `ModelIndex`'s numbering of all ops.
struct Window {
  int begin = 0;
  int end = 0;
  /// The position at which the backward unshards the unit (the last op of the window that takes part in the backward);
  /// -1 if none does.
  int pre_backward = -1;
  /// The same for its further outputs: PyTorch's pre-backward hook hangs on each, and fires again when that one's
  /// gradient arrives. Rising, below `pre_backward`.
  std::vector<int> further_pre_backwards = {};
  /// An input of the pass requires a gradient, so that PyTorch's post-backward hook fires after the first op's
  /// backward; otherwise the unit is reduced in the callback at the end of backward.
  bool has_post_backward = false;
  /// The post-forward hook runs; false if a recomputation reruns only some modules of a unit of several, or one of them
  /// does not run.
  bool runs_post_forward = true;
  /// Then the root's hook runs it after its own, and hangs the pre-backward hook on what the root returns.
  bool is_left_by_root = false;

  bool operator==(const Window&) const = default;
};

/// Whether a unit is one flat parameter, as in FSDP1, and in which form the optimizer gets it.
enum class FlatParameters : std::uint8_t {
  None,   ///< Each parameter is cut by itself.
  Whole,  ///< The flat parameter.
  Views,  ///< Views of the original parameters' elements in the rank's shard (use_orig_params).
};

struct ShardedUnit {
  std::string name;                          ///< Its first module; "" is the root.
  std::vector<int> modules;                  ///< In `Model::modules`.
  std::vector<ShardedParameter> parameters;  ///< In the order of the all-gather buffer.
  Dtype original_dtype = Dtype::Float32;     ///< Dtype of the sharded parameters.
  Dtype param_dtype = Dtype::Float32;        ///< Gathered and computed in.
  Dtype reduce_dtype = Dtype::Float32;       ///< Reduced in.
  bool mixed_gather = false;                 ///< Different input dtypes: the buffer is gathered as bytes (uint8).
  std::int64_t shard_elements = 0;           ///< Per rank, of all parameters: S_u.
  std::int64_t full_elements = 0;            ///< N * S_u: what the all-gather gives.
  std::int64_t true_elements = 0;            ///< T_u, without padding.
  std::int64_t reduced_shard_elements = 0;   ///< S_u' and
  std::int64_t reduced_full_elements = 0;    ///< N * S_u', over parameters that receive a gradient in the backward.
  std::int64_t reduced_true_elements = 0;
  Bytes gather_shard_bytes;     ///< Bytes per rank that go into the all-gather.
  std::int64_t shards = 1;      ///< N, the ranks that share it: those of a shard group, or with the same experts.
  bool of_experts = false;      ///< The rank's own experts under expert parallelism; elements are of these alone.
  ReshardAfterForward reshard;  ///< Resolved: never `Default`.
  bool is_root = false;
  std::vector<Window> windows;  ///< The passes of its modules, in forward order; nested units' ops included.

  /// Experts that no other rank has.
  bool is_alone() const { return of_experts && shards == 1; }
  /// The number of its weights that are cast to 8 bits before they are gathered.
  std::int64_t num_in_float8() const {
    return std::count_if(parameters.begin(), parameters.end(), [](const ShardedParameter& p) { return p.in_float8; });
  }
  bool operator==(const ShardedUnit&) const = default;
};

/// The unit that a loss calls after the root's forward (`LossRow::calls_head`): it is gathered before the loss, reduces
/// the gradients that the loss makes, and is resharded after it.
struct UnitOfLoss {
  int unit = -1;                    ///< In `Layout::units`. -1: there is none, or the head is the root's.
  int call = -1;                    ///< In `Model::calls`: the loss.
  std::int64_t shard_elements = 0;  ///< Elements that it reduces there: 0 if the head is frozen.
  std::int64_t full_elements = 0;
  std::int64_t true_elements = 0;

  bool operator==(const UnitOfLoss&) const = default;
};

/// Bytes of a unit's unsharded gradients that a rank keeps after a micro-batch without reduction.
Bytes accumulated_gradients(const ShardedUnit& unit, FlatParameters flat);

/// Gradients that DDP or ZeRO all-reduces together. For SimpleFSDP: the gradient of a single read of a parameter,
/// padded for the reduce-scatter.
struct GradientBucket {
  std::vector<int> parameters;  ///< In `Model::parameters`, in the order in which their gradients are ready.
  Dtype dtype = Dtype::Float32;
  std::int64_t elements = 0;
  /// The position after whose backward it is reduced: all of its gradients are ready, and those of the buckets before
  /// it; with ZeRO one more gradient, which does not fit into it.
  int ready = 0;

  Bytes bytes() const { return size_of(dtype) * elements; }
  bool operator==(const GradientBucket&) const = default;
};

/// For ZeRO: all trained parameters, concatenated; each rank updates an equal part. ZeRO-3 first cuts and pads each
/// parameter, so this is the concatenation of the parts, and `begins` counts elements of parts.
struct ZeroBuffer {
  std::vector<int> parameters;       ///< In `Model::parameters`, rising.
  std::vector<std::int64_t> begins;  ///< [parameters + 1] Begin of each; the last entry is the end of the last one.
  std::int64_t ranks = 0;            ///< 0: there is no such buffer.
  std::int64_t elements = 0;         ///< With the padding at the end.
  Dtype dtype = Dtype::Float32;
  /// For ZeRO-3: the begins of the sub-groups in `parameters`, and the end of the last one. The optimizer updates one
  /// sub-group after the other.
  std::vector<std::size_t> group_begins = {};
  /// A rank keeps the reduced gradients of its part alone, and each micro-batch reduces. False: whole gradients wait
  /// for the last micro-batch (ZeRO-1).
  bool cuts_gradients = false;

  std::int64_t part_elements() const { return elements / ranks; }
  std::size_t num_groups() const { return group_begins.empty() ? 0 : group_begins.size() - 1; }
  std::int64_t group_elements(std::size_t group) const {
    return begins[group_begins[group + 1]] - begins[group_begins[group]];
  }
  bool operator==(const ZeroBuffer&) const = default;
};

/// The position of an event of a unit, in one of its passes.
struct UnitBoundary {
  int position = 0;  ///< In `ModelIndex`'s numbering of all ops: before this op.
  int unit = 0;      ///< In `Layout::units`.
  int window = 0;    ///< In `ShardedUnit::windows`.

  bool operator==(const UnitBoundary&) const = default;
};

/// The positions and the order of the units' hooks, which follow from the windows alone. Made by
/// core/plan/unit_boundaries.h.
struct HookOrder {
  std::vector<UnitBoundary> begins;          ///< The result of unit_begins,
  std::vector<UnitBoundary> ends;            ///< and of unit_ends.
  std::vector<UnitBoundary> pre_backwards;   ///< Rising; at one position outer units come before those inside them.
  std::vector<UnitBoundary> post_backwards;  ///< The same.
  std::vector<int> forward_order;            ///< Units with parameters, as they are entered for the first time.
  std::vector<int> backward_order;           ///< The same, as they are left, from the last one to the first.

  bool operator==(const HookOrder&) const = default;
};

struct Layout {
  Mesh mesh;
  std::int64_t rank = 0;                     ///< In the shard group.
  std::vector<ShardedUnit> units;            ///< As in the plan: bottom-up, the root last.
  std::vector<int> unit_of_parameter;        ///< [num parameters] In `units`.
  std::vector<Dtype> parameter_dtype;        ///< [num parameters] Dtype of the sharded parameter.
  std::vector<GradientBucket> buckets = {};  ///< For DDP and ZeRO, in the order of their all-reduces.
  /// For DDP: those of its first reduction, one for each dtype. Empty if they are the buckets of all steps.
  std::vector<GradientBucket> first_buckets = {};
  FlatParameters flat = FlatParameters::None;
  ZeroBuffer zero = {};
  /// For ZeRO-3: each module with a forward, its own parameters and its passes. ZeRO-3 gathers by module.
  std::vector<ShardedUnit> hooked = {};
  UnitOfLoss loss = {};
  bool is_replicated = false;  ///< Each rank has all parameters whole: units are never gathered and never resharded.
  /// For SimpleFSDP: each read of a parameter gathers its own whole copy.
  bool gathers_each_read = false;
  HookOrder hooks = {};

  /// A bucket by its number: `buckets`, and after them `first_buckets`.
  const GradientBucket& bucket(int number) const;
  int num_buckets() const { return static_cast<int>(buckets.size() + first_buckets.size()); }

  /// The ranks that gather and reduce a unit; empty if there is one, which calls nothing unless it `calls_alone`.
  RankGroup group_of(const ShardedUnit& unit, bool calls_alone = false) const {
    return unit.of_experts ? mesh.expert_shard_group(calls_alone) : mesh.group_along(MeshAxis::DpShard, calls_alone);
  }
  /// The layout's rank among those that share a unit.
  std::int64_t rank_in(const ShardedUnit& unit, std::int64_t of_rank) const {
    return unit.of_experts ? of_rank / mesh.ep : of_rank;
  }

  /// Each unit is one flat parameter, and ops compute with the output of its all-gather.
  bool has_flat_units() const { return flat != FlatParameters::None; }
  /// Each rank updates its part of all trained parameters, which lie in one buffer.
  bool updates_parts() const { return zero.ranks > 0; }
  /// Each rank has a part of each parameter; hooks of modules gather them, one by one or several together.
  bool gathers_by_module() const { return !hooked.empty(); }
  /// Each rank has the whole reduced gradient of each parameter.
  bool has_whole_gradients() const;
  /// The ranks have whole parameters, and buckets for their gradients that live as long as the wrapper.
  bool keeps_buckets() const { return !buckets.empty() && !updates_parts() && !gathers_each_read; }

  bool operator==(const Layout&) const = default;
};

}  // namespace fsdp
