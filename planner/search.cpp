// From a model, a cluster and a space to the best plan with its proof.
//
// The space is written out as families (planner/choice.h), each family is a box of the branch and bound
// (planner/branch_and_bound.h), and the predictor prices what is left (planner/predicted_cost.h).
//
// The Pareto front below the best plan is found by the same engine on the same boxes, memory being the lower bound from
// live bytes: there a point needs no full prediction, and no plan has to be tried only because the allocator's part of
// it is unknown. Each further point is the fastest plan of the space whose live bytes are at least one part in
// kParetoStep below those of the point before. It is then predicted in full, and left out when its peak is not lower.
// So the front is exact in live bytes, at that distance; in device memory another plan that fragments less may lie a
// little below it.
//
// Of plans that are as good as equally fast the one that needs least is named (planner/ties.h). Where another plan that
// was predicted on the way needs less than a point of the front and takes no longer, it is the point.
//
// Where the memory of a node is known, families that need more of it are taken out of the space first
// (planner/host_limit.h). When nothing else fits, they are searched all the same, those that need least of it first:
// the fastest plan that the devices can hold says how much a node lacks.
//
// "No plan fits" is said of the whole space alone (planner/space.h): where nothing of the usual values fits, every j
// and k and every way of wrapping is searched, and a plan that fits there is the answer. Whether there is one is asked
// of memory alone, by a search for the plan that needs least: it is over as soon as one fits, and near the edge, where
// thousands of plans may fit by their live bytes and do not, it predicts the few that might be the smallest. When none
// fits it goes on until it has that one. So a search for the fastest that has not found it soon waits for that answer
// before it goes on.
//
// Where the tensors of some plan would fit and the allocator's blocks and segments do not, the same is searched with
// expandable segments, which PyTorch has as a setting of its own. That takes full predictions by the whole allocator
// (simulator/allocator/), so it is not among the usual values; a plan that fits by it alone says so.

#include "planner/search.h"

#include <fmt/core.h>

#include <algorithm>
#include <cassert>
#include <iterator>
#include <limits>
#include <memory>
#include <utility>

#include "core/base/parse_units.h"
#include "core/plan/ddp_buckets.h"
#include "core/plan/torch_version.h"
#include "planner/checkpointed_blocks.h"
#include "planner/choice.h"
#include "planner/explain.h"
#include "planner/host_limit.h"
#include "planner/objective.h"
#include "planner/predicted_cost.h"
#include "planner/predictors.h"
#include "planner/remedies.h"
#include "planner/ties.h"
#include "planner/trainers.h"
#include "planner/upgrade_note.h"
#include "text/figures.h"

namespace fsdp::planner {

namespace {

using simulator::Detail;

Candidate candidate_of(PredictedCost& cost, const Families& families, const Choice& choice) {
  const simulator::Outcome& outcome = cost.outcome(choice, Detail::Device);
  const Bytes budget = budget_of(cost.predictor_of(choice).cluster());
  Candidate candidate;
  candidate.plan = cost.plan_of(choice);
  candidate.label = label_of(families, choice);
  candidate.step = outcome.step;
  candidate.device_peak = outcome.peaks.device;
  candidate.missing = Bytes(std::max<std::int64_t>(0, PredictedCost::needed_bytes(outcome) - budget.count()));
  return candidate;
}

/// `num_beyond`: plans that were taken out of the space for their need of host memory.
Proof proof_of(const BranchAndBound& search, const LevelCounts& counts, const CostModel& cost,
               std::int64_t num_beyond) {
  Proof proof;
  proof.space = counts.space + num_beyond;
  proof.evaluated = counts.evaluated;
  proof.optimality_gap = search.gap();
  proof.stopped_early = search.gap() > 0;
  proof.is_proven = search.num_broken_bounds() == 0;
  const auto add = [&](std::string_view verdict, const std::vector<std::int64_t>& by_level) {
    for (std::size_t level = 0; level < by_level.size(); ++level) {
      if (by_level[level] == 0) continue;
      proof.ruled_out.push_back(
          {fmt::format("{}, by {}", verdict, cost.level_name(static_cast<int>(level))), by_level[level]});
    }
  };
  if (num_beyond > 0) proof.ruled_out.push_back({"too large, by host memory", num_beyond});
  add("too large", counts.too_large);
  add("not better", counts.too_slow);
  return proof;
}

bool is_stopped(const SearchOptions& options) {
  return options.should_stop && options.should_stop();
}

tl::unexpected<Errors> stopped() {
  return failure("", "The search was stopped.", "");
}

/// Tells the listener of a search, if there is one.
void tell(const SearchOptions& options, const SearchProgress& progress) {
  if (options.on_progress) options.on_progress(progress);
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

/// Plans that were predicted and do not fit, the nearest first. Most were predicted no further than was needed to know
/// that; those that are told are predicted in full.
std::vector<Candidate> rejected_of(PredictedCost& cost, const Families& families,
                                   const std::vector<EvaluatedPoint>& points, const Candidate& best, Verdict verdict) {
  struct Entry {
    Choice choice;
    std::int64_t needed = 0;
    bool is_whole = false;
  };
  std::vector<Entry> entries;
  const auto look_up = [&](const Choice& choice, Bytes enough) {
    const simulator::Outcome& outcome = cost.memory_up_to(choice, enough);
    return Entry{choice, PredictedCost::needed_bytes(outcome), outcome.is_whole};
  };
  for (const EvaluatedPoint& point : points) {
    const Choice choice = cost.choice_of(point.point);
    if (verdict == Verdict::Fits && cost.outcome_up_to(choice, Bytes(0)).step > best.step) continue;
    entries.push_back(look_up(choice, Bytes(0)));
  }
  // One more than is told, because the best plan may be among them.
  const std::size_t num_told = std::min(entries.size(), kMostRejected + 1);
  const auto end = entries.begin() + static_cast<std::ptrdiff_t>(num_told);
  while (true) {
    std::stable_sort(entries.begin(), entries.end(),
                     [](const Entry& a, const Entry& b) { return a.needed < b.needed; });
    const auto part = std::find_if(entries.begin(), end, [](const Entry& entry) { return !entry.is_whole; });
    if (part == end) break;
    *part = look_up(part->choice, simulator::kWholePrediction);
  }
  std::vector<Candidate> candidates;
  std::transform(entries.begin(), end, std::back_inserter(candidates),
                 [&](const Entry& entry) { return candidate_of(cost, families, entry.choice); });
  return nearest_rejected(std::move(candidates), best, verdict);
}

/// Puts what was predicted somewhere, needs less and takes no longer in the place of a point, and leaves out what is no
/// point of a front then. `front`: by falling device peak.
std::vector<Candidate> without_dominated(PredictedCost& cost, const Families& families, std::vector<Candidate> front) {
  for (const Choice& choice : cost.predicted()) {
    const simulator::Outcome& outcome = cost.outcome(choice, Detail::Device);
    for (std::size_t i = 1; i < front.size(); ++i) {
      const bool is_no_worse = outcome.peaks.device <= front[i].device_peak && outcome.step <= front[i].step;
      const bool is_better = outcome.peaks.device < front[i].device_peak || outcome.step < front[i].step;
      // The best plan stays: what is as fast counts as equally fast, and was compared.
      if (is_no_worse && is_better && outcome.step > front[0].step) front[i] = candidate_of(cost, families, choice);
    }
  }
  std::vector<Candidate> kept;
  for (Candidate& candidate : front) {
    const bool is_point =
        kept.empty() || (candidate.device_peak < kept.back().device_peak && candidate.step > kept.back().step);
    if (is_point) kept.push_back(std::move(candidate));
  }
  return kept;
}

/// By rising device peak, the best plan last.
std::vector<Candidate> front_of(PredictedCost& cost, const Families& families, const EvaluatedPoint& best,
                                std::int64_t max_points, const SearchOptions& options) {
  if (max_points == 0) return {};
  LiveCost live(cost);
  BranchAndBound search(live, Objective::Time);
  search.on_progress(teller(options, SearchStage::Front, families));
  search.stop_when(options.should_stop);
  std::vector<Candidate> front = {candidate_of(cost, families, cost.choice_of(best.point))};
  std::int64_t memory = live.bound(best.point, live.num_levels() - 1).memory;
  while (static_cast<std::int64_t>(front.size()) < max_points) {
    const auto point = search.next(memory - memory / kParetoStep - 1);
    if (!point) break;
    memory = point->cost.memory;
    Candidate candidate = candidate_of(cost, families, cost.choice_of(point->point));
    // Live bytes are no more than a bound of the peak: a plan that the allocator makes larger is not on the front.
    if (candidate.device_peak >= front.back().device_peak || candidate.step <= front.front().step) continue;
    // What is as fast and smaller takes the place of what is not; the best plan was chosen that way already.
    if (front.size() > 1 && candidate.step <= front.back().step * (1 + kTieShare)) front.pop_back();
    front.push_back(std::move(candidate));
  }
  front = without_dominated(cost, families, std::move(front));
  std::reverse(front.begin(), front.end());
  return front;
}

Result<Families> families_for(const Space& space, const Model& model, const Cluster& cluster) {
  FSDP_TRY(Families families, families_of(space, model, cluster));
  // Whether a plan is valid depends on its units alone, so one plan for each way of wrapping tells.
  Errors errors;
  std::vector<bool> is_valid;
  for (std::size_t w = 0; w < families.wrappings.size(); ++w) {
    const auto family = std::find_if(families.families.begin(), families.families.end(), [&](const Family& candidate) {
      return candidate.wrapping == static_cast<int>(w);
    });
    is_valid.push_back(false);
    if (family == families.families.end()) continue;
    const Choice choice{static_cast<int>(family - families.families.begin()), family->kept.front(),
                        family->checkpointed.front()};
    Errors found = check(plan_of(space.base, families, choice), model);
    is_valid.back() = found.empty();
    if (errors.empty()) errors = std::move(found);
  }
  std::erase_if(families.families, [&](const Family& family) { return !is_valid[family.wrapping]; });
  if (families.families.empty()) return tl::unexpected(std::move(errors));
  return families;
}

/// A search for the fastest plan of a space that fits, with all that it runs on.
struct Attempt {
  /// REQUIRES: all but `all` outlive this object.
  Attempt(const Space& space, Families all, const PredictorOf& predictor_of, const SearchOptions& options)
      : families(std::move(all)),
        limit(split_by_host(space.base, families, predictor_of)),
        cost(space.base, limit.within, predictor_of),
        memory(cost),
        per_sample(cost, limit.within),
        is_per_sample(space.objective == SearchObjective::Tokens),
        fastest(timed(), Objective::Time) {
    fastest.on_progress(teller(options, SearchStage::Fastest, limit.within));
    fastest.stop_when(options.should_stop);
  }

  /// REQUIRES: the same arguments where it goes on after a pause.
  void find_fastest(const Space& space, Bytes budget) { fitting = fastest.next(budget.count(), space.max_predictions); }

  /// What the time of a plan is.
  CostModel& timed() { return is_per_sample ? static_cast<CostModel&>(per_sample) : cost; }

  /// The fastest of those that need least, where they fit; else `smallest` holds the proof, and can go on.
  void find_smallest(Bytes budget, const SearchOptions& options) {
    smallest.emplace(memory, Objective::Memory);
    smallest->on_progress(teller(options, SearchStage::Smallest, limit.within));
    smallest->stop_when(options.should_stop);
    const auto least = smallest->next(std::numeric_limits<std::int64_t>::max());
    if (!least || least->cost.memory > budget.count()) return;
    broken_of_smallest = smallest->num_broken_bounds();
    smallest.reset();
    fitting = fastest.next(least->cost.memory);
  }

  /// Whether some plan fits. Where none does, `smallest` holds the proof, and can go on.
  bool has_fitting(Bytes budget, const SearchOptions& options) {
    memory.probe(budget);
    if (memory.least() <= budget) return true;
    smallest.emplace(memory, Objective::Memory);
    smallest->on_progress(teller(options, SearchStage::Smallest, limit.within));
    smallest->stop_when([&] {
      return is_stopped(options) || memory.least() <= budget ||
             smallest->at_least() > static_cast<double>(budget.count());
    });
    smallest->next(std::numeric_limits<std::int64_t>::max());
    if (memory.least() > budget) return false;
    smallest.reset();
    return true;
  }

  Proof proof() const {
    if (!smallest) return proof_of(fastest, fastest.counts(), cost, limit.num_beyond());
    LevelCounts counts = smallest->counts();
    // The smallest of them does not fit: what needs more than that is too large.
    for (std::size_t level = 0; level < counts.too_large.size(); ++level) {
      counts.too_large[level] += std::exchange(counts.too_slow[level], 0);
    }
    return proof_of(*smallest, counts, memory, limit.num_beyond());
  }

  std::int64_t num_broken_bounds() const {
    return smallest ? smallest->num_broken_bounds() : fastest.num_broken_bounds() + broken_of_smallest;
  }

  /// Plans that were predicted and do not fit.
  std::vector<EvaluatedPoint> too_large() const { return smallest ? smallest->evaluated() : fastest.too_large(); }

  Families families;
  HostLimit limit;
  PredictedCost cost;
  SmallestCost memory;
  PerSampleCost per_sample;
  bool is_per_sample;
  BranchAndBound fastest;
  std::int64_t broken_of_smallest = 0;     ///< Bounds that were wrong when the least memory was looked for.
  std::optional<BranchAndBound> smallest;  ///< Where it has shown that nothing fits.
  std::optional<EvaluatedPoint> fitting;
};

/// In the space as it is asked for; where nothing fits, in the whole of it.
Result<std::unique_ptr<Attempt>> attempt_of(const Space& space, const Model& model, const Cluster& cluster,
                                            const PredictorOf& predictor_of, const SearchOptions& options) {
  const Bytes budget = budget_of(cluster);
  if (space.objective == SearchObjective::Memory) {
    FSDP_TRY(Families all, families_for(whole(space), model, cluster));
    auto attempt = std::make_unique<Attempt>(space, std::move(all), predictor_of, options);
    if (!attempt->limit.within.families.empty()) attempt->find_smallest(budget, options);
    return attempt;
  }
  FSDP_TRY(Families families, families_for(space, model, cluster));
  auto usual = std::make_unique<Attempt>(space, std::move(families), predictor_of, options);
  // Most searches end before that.
  constexpr std::int64_t kBoundsBeforeAsking = 1000;
  usual->fastest.pause_after(kBoundsBeforeAsking);
  usual->find_fastest(space, budget);
  const bool is_undecided = usual->fastest.is_paused();
  if (usual->fitting || is_stopped(options)) return usual;
  FSDP_TRY(Families all, families_for(whole(space), model, cluster));
  const bool is_all = all.families == usual->families.families;
  if (is_all && !is_undecided) return usual;
  auto wide = std::make_unique<Attempt>(space, std::move(all), predictor_of, options);
  const bool has_none = wide->limit.beyond.empty() && !wide->has_fitting(budget, options);
  if (has_none || is_stopped(options)) return wide;
  if (is_undecided) usual->find_fastest(space, budget);
  if (usual->fitting || is_all || is_stopped(options)) return usual;
  wide->find_fastest(space, budget);
  return wide;
}

/// A point, and where it is known.
struct PointFound {
  PredictedCost* cost = nullptr;
  const Families* families = nullptr;
  std::optional<EvaluatedPoint> point;
};

/// What the fastest plan has that the named one has not; empty where that is not worth a line.
std::string refinement_of(PredictedCost& cost, const Families& families, const EvaluatedPoint& named,
                          const EvaluatedPoint& fastest) {
  constexpr double kWorthALine = 0.01;
  const double faster = named.cost.time / fastest.cost.time - 1;
  if (faster < kWorthALine) return "";
  // "without selective checkpoint 2 of 16", or what the fastest plan has.
  const std::string difference = difference_of(families, cost.choice_of(fastest.point), cost.choice_of(named.point));
  const std::string_view with = difference.starts_with("without ") ? "" : "with ";
  return fmt::format("{:.1f} % faster {}{}: {} more", faster * 100, with, difference,
                     format_bytes(Bytes(std::max<std::int64_t>(0, fastest.cost.memory - named.cost.memory))));
}

/// Looks for what to tell when no plan fits.
class OutsideOfLimit {
 public:
  /// The fastest plan that only lacks host memory, as little of it as can be; else the one that needs least of the
  /// devices. Nothing when it was stopped. REQUIRES: the arguments outlive this object.
  PointFound look(const Space& space, Attempt& attempt, const PredictorOf& predictor_of, const SearchOptions& options) {
    const HostLimit& limit = attempt.limit;
    for (const HostLimit::Beyond& beyond : limit.beyond) {
      cost_.emplace(space.base, beyond.families, predictor_of);
      BranchAndBound fastest(*cost_, Objective::Time);
      fastest.stop_when(options.should_stop);
      const std::int64_t budget =
          budget_of(predictor_of(beyond.families.families.front().micro_batch).cluster()).count();
      if (const auto point = fastest.next(budget, space.max_predictions)) return {&*cost_, &beyond.families, point};
      if (is_stopped(options)) return {};
    }
    if (limit.beyond.empty()) {
      if (!attempt.smallest) attempt.smallest.emplace(attempt.memory, Objective::Memory);
      return {&attempt.cost, &limit.within, least_of(*attempt.smallest, attempt.memory, space, limit.within, options)};
    }
    cost_.emplace(space.base, attempt.families, predictor_of);
    SmallestCost memory(*cost_);
    BranchAndBound smallest(memory, Objective::Memory);
    return {&*cost_, &attempt.families, least_of(smallest, memory, space, attempt.families, options)};
  }

 private:
  static std::optional<EvaluatedPoint> least_of(BranchAndBound& smallest, const SmallestCost& memory,
                                                const Space& space, const Families& families,
                                                const SearchOptions& options) {
    smallest.on_progress(teller(options, SearchStage::Smallest, families));
    smallest.stop_when([&] { return is_stopped(options) || is_beyond(memory, space.max_predictions); });
    const auto point = smallest.next(std::numeric_limits<std::int64_t>::max());
    if (point || is_stopped(options)) return point;
    return memory.smallest();
  }

  /// A walk of live bytes costs a small part of a prediction. One point at least is predicted.
  static bool is_beyond(const SmallestCost& memory, std::int64_t most) {
    constexpr std::int64_t kWalksForAPrediction = 4;
    if (most == 0 || memory.num_predicted() == 0) return false;
    return memory.num_predicted() + memory.num_walked() / kWalksForAPrediction >= most;
  }

  std::optional<PredictedCost> cost_;
};

/// What a capture has no recording of is refused before it is searched: every plan of the space would need it.
Result<void> check_recorded(const ModelSpec& spec, const Space& space, const Cluster& cluster, Predictors& predictors) {
  if (spec.captured == nullptr) return {};
  for (const std::int64_t micro_batch : predictors.micro_batches()) {
    simulator::Predictor& predictor = predictors.of(micro_batch);
    Plan plan = space.base;
    plan.mesh = {1, world_size(cluster)};
    plan.units = {Unit{{""}, {}}};
    if (space.checkpoint) checkpoint(plan, predictor.model(), *space.checkpoint);
    if (const auto outcome = predictor.evaluate(plan, simulator::Detail::Time); !outcome) {
      return tl::unexpected(outcome.error());
    }
  }
  return {};
}

/// What a capture keeps the search from.
std::optional<std::string> note_on_checkpointing(const ModelSpec& spec, const Space& space) {
  if (spec.captured == nullptr || space.checkpoint) return std::nullopt;
  if (!space.checkpoint_modes.empty()) {
    return "Selective checkpointing was not searched: a capture has no recording of it.";
  }
  return "Activation checkpointing was not searched: the capture has no recording of it in this precision.";
}

/// What a bound that was wrong keeps from being proven.
std::string note_on_bounds(std::int64_t num_broken) {
  return fmt::format(
      "Not proven: {} turned out to cost less than a lower bound of the search, so another plan may be better.",
      counted(num_broken, "plan"));
}

/// What a search runs on: a model for each micro-batch, and the space that they leave.
struct Ground {
  Predictors predictors;
  Space space;

  const Model& model() { return predictors.of(space.micro_batches.front()).model(); }
  PredictorOf predictor_of() {
    return [this](std::int64_t micro_batch) -> simulator::Predictor& { return predictors.of(micro_batch); };
  }
};

Result<Ground> ground_of(const ModelSpec& spec, const Workload& workload, const Cluster& cluster, const Space& space) {
  FSDP_TRY(const std::vector<Batch> batches, batches_of(space, cluster));
  std::vector<std::int64_t> micro_batches;
  for (const Batch& batch : batches) micro_batches.push_back(batch.micro_batch);
  FSDP_TRY(Predictors predictors, Predictors::make(spec, workload, cluster, micro_batches));
  Ground ground{std::move(predictors), space};
  keep_recorded(spec, ground.space);
  // A formula of the spec may leave some of them without a model.
  ground.space.micro_batches = ground.predictors.micro_batches();
  if (const auto recorded = check_recorded(spec, ground.space, cluster, ground.predictors); !recorded) {
    return tl::unexpected(recorded.error());
  }
  if (space.objective == SearchObjective::Tokens && !space.micro_batch && !space.global_batch &&
      has_batch_norm(ground.model())) {
    return failure("--objective", "The statistics of a batch norm are those of a micro-batch, whose size changes them.",
                   "Say the micro-batch with --batch.");
  }
  if (ground.space.base.runtime.framework == Framework::Ddp) {
    ground.space.base.ddp.find_unused_parameters = has_unused_parameters(ground.model());
  }
  ground.space.base.model = ground.model().name;
  ground.space.base.model_fingerprint = fingerprint_of(ground.model());
  return ground;
}

}  // namespace

namespace {

constexpr std::string_view kExpandable = "expandable_segments:True";

/// Whether some plan of the whole space fits, by memory alone.
Result<bool> fits_somewhere(const Space& space, const Model& model, const Cluster& cluster,
                            const PredictorOf& predictor_of, const SearchOptions& options) {
  FSDP_TRY(Families families, families_for(whole(space), model, cluster));
  Attempt attempt(space, std::move(families), predictor_of, options);
  return !attempt.limit.within.families.empty() && attempt.has_fitting(budget_of(cluster), options);
}

/// The space with expandable segments; nothing where they are not to be had, or were decided on.
std::optional<Space> expanded(const Space& space, const Cluster& cluster) {
  const bool is_default = space.base.runtime.allocator_settings.empty();
  if (!space.may_expand_segments || !is_default || cluster.gpu.compute_capability == 0) return std::nullopt;
  Space wider = space;
  wider.may_expand_segments = false;
  wider.base.runtime.allocator_settings = kExpandable;
  return wider;
}

/// What to say of a plan that fits by expandable segments alone.
std::string note_on_segments(const Proof& proof, const Runtime& runtime) {
  return fmt::format("{} without expandable segments: set {}, as the plan says.",
                     proof.is_proven && !proof.stopped_early ? "No plan fits" : "No plan was found that fits",
                     allocator_environment(runtime));
}

/// The fastest plan that fits with expandable segments alone; nothing where there is none, or they are not searched.
Result<std::optional<SearchResult>> search_expanded(const ModelSpec& spec, const Workload& workload,
                                                    const Cluster& cluster, Ground& ground, const Attempt& attempt,
                                                    const SearchOptions& options) {
  const std::optional<Space> wider = expanded(ground.space, cluster);
  if (!wider) return std::optional<SearchResult>();
  FSDP_TRY(const bool fits, fits_somewhere(*wider, ground.model(), cluster, ground.predictor_of(), options));
  if (is_stopped(options)) return stopped();
  if (!fits) return std::optional<SearchResult>();
  FSDP_TRY(SearchResult result, search(spec, workload, cluster, *wider, options));
  if (result.verdict != Verdict::Fits) return std::optional<SearchResult>();
  result.notes.insert(result.notes.begin(), note_on_segments(attempt.proof(), wider->base.runtime));
  return std::optional(std::move(result));
}

}  // namespace

Result<bool> has_fitting_plan(const ModelSpec& spec, const Workload& workload, const Cluster& cluster,
                              const Space& space) {
  FSDP_TRY(Ground ground, ground_of(spec, workload, cluster, space));
  FSDP_TRY(const bool fits, fits_somewhere(ground.space, ground.model(), cluster, ground.predictor_of(), {}));
  if (fits) return true;
  const std::optional<Space> wider = expanded(ground.space, cluster);
  return wider ? fits_somewhere(*wider, ground.model(), cluster, ground.predictor_of(), {}) : false;
}

Result<SearchResult> search(const ModelSpec& spec, const Workload& workload, const Cluster& cluster, const Space& space,
                            const SearchOptions& options) {
  if (Errors errors = simulator::check_rank(options.rank.value_or(0), cluster); !errors.empty()) {
    return tl::unexpected(std::move(errors));
  }
  FSDP_TRY(Ground ground, ground_of(spec, workload, cluster, space));
  const Space& filled = ground.space;
  const Model& model = ground.model();
  const PredictorOf predictor_of = ground.predictor_of();
  FSDP_TRY(const std::unique_ptr<Attempt> attempt, attempt_of(filled, model, cluster, predictor_of, options));
  const HostLimit& limit = attempt->limit;
  PredictedCost& cost = attempt->cost;
  const std::optional<EvaluatedPoint>& fitting = attempt->fitting;
  if (is_stopped(options)) return stopped();
  if (!fitting) {
    FSDP_TRY(std::optional<SearchResult> other, search_expanded(spec, workload, cluster, ground, *attempt, options));
    if (other) return *std::move(other);
  }

  SearchResult result;
  result.facts = facts_of(model);
  result.verdict = fitting ? Verdict::Fits : Verdict::DoesNotFit;
  OutsideOfLimit outside;
  PointFound found{&cost, &limit.within, fitting};
  if (!fitting) found = outside.look(filled, *attempt, predictor_of, options);
  if (is_stopped(options)) return stopped();
  result.proof = attempt->proof();
  assert(found.point.has_value());
  result.objective = space.objective;
  if (result.verdict == Verdict::Fits && space.objective != SearchObjective::Memory) {
    const auto [named, is_whole] =
        named_among_ties(cost, attempt->timed(), limit.within, *found.point, budget_of(cluster).count(),
                         options.should_stop, [&](const Plan& plan) { return !said_exactly_by(plan, model).empty(); });
    if (is_stopped(options)) return stopped();
    result.proof.compared_ties = is_whole;
    const double slower = named.cost.time / found.point->cost.time;
    result.proof.optimality_gap = std::max(0., slower * (1 + result.proof.optimality_gap) - 1);
    result.proof.saved = Bytes(found.point->cost.memory - named.cost.memory);
    result.refinement = refinement_of(cost, limit.within, named, *found.point);
    found.point = named;
  }
  if (const auto note = note_on_checkpointing(spec, filled)) result.notes.push_back(*note);
  if (!result.proof.is_proven) result.notes.push_back(note_on_bounds(attempt->num_broken_bounds()));
  const Choice choice = found.cost->choice_of(found.point->point);
  result.best = candidate_of(*found.cost, *found.families, choice);
  FSDP_TRY(result.report, found.cost->predictor_of(choice).report(result.best.plan, options.rank));
  result.explanation.binding = binding_of(result.report);
  if (space.explain) {
    result.explanation.upgrade = upgrade_note(result.best.plan, result.report, found.cost->predictor_of(choice));
  }
  if (filled.wrap && is_policy(*filled.wrap)) result.explanation.wrap = explain_policy(model, *filled.wrap);
  if (options.on_best) options.on_best(result);
  // What is told of other plans compares times of steps.
  const bool is_of_time = result.verdict != Verdict::Fits || space.objective == SearchObjective::Time;
  if (!is_of_time) return result;
  if (result.verdict == Verdict::Fits) {
    result.pareto = front_of(cost, limit.within, *found.point, space.pareto_points, options);
  }
  result.explanation.rejected = rejected_of(cost, limit.within, attempt->too_large(), result.best, result.verdict);
  if (space.explain) {
    tell(options, {.stage = SearchStage::Remedies, .space = result.proof.space});
    FSDP_TRY(result.explanation.remedies,
             remedies_for({spec, workload, cluster, found.cost->predictor_of(choice), result.best, result.verdict,
                           options.should_stop, options.larger_gpus, &space}));
  }
  if (is_stopped(options)) return stopped();
  return result;
}

}  // namespace fsdp::planner
