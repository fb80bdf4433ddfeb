#pragma once

// Predictions of one search, by plan. The searches of an answer (without CPU offload, over the whole space, for a
// suggestion) reach the same plans, each in a space of its own.

#include <array>
#include <compare>
#include <cstdint>
#include <map>
#include <optional>
#include <tuple>
#include <vector>

#include "core/plan/plan.h"
#include "planner/space/checkpointed_blocks.h"
#include "planner/space/families.h"
#include "planner/space/framework_arguments.h"
#include "planner/space/space.h"
#include "planner/space/wrapping.h"
#include "simulator/predictor.h"

namespace fsdp::planner {

/// For one spec, workload and cluster.
class KnownPredictions {
 public:
  /// A plan, independent of the space that contains it.
  struct Key {
    int family = 0;  ///< number_of() its family.
    std::int32_t kept = 0;
    CheckpointWay way;
    StackCounts checkpointed;  ///< [stack]

    auto operator<=>(const Key&) const = default;
  };

  /// Two families have one number if they make the same plan of the same unsharded units and checkpointed blocks. It is
  /// that of the first such family.
  int number_of(const Plan& base, const Families& families, const Family& family);

  /// `family`: its number.
  static Key key_of(int family, const Families& families, const PlanPoint& plan_point);

  /// nullptr if there is no prediction. The pointer stays valid until a newer prediction replaces it.
  const simulator::Outcome* find(simulator::Detail detail, const Key& key) const;
  void keep(simulator::Detail detail, const Key& key, const simulator::Outcome& outcome);

 private:
  using Ints =
      std::tuple<int, int, int, std::int64_t, std::int64_t, std::int64_t, ReshardAfterForward::Kind, std::int64_t, int,
                 std::int64_t, bool, std::int64_t, std::int64_t, std::int64_t, std::int64_t, bool, bool>;
  static constexpr std::size_t kNumDetails = static_cast<std::size_t>(simulator::Detail::Memory) + 1;

  std::vector<Plan> bases_;
  std::vector<Wrapping> wrappings_;
  std::vector<FrameworkArguments> arguments_;
  std::map<Ints, int> families_;
  std::array<std::map<Key, simulator::Outcome>, kNumDetails> outcomes_;  ///< [detail]
};

}  // namespace fsdp::planner
