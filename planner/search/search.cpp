// Finds the best plan for a model, a cluster and a space, with its proof.
//
// The space is a list of families (planner/space/families.h). Each family is a box of the branch and bound
// (planner/search/branch_and_bound.h), and the predictor prices the boxes that remain
// (planner/search/predicted_cost.h).
//
// A table of stages decides where a search looks and which answer wins (planner/search/search_stages.cpp). If the
// memory of a node is known, families that need more leave the space first (planner/search/host_limit.h). Among plans
// that count as equally fast, we name the one that needs least (planner/search/ties.h). If none fits, we name the one
// that lacks least (planner/search/closest_plan.cpp).

#include "planner/search/search.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "planner/search/expandable_segments.h"
#include "planner/search/prepared_space.h"
#include "planner/search/search_stages.h"
#include "planner/search/searched_space.h"
#include "planner/search/widening_search.h"

namespace fsdp::planner {

namespace {

const Stage* next_stage(SearchedSpace& searched) {
  while (searched.num_stages < search_stages().size()) {
    const Stage& stage = search_stages()[searched.num_stages++];
    if (!searched.answer || stage.competes) return &stage;
  }
  return nullptr;
}

std::unique_ptr<SearchedSpace> begin(const SearchTask& task, const SearchOptions& options, NextSpace next,
                                     PreparedSpace prepared) {
  std::optional<Space> wider = expanded(prepared.space, task.cluster);
  return std::unique_ptr<SearchedSpace>(new SearchedSpace{.task = task,
                                                          .options = options,
                                                          .space = std::move(next.space),
                                                          .prepared = std::move(prepared),
                                                          .wider = std::move(wider),
                                                          .added_settings = std::move(next.added_settings)});
}

/// The next space of a stage that has started; nullptr if the stage is done.
Result<std::unique_ptr<SearchedSpace>> take_turn(const Stage& stage, SearchedSpace& searched) {
  if (stage.step != nullptr) {
    if (is_stopped(searched.options)) return stopped();
    if (auto done = stage.step(searched); !done) return tl::unexpected(std::move(done).error());
    return nullptr;
  }
  FSDP_TRY(std::optional<NextSpace> next, stage.next(searched));
  if (!next) return nullptr;
  if (next->added_settings.empty()) next->added_settings = searched.added_settings;
  const SearchTask& task = searched.task;
  FSDP_TRY(PreparedSpace prepared,
           prepare(task.spec, task.workload, task.cluster, next->space, task.looking.predictors));
  return begin(task, stage.is_quiet ? task.quiet : searched.options, *std::move(next), std::move(prepared));
}

/// Passes the result of a stage to the space in which it began.
void compare(SearchedSpace& from, std::unique_ptr<SearchedSpace> found) {
  const Stage& stage = search_stages()[from.num_stages - 1];
  if (!stage.is_better(from, *found)) return;
  if (stage.add_note != nullptr) stage.add_note(from, *found);
  from.answer = std::move(found);
}

}  // namespace

Result<FoundPlan> find_by_stages(const ModelSpec& spec, const Workload& workload, const Cluster& cluster,
                                 const Space& space, const SearchOptions& options) {
  if (Errors errors = simulator::check_rank(options.rank.value_or(0), cluster); !errors.empty()) {
    return tl::unexpected(std::move(errors));
  }
  FSDP_TRY(PreparedSpace prepared, prepare(spec, workload, cluster, space, options.predictors));
  auto task = std::make_unique<SearchTask>(spec, workload, cluster, space, options, prepared.predictors);
  std::vector<std::unique_ptr<SearchedSpace>> waiting;
  waiting.push_back(begin(*task, task->looking, {space}, std::move(prepared)));
  while (true) {
    SearchedSpace& searched = *waiting.back();
    if (const Stage* stage = next_stage(searched)) {
      FSDP_TRY(auto next, take_turn(*stage, searched));
      if (next) waiting.push_back(std::move(next));
      continue;
    }
    if (!searched.answer) {
      if (auto done = finish(searched); !done) return tl::unexpected(std::move(done).error());
    }
    std::unique_ptr<SearchedSpace> found = std::move(searched.answer ? searched.answer : waiting.back());
    waiting.pop_back();
    if (waiting.empty()) return FoundPlan{std::move(task), std::move(found)};
    compare(*waiting.back(), std::move(found));
  }
}

Result<std::optional<bool>> has_fitting_plan(const ModelSpec& spec, const Workload& workload, const Cluster& cluster,
                                             const Space& space, const SearchOptions& options) {
  FSDP_TRY(const PreparedSpace prepared, prepare(spec, workload, cluster, space, options.predictors));
  const SearchOptions looking = while_looking(options, prepared.predictors);
  FSDP_TRY(auto fits, fits_somewhere(prepared.space, prepared.index(), cluster, prepared.predictor_of(), looking));
  if (const auto wider = expanded(prepared.space, cluster); wider && !fits.value_or(false) && !is_stopped(looking)) {
    FSDP_TRY(const auto with, fits_somewhere(*wider, prepared.index(), cluster, prepared.predictor_of(), looking));
    // A question that is open without them stays open if they do not help.
    if (!with || *with || fits) fits = with;
  }
  if (!fits.value_or(false) && is_stopped(looking)) return stopped();
  return fits;
}

Result<SearchResult> find_plan(const ModelSpec& spec, const Workload& workload, const Cluster& cluster,
                               const Space& space, const SearchOptions& options) {
  FSDP_TRY(FoundPlan found, find_by_stages(spec, workload, cluster, space, options));
  return std::move(found.searched->result);
}

}  // namespace fsdp::planner
