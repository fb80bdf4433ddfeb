#pragma once

// Stores layouts for plans that differ only in ways that do not affect a layout. A search needs the same few meshes and
// ways of wrapping hundreds of times, and a layout visits every parameter.

#include <cstdint>
#include <list>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/model/model_index.h"
#include "core/plan/plan.h"
#include "core/plan/sharding.h"
#include "simulator/memory/block_sums.h"

namespace fsdp::simulator {

class LayoutCache {
 public:
  /// REQUIRES: the index outlives this object.
  explicit LayoutCache(const ModelIndex& index) : index_(index) {}

  /// The result of make_layout(index, plan, rank), to keep or to return. Errors: those of make_layout.
  Result<Layout> take(const Plan& plan, std::int64_t rank);

  /// Returns the layout that `take` gave for this plan, for any rank.
  void give_back(const Plan& plan, Layout layout);

  /// The result of make_layout(index, plan), valid until the next call. REQUIRES: it gives no error.
  const Layout& look(const Plan& plan);

  /// Sums of a layout that was taken for this plan. Valid until the next `give_back`.
  const LayoutSums& sums(const Plan& plan, const Layout& layout);

  /// Parameters of all new layouts.
  std::int64_t num_laid_out() const { return num_laid_out_; }

 private:
  /// The inputs of a layout beside the rank and reshard_after_forward.
  struct Key {
    Framework framework{};
    Quirks quirks = {};
    DdpOptions ddp;
    Fsdp1Options fsdp1;
    ZeroOptions zero;
    /// 1 for FSDP2. NO_SHARD of FSDP1 pads for it, and DDP on one GPU has no buckets.
    std::int64_t replicate = 1;
    std::int64_t shard = 0;
    std::int64_t ep = 1;
    std::optional<Dtype> parameter_dtype;
    MixedPrecision mixed_precision;
    std::vector<std::vector<std::string>> modules;  ///< [num units]
  };
  struct Entry {
    Key key;
    Layout layout;
    bool is_here = false;  ///< False while it is taken.
    std::optional<LayoutSums> sums = std::nullopt;
  };

  static bool is_of(const Key& key, const Plan& plan);
  std::list<Entry>::iterator find(const Plan& plan);
  std::list<Entry>::iterator find_or_add(const Plan& plan);
  void drop_old_ones();

  const ModelIndex& index_;
  std::int64_t num_laid_out_ = 0;
  std::list<Entry> entries_;  ///< The latest one comes first.
};

}  // namespace fsdp::simulator
