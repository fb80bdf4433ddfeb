#pragma once

// Which gradients DDP reduces together.

#include <vector>

#include "core/base/result.h"
#include "core/model/model_index.h"
#include "core/plan/plan.h"
#include "core/plan/sharding.h"

namespace fsdp {

/// Errors for settings that DDP cannot express: it has no units, and its mesh is the number of copies; a trained
/// parameter without a gradient, at which it fails.
Errors check_ddp_plan(const Plan& plan, const Model& model);

/// The buckets of every step but the first, which is `first_step_buckets`. REQUIRES: the dtypes of the layout's
/// parameters are there.
std::vector<GradientBucket> make_buckets(const ModelIndex& index, const Plan& plan, const Layout& layout);

/// Those of the first reduction: one for each dtype, of all gradients, in the order of the model. Empty with
/// find_unused_parameters: they are those of all steps.
std::vector<GradientBucket> first_step_buckets(const Plan& plan, const std::vector<GradientBucket>& later);

/// Some parameter is trained that no gradient reaches.
bool has_unused_parameters(const Model& model);

/// Payload of find_unused_parameters' all-reduce: an int32 for each trained parameter.
Bytes used_map_bytes(const Model& model);

/// Puts the buckets into a layout, if there are several ranks.
void add_ddp_buckets(Layout& layout, const ModelIndex& index, const Plan& plan);

}  // namespace fsdp
