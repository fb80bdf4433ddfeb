#pragma once

// What a framework does with a plan, as functions: one row of a table for each. The functions are in its folder.

#include "core/base/result.h"
#include "core/model/model.h"
#include "core/model/model_index.h"
#include "core/plan/framework_traits.h"
#include "core/plan/plan.h"
#include "core/plan/schedule.h"
#include "core/plan/sharding.h"

namespace fsdp {

struct FrameworkRules {
  Framework framework = kDefaultFramework;
  /// Errors for settings of a plan that the framework cannot express. nullptr: it can express all of them.
  Errors (*check)(const Plan& plan, const Model& model) = nullptr;
  /// Errors for units that are not predicted. REQUIRES: the units have their parameters and passes.
  Errors (*check_units)(const Layout& layout, const Plan& plan, const ModelIndex& index) = nullptr;
  /// Adds to a layout what the framework has beside units. REQUIRES: the layout has no errors.
  void (*finish)(Layout& layout, const ModelIndex& index, const Plan& plan) = nullptr;
  /// Its order of events, without the clearing of gradients that the script does.
  StepSchedules (*lower)(const ModelIndex& index, const Plan& plan, const Layout& layout) = nullptr;
};

const FrameworkRules& rules_of(const Plan& plan);

}  // namespace fsdp
