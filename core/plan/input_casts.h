#pragma once

// mixed_precision.cast_forward_inputs: what FSDP2 casts on the way into forwards.

#include <vector>

#include "core/base/result.h"
#include "core/model/model.h"
#include "core/model/model_index.h"
#include "core/plan/plan.h"
#include "core/plan/sharding.h"

namespace fsdp {

/// Whether a model input goes through the arguments of the root's forward: it is handed to the root, and is not read
/// only when that has returned. [num inputs]
std::vector<bool> root_arguments(const Model& model);

/// Inputs that the root casts to param_dtype before it gathers its parameters: floating ones of another dtype.
/// [num inputs] Source: FSDPState._pre_forward in torch/distributed/fsdp/_fully_shard/_fsdp_state.py, torch 2.11.
std::vector<bool> inputs_cast_by_root(const Model& model, const Plan& plan);

/// Errors for combinations that fail: a floating input that stays in its dtype and is multiplied by parameters of
/// another; and a value that a unit inside the root would cast, which is not predicted.
Errors check_input_casts(const ModelIndex& index, const Plan& plan, const Layout& layout);

}  // namespace fsdp
