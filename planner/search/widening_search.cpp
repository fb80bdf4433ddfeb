// A search for the fastest plan starts in the usual space. Whether anything fits is a question of memory alone, about
// the whole space. It is answered as soon as one plan fits. Near the edge, thousands of plans may fit by their live
// bytes and still not fit; then it predicts the few that might be the smallest. So a search that has not found the
// fastest plan soon waits for that answer before it goes on, and one that found nothing searches the whole space.
//
// At the limit of work, the answer is the best plan found that fits, even if it may not be the fastest. If none was
// found, we leave it open whether there is one.
//
// A caller with an alternative, such as expandable segments, can end the search early. Nothing is lost: the search
// resumes where it stopped. Near the edge of memory, hundreds of predicted plans do not fit, each slower than the one
// before. Once the next one is slower than the alternative, the alternative is the answer.

#include "planner/search/widening_search.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

#include "core/frameworks/check_plan.h"
#include "core/plan/plan.h"
#include "planner/search/predictors.h"

namespace fsdp::planner {

namespace {

/// `num_over_budget`: plans removed from the space because they need too much host memory.
Proof proof_of(const BranchAndBound& search, const LevelCounts& counts, const CostModel& cost,
               std::int64_t num_over_budget) {
  Proof proof;
  proof.space = counts.space + num_over_budget;
  proof.evaluated = counts.evaluated;
  proof.optimality_gap = search.gap();
  proof.stopped_early = search.gap() > 0 || search.is_spent();
  proof.is_proven = search.num_broken_bounds() == 0;
  const auto add = [&](std::string_view verdict, const std::vector<std::int64_t>& by_level) {
    for (std::size_t level = 0; level < by_level.size(); ++level) {
      if (by_level[level] == 0) continue;
      // Two levels may bound the same quantity.
      std::string reason = fmt::format("{}, by {}", verdict, cost.level_name(static_cast<int>(level)));
      if (proof.ruled_out.empty() || proof.ruled_out.back().reason != reason) {
        proof.ruled_out.push_back({std::move(reason), 0});
      }
      proof.ruled_out.back().plans += by_level[level];
    }
  };
  if (num_over_budget > 0) proof.ruled_out.push_back({"too large, by host memory", num_over_budget});
  add("too large", counts.too_large);
  add("not better", counts.too_slow);
  return proof;
}

}  // namespace

bool is_stopped(const SearchOptions& options) {
  return options.should_stop && options.should_stop();
}

bool has_spent(const SearchOptions& options) {
  return options.has_spent && options.has_spent();
}

KnownPredictions* known_to(const SearchOptions& options) {
  return options.predictors ? &options.predictors->known() : nullptr;
}

BranchAndBound::OnProgress teller(const SearchOptions& options, SearchStage stage, const Families& families) {
  if (!options.on_progress) return {};
  return [&options, stage, space = families.size()](std::int64_t looked_at, double at_least) {
    SearchProgress progress{.stage = stage, .space = space, .looked_at = looked_at};
    if (stage == SearchStage::Fastest && at_least > 0) progress.at_least = Seconds(at_least * 1e-9);
    if (stage == SearchStage::Smallest && at_least > 0) progress.needs = Bytes(static_cast<std::int64_t>(at_least));
    options.on_progress(progress);
  };
}

Result<Families> families_for(const Space& space, const ModelIndex& index, const Cluster& cluster) {
  FSDP_TRY(Families families, families_of(space, *index.model, cluster));
  // A plan's validity depends on its units alone, so we check one plan for each way of wrapping.
  Errors errors;
  std::vector<bool> is_valid;
  for (std::size_t w = 0; w < families.wrappings.size(); ++w) {
    const auto family = std::find_if(families.families.begin(), families.families.end(), [&](const Family& candidate) {
      return candidate.wrapping == static_cast<int>(w);
    });
    is_valid.push_back(false);
    if (family == families.families.end()) continue;
    const PlanPoint plan_point{static_cast<int>(family - families.families.begin()), family->kept.front(),
                               family->checkpointed.front()};
    Errors found = check(plan_of(space.base, families, plan_point), index);
    is_valid.back() = found.empty();
    if (errors.empty()) errors = std::move(found);
  }
  std::erase_if(families.families, [&](const Family& family) { return !is_valid[family.wrapping]; });
  if (families.families.empty()) return tl::unexpected(std::move(errors));
  return families;
}

FamilySearch::FamilySearch(const Space& space, Families all, const PredictorOf& predictor_of,
                           const SearchOptions& options)
    : families(std::move(all)),
      limit(split_by_host(space.base, families, predictor_of)),
      cost(space.base, limit.within, predictor_of, space.room, known_to(options)),
      memory(cost),
      per_sample(cost, limit.within),
      is_per_sample(space.objective == SearchObjective::Tokens),
      fastest(timed(), Objective::Time) {
  fastest.on_progress(teller(options, SearchStage::Fastest, limit.within));
  fastest.stop_when(options.should_stop);
  fastest.settle_when(options.has_spent);
}

void FamilySearch::find_smallest(Bytes budget, const SearchOptions& options) {
  smallest.emplace(memory, Objective::Memory);
  smallest->on_progress(teller(options, SearchStage::Smallest, limit.within));
  smallest->stop_when(options.should_stop);
  smallest->settle_when(options.has_spent);
  std::optional<EvaluatedPoint> least = smallest->next(std::numeric_limits<std::int64_t>::max());
  if (smallest->is_spent()) {
    memory.probe_by_live_bytes([&] { return is_stopped(options) || memory.smallest(); });
    least = memory.smallest();
  }
  if (!least || least->cost.memory > budget.count()) return;
  smallest->evaluate_up_to(least->cost.memory);
  for (EvaluatedPoint& point : smallest->evaluated()) {
    if (point.cost.memory > least->cost.memory) continue;
    point.cost.time = cost.bound(point.point, static_cast<int>(CostLevel::Time)).time;
    if (!fitting || point.cost.time < fitting->cost.time) fitting = point;
  }
  if (fitting) return;
  fitting = least;
  fitting->cost.time = cost.bound(least->point, static_cast<int>(CostLevel::Time)).time;
}

std::optional<bool> FamilySearch::has_fitting(Bytes budget, const SearchOptions& options, std::int64_t most) {
  if (!smallest) {
    memory.probe(budget);
    if (memory.least() <= budget) return true;
    smallest.emplace(memory, Objective::Memory);
    smallest->on_progress(teller(options, SearchStage::Smallest, limit.within));
  }
  const auto is_beyond = [&] { return most > 0 && memory.num_predicted() >= most; };
  const auto fits_none = [&] { return smallest->at_least() > static_cast<double>(budget.count()); };
  smallest->stop_when([&] { return is_stopped(options) || memory.least() <= budget || fits_none() || is_beyond(); });
  smallest->settle_when(options.has_spent);
  const bool is_done = smallest->next(std::numeric_limits<std::int64_t>::max()).has_value();
  if (memory.least() <= budget) {
    smallest.reset();
    return true;
  }
  if (fits_none()) return false;
  if ((is_beyond() && !is_done) || smallest->is_spent()) return std::nullopt;
  return false;
}

Result<std::optional<bool>> fits_somewhere(const Space& space, const ModelIndex& index, const Cluster& cluster,
                                           const PredictorOf& predictor_of, const SearchOptions& options,
                                           std::int64_t most) {
  FSDP_TRY(Families families, families_for(whole(space), index, cluster));
  FamilySearch family_search(space, std::move(families), predictor_of, options);
  if (family_search.limit.within.families.empty()) return std::optional(false);
  return family_search.has_fitting(budget_of(cluster), options, most);
}

Proof FamilySearch::proof() const {
  if (!smallest) {
    Proof proof = proof_of(fastest, fastest.counts(), cost, limit.num_over_budget());
    proof.optimality_gap = gap.value_or(proof.optimality_gap);
    proof.stopped_early = proof.stopped_early || gap;
    return proof;
  }
  LevelCounts counts = smallest->counts();
  // If the smallest of them does not fit, all plans that need more are too large.
  if (!fitting) {
    for (std::size_t level = 0; level < counts.too_large.size(); ++level) {
      counts.too_large[level] += std::exchange(counts.too_slow[level], 0);
    }
  }
  return proof_of(*smallest, counts, memory, limit.num_over_budget());
}

WideningSearch::WideningSearch(const Space& space, const ModelIndex& index, const Cluster& cluster,
                               PredictorOf predictor_of, const SearchOptions& options, std::int64_t most)
    : space_(&space),
      index_(&index),
      cluster_(&cluster),
      predictor_of_(std::move(predictor_of)),
      options_(&options),
      budget_(budget_of(cluster)),
      most_(most) {}

Result<WideningSearch> WideningSearch::make(const Space& space, const ModelIndex& index, const Cluster& cluster,
                                            PredictorOf predictor_of, const SearchOptions& options, std::int64_t most) {
  WideningSearch widening_search(space, index, cluster, std::move(predictor_of), options, most);
  const bool is_of_memory = space.objective == SearchObjective::Memory;
  FSDP_TRY(Families families, families_for(is_of_memory ? whole(space) : space, index, cluster));
  std::unique_ptr<FamilySearch>& first = is_of_memory ? widening_search.wide_ : widening_search.usual_;
  // More saved tensors need more memory, so only the first way to checkpoint can be the smallest.
  if (is_of_memory) {
    for (Family& family : families.families) family.ways.resize(1);
  }
  first = std::make_unique<FamilySearch>(space, std::move(families), widening_search.predictor_of_, options);
  widening_search.answer_ = first.get();
  return widening_search;
}

void WideningSearch::start() {
  constexpr std::int64_t kBoundsBeforeOtherWay = 300;
  if (!usual_) return;
  usual_->fastest.pause_after(kBoundsBeforeOtherWay);
  usual_->find_fastest(*space_, budget_);
}

Result<void> WideningSearch::search(std::optional<Seconds> other_way) {
  if (!usual_) {
    if (!wide_->limit.within.families.empty()) wide_->find_smallest(budget_, *options_);
    return {};
  }
  search_usual(other_way);
  if (usual_->fitting || is_stopped(*options_)) return {};
  if (usual_->fastest.is_spent()) is_paused_ = true;
  FSDP_TRY(Families all, families_for(whole(*space_), *index_, *cluster_));
  is_all_ = all.families == usual_->families.families;
  if (is_all_ && !is_paused_) return {};
  wide_ = std::make_unique<FamilySearch>(*space_, std::move(all), predictor_of_, *options_);
  if (is_open_) return {};
  answer_ = wide_.get();
  ask(most_);
  return {};
}

// Most searches end before either of the pauses.
void WideningSearch::search_usual(std::optional<Seconds> other_way) {
  constexpr std::int64_t kBoundsBeforeAsking = 1000;
  BranchAndBound& fastest = usual_->fastest;
  if (!fastest.is_paused()) return;
  if (other_way) fastest.pause_at(other_way->count() * 1e9);
  fastest.pause_after(kBoundsBeforeAsking);
  usual_->find_fastest(*space_, budget_);
  is_open_ = fastest.is_paused_at_least();
  is_paused_ = fastest.is_paused();
}

std::optional<Seconds> WideningSearch::slower_than() const {
  if (!is_open_ || !answer_->fastest.is_paused_at_least()) return std::nullopt;
  return Seconds(answer_->fastest.at_least() * 1e-9);
}

void WideningSearch::ask(std::int64_t most) {
  // Plans that need more host memory than a node has may fit the device, too; we look at them in their turn.
  const bool is_by_memory_alone = wide_->limit.over_budget.empty();
  if (space_->room == Room::None) fits_ = true;  // A caller that asks for a plan without room knows that one runs.
  if (is_by_memory_alone && !fits_) fits_ = wide_->has_fitting(budget_, *options_, most);
  is_open_ = is_by_memory_alone && !fits_;
  if (!is_open_ && fits_.value_or(true)) find_fastest(most > 0);
}

void WideningSearch::go_on() {
  if (!fits_) answer_ = wide_.get();
  ask(0);
}

void WideningSearch::find_fastest(bool may_pause) {
  for (FamilySearch* family_search : {usual_.get(), wide_.get()}) {
    const bool is_usual = family_search == usual_.get();
    if (is_usual ? !is_paused_ : is_all_) continue;
    answer_ = family_search;
    if (may_pause) family_search->fastest.pause_after(space_->max_predictions);
    if (!may_pause) family_search->fastest.pause_at(std::nullopt);
    family_search->find_fastest(*space_, budget_);
    is_open_ = !family_search->fitting && (family_search->fastest.is_paused() || family_search->fastest.is_spent());
    if (family_search->fitting || is_stopped(*options_)) return;
    if (family_search->fastest.is_spent()) return settle();
    if (is_open_) return;
    if (is_usual) is_paused_ = false;
  }
}

void WideningSearch::settle() {
  if (!fits_.value_or(false) || !wide_->memory.smallest() || wide_->memory.least() > budget_) return;
  EvaluatedPoint point = *wide_->memory.smallest();
  CostModel& timed = wide_->timed();
  point.cost.time = timed.bound(point.point, static_cast<int>(CostLevel::Time)).time;
  wide_->gap = std::max(0., point.cost.time / std::max(answer_->fastest.at_least(), 1e-300) - 1);
  wide_->fitting = point;
  answer_ = wide_.get();
  is_open_ = false;
}

}  // namespace fsdp::planner
