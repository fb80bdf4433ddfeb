#pragma once

// SimpleFSDP: what each read of a parameter makes, sends and, in the backward, reduces.

#include <cstdint>
#include <vector>

#include "core/base/result.h"
#include "core/model/model_index.h"
#include "core/plan/plan.h"
#include "core/plan/sharding.h"

namespace fsdp {

/// Errors for settings that SimpleFSDP cannot express: units, prefetches, offload, an output dtype, gradients that
/// are kept over micro-batches; and what of it is not predicted.
Errors check_simple_fsdp_plan(const Plan& plan, const Model& model);

/// Dtypes of the copy that a read of a parameter of dtype `own` makes, and of the reduction of its gradient.
Dtype read_dtype(const MixedPrecision& precision, Dtype own);
Dtype read_reduce_dtype(const MixedPrecision& precision, Dtype own);

/// [reads that get a gradient, last one first] Their gradients, padded to what is reduced; none on a single rank.
/// REQUIRES: the dtypes of the layout's parameters are there.
std::vector<GradientBucket> gradients_of_reads(const ModelIndex& index, const Plan& plan, const Layout& layout);

/// Puts them into a layout, which gathers each read.
void add_reads(Layout& layout, const ModelIndex& index, const Plan& plan);

}  // namespace fsdp
