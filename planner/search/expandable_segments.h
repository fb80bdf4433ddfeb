#pragma once

// Answers with expandable segments, a setting of PyTorch's allocator, where nobody decided on its settings.

#include <optional>
#include <string>
#include <string_view>

#include "core/cluster/cluster.h"
#include "planner/search/attempt.h"
#include "planner/space/space.h"

namespace fsdp::planner {

/// What a step must be shorter by for a setting of the allocator that nobody asked for.
inline constexpr double kWorthASetting = 0.05;

inline constexpr std::string_view kExpandableSegments = "expandable_segments:True";

/// The space with expandable segments; nothing where they are not to be had, or were decided on.
std::optional<Space> expanded(const Space& space, const Cluster& cluster);

/// What to say of a plan with expandable segments that was not asked for.
std::string note_on_segments(Attempts& attempts, const Runtime& runtime);

/// Whether a plan was ruled out for its memory alone that takes by this part of `step` less.
bool has_faster_that_is_too_large(Attempt& attempt, Seconds step, double part);

}  // namespace fsdp::planner
