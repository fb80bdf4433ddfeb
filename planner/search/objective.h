#pragma once

// What makes one plan that fits better than another, where it is not the time of a step.

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/object_reader.h"
#include "planner/search/branch_and_bound.h"
#include "planner/space/choice.h"
#include "planner/space/space.h"

namespace fsdp::planner {

/// As --objective writes them.
inline constexpr EnumName<SearchObjective> kSearchObjectives[] = {
    {SearchObjective::Time, "time"}, {SearchObjective::Memory, "memory"}, {SearchObjective::Tokens, "tokens"}};
inline constexpr EnumTable<SearchObjective> kSearchObjectiveTable{"objective", kSearchObjectives};

/// Samples that a step of this family takes on each GPU, where `own` is the micro-batch of a family that names none.
std::int64_t samples_per_gpu(const Family& family, std::int64_t own);

/// The same space, where the time of a plan is that of one of its samples: the order of plans by what they train.
class PerSampleCost : public CostModel {
 public:
  /// REQUIRES: `cost` and `families` outlive this object.
  PerSampleCost(CostModel& cost, const Families& families) : cost_(cost), families_(families) {}

  std::vector<Box> space() const override { return cost_.space(); }
  int num_levels() const override { return cost_.num_levels(); }
  std::string level_name(int level) const override { return cost_.level_name(level); }
  Bound bound(const Box& box, int level) override;
  void care_up_to(std::int64_t memory) override { cost_.care_up_to(memory); }
  void decide_above(std::optional<std::int64_t> budget) override { cost_.decide_above(budget); }

 private:
  CostModel& cost_;
  const Families& families_;
};

}  // namespace fsdp::planner
