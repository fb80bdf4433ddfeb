// The limits of DeepSpeed's JSON. A ZeRO plan has no units and one setting for each choice, so the file, with the
// optimizer and the model of the script, expresses all of it. Other plans have no near equivalent.

#include <fmt/core.h>

#include "core/plan/framework_traits.h"
#include "core/plan/plan_names.h"
#include "planner/trainers/trainer_limits.h"

namespace fsdp::planner {

namespace {

std::optional<Error> no_zero(const Plan& plan, const Model&) {
  if (traits_of(plan).zero_stage > 0) return std::nullopt;
  return Error{"/runtime/name",
               fmt::format("The plan is for {}, but this configuration is only for DeepSpeed.",
                           name_of(kFrameworkTable, plan.runtime.framework)),
               "Plan with --runtime zero1, zero2 or zero3."};
}

constexpr Limit kLimitsOfDeepSpeed[] = {{no_zero, nullptr, true}};

}  // namespace

std::span<const Limit> limits_of_deepspeed() {
  return kLimitsOfDeepSpeed;
}

}  // namespace fsdp::planner
