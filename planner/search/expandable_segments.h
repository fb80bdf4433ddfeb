#pragma once

// Answers with expandable segments, a setting of PyTorch's allocator, if the user did not decide on its settings.

#include <optional>
#include <string>
#include <string_view>

#include "core/cluster/cluster.h"
#include "planner/search/widening_search.h"
#include "planner/space/space.h"

namespace fsdp::planner {

/// The fraction of a step that an allocator setting must save to be named without a request.
inline constexpr double kWorthASetting = 0.05;

inline constexpr std::string_view kExpandableSegments = "expandable_segments:True";

/// The space with expandable segments. `nullopt` if they are unavailable, or if the user decided on them.
std::optional<Space> expanded(const Space& space, const Cluster& cluster);

/// The note on a plan with expandable segments that the user did not request.
std::string note_on_segments(WideningSearch& widening_search, const Runtime& runtime);

/// True if a plan that is faster by at least this fraction of `step` was ruled out by its memory alone.
bool has_faster_that_is_too_large(FamilySearch& family_search, Seconds step, double part);

}  // namespace fsdp::planner
