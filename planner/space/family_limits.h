#pragma once

// The parts of the search space that a model or a framework refuses for all numbers of a family.

#include <optional>

#include "core/base/result.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "planner/space/families.h"

namespace fsdp::planner {

/// The reason why we predict no plan of a family, in the names of the options: a step of several passes
/// (`passes_misfit`), an optimizer (`optimizer_misfit`), an offload (`offload_misfit`) or gradients (`fails_unreduced`)
/// of flat parameters. `nullopt` if one may be predicted. `base`: the plan whose other fields a family leaves as they
/// are.
std::optional<Error> family_misfit(const Plan& base, const Family& family, const Model& model);

}  // namespace fsdp::planner
