#include "core/frameworks/lower.h"

#include "core/frameworks/frameworks.h"
#include "core/frameworks/other_models.h"
#include "core/plan/framework_traits.h"
#include "core/plan/gradient_clearing.h"

namespace fsdp {

Schedule lower(const ModelIndex& index, const Plan& plan, const Layout& layout) {
  return lower_steps(index, plan, layout).steady;
}

StepSchedules lower_steps(const ModelIndex& index, const Plan& plan, const Layout& layout) {
  StepSchedules steps = rules_of(plan).lower(index, plan, layout);
  for (Schedule* step : {&steps.first, &steps.second, &steps.steady}) place_other_models(*step, plan);
  // DeepSpeed's engines clear gradients in their own step; a step of passes says itself where it does.
  if (traits_of(plan).zero_stage > 0 || has_passes(*index.model)) return steps;
  for (Schedule* step : {&steps.first, &steps.second, &steps.steady}) place_clearing(*step, *index.model, plan);
  return steps;
}

}  // namespace fsdp
