#pragma once

// How FSDP2 forms units from modules and cuts their parameters: who owns which parameter, in which order it lies in the
// all-gather buffer, and how many elements each rank holds, padding included.

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/result.h"
#include "core/model/model.h"
#include "core/model/model_index.h"
#include "core/plan/plan.h"

namespace fsdp {

/// One parameter of a unit. With dim-0 sharding over N ranks each holds ceil(rows / N) rows, the last ones padded.
struct ShardedParameter {
  int parameter = 0;                ///< In `Model::parameters`.
  std::int64_t elements = 0;        ///< True elements.
  std::int64_t shard_elements = 0;  ///< Padded: ceil(rows / N) * row elements; the same on every rank.
  std::int64_t local_elements = 0;  ///< True elements on the rank in question; 0 on trailing ranks with nothing.
  bool receives_gradient = true;
  bool is_external = false;      ///< For `Layout::hooked`: it belongs to a module that does not run.
  std::int64_t flat_begin = -1;  ///< For FSDP1: where it begins in the flat parameter, which is cut into shards of
  std::int64_t flat_shard = 0;   ///< so many elements.

  /// `local_elements` of any rank of the shard group.
  std::int64_t local_elements_of(std::int64_t rank) const;

  bool operator==(const ShardedParameter&) const = default;
};

/// One pass through the forward of a unit: positions [begin, end) in `ModelIndex`'s numbering of all ops.
struct Window {
  int begin = 0;
  int end = 0;
  /// In the backward: the position after whose arrival the unit is unsharded (the last op of the window that takes part
  /// in the backward), -1 when none does.
  int pre_backward = -1;
  /// The same for its further outputs: PyTorch's pre-backward hook hangs on each, and fires again when that one's
  /// gradient arrives. Rising, below `pre_backward`.
  std::vector<int> further_pre_backwards = {};
  /// An input of the pass requires a gradient, so that PyTorch's post-backward hook fires after the first op's
  /// backward; otherwise the unit is reduced in the callback at the end of backward.
  bool has_post_backward = false;
  /// The post-forward hook runs; false if a recomputation reruns only some modules of a unit of several.
  bool is_left = true;

  bool operator==(const Window&) const = default;
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
  std::int64_t reduced_full_elements = 0;    ///< N * S_u', over parameters that receive a gradient.
  std::int64_t reduced_true_elements = 0;
  Bytes gather_shard_bytes;     ///< Bytes per rank that go into the all-gather.
  ReshardAfterForward reshard;  ///< Resolved: never `Default`.
  bool is_root = false;
  std::vector<Window> windows;  ///< Where its modules run, in forward order; nested units' ops included.

  bool operator==(const ShardedUnit&) const = default;
};

/// Gradients that DDP or ZeRO all-reduces together. For SimpleFSDP the one that a single read of a parameter leads to,
/// padded as the reduce-scatter wants it.
struct GradientBucket {
  std::vector<int> parameters;  ///< In `Model::parameters`, in the order in which their gradients are ready.
  Dtype dtype = Dtype::Float32;
  std::int64_t elements = 0;
  /// The position after whose backward it is reduced: the last of its gradients is ready, and those of the buckets
  /// before it; with ZeRO one more, which has no place in it.
  int ready = 0;

  Bytes bytes() const { return size_of(dtype) * elements; }
  bool operator==(const GradientBucket&) const = default;
};

/// Whether a unit is one flat parameter, as in FSDP1, and what the optimizer gets of it then.
enum class FlatParameters : std::uint8_t {
  None,   ///< Each parameter is cut by itself.
  Whole,  ///< The flat parameter.
  Views,  ///< The original parameters, as views of what of them lies in the rank's shard (use_orig_params).
};

/// For ZeRO: all trained parameters one after the other, of which each rank updates an equal part. ZeRO-3 cuts each
/// parameter by itself, padded, so that what is one after the other are their parts: `begins` counts those.
struct ZeroBuffer {
  std::vector<int> parameters;       ///< In `Model::parameters`, rising.
  std::vector<std::int64_t> begins;  ///< [parameters + 1] Where each begins; at the end where the last one ends.
  std::int64_t ranks = 0;            ///< 0: there is no such buffer.
  std::int64_t elements = 0;         ///< With the padding at the end.
  Dtype dtype = Dtype::Float32;
  /// For ZeRO-3: sub-groups, which are updated one after the other: where in `parameters` each begins, and its end.
  std::vector<std::size_t> group_begins = {};

  std::int64_t part_elements() const { return elements / ranks; }
  std::size_t num_groups() const { return group_begins.empty() ? 0 : group_begins.size() - 1; }
  std::int64_t group_elements(std::size_t group) const {
    return begins[group_begins[group + 1]] - begins[group_begins[group]];
  }
  bool operator==(const ZeroBuffer&) const = default;
};

/// A place at which something happens to a unit, in one of its passes.
struct UnitBoundary {
  int position = 0;  ///< In `ModelIndex`'s numbering of all ops: before this op.
  int unit = 0;      ///< In `Layout::units`.
  int window = 0;    ///< In `ShardedUnit::windows`.

  bool operator==(const UnitBoundary&) const = default;
};

/// Where the hooks of units run, in what order: what follows from the windows alone. core/plan/unit_boundaries.h makes
/// it.
struct HookOrder {
  std::vector<UnitBoundary> begins;          ///< As unit_begins gives them,
  std::vector<UnitBoundary> ends;            ///< and unit_ends.
  std::vector<UnitBoundary> pre_backwards;   ///< Rising; at one position outer units come before those inside them.
  std::vector<UnitBoundary> post_backwards;  ///< The same.
  std::vector<int> forward_order;            ///< Units with parameters, as they are entered for the first time.
  std::vector<int> backward_order;           ///< The same, as they are left, from the last one to the first.

  bool operator==(const HookOrder&) const = default;
};

struct Layout {
  Mesh mesh;
  std::int64_t rank = 0;               ///< In the shard group.
  std::vector<ShardedUnit> units;      ///< As in the plan: bottom-up, the root last.
  std::vector<int> unit_of_parameter;  ///< [num parameters] In `units`.
  std::vector<Dtype> parameter_dtype;  ///< [num parameters] Of the sharded parameter.
  /// For DDP and ZeRO, in the order of their all-reduces: those of every step, but for DDP's first one, which has one
  /// for each dtype.
  std::vector<GradientBucket> buckets = {};
  FlatParameters flat = FlatParameters::None;
  ZeroBuffer zero = {};
  /// For ZeRO-3: each module with a forward, with its own parameters and where it runs. It gathers what a module needs.
  std::vector<ShardedUnit> hooked = {};
  bool is_replicated = false;  ///< Each rank has all parameters whole: units are never gathered and never resharded.
  /// For SimpleFSDP: whoever reads a parameter makes a whole copy of it from `ShardedParameter`s, for itself.
  bool gathers_each_read = false;
  HookOrder hooks = {};

  bool operator==(const Layout&) const = default;
};

/// Forms the units of a plan, seen from one rank of a shard group. Errors: all that is wrong with the plan for this
/// model: unknown modules, modules without a forward of their own, no root, an outer unit before one inside it, ties
/// across units, trainable parameters of several dtypes in one unit, an integer reshard that does not divide, bad
/// sizes. Source: torch/distributed/fsdp/_fully_shard/_fsdp_init.py, _fsdp_param.py.
Result<Layout> make_layout(const ModelIndex& index, const Plan& plan, std::int64_t rank = 0);

/// Gives a layout the reshard_after_forward of a plan and its mesh, as make_layout would. REQUIRES: it is that of a
/// plan with the same modules in each unit, the same shard size and the same dtypes. Errors: those of make_layout that
/// such a plan can still have: bad sizes, an integer reshard that does not divide.
Errors reshard_as(Layout& layout, const ModelIndex& index, const Plan& plan);

/// The same layout, seen from another rank of the shard group.
void see_from(Layout& layout, std::int64_t rank);

/// Ranks of the shard group that hold different numbers of true elements, rising from 0: each stands for itself and
/// the ranks up to the next one, which hold the same. One where all rows divide; few in any case, because a parameter
/// has full shards, then perhaps a cut one, then empty ones.
std::vector<std::int64_t> different_ranks(const Layout& layout);

}  // namespace fsdp
