#pragma once

// How DeepSpeed's ZeRO cuts the trained parameters, and which gradients they reduce together.

#include <cstdint>
#include <vector>

#include "core/model/model_index.h"
#include "core/plan/plan.h"
#include "core/plan/sharding.h"

namespace fsdp {

/// Every trained parameter in one flat buffer. REQUIRES: the dtypes of the layout's parameters are there.
ZeroBuffer make_zero_buffer(const ModelIndex& index, const Plan& plan, const Layout& layout);

/// The all-reduces of one backward that reduces, in order. REQUIRES: the layout has its ZeroBuffer.
std::vector<GradientBucket> make_zero_buckets(const ModelIndex& index, const Plan& plan, const Layout& layout);

/// The part of a flat buffer that a rank updates.
struct ZeroSlice {
  int parameter = 0;          ///< In `Model::parameters`.
  std::int64_t begin = 0;     ///< Its first element that lies in the part,
  std::int64_t elements = 0;  ///< and how many do.

  bool operator==(const ZeroSlice&) const = default;
};

/// The pieces of parameters that a rank updates, in the order of the buffer.
std::vector<ZeroSlice> slices_of_rank(const ZeroBuffer& buffer, std::int64_t rank);

/// Elements of all parameters that reach into a rank's part, each counted whole: their gradients are kept whole.
std::int64_t touched_elements(const ZeroBuffer& buffer, std::int64_t rank);

/// Ranks of which one needs the most memory: all of them where they are few, else those whose parts stand out.
std::vector<std::int64_t> different_parts(const ZeroBuffer& buffer);

/// The rank whose parts of parameters have the most elements around them: no other keeps more gradients.
std::int64_t rank_that_touches_most(const ZeroBuffer& buffer);

/// A piece of a bucket that one rank updates.
struct BucketSlice {
  std::int64_t rank = 0;
  std::int64_t elements = 0;

  bool operator==(const BucketSlice&) const = default;
};

/// The owners of a bucket's pieces, in its order: neighbors of one rank are one piece.
std::vector<BucketSlice> slices_of(const GradientBucket& bucket, const ZeroBuffer& buffer);

/// One all-reduce of a bucket.
struct ZeroReduction {
  std::int64_t elements = 0;
  int slices = 0;  ///< So many pieces of `slices_of`, in its order: several are copied into one more tensor.

  bool operator==(const ZeroReduction&) const = default;
};

/// The reductions of a bucket: one all-reduce; but the gradient of a parameter that is larger than the buffer may be
/// sent in several where it belongs to several ranks.
std::vector<ZeroReduction> reductions_of(const GradientBucket& bucket, const Layout& layout, const Plan& plan);

/// Elements that ZeRO-3 reduce-scatters for a bucket: each gradient padded to a multiple of the ranks.
std::int64_t padded_elements(const GradientBucket& bucket, const Layout& layout, const Model& model);

/// The same of one parameter.
std::int64_t padded_elements(int parameter, const Layout& layout, const Model& model);

/// The parameters that ZeRO-3 keeps whole between steps, rising.
std::vector<int> persistent_parameters(const Layout& layout, const Plan& plan);

/// Sub-groups that ZeRO-3's optimizer updates on the device, the first ones: all of them without offload_optimizer.
std::size_t groups_on_device(const ZeroBuffer& buffer, const Plan& plan);

/// The rank's elements that it updates on the host.
std::int64_t elements_on_host(const ZeroBuffer& buffer, const Plan& plan);

/// Whether ZeRO-3 changes the output of an op of a block that selective checkpointing keeps: a linear layer
/// on more than two dimensions, to whose product DeepSpeed adds the bias in place.
bool keeps_what_zero3_changes(const Block& block, const Checkpointing& checkpointing);

/// All that ZeRO cannot do, or that is not predicted of it.
Errors check_zero_plan(const Plan& plan, const Model& model);

/// Puts the buffer, the buckets and ZeRO-3's modules into a layout.
void add_zero_parts(Layout& layout, const ModelIndex& index, const Plan& plan);

}  // namespace fsdp
