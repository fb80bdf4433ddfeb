// From a model, a cluster and a space to the best plan with its proof.
//
// The space is written out as families (planner/choice.h), each family is a box of the branch and bound
// (planner/branch_and_bound.h), and the predictor prices what is left (planner/predicted_cost.h).
//
// Among plans that are as good as equally fast, the one that needs least is named (planner/ties.h).
//
// Where the memory of a node is known, families that need more of it are taken out of the space first
// (planner/host_limit.h). When nothing else fits, they are searched all the same, those that need least of it first:
// the fastest plan that the devices can hold says how much a node lacks.
//
// "No plan fits" is said of the whole space alone (planner/space.h): where nothing of the usual values fits, every j
// and k and every way of wrapping is searched, and a plan that fits there is the answer (planner/attempt.h). Where the
// usual values fit by CPU offload alone, the whole space is searched without it: smaller units may be three times as
// fast.
//
// Where the tensors of some plan would fit and the allocator's blocks and segments do not, the same is searched with
// expandable segments, which PyTorch has as a setting of its own. It is not among the usual values: a plan that fits by
// it alone says so, and so does one that is clearly faster with it because memory keeps the search from the fastest.
// Near the edge of memory it takes thousands of predictions to know what fits without them, and few
// to find a plan that fits with them and is faster. So a search that is not over soon finds the fastest plan with them
// first, and ends where all that is left is slower than that by more than such a setting has to save.
// Where nothing fits with them either, the plan that is named is the smaller one of both, and of those with the setting
// only one that saves a twentieth.
//
// A plan that has no room to spare may run (core/report/device_verdict.h). Where none has it, the fastest that runs is
// searched for, by what plans can live in in place of what they take, and what giving back the cache takes of a step.
// Where that one gives back its cache, expandable segments are tried for it, too.
//
// Which plan needs least is another question than whether one fits. Its live bytes are no more than those of thousands
// of others, because what the allocator wastes is a fifth and more where memory is short, so a proof would predict them
// all. The smallest plans of the families with the least live bytes are predicted first, and then the space is searched
// as far as that is cheap: the plan that is named is the smallest that was found, and the answer says how little
// another one could need.

#include "planner/search.h"

#include <fmt/core.h>

#include <algorithm>
#include <cassert>
#include <functional>
#include <iterator>
#include <limits>
#include <memory>
#include <string_view>
#include <utility>

#include "core/base/parse_units.h"
#include "core/plan/ddp_buckets.h"
#include "core/plan/torch_version.h"
#include "core/report/device_verdict.h"
#include "planner/attempt.h"
#include "planner/checkpoint_limits.h"
#include "planner/checkpointed_blocks.h"
#include "planner/choice.h"
#include "planner/expandable_segments.h"
#include "planner/explain.h"
#include "planner/host_limit.h"
#include "planner/objective.h"
#include "planner/other_plans.h"
#include "planner/predicted_cost.h"
#include "planner/predictors.h"
#include "planner/remedies.h"
#include "planner/ties.h"
#include "planner/trainers.h"
#include "planner/upgrade_note.h"
#include "planner/wrap_apart.h"
#include "text/figures.h"

namespace fsdp::planner {

namespace {

using simulator::Detail;

tl::unexpected<Errors> stopped() {
  return failure("", "The search was stopped.", "");
}

/// Tells the listener of a search, if there is one.
void tell(const SearchOptions& options, const SearchProgress& progress) {
  if (options.on_progress) options.on_progress(progress);
}

/// A point, and where it is known.
struct PointFound {
  PredictedCost* cost = nullptr;
  const Families* families = nullptr;
  std::optional<EvaluatedPoint> point;
  /// Where another plan may need less than this one: what it needs at least.
  std::optional<Bytes> at_least = {};
};

Result<StepReport> report_of(const PointFound& found, const Plan& plan, std::optional<std::int64_t> rank) {
  const Choice choice = found.cost->choice_of(found.point->point);
  FSDP_TRY(StepReport report, found.cost->predictor_of(choice).report(plan, rank));
  if (found.at_least) {
    report.assumptions.push_back(
        fmt::format("Another plan may need less, but with its margin at least {}.", format_bytes(*found.at_least)));
  }
  return report;
}

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

/// Puts the plan that needs least of those that are as fast in the place of the fastest, and says what that is worth.
void name_among_ties(Attempt& attempt, const Model& model, Bytes budget, const SearchOptions& options,
                     PointFound& found, SearchResult& result) {
  const Families& families = attempt.limit.within;
  const auto [named, is_whole] = named_among_ties(
      attempt.cost, attempt.timed(), families, *found.point, budget.count(),
      [&] { return is_stopped(options) || has_spent(options); },
      [&](const Plan& plan) { return is_said_exactly(plan, model); });
  result.proof.compared_ties = is_whole;
  const double slower = named.cost.time / found.point->cost.time;
  result.proof.optimality_gap = std::max(0., slower * (1 + result.proof.optimality_gap) - 1);
  result.proof.saved = Bytes(found.point->cost.memory - named.cost.memory);
  result.refinement = refinement_of(attempt.cost, families, named, *found.point);
  found.point = named;
}

/// Looks for what to tell when no plan fits.
class OutsideOfLimit {
 public:
  /// The fastest plan that only lacks host memory, as little of it as can be; else the one that needs least of the
  /// devices. Nothing when it was stopped. REQUIRES: the arguments outlive this object.
  PointFound look(const Space& space, Attempt& attempt, const PredictorOf& predictor_of, const SearchOptions& options) {
    const HostLimit& limit = attempt.limit;
    for (const HostLimit::Beyond& beyond : limit.beyond) {
      cost_.emplace(space.base, beyond.families, predictor_of, space.room, known_to(options));
      BranchAndBound fastest(*cost_, Objective::Time);
      fastest.stop_when(options.should_stop);
      fastest.settle_when(options.has_spent);
      const std::int64_t budget =
          budget_of(predictor_of(beyond.families.families.front().micro_batch).cluster()).count();
      if (const auto point = fastest.next(budget, space.max_predictions)) return {&*cost_, &beyond.families, point};
      if (is_stopped(options)) return {};
    }
    if (limit.beyond.empty()) {
      if (!attempt.smallest) attempt.smallest.emplace(attempt.memory, Objective::Memory);
      return least_of({&attempt.cost, &limit.within, {}}, *attempt.smallest, attempt.memory, space, options);
    }
    cost_.emplace(space.base, attempt.families, predictor_of, space.room, known_to(options));
    SmallestCost memory(*cost_);
    BranchAndBound smallest(memory, Objective::Memory);
    return least_of({&*cost_, &attempt.families, {}}, smallest, memory, space, options);
  }

 private:
  static PointFound least_of(PointFound in, BranchAndBound& smallest, SmallestCost& memory, const Space& space,
                             const SearchOptions& options) {
    // Live bytes of many plans are below the peak of the one that needs least, by what the allocator wastes of its
    // memory. So a proof may take all of them: the best of those that are likely to need little comes first.
    constexpr std::int64_t kMost = 300;
    const std::int64_t most = space.max_predictions == 0 ? 0 : std::min(space.max_predictions, kMost);
    memory.probe_by_live_bytes(
        [&] { return is_stopped(options) || (has_spent(options) && memory.smallest().has_value()); });
    const std::int64_t begin = effort_of(memory);
    smallest.on_progress(teller(options, SearchStage::Smallest, *in.families));
    smallest.stop_when(
        [&] { return is_stopped(options) || has_spent(options) || (most > 0 && effort_of(memory) - begin >= most); });
    smallest.settle_when({});
    in.point = smallest.next(std::numeric_limits<std::int64_t>::max());
    if (in.point || is_stopped(options)) return in;
    in.point = simplest_of(memory, *in.cost, *in.families);
    in.at_least = Bytes(static_cast<std::int64_t>(smallest.at_least()));
    return in;
  }

  /// Among plans that are as small, where none is known to be the smallest.
  static EvaluatedPoint simplest_of(const SmallestCost& memory, PredictedCost& cost, const Families& families) {
    EvaluatedPoint simplest = *memory.smallest();
    for (const EvaluatedPoint& point : memory.as_small()) {
      const int complexity = complexity_of(families, cost.choice_of(point.point));
      if (complexity < complexity_of(families, cost.choice_of(simplest.point))) simplest = point;
    }
    return simplest;
  }

  /// In predictions. A walk of live bytes costs a small part of one.
  static std::int64_t effort_of(const SmallestCost& memory) {
    constexpr std::int64_t kWalksForAPrediction = 4;
    return memory.num_predicted() + memory.num_walked() / kWalksForAPrediction;
  }

  std::optional<PredictedCost> cost_;
};

/// What a capture has no recording of is refused before it is searched: every plan of the space would need it.
Result<void> check_recorded(const ModelSpec& spec, const Space& space, const Cluster& cluster, Predictors& predictors) {
  if (spec.captured == nullptr) return {};
  for (const std::int64_t micro_batch : space.micro_batches) {
    simulator::Predictor& predictor = predictors.of(micro_batch);
    if (auto misfit = passes_misfit(space.base, predictor.model())) return tl::unexpected(Errors{*std::move(misfit)});
    Plan plan = space.base;
    const std::int64_t gpus = world_size(cluster);
    plan.mesh = plan.runtime.framework == Framework::Ddp ? Mesh{gpus, 1} : Mesh{1, gpus};
    Wrapping wrapping{.stacks = {}, .others = {}, .roots = models_of_passes(predictor.model())};
    if (is_flat(plan)) wrap_apart(predictor.model(), plan, wrapping);
    plan.units = units_of(wrapping, Family{}, 0);
    if (space.checkpoint) {
      const auto checkpointed = checkpoint(plan, predictor.model(), *space.checkpoint);
      if (!checkpointed) return checkpointed;
    }
    if (const auto outcome = predictor.evaluate(plan, simulator::Detail::Time); !outcome) {
      return tl::unexpected(outcome.error());
    }
  }
  return {};
}

/// What a bound that was wrong keeps from being proven.
std::string note_on_bounds(std::int64_t num_broken) {
  return fmt::format(
      "Not proven: {} turned out to cost less than a lower bound of the search, so another plan may be better.",
      counted(num_broken, "plan"));
}

void add_notes(const ModelSpec& spec, const Model& model, const Space& space, SearchResult& result) {
  if (const auto note = note_on_checkpointing(spec, model, space)) result.notes.push_back(*note);
  if (!result.proof.doubt.empty()) result.notes.push_back(result.proof.doubt);
}

/// What a search runs on: a model for each micro-batch, and the space that they leave.
struct Ground {
  std::shared_ptr<Predictors> predictors;
  Space space;

  const Model& model() { return *index().model; }
  const ModelIndex& index() { return predictors->of(space.micro_batches.front()).index(); }
  PredictorOf predictor_of() {
    return [this](std::int64_t micro_batch) -> simulator::Predictor& { return predictors->of(micro_batch); };
  }
};

/// The same for all that looks for a plan on this ground, with the limit of its work. REQUIRES: both outlive it.
SearchOptions while_looking(const SearchOptions& options, const Ground& ground) {
  SearchOptions looking = options;
  looking.predictors = ground.predictors;
  if (options.has_spent || options.most_work == 0) return looking;
  const std::int64_t most = ground.predictors->work() + options.most_work;
  const auto has_spent = [predictors = ground.predictors, most] { return predictors->work() >= most; };
  if (options.gives_up) {
    looking.should_stop = [&options, has_spent] { return has_spent() || is_stopped(options); };
  } else {
    looking.has_spent = has_spent;
  }
  return looking;
}

Result<Ground> ground_of(const ModelSpec& spec, const Workload& workload, const Cluster& cluster, const Space& space,
                         const std::shared_ptr<Predictors>& shared) {
  FSDP_TRY(const std::vector<Batch> batches, batches_of(space, cluster));
  std::vector<std::int64_t> micro_batches;
  for (const Batch& batch : batches) micro_batches.push_back(batch.micro_batch);
  Ground ground{shared ? shared : std::make_shared<Predictors>(), space};
  keep_recorded(spec, ground.space);
  // A formula of the spec may leave some of them without a model.
  FSDP_TRY(ground.space.micro_batches, ground.predictors->add(spec, workload, cluster, micro_batches));
  ground.space = checkpointable(ground.space, ground.model());
  if (const auto recorded = check_recorded(spec, ground.space, cluster, *ground.predictors); !recorded) {
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

/// Predictions of plans that do not fit, before expandable segments are tried.
constexpr std::int64_t kPredictionsBeforeSegments = 500;

/// Whether some plan of the whole space fits, by memory alone. Nothing where that is not known after `most` predictions
/// (0: no limit), or where nothing more may be spent.
Result<std::optional<bool>> fits_somewhere(const Space& space, const ModelIndex& index, const Cluster& cluster,
                                           const PredictorOf& predictor_of, const SearchOptions& options,
                                           std::int64_t most = 0) {
  FSDP_TRY(Families families, families_for(whole(space), index, cluster));
  Attempt attempt(space, std::move(families), predictor_of, options);
  if (attempt.limit.within.families.empty()) return std::optional(false);
  return attempt.has_fitting(budget_of(cluster), options, most);
}

/// The fastest plan that fits with expandable segments; nothing where there is none, or they are not searched.
Result<std::optional<SearchResult>> search_expanded(const ModelSpec& spec, const Workload& workload,
                                                    const Cluster& cluster, const Space& space, Ground& ground,
                                                    Attempts& attempts, const SearchOptions& options) {
  const std::optional<Space> wider = expanded(ground.space, cluster);
  if (!wider) return std::optional<SearchResult>();
  FSDP_TRY(const auto fits, fits_somewhere(*wider, ground.index(), cluster, ground.predictor_of(), options));
  if (is_stopped(options)) return stopped();
  if (!fits.value_or(false)) return std::optional<SearchResult>();
  // A search that ended early for them finds them again when a suggestion is typed without.
  const bool are_found_again = attempts.slower_than().has_value();
  SearchOptions told = are_found_again ? typed_as(space, options) : options;
  if (!are_found_again) told.added_settings = kExpandableSegments;
  const auto does_fit = [](const SearchResult& result) { return result.verdict == Verdict::Fits; };
  const auto add_note = [&](SearchResult& result) {
    result.notes.insert(result.notes.begin(), note_on_segments(attempts, wider->base.runtime));
  };
  return search_if(spec, workload, cluster, *wider, told, does_fit, add_note);
}

/// From which time of a step on a plan without expandable segments is worse than the fastest that fits with them:
/// Attempts' other way.
std::optional<Seconds> worse_than_expanded(const ModelSpec& spec, const Workload& workload, const Cluster& cluster,
                                           const Space& expanded_space, Ground& ground, const SearchOptions& options) {
  Space wider = expanded_space;
  wider.explain = false;
  wider.pareto_points = 0;
  const auto fits = fits_somewhere(wider, ground.index(), cluster, ground.predictor_of(), options);
  if (!fits || !fits->value_or(false) || is_stopped(options)) return std::nullopt;
  SearchOptions told = options;
  told.on_best = {};
  told.on_progress = {};
  told.only_plan = true;
  const auto result = search(spec, workload, cluster, wider, told);
  if (!result || result->verdict != Verdict::Fits) return std::nullopt;
  return result->best.step / (1 - kWorthASetting);
}

/// The fastest plan without CPU offload, where the usual values have only slower ones with it that fit, and the whole
/// space has others. Nothing where there is none.
Result<std::optional<SearchResult>> search_without_offload(const ModelSpec& spec, const Workload& workload,
                                                           const Cluster& cluster, const Space& space, Ground& ground,
                                                           Attempt& attempt, const SearchOptions& options) {
  const Choice choice = attempt.cost.choice_of(attempt.fitting->point);
  const bool offloads = attempt.limit.within.families[static_cast<std::size_t>(choice.family)].cpu_offload;
  if (!offloads || space.cpu_offload || space.objective != SearchObjective::Time) return std::optional<SearchResult>();
  constexpr std::int64_t kMost = 200;
  Space on_devices = ground.space;
  on_devices.cpu_offload = false;
  FSDP_TRY(const auto fits, fits_somewhere(on_devices, ground.index(), cluster, ground.predictor_of(), options, kMost));
  if (!fits.value_or(false)) return std::optional<SearchResult>();
  const Seconds step = attempt.cost.outcome(choice, Detail::Time).step;
  const auto is_faster = [&](const SearchResult& result) {
    return result.verdict == Verdict::Fits && result.best.step < step;
  };
  return search_if(spec, workload, cluster, on_devices, typed_as(space, options), is_faster);
}

/// What a step takes with what giving back the cache adds.
Seconds tight_step(const SearchResult& result) {
  return result.report.time.step + result.report.memory.flush_time;
}

/// Whether some plan of the whole space runs, by the smallest of its families: of those with the least live bytes so
/// many are predicted.
Result<bool> runs_somewhere(const Space& tight, const ModelIndex& index, const Cluster& cluster,
                            const PredictorOf& predictor_of, const SearchOptions& options) {
  constexpr std::int64_t kMost = 16;
  FSDP_TRY(Families families, families_for(whole(tight), index, cluster));
  Attempt attempt(tight, std::move(families), predictor_of, options);
  if (attempt.limit.within.families.empty()) return false;
  SmallestCost& memory = attempt.memory;
  memory.probe(budget_of(cluster));
  memory.probe_by_live_bytes(
      [&] { return memory.least() <= budget_of(cluster) || memory.num_predicted() >= kMost || is_stopped(options); });
  return memory.least() <= budget_of(cluster);
}

/// The fastest plan that runs without room to spare; nothing where none does, or such are not asked for. `attempt`: has
/// shown that no plan has room.
Result<std::optional<SearchResult>> search_tight(const ModelSpec& spec, const Workload& workload,
                                                 const Cluster& cluster, const Space& space, Ground& ground,
                                                 const Attempt& attempt, const SearchOptions& options) {
  constexpr std::int64_t kMostPredictions = 600;
  if (ground.space.room != Room::Either) return std::optional<SearchResult>();
  const Proof proof = attempt.proof();
  const std::string_view none = proof.is_proven && !proof.stopped_early ? "No plan" : "No plan was found that";
  SearchOptions told = typed_as(space, options);
  // Which of two is named is known when both are.
  told.on_best = {};
  told.only_plan = false;
  const auto found_in = [&](Space tight, const std::string& settings) -> Result<std::optional<SearchResult>> {
    tight.room = Room::None;
    tight.may_expand_segments = false;
    if (tight.max_predictions > 0) tight.max_predictions = std::min(tight.max_predictions, kMostPredictions);
    FSDP_TRY(const bool runs, runs_somewhere(tight, ground.index(), cluster, ground.predictor_of(), options));
    if (is_stopped(options)) return stopped();
    if (!runs) return std::optional<SearchResult>();
    SearchOptions with = told;
    if (!settings.empty()) with.added_settings = settings;
    FSDP_TRY(SearchResult result, search(spec, workload, cluster, tight, with));
    if (result.verdict != Verdict::Fits) return std::optional<SearchResult>();
    return std::optional(std::move(result));
  };
  FSDP_TRY(std::optional<SearchResult> result, found_in(ground.space, ""));
  const bool is_smooth = result && result->report.memory.tightness != Tightness::Flushes;
  if (const std::optional<Space> wider = expanded(ground.space, cluster); wider && !is_smooth) {
    FSDP_TRY(std::optional<SearchResult> other, found_in(*wider, std::string(kExpandableSegments)));
    if (other && (!result || tight_step(*other) <= tight_step(*result))) result = std::move(other);
  }
  if (!result) return result;
  result->notes.insert(result->notes.begin(),
                       fmt::format("{} has room to spare: this is the fastest that runs.", none));
  if (options.on_best) options.on_best(*result);
  return result;
}

/// An answer that the usual values do not have. Nothing: theirs, or that nothing fits.
Result<std::optional<SearchResult>> search_elsewhere(const ModelSpec& spec, const Workload& workload,
                                                     const Cluster& cluster, const Space& space, Ground& ground,
                                                     Attempts& attempts, const SearchOptions& options) {
  if (!attempts.answer().fitting) return search_expanded(spec, workload, cluster, space, ground, attempts, options);
  return search_without_offload(spec, workload, cluster, space, ground, attempts.answer(), options);
}

/// What keeps the answer from being proven.
void add_doubt(Attempts& attempts, SearchResult& result) {
  if (!result.proof.is_proven) {
    result.proof.doubt = note_on_bounds(attempts.answer().num_broken_bounds());
  } else if (result.verdict == Verdict::DoesNotFit && attempts.is_open()) {
    result.proof.stopped_early = true;
    result.proof.doubt = "Not proven: the search came to the limit of its work before it knew whether some plan fits.";
  }
}

void add_doubt_of_units(const Space& space, const Families& families, const Cluster& cluster, SearchResult& result) {
  const auto mixed = note_on_mixed_units(space, families, result.best, cluster);
  if (result.proof.doubt.empty() && mixed) result.notes.push_back(result.proof.doubt = *mixed);
}

/// What would give the plan room, or make it faster where it has room.
Result<std::vector<Remedy>> remedies_of(const ModelSpec& spec, const Workload& workload, const Cluster& cluster,
                                        const Space& space, Attempt& attempt, simulator::Predictor& predictor,
                                        const SearchOptions& options, const SearchResult& result,
                                        const std::optional<Remedy>& segments) {
  Candidate best = result.best;
  if (is_tight(result.report)) best.missing = missing_room(result.report.memory);
  const bool fits = has_room(result.report);
  // Where nothing fits, suggestions are the answer.
  constexpr std::int64_t kTimesWhereNothingFits = 4;
  const std::int64_t most_work =
      fits ? options.most_work_of_remedies : kTimesWhereNothingFits * options.most_work_of_remedies;
  const Space& asked = options.typed != nullptr ? *options.typed : space;
  const bool is_fastest = fits && space.objective == SearchObjective::Time;
  return remedies_for(
      {.spec = spec,
       .workload = workload,
       .cluster = cluster,
       .predictor = predictor,
       .best = best,
       .verdict = fits ? Verdict::Fits : Verdict::DoesNotFit,
       .should_stop = options.should_stop,
       .larger_gpus = options.larger_gpus,
       .space = &asked,
       .with_segments = segments,
       .may_gain_by_segments = is_fastest && may_gain_by_segments(asked, cluster, attempt, result.best.step),
       .added_settings = options.added_settings,
       .predictors = options.predictors,
       .most_work = most_work});
}

/// The front, plans that were faster and do not fit, and suggestions, as far as they are asked for.
Result<void> tell_of_others(const ModelSpec& spec, const Workload& workload, const Cluster& cluster, const Space& space,
                            Attempt& attempt, const PointFound& found, const SearchOptions& options,
                            const std::optional<Remedy>& segments, SearchResult& result) {
  const bool fits = result.verdict == Verdict::Fits;
  // What is told of other plans compares times of steps.
  if (fits && space.objective != SearchObjective::Time) return {};
  const Families& families = attempt.limit.within;
  if (fits) result.pareto = front_of(attempt.cost, families, *found.point, space.pareto_points, options);
  if (!space.explain) return {};
  if (space.pareto_points > 0) {
    result.explanation.rejected = rejected_of(attempt.cost, families, attempt.too_large(), result.best, result.verdict);
  }
  tell(options, {.stage = SearchStage::Remedies, .space = result.proof.space});
  simulator::Predictor& predictor = found.cost->predictor_of(found.cost->choice_of(found.point->point));
  FSDP_TRY(result.explanation.remedies,
           remedies_of(spec, workload, cluster, space, attempt, predictor, options, result, segments));
  return {};
}

}  // namespace

Result<std::optional<bool>> has_fitting_plan(const ModelSpec& spec, const Workload& workload, const Cluster& cluster,
                                             const Space& space, const SearchOptions& options) {
  FSDP_TRY(Ground ground, ground_of(spec, workload, cluster, space, options.predictors));
  const SearchOptions looking = while_looking(options, ground);
  FSDP_TRY(auto fits, fits_somewhere(ground.space, ground.index(), cluster, ground.predictor_of(), looking));
  if (const auto wider = expanded(ground.space, cluster); wider && !fits.value_or(false) && !is_stopped(looking)) {
    FSDP_TRY(const auto with, fits_somewhere(*wider, ground.index(), cluster, ground.predictor_of(), looking));
    // What is open without them stays so where they do not help.
    if (!with || *with || fits) fits = with;
  }
  if (!fits.value_or(false) && is_stopped(looking)) return stopped();
  return fits;
}

SearchOptions typed_as(const Space& space, SearchOptions options) {
  if (options.typed == nullptr) options.typed = &space;
  return options;
}

Result<SearchResult> search(const ModelSpec& spec, const Workload& workload, const Cluster& cluster, const Space& space,
                            const SearchOptions& options) {
  if (Errors errors = simulator::check_rank(options.rank.value_or(0), cluster); !errors.empty()) {
    return tl::unexpected(std::move(errors));
  }
  FSDP_TRY(Ground ground, ground_of(spec, workload, cluster, space, options.predictors));
  const Space& filled = ground.space;
  const Model& model = ground.model();
  const PredictorOf predictor_of = ground.predictor_of();
  const SearchOptions looking = while_looking(options, ground);
  const std::optional<Space> wider = expanded(filled, cluster);
  const std::int64_t most = wider ? kPredictionsBeforeSegments : 0;
  OtherWay with_segments;
  // Finding that plan twice takes work: a search with less than its usual share needs it for its own.
  const bool has_all_work = options.most_work == 0 || options.most_work >= kMostWork;
  if (wider && has_all_work && space.objective == SearchObjective::Time) {
    with_segments = [&] { return worse_than_expanded(spec, workload, cluster, *wider, ground, looking); };
  }
  FSDP_TRY(Attempts attempts,
           Attempts::make(filled, ground.index(), cluster, predictor_of, looking, most, with_segments));
  if (is_stopped(looking)) return stopped();
  FSDP_TRY(std::optional<SearchResult> other,
           search_elsewhere(spec, workload, cluster, space, ground, attempts, looking));
  if (other) return *std::move(other);
  if (attempts.is_open()) attempts.go_on();
  if (is_stopped(looking)) return stopped();
  Attempt& attempt = attempts.answer();
  const HostLimit& limit = attempt.limit;
  PredictedCost& cost = attempt.cost;
  const std::optional<EvaluatedPoint>& fitting = attempt.fitting;
  if (!fitting) {
    FSDP_TRY(std::optional<SearchResult> tight, search_tight(spec, workload, cluster, space, ground, attempt, looking));
    if (tight) return *std::move(tight);
  }
  SearchResult result;
  result.facts = facts_of(model);
  result.verdict = fitting ? Verdict::Fits : Verdict::DoesNotFit;
  OutsideOfLimit outside;
  PointFound found{&cost, &limit.within, fitting};
  if (!fitting) found = outside.look(filled, attempt, predictor_of, looking);
  if (is_stopped(looking)) return stopped();
  result.proof = attempt.proof();
  assert(found.point.has_value());
  result.objective = space.objective;
  if (result.verdict == Verdict::Fits && space.objective != SearchObjective::Memory) {
    name_among_ties(attempt, model, budget_of(cluster), looking, found, result);
    if (is_stopped(looking)) return stopped();
  }
  add_doubt(attempts, result);
  add_notes(spec, model, filled, result);
  const Choice choice = found.cost->choice_of(found.point->point);
  result.best = candidate_of(*found.cost, *found.families, choice);
  std::optional<Remedy> segments;
  FSDP_TRY(other, better_with_segments(spec, workload, cluster, space, attempt, result, looking, segments));
  if (other) return *std::move(other);
  add_doubt_of_units(filled, *found.families, cluster, result);
  if (options.only_plan) return result;
  FSDP_TRY(result.report, report_of(found, result.best.plan, options.rank));
  result.explanation.binding = binding_of(result.report);
  if (space.explain) {
    result.explanation.upgrade = upgrade_note(result.best.plan, result.report, found.cost->predictor_of(choice));
  }
  if (filled.wrap && is_policy(*filled.wrap)) result.explanation.wrap = explain_policy(model, *filled.wrap);
  if (options.on_best) options.on_best(result);
  if (is_stopped(looking)) return stopped();
  auto told = tell_of_others(spec, workload, cluster, space, attempt, found, looking, segments, result);
  if (!told) return tl::unexpected(std::move(told).error());
  if (is_stopped(options)) return stopped();
  return result;
}

}  // namespace fsdp::planner
