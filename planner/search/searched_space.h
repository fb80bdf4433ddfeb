#pragma once

// One space that a search visits, and its knowledge of it so far.

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/base/units.h"
#include "core/cluster/cluster.h"
#include "core/report/report.h"
#include "core/spec/model_spec.h"
#include "planner/search/closest_plan.h"
#include "planner/search/prepared_space.h"
#include "planner/search/search.h"
#include "planner/search/widening_search.h"
#include "planner/space/space.h"

namespace fsdp::planner {

/// The options of all searches on these predictors, with the limit of their work.
/// REQUIRES: `options` outlive it.
SearchOptions while_looking(const SearchOptions& options, std::shared_ptr<Predictors> predictors);

/// The task of a search, for all spaces that it visits.
struct SearchTask {
  const ModelSpec& spec;
  const Workload& workload;
  const Cluster& cluster;
  const Space& space;
  const SearchOptions& options;
  SearchOptions looking;  ///< `options` with the predictors, and with the limit of work as a function.
  SearchOptions quiet;    ///< The same without a listener.

  /// REQUIRES: the references outlive this object.
  SearchTask(const ModelSpec& its_spec, const Workload& its_workload, const Cluster& its_cluster,
             const Space& its_space, const SearchOptions& its_options, std::shared_ptr<Predictors> predictors);
};

struct SearchedSpace {
  const SearchTask& task;
  const SearchOptions& options;  ///< `looking` or `quiet` of `task`.
  Space space;                   ///< As the stage, or the caller, requested it.
  PreparedSpace prepared;        ///< Made from `space`.
  std::optional<Space> wider;    ///< `prepared.space` with expandable segments, if the search may use them.
  /// Settings of the allocator that the space adds to the requested ones; a suggestion has to request them.
  std::string added_settings;

  std::optional<WideningSearch> widening_search = {};
  std::optional<Seconds> other_way = {};  ///< The step time from which on another space has the better plan.
  ClosestPlan closest = {};
  FoundPoint found = {};
  SearchResult result = {};                   ///< `best`, `proof` and `notes`; with Room::None also `report`.
  std::vector<std::string> assumptions = {};  ///< For the report.
  std::optional<Remedy> with_segments = {};   ///< The effect of expandable segments, if they were searched.

  std::size_t num_stages = 0;                  ///< Stages that have run.
  std::unique_ptr<SearchedSpace> answer = {};  ///< The space that a stage searched, if it has the better plan.

  /// REQUIRES: the first stages have run.
  FamilySearch& family_search() { return widening_search->answer(); }
  bool fits() { return family_search().fitting.has_value(); }
};

/// The steps of a search within a space, in order. Errors: those of families_for, and of predictions.
Result<void> start(SearchedSpace& searched);
Result<void> search_space(SearchedSpace& searched);
Result<void> go_on(SearchedSpace& searched);
Result<void> find_closest(SearchedSpace& searched);
Result<void> compare_ties(SearchedSpace& searched);
Result<void> describe_best(SearchedSpace& searched);
/// Runs after all stages. Errors: those of a prediction.
Result<void> finish(SearchedSpace& searched);

/// The prediction of the best plan. Errors: those of a prediction.
Result<StepReport> report_of(const SearchedSpace& searched);

tl::unexpected<Errors> stopped();

}  // namespace fsdp::planner
