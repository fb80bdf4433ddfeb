#pragma once

// Answers with expandable segments, a setting of PyTorch's allocator, where nobody decided on its settings.

#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "core/base/result.h"
#include "core/cluster/cluster.h"
#include "core/spec/model_spec.h"
#include "planner/attempt.h"
#include "planner/search.h"
#include "planner/space.h"

namespace fsdp::planner {

/// What a step must be shorter by for a setting of the allocator that nobody asked for.
inline constexpr double kWorthASetting = 0.05;

inline constexpr std::string_view kExpandableSegments = "expandable_segments:True";

/// The space with expandable segments; nothing where they are not to be had, or were decided on.
std::optional<Space> expanded(const Space& space, const Cluster& cluster);

/// What to say of a plan with expandable segments that was not asked for.
std::string note_on_segments(Attempts& attempts, const Runtime& runtime);

/// A search that is given up, with nothing, as soon as its plan is known and not worth it. `add` says more in what is
/// told and returned.
Result<std::optional<SearchResult>> search_if(
    const ModelSpec& spec, const Workload& workload, const Cluster& cluster, const Space& space,
    const SearchOptions& options, const std::function<bool(const SearchResult&)>& is_worth_it,
    const std::function<void(SearchResult&)>& add = [](SearchResult&) {});

/// Whether memory alone kept a search from plans that are faster than the `step` that it found, by what is worth a
/// suggestion, and expandable segments may give room to one.
bool may_gain_by_segments(const Space& space, const Cluster& cluster, Attempt& attempt, Seconds step);

/// A better answer than `without` with expandable segments; nothing: they give none. Where the fastest plan is asked
/// for and memory keeps the search from it, one that takes at least 5 % less: so more memory never makes an answer
/// slower by that much, because what fits by the setting alone on a smaller GPU would fit here, too. Where nothing
/// fits, a plan that lacks clearly less; where the least memory is asked for, one that needs less. `price`: what the
/// setting would bring, where that was searched.
Result<std::optional<SearchResult>> better_with_segments(const ModelSpec& spec, const Workload& workload,
                                                         const Cluster& cluster, const Space& space, Attempt& attempt,
                                                         const SearchResult& without, const SearchOptions& options,
                                                         std::optional<Remedy>& price);

}  // namespace fsdp::planner
