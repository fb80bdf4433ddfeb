// A search asks the questions of a table, in its order. Each row is either a step within a space, or names another
// space that may have a better plan. The same table then searches that space. The waiting spaces form a stack; each has
// one dimension less to change, so the stack has at most four of them.
//
// Usual values first. "No plan fits" is an answer of the whole space alone (planner/space/space.h): if nothing of the
// usual values fits, every j and k and every way of wrapping is searched (planner/search/widening_search.h). If the
// usual values fit by CPU offload alone, the whole space is searched without it: smaller units may be three times as
// fast.
//
// Expandable segments are a setting of PyTorch's allocator, and not among the usual values. We name the setting if a
// plan needs it, or if memory excludes the fastest plans and one is clearly faster with it. Near the edge of memory it
// takes thousands of predictions to know what fits without them, and few to find a plan that fits with them and is
// faster. So a search that is not over soon finds the fastest plan with them first, and ends if all that is left is
// slower than that by more than such a setting has to save. If nothing fits with them either, the smaller plan of both
// is named, and the one with the setting only if it saves a twentieth.
//
// A plan without room to spare may run (core/report/device_verdict.h). If no plan has room, we search for the fastest
// that runs: the limit is the memory in which a plan can run instead of the memory that it takes, and the time includes
// the return of the cache. If that plan returns its cache, we try expandable segments for it, too.

#include "planner/search/search_stages.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "core/base/parse_units.h"
#include "core/plan/torch_version.h"
#include "planner/search/expandable_segments.h"
#include "planner/search/predicted_cost.h"
#include "planner/search/widening_search.h"
#include "planner/trainers/trainers.h"
#include "text/figures.h"

namespace fsdp::planner {

namespace {

using simulator::Detail;
using Next = Result<std::optional<NextSpace>>;

Next none() {
  return std::optional<NextSpace>();
}

/// True if some plan of the whole of `space` fits. Errors: stopped, and those of families_for.
Result<bool> has_fitting(const SearchedSpace& from, const Space& space, std::int64_t most = 0) {
  const PreparedSpace& prepared = from.prepared;
  FSDP_TRY(const auto fits,
           fits_somewhere(space, prepared.index(), from.task.cluster, prepared.predictor_of(), from.options, most));
  if (is_stopped(from.options)) return stopped();
  return fits.value_or(false);
}

bool fits(const SearchedSpace& found) {
  return found.result.verdict == Verdict::Fits;
}

/// Finding the fastest plan twice takes work, and a search with less than its usual share needs it for its own.
Next race_segments(SearchedSpace& from) {
  const std::int64_t work = from.task.options.most_work;
  const bool has_all_work = work == 0 || work >= kMostWork;
  const bool is_asked = from.wider && has_all_work && from.space.objective == SearchObjective::Time;
  if (!is_asked || !from.widening_search->is_long()) return none();
  FSDP_TRY(const bool is_worth_it, has_fitting(from, *from.wider));
  return is_worth_it ? Next(NextSpace{*from.wider}) : none();
}

bool sets_the_pace(SearchedSpace& from, const SearchedSpace& found) {
  if (fits(found)) from.other_way = found.result.best.step / (1 - kWorthASetting);
  return false;
}

Next with_segments_if_none_fits(SearchedSpace& from) {
  if (from.fits() || !from.wider) return none();
  FSDP_TRY(const bool is_worth_it, has_fitting(from, *from.wider));
  if (!is_worth_it) return none();
  // If they ended a search early, a later search for a suggestion without them finds them again.
  const bool are_found_again = from.widening_search->slower_than().has_value();
  return NextSpace{*from.wider, std::string(are_found_again ? "" : kExpandableSegments)};
}

bool does_fit(SearchedSpace& /*from*/, const SearchedSpace& found) {
  return fits(found);
}

void add_note_on_segments(SearchedSpace& from, SearchedSpace& found) {
  std::vector<std::string>& notes = found.result.notes;
  notes.insert(notes.begin(), note_on_segments(*from.widening_search, from.wider->base.runtime));
}

Next without_offload(SearchedSpace& from) {
  constexpr std::int64_t kMost = 200;
  if (!from.fits() || from.space.cpu_offload || from.space.objective != SearchObjective::Time) return none();
  FamilySearch& family_search = from.family_search();
  const PlanPoint plan_point = family_search.cost.plan_point_of(family_search.fitting->point);
  if (!family_search.limit.within.families[static_cast<std::size_t>(plan_point.family)].cpu_offload) return none();
  Space on_devices = from.prepared.space;
  on_devices.cpu_offload = false;
  FSDP_TRY(const bool is_worth_it, has_fitting(from, on_devices, kMost));
  return is_worth_it ? Next(NextSpace{std::move(on_devices)}) : none();
}

bool is_faster(SearchedSpace& from, const SearchedSpace& found) {
  FamilySearch& family_search = from.family_search();
  const PlanPoint plan_point = family_search.cost.plan_point_of(family_search.fitting->point);
  return fits(found) && found.result.best.step < family_search.cost.outcome(plan_point, Detail::Time).step;
}

/// Plans of a space without room to spare, if one of the smallest of its families runs. We predict a limited number of
/// those with the least live bytes.
Next without_room(const SearchedSpace& from, Space space, std::string settings) {
  constexpr std::int64_t kMost = 16;
  constexpr std::int64_t kMostPredictions = 600;
  space.room = Room::None;
  space.may_expand_segments = false;
  if (space.max_predictions > 0) space.max_predictions = std::min(space.max_predictions, kMostPredictions);
  FSDP_TRY(Families families, families_for(whole(space), from.prepared.index(), from.task.cluster));
  FamilySearch family_search(space, std::move(families), from.prepared.predictor_of(), from.options);
  if (family_search.limit.within.families.empty()) return none();
  SmallestCost& memory = family_search.memory;
  const Bytes budget = budget_of(from.task.cluster);
  memory.probe(budget);
  memory.probe_by_live_bytes(
      [&] { return memory.least() <= budget || memory.num_predicted() >= kMost || is_stopped(from.options); });
  if (is_stopped(from.options)) return stopped();
  if (memory.least() > budget) return none();
  return NextSpace{std::move(space), std::move(settings)};
}

Next tight(SearchedSpace& from) {
  if (from.fits() || from.space.room != Room::Either) return none();
  return without_room(from, from.prepared.space, "");
}

Next tight_with_segments(SearchedSpace& from) {
  if (from.fits() || from.space.room != Room::Either || !from.wider) return none();
  const bool is_smooth = from.answer && from.answer->result.report.memory.tightness != Tightness::Flushes;
  return is_smooth ? none() : without_room(from, *from.wider, std::string(kExpandableSegments));
}

/// The time of a step, including the return of the cache.
Seconds tight_step(const SearchResult& result) {
  return result.report.time.step + result.report.memory.flush_time;
}

bool runs_faster(SearchedSpace& from, const SearchedSpace& found) {
  return fits(found) && (!from.answer || tight_step(found.result) <= tight_step(from.answer->result));
}

void add_note_on_room(SearchedSpace& from, SearchedSpace& found) {
  const Proof proof = from.family_search().proof();
  const std::string_view none = proof.is_proven && !proof.stopped_early ? "No plan" : "No plan was found that";
  std::vector<std::string>& notes = found.result.notes;
  notes.insert(notes.begin(), fmt::format("{} has room to spare: this is the fastest that runs.", none));
}

Next faster_with_segments(SearchedSpace& from) {
  const bool is_asked = from.fits() && from.space.objective == SearchObjective::Time;
  std::optional<Space> wider = expanded(from.space, from.task.cluster);
  const bool may_gain =
      is_asked && wider && has_faster_that_is_too_large(from.family_search(), from.result.best.step, kWorthASetting);
  // A suggestion without the setting starts the same search, which finds the setting by itself.
  return may_gain ? Next(NextSpace{*std::move(wider)}) : none();
}

bool is_worth_a_setting(SearchedSpace& from, const SearchedSpace& found) {
  const Candidate& without = from.result.best;
  const Candidate& best = found.result.best;
  if (!fits(found)) return false;
  from.with_segments = Remedy{.what = "use expandable segments",
                              .change = {.allocator_settings = std::string(kExpandableSegments)},
                              .is_searched = true,
                              .delta_bytes = best.device_peak - without.device_peak,
                              .delta_time = best.step - without.step,
                              .verdict = found.result.verdict};
  return best.step < (1 - kWorthASetting) * without.step;
}

void add_time_without(SearchedSpace& from, SearchedSpace& found) {
  std::vector<std::string>& notes = found.result.notes;
  notes.insert(notes.begin(),
               fmt::format("Set {}: {} a step without it.", allocator_environment(found.space.base.runtime),
                           format_time(from.result.best.step)));
}

Next smaller_with_segments(SearchedSpace& from) {
  const bool is_asked = !from.fits() || from.space.objective == SearchObjective::Memory;
  std::optional<Space> wider = expanded(from.space, from.task.cluster);
  return is_asked && wider ? Next(NextSpace{*std::move(wider)}) : none();
}

bool is_smaller(SearchedSpace& from, const SearchedSpace& found) {
  constexpr std::int64_t kParts = 20;  // If nothing fits, the setting must save 1/kParts.
  const Bytes budget = budget_of(from.task.cluster);
  const auto needs = [&](const SearchResult& result) {
    return from.fits() ? result.best.device_peak : budget + result.best.missing;
  };
  const Bytes saved = needs(from.result) - needs(found.result);
  const bool is_enough = from.fits() ? saved > Bytes(0) : kParts * saved > needs(from.result);
  return fits(found) == from.fits() && is_enough;
}

void add_doubt_without(SearchedSpace& from, SearchedSpace& found) {
  const Proof& without = from.result.proof;
  Proof& proof = found.result.proof;
  proof.is_proven = proof.is_proven && without.is_proven;
  proof.stopped_early = proof.stopped_early || without.stopped_early;
  if (proof.doubt.empty() && !without.doubt.empty()) found.result.notes.push_back(proof.doubt = without.doubt);
  found.assumptions.push_back(
      fmt::format("Without expandable segments the smallest needs {}.", format_bytes(from.result.best.device_peak)));
}

constexpr std::array kStages = {
    Stage{.name = "usual values, the first bounds", .question = "always", .step = start},
    Stage{.name = "race with expandable segments",
          .question = "the fastest step is asked for, the search is not over soon, some plan fits with the setting",
          .wins = "nothing: the next stage ends early once all that is left is 5 % slower",
          .next = race_segments,
          .is_better = sets_the_pace,
          .is_quiet = true},
    Stage{.name = "usual values, then the whole space", .question = "always", .step = search_space},
    Stage{.name = "expandable segments",
          .question = "no plan fits so far, some plan fits with the setting",
          .wins = "a plan that fits",
          .next = with_segments_if_none_fits,
          .is_better = does_fit,
          .add_note = add_note_on_segments},
    Stage{.name = "whole space without CPU offload",
          .question = "the fastest plan offloads, nobody asked for that, some plan fits without",
          .wins = "a faster plan",
          .next = without_offload,
          .is_better = is_faster},
    Stage{.name = "rest of the whole space", .question = "it was left open", .step = go_on},
    Stage{.name = "plans without room to spare",
          .question = "no plan has room, such plans are accepted, some plan runs",
          .wins = "a plan that runs",
          .next = tight,
          .is_better = runs_faster,
          .add_note = add_note_on_room},
    Stage{.name = "the same with expandable segments",
          .question = "the plan of the stage before gives back its cache, or there is none, some plan runs",
          .wins = "a plan whose step, with the time to give back the cache, is no longer",
          .next = tight_with_segments,
          .is_better = runs_faster,
          .add_note = add_note_on_room,
          .competes = true},
    Stage{.name = "closest plan", .question = "no plan fits", .step = find_closest},
    Stage{.name = "ties", .question = "a plan fits, and the least memory is not asked for", .step = compare_ties},
    Stage{.name = "notes", .question = "always", .step = describe_best},
    Stage{.name = "faster with expandable segments",
          .question = "the fastest step is asked for, memory alone rules out a plan that is 5 % faster",
          .wins = "a plan that is 5 % faster",
          .next = faster_with_segments,
          .is_better = is_worth_a_setting,
          .add_note = add_time_without},
    Stage{.name = "smaller with expandable segments",
          .question = "no plan fits, or the least memory is asked for",
          .wins = "a plan that needs less; 5 % less if no plan fits",
          .next = smaller_with_segments,
          .is_better = is_smaller,
          .add_note = add_doubt_without},
};

}  // namespace

std::span<const Stage> search_stages() {
  return kStages;
}

std::string describe_stages() {
  std::string table = "| | stage | has its turn if | takes |\n|---|---|---|---|\n";
  int number = 0;
  for (const Stage& stage : kStages) {
    const std::string_view wins = stage.step != nullptr ? "a step in the same space" : stage.wins;
    table += fmt::format("| {} | {} | {} | {} |\n", ++number, stage.name, stage.question, wins);
  }
  return table;
}

}  // namespace fsdp::planner
