#pragma once

// The variations that a search may try for a framework, and the proven laws of its plans: one row for each framework.

#include <array>

#include "core/plan/framework_traits.h"
#include "core/plan/plan.h"

namespace fsdp::planner {

struct SearchTraits {
  Framework framework = kDefaultFramework;

  // The possible units. Irrelevant for a framework without units.
  bool joins_modules = true;  ///< Several modules may form one unit.
  bool cuts_blocks = true;    ///< Units may be inside blocks.
  bool mixes_reshards =
      true;  ///< Units may differ in what happens after forward, or keep a shard over a smaller group.
  bool counts_prefetches = true;  ///< A plan may set how many units are gathered ahead.

  // Laws on which the bounds of a search rest, for a plan that keeps more units, checkpoints fewer blocks or saves more
  // of them.
  bool has_law_of_time = true;               ///< Its step takes no longer,
  bool has_law_of_host_time = true;          ///< nor with CPU offload.
  bool has_law_of_pools = false;             ///< The peak of each pool of PyTorch's allocator does not fall.
  bool has_bound_of_order = false;           ///< planner/search/bound_order.cpp bounds the time of its order of events.
  bool stays_gathered_without_sync = false;  ///< Units are gathered once for all micro-batches without a reduction.
};

inline constexpr std::array kSearchTraits = {
    SearchTraits{.framework = Framework::Fsdp2, .has_law_of_pools = true, .has_bound_of_order = true},
    SearchTraits{.framework = Framework::Fsdp1,
                 .joins_modules = false,
                 .cuts_blocks = false,
                 .mixes_reshards = false,
                 .counts_prefetches = false,
                 .has_law_of_host_time = false,
                 .stays_gathered_without_sync = true},
    SearchTraits{.framework = Framework::Ddp},
    SearchTraits{.framework = Framework::Zero1},
    SearchTraits{.framework = Framework::Zero2},
    SearchTraits{.framework = Framework::Zero3, .has_law_of_time = false, .has_law_of_host_time = false},
    SearchTraits{.framework = Framework::SimpleFsdp},
};

constexpr const SearchTraits& search_traits(const Plan& plan) {
  return row_of(kSearchTraits, plan.runtime.framework);
}

}  // namespace fsdp::planner
