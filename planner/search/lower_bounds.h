#pragma once

// Bounds of a plan's step time and device memory from sums, without simulating it.
//
// They never exceed the prediction, cost some tens of nanoseconds, and decide which families of plans deserve a
// simulation at all. lower_bounds.cpp has the formulas.

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
#include "planner/space/choice.h"
#include "simulator/predictor.h"
#include "simulator/time/plan_times.h"

namespace fsdp::planner {

/// The predictor of a micro-batch (0: the workload's own).
using PredictorOf = std::function<simulator::Predictor&(std::int64_t micro_batch)>;

class LowerBounds {
 public:
  /// REQUIRES: the arguments outlive this object; every wrapping passes check().
  /// `is_tight`: of what a plan can live in, not of what it has with room to spare.
  LowerBounds(const Plan& base, const Families& families, PredictorOf predictor_of, bool is_tight = false);

  /// Keys and values are cached in plans that checkpoint nothing, and in no other: the first checkpointed block takes
  /// work off the step. Plans without one then obey no law together with the others.
  bool first_checkpoint_saves_work() const { return first_checkpoint_saves_work_; }

  /// Below the step time and the device memory of every point of the family with these numbers of kept units and
  /// checkpointed blocks, and these of its ways to checkpoint.
  /// REQUIRES: with first_checkpoint_saves_work(), that no checkpointed block is one of several numbers of them.
  Bound bound(const Family& family, Interval kept, Interval checkpointed, Interval ways);

  /// Below the step time of a plan, and nearer to it: by the order of what it does (planner/search/step_order.h).
  /// Nothing where that order is not known. `choice`: of the family.
  std::optional<Seconds> time_in_order(const Family& family, const Choice& choice);
  bool knows_order(const Family& family) { return unit_sums(family).has_order; }

  /// By how many bytes the live peak of a plan can lie below that of the plan of its family that keeps fewer units
  /// unsharded and checkpoints more blocks. Live bytes are not quite monotonic: recomputing a block can need more than
  /// having kept it, and a unit that stays unsharded is not gathered into a buffer again.
  /// `in_kept`, `in_checkpointed`: the plans differ in these numbers; `ways`: they checkpoint in one of these, that
  /// plan in the first.
  std::int64_t live_slack(const Family& family, bool in_kept, bool in_checkpointed, Interval ways);
  /// The same of the sum of the peaks of all pools: what makes one smaller may make another one larger.
  std::int64_t pool_slack(const Family& family, bool in_kept, bool in_checkpointed, Interval ways);

 private:
  /// Sums over calls, for one micro-batch, one way of checkpointing, and keys and values cached or not.
  struct CallSums {
    Seconds compute{0};  ///< Compute of one micro-batch, nothing checkpointed.
    /// [stack][blocks] What checkpointing the first blocks adds to it.
    std::vector<std::vector<Seconds>> added;
    std::vector<std::int64_t> kept;               ///< [call] Activations of the calls before it, nothing checkpointed.
    std::vector<simulator::CallCost> none, mode;  ///< [call] What it costs as it is, and checkpointed.
    /// [stack][blocks] What checkpointing the first blocks takes off the kept activations: not positive.
    std::vector<std::vector<std::int64_t>> saved;
    std::vector<int> outside;  ///< Calls outside of the stacks whose backward may be the peak.
  };

  /// Sums over units, for one mesh, wrapping and way to reshard.
  struct UnitSums {
    std::int64_t states = 0;                           ///< Sharded parameters and optimizer states of a rank.
    std::int64_t gradients = 0;                        ///< Sharded gradients of a rank.
    bool is_fsdp2 = false;                             ///< Gathers and sharded gradients have streams of their own:
    std::int64_t largest_gather = 0;                   ///< the output of one gather.
    std::int64_t optimizer_temporaries = 0;            ///< What a foreach step makes beside its states, all at once.
    std::int64_t root = 0;                             ///< Unsharded parameters of the root.
    std::int64_t gathered_ahead = 0;                   ///< For ZeRO-3: what it holds gathered for later, at most.
    std::vector<std::int64_t> unit_of_call;            ///< [call] Unsharded bytes of the unit around it; 0: the root.
    std::vector<std::vector<std::int64_t>> unsharded;  ///< [stack][groups] Of the first groups of the stack.
    std::vector<Seconds> gathers;                      ///< [kept] All-gathers of one micro-batch,
    std::vector<Seconds> copies;                       ///< [kept] and their copies out, on the compute stream.
    std::int64_t accumulated = 0;                      ///< Unsharded gradients, as micro-batches without reduction keep
    std::vector<std::int64_t> accumulated_of_call;     ///< them. [call] Of units that the backward of the call leaves.
    Seconds keeps{0};                                  ///< Gradients of one micro-batch into them, the first time
    Seconds adds{0};                                   ///< and later.
    Seconds reduces{0};                                ///< Reduce-scatters of one micro-batch,
    Seconds reduce_copies{0};                          ///< and the copies of the gradients into their buffers.
    Seconds all_reduces{0};
    Seconds root_gather{0};  ///< Nothing runs before it,
    Seconds last_reduce{0};  ///< and nothing but the optimizer after the last one, which takes at least so long.
    Seconds optimizer{0};    ///< Clipping included.
    std::vector<DeviceTerm> outside;
    std::vector<simulator::UnitTimes> times;  ///< [num units]
    std::vector<Seconds> gathers_again;       ///< [num units] All-gathers of the backward.
    std::vector<std::size_t> resharded;       ///< [num units] With fewer kept units than that it is gathered again.
    bool has_order = false;                   ///< StepOrder knows that of its plans.
  };

  struct StackOfCalls {
    std::vector<int> calls;                   ///< [block] The first call of each block.
    std::vector<std::vector<int>> all_calls;  ///< [block] All calls of each block.
  };

  /// The least of the family's ways from `ways.first` to `ways.last`.
  const CallSums& call_sums(const Family& family, bool some_checkpointed, Interval ways);
  const UnitSums& unit_sums(const Family& family);
  /// What sums are of: the mesh and the arguments of a family, on the base.
  Plan plan_of(const Family& family) const;
  bool has_order(const Family& family, const Layout& layout, const Cluster& cluster) const;
  const StepOrder& order_of(const Family& family);
  /// With units that reshard. It stays until the predictor is asked for another thing.
  const Layout& layout_of(const Family& family);
  CallSums make_call_sums(const Family& family, const Plan& plan, CheckpointMode mode);
  static void take_least(const CallSums& other, CallSums& sums);
  /// The part of a slack that units and workspaces are.
  std::int64_t slack_of_units(const Family& family, bool in_kept, bool in_checkpointed, Interval ways);
  /// All of the sums that are bytes: they do not depend on the way to reshard.
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
  /// Unsharded gradients of earlier micro-batches that a plan holds while they are not reduced.
  void add_accumulated(const Layout& layout, UnitSums& sums) const;
  static std::int64_t kept_gradients(const Family& family, const UnitSums& units, std::size_t call);
  /// Which blocks the plans of a box checkpoint: all of them the first, some of them the second.
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
  const ModelIndex* index_ = nullptr;  ///< Index of any micro-batch. Null: there are no families.
  bool first_checkpoint_saves_work_ = false;
  std::vector<StackOfCalls> stacks_;
  std::vector<std::pair<int, int>> block_of_call_;  ///< [call] Stack and block; (-1, -1) outside of the stacks.
  /// By shard size, wrapping, arguments and offload.
  std::map<std::tuple<std::int64_t, int, int, bool>, UnitSums> unit_bytes_;
  /// By micro-batch, the shard size where calls depend on it, the first and the last way, and whether keys and values
  /// are not cached.
  std::map<std::tuple<std::int64_t, std::int64_t, CheckpointWay, CheckpointWay, bool>, CallSums> call_sums_;
  std::map<std::tuple<std::int64_t, int, ReshardAfterForward::Kind, bool, int, std::int64_t>, UnitSums> unit_sums_;
  /// By shard size, wrapping, arguments, how far ahead forward and backward gather, and whether gradients are kept.
  std::map<std::tuple<std::int64_t, int, int, std::int64_t, std::int64_t, bool>, StepOrder> orders_;
};

}  // namespace fsdp::planner
