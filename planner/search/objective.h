#pragma once

// The order of the plans that fit, if the objective is not the time of a step.

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/object_reader.h"
#include "planner/search/branch_and_bound.h"
#include "planner/space/families.h"
#include "planner/space/space.h"

namespace fsdp::planner {

/// The names in --objective.
inline constexpr EnumName<SearchObjective> kSearchObjectives[] = {
    {SearchObjective::Time, "time"}, {SearchObjective::Memory, "memory"}, {SearchObjective::Tokens, "tokens"}};
inline constexpr EnumTable<SearchObjective> kSearchObjectiveTable{"objective", kSearchObjectives};

/// Samples per GPU in a step of this family. `own`: the micro-batch of a family that names none.
std::int64_t samples_per_gpu(const Family& family, std::int64_t own);

/// The same space, with the time of a sample instead of the time of a plan.
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
