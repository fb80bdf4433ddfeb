#pragma once

// The dtypes of tensors under torch.autocast beside a mixed precision of FSDP.

#include <optional>
#include <vector>

#include "core/base/dtype.h"
#include "core/model/op.h"

namespace fsdp {

/// The dtype of an op's results under autocast, if parameters and activations have autocast's own dtype. nullopt: that
/// one. `inputs` [num inputs]: those of the op's inputs, nullopt likewise; `declared`: the dtype that the block gives
/// the result.
/// Source: aten/src/ATen/autocast_mode.h, torch 2.11 (AT_FORALL_LOWER_PRECISION_FP, AT_FORALL_FP32).
std::optional<Dtype> autocast_result(const Op& op, const std::vector<std::optional<Dtype>>& inputs,
                                     const std::optional<Dtype>& declared);

}  // namespace fsdp
