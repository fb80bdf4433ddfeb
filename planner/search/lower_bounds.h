#pragma once

// Bounds of a plan's step time and device memory from sums, without a simulation.
//
// They never exceed the prediction, cost tens of nanoseconds, and decide which families of plans deserve a simulation
// at all. lower_bounds.cpp has the formulas.

#include <functional>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "core/model/model_index.h"
#include "core/plan/sharding.h"
#include "planner/search/branch_and_bound.h"
#include "planner/search/step_order.h"
#include "planner/space/families.h"
#include "simulator/predictor.h"
#include "simulator/time/plan_times.h"

namespace fsdp::planner {

/// Returns the predictor of a micro-batch (0 for the workload's own).
using PredictorOf = std::function<simulator::Predictor&(std::int64_t micro_batch)>;

class LowerBounds {
 public:
  /// REQUIRES: the arguments outlive this object; every wrapping passes check().
  /// `is_tight`: bounds the memory in which a plan can run, not the memory that it takes with room to spare.
  LowerBounds(const Plan& base, const Families& families, PredictorOf predictor_of, bool is_tight = false);

  /// True if plans that checkpoint nothing cache keys and values, and no other plans do. Then the first checkpointed
  /// block takes work off the step, and plans without one obey no law together with the others.
  bool first_checkpoint_saves_work() const { return first_checkpoint_saves_work_; }

  /// Lower bounds of the step time and device memory of every point of the family with these numbers of unsharded units
  /// and checkpointed blocks, and these ways to checkpoint.
  /// REQUIRES: with first_checkpoint_saves_work(), a range of checkpointed blocks with several numbers does not contain
  /// 0.
  Bound bound(const Family& family, Interval kept, Interval checkpointed, Interval ways);

  /// A tighter lower bound of a plan's step time, from the order of its events (planner/search/step_order.h). nullopt
  /// if that order is unknown. `plan_point`: of the family.
  std::optional<Seconds> time_in_order(const Family& family, const PlanPoint& plan_point);
  bool knows_order(const Family& family) { return unit_sums(family).has_order; }

  /// The maximum number of bytes by which a plan's live peak can lie below that of the plan of its family that keeps
  /// fewer units unsharded and checkpoints more blocks. Live bytes are not quite monotonic: recomputing a block can
  /// need more than keeping it, and a unit that stays unsharded is not gathered into a buffer again.
  /// `in_kept`, `in_checkpointed`: the plans differ in these numbers. `ways`: the plan's way is one of these, and the
  /// other plan's is the first.
  std::int64_t live_slack(const Family& family, bool in_kept, bool in_checkpointed, Interval ways);
  /// The same for the sum of the peaks of all pools: a change that makes one smaller may make another larger.
  std::int64_t pool_slack(const Family& family, bool in_kept, bool in_checkpointed, Interval ways);

 private:
  /// Sums over calls, for one micro-batch, one way of checkpointing, and keys and values cached or not.
  struct CallSums {
    Seconds compute{0};  ///< Compute of one micro-batch without checkpointing.
    /// [stack][blocks] Compute that checkpointing the first blocks adds.
    std::vector<std::vector<Seconds>> added;
    std::vector<std::int64_t> kept;               ///< [call] Activations of the calls before it, without checkpointing.
    std::vector<simulator::CallCost> none, mode;  ///< [call] Its cost without and with checkpointing.
    /// [stack][blocks] Change of these activations from checkpointing the first blocks: not positive.
    std::vector<std::vector<std::int64_t>> saved;
    std::vector<int> outside;  ///< Calls outside the stacks whose backward may be the peak.
  };

  /// Sums over units, for one mesh, wrapping and way to reshard.
  struct UnitSums {
    std::int64_t states = 0;                           ///< Sharded parameters and optimizer states of a rank.
    std::int64_t gradients = 0;                        ///< Sharded gradients of a rank.
    bool is_fsdp2 = false;                             ///< Gathers and sharded gradients have streams of their own.
    std::int64_t largest_gather = 0;                   ///< The output of one gather.
    std::int64_t optimizer_temporaries = 0;            ///< Temporaries that a foreach step makes all at once.
    std::int64_t root = 0;                             ///< Unsharded parameters of the root.
    std::int64_t gathered_ahead = 0;                   ///< For ZeRO-3: the maximum that it holds gathered for later.
    std::vector<std::int64_t> unit_of_call;            ///< [call] Unsharded bytes of the unit around it. 0 for root.
    std::vector<std::vector<std::int64_t>> unsharded;  ///< [stack][groups] Unsharded bytes of the first groups.
    std::vector<Seconds> gathers;                      ///< [kept] All-gathers of one micro-batch.
    std::vector<Seconds> copies;                       ///< [kept] Their copies out, on the compute stream.
    std::int64_t accumulated = 0;                      ///< Unsharded gradients of micro-batches without reduction.
    std::vector<std::int64_t> accumulated_of_call;     ///< [call] Those of the units that its backward leaves.
    Seconds keeps{0};                                  ///< Time of the first copy of gradients into them.
    Seconds adds{0};                                   ///< Time to add later ones.
    Seconds reduces{0};                                ///< Reduce-scatters of one micro-batch.
    Seconds reduce_copies{0};                          ///< Copies of the gradients into their buffers.
    Seconds all_reduces{0};
    Seconds root_gather{0};  ///< Nothing runs before it.
    Seconds last_reduce{0};  ///< A lower bound of the last reduction; only the optimizer runs after it.
    Seconds optimizer{0};    ///< Includes clipping.
    std::vector<DeviceTerm> outside;
    std::vector<simulator::UnitTimes> times;  ///< [num units]
    std::vector<Seconds> gathers_again;       ///< [num units] All-gathers of the backward.
    std::vector<std::size_t> resharded;       ///< [num units] Gathered again if fewer units than this stay unsharded.
    bool has_order = false;                   ///< True if StepOrder knows the order of its plans.
  };

  struct StackOfCalls {
    std::vector<int> calls;                   ///< [block] The first call of each block.
    std::vector<std::vector<int>> all_calls;  ///< [block] All calls of each block.
  };

  /// The least of the family's ways from `ways.first` to `ways.last`.
  const CallSums& call_sums(const Family& family, bool some_checkpointed, Interval ways);
  const UnitSums& unit_sums(const Family& family);
  /// The plan that sums belong to: the base with the mesh and the arguments of a family.
  Plan plan_of(const Family& family) const;
  bool has_order(const Family& family, const Layout& layout, const Cluster& cluster) const;
  const StepOrder& order_of(const Family& family);
  /// With units that reshard. Valid until the next use of the predictor.
  const Layout& layout_of(const Family& family);
  CallSums make_call_sums(const Family& family, const Plan& plan, CheckpointMode mode);
  static void take_least(const CallSums& other, CallSums& sums);
  /// The part of a slack that comes from units and workspaces.
  std::int64_t slack_of_units(const Family& family, bool in_kept, bool in_checkpointed, Interval ways);
  /// All sums in bytes: they do not depend on the way to reshard.
  const UnitSums& unit_bytes(const Family& family, const Layout& layout);
  UnitSums make_unit_bytes(const Family& family, const Layout& layout) const;
  UnitSums make_unit_sums(const Family& family);
  void add_times(const Family& family, const Plan& plan, const Layout& layout, simulator::Predictor& predictor,
                 UnitSums& sums) const;
  void set_bucket_times(const Model& model, const Layout& layout, const Plan& plan, const simulator::MeshCosts& mesh,
                        const Cluster& cluster, const simulator::ComputeCosts& costs, UnitSums& sums) const;
  void set_read_times(const Layout& layout, const Plan& plan, const simulator::MeshCosts& mesh,
                      const std::vector<simulator::BucketTimes>& buckets, UnitSums& sums) const;
  static void set_fsdp2_bytes(const Layout& layout, UnitSums& sums);
  void set_bucket_bytes(const Layout& layout, UnitSums& sums) const;
  /// These three return the bytes of the optimizer's states.
  double set_optimizer_bytes(const Layout& layout, UnitSums& sums) const;
  double set_zero_bytes(const Layout& layout, const Plan& plan, UnitSums& sums) const;
  double set_zero3_bytes(const Layout& layout, const Plan& plan, UnitSums& sums) const;
  /// Unsharded gradients of earlier micro-batches that a plan holds before it reduces them.
  void add_accumulated(const Layout& layout, UnitSums& sums) const;
  static std::int64_t kept_gradients(const Family& family, const UnitSums& units, std::size_t call);
  /// The blocks that the plans of a box checkpoint: all plans at least `fewest`, some plans `most`.
  struct CountRange {
    const StackCounts& fewest;
    const StackCounts& most;
  };
  std::int64_t memory_at(const Family& family, const CallSums& calls, const UnitSums& units, int call,
                         std::int64_t kept, const CountRange& checkpointed) const;
  std::int64_t memory(const Family& family, const CallSums& calls, const UnitSums& units, std::int64_t kept,
                      const CountRange& checkpointed) const;

  const Plan& base_;
  const Families& families_;
  PredictorOf predictor_of_;
  bool is_tight_;
  const ModelIndex* index_ = nullptr;  ///< Index of any micro-batch. nullptr if there are no families.
  bool first_checkpoint_saves_work_ = false;
  std::vector<StackOfCalls> stacks_;
  std::vector<std::pair<int, int>> block_of_call_;  ///< [call] Stack and block; (-1, -1) outside the stacks.
  /// By shard size, wrapping, arguments and offload.
  std::map<std::tuple<std::int64_t, std::int64_t, int, int, bool>, UnitSums> unit_bytes_;
  /// By micro-batch, the shard size if calls depend on it, the first and the last way, and whether keys and values are
  /// not cached.
  std::map<std::tuple<std::int64_t, std::int64_t, CheckpointWay, CheckpointWay, bool>, CallSums> call_sums_;
  std::map<std::tuple<std::int64_t, std::int64_t, int, ReshardAfterForward::Kind, bool, int, std::int64_t>, UnitSums>
      unit_sums_;
  /// By shard size, wrapping, arguments, how far ahead forward and backward gather, and whether gradients are kept.
  std::map<std::tuple<std::int64_t, std::int64_t, int, int, std::int64_t, std::int64_t, bool>, StepOrder> orders_;
};

}  // namespace fsdp::planner
