#pragma once

// The models beside the trained one, from their specs.

#include <vector>

#include "core/base/result.h"
#include "core/model/model.h"
#include "core/spec/model_spec.h"

namespace fsdp {

/// Builds the other models of a workload for the batch and the sequence of `model`, into `Model::beside`. Errors:
/// theirs.
Result<void> build_other_models(const Workload& workload, Model& model);

std::vector<OtherModel> options_of(const std::vector<OtherSpec>& also);

}  // namespace fsdp
