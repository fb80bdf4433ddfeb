#include "planner/expandable_segments.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "core/base/parse_units.h"
#include "core/plan/torch_version.h"
#include "planner/objective.h"
#include "planner/predicted_cost.h"
#include "planner/remedy_kind.h"
#include "planner/trainers.h"
#include "text/figures.h"

namespace fsdp::planner {

namespace {

/// Whether a plan was ruled out for its memory alone that takes by this part of the step less than the one that was
/// found.
bool has_faster_that_is_too_large(Attempt& attempt, Seconds step, double part) {
  return std::ranges::any_of(attempt.too_large(), [&](const EvaluatedPoint& point) {
    const Choice choice = attempt.cost.choice_of(point.point);
    return attempt.cost.outcome_up_to(choice, Bytes(0)).step < (1 - part) * step;
  });
}

}  // namespace

std::optional<Space> expanded(const Space& space, const Cluster& cluster) {
  const bool is_default = space.base.runtime.allocator_settings.empty();
  if (!space.may_expand_segments || !is_default || cluster.gpu.compute_capability == 0) return std::nullopt;
  Space wider = space;
  wider.may_expand_segments = false;
  wider.base.runtime.allocator_settings = kExpandableSegments;
  return wider;
}

std::string note_on_segments(Attempts& attempts, const Runtime& runtime) {
  if (const std::optional<Seconds> step = attempts.slower_than()) {
    return fmt::format("Set {}: a step takes at least {} without it.", allocator_environment(runtime),
                       format_time(*step));
  }
  const Proof proof = attempts.answer().proof();
  const bool is_known = proof.is_proven && !proof.stopped_early && !attempts.is_open();
  const std::string_view without = attempts.fits() ? "The search did not come to its end"
                                   : is_known      ? "No plan fits"
                                                   : "No plan was found that fits";
  return fmt::format("{} without expandable segments: set {}, as the plan says.", without,
                     allocator_environment(runtime));
}

bool may_gain_by_segments(const Space& space, const Cluster& cluster, Attempt& attempt, Seconds step) {
  return expanded(space, cluster) && has_faster_that_is_too_large(attempt, step, kLeastSavedTime);
}

Result<std::optional<SearchResult>> search_if(const ModelSpec& spec, const Workload& workload, const Cluster& cluster,
                                              const Space& space, const SearchOptions& options,
                                              const std::function<bool(const SearchResult&)>& is_worth_it,
                                              const std::function<void(SearchResult&)>& add) {
  bool goes_on = true;
  SearchOptions told = options;
  told.should_stop = [&] { return !goes_on || is_stopped(options); };
  told.on_best = [&](const SearchResult& result) {
    goes_on = is_worth_it(result);
    if (!goes_on || !options.on_best) return;
    SearchResult best = result;
    add(best);
    options.on_best(best);
  };
  Result<SearchResult> result = search(spec, workload, cluster, space, told);
  if (options.only_plan && result) goes_on = is_worth_it(*result);
  if (!goes_on) return std::optional<SearchResult>();
  if (result) add(*result);
  return std::move(result).map([](SearchResult&& found) { return std::optional(std::move(found)); });
}

namespace {

Result<std::optional<SearchResult>> faster_with_segments(const ModelSpec& spec, const Workload& workload,
                                                         const Cluster& cluster, const Space& space, Attempt& attempt,
                                                         const SearchResult& without, const SearchOptions& options,
                                                         std::optional<Remedy>& price) {
  const std::optional<Space> wider = expanded(space, cluster);
  const Seconds step = without.best.step;
  if (!wider || !has_faster_that_is_too_large(attempt, step, kWorthASetting)) return std::optional<SearchResult>();
  const auto is_worth_it = [&](const SearchResult& result) {
    if (result.verdict == Verdict::Fits) {
      price = Remedy{.what = "use expandable segments",
                     .change = {.allocator_settings = std::string(kExpandableSegments)},
                     .is_searched = true,
                     .delta_bytes = result.best.device_peak - without.best.device_peak,
                     .delta_time = result.best.step - step,
                     .verdict = result.verdict};
    }
    return result.verdict == Verdict::Fits && result.best.step < (1 - kWorthASetting) * step;
  };
  const auto add_note = [&](SearchResult& result) {
    result.notes.insert(
        result.notes.begin(),
        fmt::format("Set {}: {} a step without it.", allocator_environment(wider->base.runtime), format_time(step)));
  };
  // A suggestion without the setting is searched as this was, and finds it by itself.
  return search_if(spec, workload, cluster, *wider, typed_as(space, options), is_worth_it, add_note);
}

Result<std::optional<SearchResult>> nearer_with_segments(const ModelSpec& spec, const Workload& workload,
                                                         const Cluster& cluster, const Space& space,
                                                         const SearchResult& without, const SearchOptions& options) {
  constexpr std::int64_t kParts = 20;  // Where nothing fits it must save one part in so many.
  const std::optional<Space> wider = expanded(space, cluster);
  if (!wider) return std::optional<SearchResult>();
  const bool fits = without.verdict == Verdict::Fits;
  const auto needs = [&](const SearchResult& result) {
    return fits ? result.best.device_peak : budget_of(cluster) + result.best.missing;
  };
  const auto is_worth_it = [&](const SearchResult& result) {
    const Bytes saved = needs(without) - needs(result);
    const bool is_enough = fits ? saved > Bytes(0) : kParts * saved > needs(without);
    return (result.verdict == Verdict::Fits) == fits && is_enough;
  };
  const auto add_both = [&](SearchResult& result) {
    result.proof.is_proven = result.proof.is_proven && without.proof.is_proven;
    result.proof.stopped_early = result.proof.stopped_early || without.proof.stopped_early;
    if (result.proof.doubt.empty() && !without.proof.doubt.empty()) {
      result.proof.doubt = without.proof.doubt;
      result.notes.push_back(without.proof.doubt);
    }
    result.report.assumptions.push_back(
        fmt::format("Without expandable segments the smallest needs {}.", format_bytes(without.best.device_peak)));
  };
  SearchOptions told = options;
  told.typed = &space;
  return search_if(spec, workload, cluster, *wider, told, is_worth_it, add_both);
}

}  // namespace

Result<std::optional<SearchResult>> better_with_segments(const ModelSpec& spec, const Workload& workload,
                                                         const Cluster& cluster, const Space& space, Attempt& attempt,
                                                         const SearchResult& without, const SearchOptions& options,
                                                         std::optional<Remedy>& price) {
  const bool is_fastest = without.verdict == Verdict::Fits && space.objective == SearchObjective::Time;
  if (is_fastest) return faster_with_segments(spec, workload, cluster, space, attempt, without, options, price);
  const bool is_of_tokens = without.verdict == Verdict::Fits && space.objective == SearchObjective::Tokens;
  if (is_of_tokens) return std::optional<SearchResult>();
  return nearer_with_segments(spec, workload, cluster, space, without, options);
}

}  // namespace fsdp::planner
