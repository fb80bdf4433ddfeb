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

/// A parameter cut along its first dimension over `shard` ranks, as Shard(0) of a DTensor cuts it.
struct CutParameter {
  std::int64_t elements = 0;
  std::int64_t chunk = 0;  ///< Elements of the largest part: ceil(rows / shard) rows.
  std::int64_t local = 0;  ///< Elements of the part of one rank; 0 where the rows have run out.
  std::int64_t full = 0;   ///< shard * chunk: what a collective gets or gives.

  bool is_padded() const { return full != elements; }
  bool operator==(const CutParameter&) const = default;
};
/// `rank`: in the shard group.
CutParameter cut_parameter(const Shape& shape, std::int64_t shard, std::int64_t rank);

/// Dtypes of the copy that a read of a parameter of dtype `own` makes, and of the reduction of its gradient.
Dtype read_dtype(const MixedPrecision& precision, Dtype own);
Dtype read_reduce_dtype(const MixedPrecision& precision, Dtype own);

/// [reads that get a gradient, last one first] Their gradients, padded to what is reduced; none on a single rank.
/// REQUIRES: the dtypes of the layout's parameters are there.
std::vector<GradientBucket> gradients_of_reads(const ModelIndex& index, const Plan& plan, const Layout& layout);

}  // namespace fsdp
