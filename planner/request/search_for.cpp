// A trainer's configuration has few options: its units are the blocks, or they and the ends; they are resharded or not;
// all blocks are checkpointed in one way, or none. The mesh, offload and the batch remain free. So we search each pair
// of the first two by itself, with the trainer's precision and arguments in place of the requested ones. We change the
// plan found to the nearest that the trainer can express (nearest_said), which moves a norm from one unit to another or
// keeps the head gathered, and predict it again. The best of these with room to spare is the answer;
// if none has it, the best that runs.
//
// Suggestions are changes of that plan that the trainer can express exactly. The result of typing them would be another
// search of this kind, which we do not run: their price is that of the plan with the one change.
//
// The gap is the larger of those of the searches and the difference of the answer from the fastest plan that they
// found.
//
// Not modeled: units that a policy chooses by another class than the blocks' (Embedding under accelerate 1.12), unless
// --wrap requests them.

#include "planner/request/search_for.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "core/base/parse_units.h"
#include "core/library/model_library.h"
#include "core/report/device_verdict.h"
#include "planner/advice/explain.h"
#include "planner/advice/explained_search.h"
#include "planner/advice/remedies.h"
#include "planner/search/predictors.h"
#include "planner/space/batches.h"
#include "planner/space/checkpointed_blocks.h"

namespace fsdp::planner {

namespace {

using simulator::Predictor;

/// The choices that are not searched, as the trainer makes them. Errors: choices without a near equivalent.
Result<Plan> said_base(const TrainerRelease& release, const Space& space, const Model& model, int gpus) {
  Plan plan = space.base;
  plan.mesh = {1, gpus};
  plan.units = {{{""}, {}}};
  plan.dimensions = model.dimensions;
  if (!plan.cuda_graphs) plan.accumulation = 2;
  plan.sync_every_micro_batch = space.sync_every_micro_batch.value_or(true);
  plan.forward_prefetch = space.forward_prefetch.value_or(0);
  plan.backward_prefetch = space.backward_prefetch.value_or(plan.backward_prefetch);
  FSDP_TRY(Plan said, nearest_said(release, plan, model));
  said.accumulation = space.base.accumulation;
  return said;
}

/// True if the trainer reduces gradients after every micro-batch; nullopt if it supports both.
std::optional<bool> sync_of(const TrainerRelease& release, Plan said, const Model& model) {
  if (said.cuda_graphs) return said.sync_every_micro_batch;
  said.accumulation = 2;
  const bool first = said.sync_every_micro_batch;
  said.sync_every_micro_batch = !first;
  const Result<Plan> other = nearest_said(release, said, model);
  if (other && other->sync_every_micro_batch != first) return std::nullopt;
  return first;
}

/// The trainer's ways to checkpoint all blocks, or none.
std::vector<CheckpointChoice> checkpoints_of(const TrainerRelease& release, const Space& space, const Plan& said,
                                             const Model& model) {
  if (space.checkpoint) return {*space.checkpoint};
  std::vector<CheckpointChoice> choices = {{CheckpointMode::None}};
  for (const CheckpointWay& way : {CheckpointWay(CheckpointMode::Full), CheckpointWay(CheckpointMode::Selective)}) {
    const bool is_searched =
        std::find(space.checkpoint_ways.begin(), space.checkpoint_ways.end(), way) != space.checkpoint_ways.end();
    Plan plan = said;
    if (!is_searched || !checkpoint(plan, model, {way})) continue;
    const Result<Plan> nearest = nearest_said(release, plan, model);
    if (nearest && way_of(nearest->checkpointing) == way) choices.push_back({way});
  }
  return choices;
}

/// Whether all units shall be resharded as torchtitan's "always" does. The search keeps the head in the root, which may
/// not be resharded then; the plan that torchtitan would run has nothing in its root.
bool is_always_of_torchtitan(const TrainerRelease& release, const Space& space) {
  return release.trainer == Trainer::Torchtitan && space.reshard && space.reshard->root;
}

Space with_root_kept(Space space) {
  if (space.reshard) space.reshard->root = false;
  return space;
}

/// The spaces that are searched one by one.
std::vector<Space> spaces_of(const TrainerRelease& release, const Space& given, const Plan& said, const Model& model) {
  Space space = is_always_of_torchtitan(release, given) ? with_root_kept(given) : given;
  space.base = said;
  space.explain = false;
  space.pareto_points = 8;
  if (!space.wrap) space.wrap = Wrap{};
  if (!space.wrap_ends) space.wrap_ends = release.has_units_of_ends || release.trainer == Trainer::Torchtitan;
  if (names_units(*space.wrap)) space.wrap_ends.reset();
  if (!space.sync_every_micro_batch) space.sync_every_micro_batch = sync_of(release, said, model);
  space.forward_prefetch = said.forward_prefetch;
  space.backward_prefetch = said.backward_prefetch;
  std::vector<ReshardChoice> reshards = {{ReshardAfterForward::Kind::Always}, {ReshardAfterForward::Kind::Never}};
  if (space.reshard) reshards = {*space.reshard};
  std::vector<Space> spaces;
  for (const ReshardChoice& reshard : reshards) {
    for (const CheckpointChoice& choice : checkpoints_of(release, given, said, model)) {
      space.reshard = reshard;
      space.checkpoint = choice;
      spaces.push_back(space);
    }
  }
  return spaces;
}

/// The plans that the trainer would run instead of the plans found.
class SaidPlans {
 public:
  SaidPlans(const TrainerRelease& release, const ResolvedRequest& request, const SearchOptions& options)
      : release_(release), request_(request), options_(options) {}

  /// Errors: those of a prediction.
  Result<void> add(const Candidate& found, const std::vector<std::string>& notes) {
    Result<Predictor*> predictor = predictor_of(found.plan);
    if (!predictor) return {};  // There is no model of these sizes.
    Plan plan = found.plan;
    if (is_always_of_torchtitan(release_, request_.space)) {
      const auto root = std::find_if(plan.units.begin(), plan.units.end(), is_root);
      root->reshard_after_forward = {ReshardAfterForward::Kind::Always, 0};
    }
    const Result<Plan> said = nearest_said(release_, plan, (*predictor)->model());
    if (!said) return {};
    const bool is_known =
        std::any_of(plans_.begin(), plans_.end(), [&](const Said& each) { return each.plan == *said; });
    if (is_known) return {};
    FSDP_TRY(StepReport report, (*predictor)->report(*said, options_.rank));
    plans_.push_back({*said, std::move(report), found.label, notes});
    return {};
  }

  /// Fills in the best of them. False if there is none.
  bool give(SearchResult& result) const {
    const auto best = std::min_element(plans_.begin(), plans_.end(),
                                       [&](const Said& a, const Said& b) { return key_of(a) < key_of(b); });
    if (best == plans_.end()) return false;
    result.verdict = best->report.verdict;
    result.report = best->report;
    result.best = candidate_of(*best);
    result.pareto = {result.best};
    result.notes = best->notes;
    result.explanation = {};
    result.explanation.binding = binding_of(result.report);
    return true;
  }

  /// Suggestions that the trainer can express and that would make the best plan faster, smaller or fit. Errors: those
  /// of a prediction.
  Result<std::vector<Remedy>> remedies_of(const SearchResult& result) {
    FSDP_TRY(Predictor * predictor, predictor_of(result.best.plan));
    Candidate best = result.best;
    if (is_tight(result.report)) best.missing = missing_room(result.report.memory);
    return remedies_for(
        {.spec = request_.spec,
         .workload = request_.workload,
         .cluster = request_.cluster,
         .predictor = *predictor,
         .best = best,
         .verdict = has_room(result.report) ? Verdict::Fits : Verdict::DoesNotFit,
         .should_stop = options_.should_stop,
         .larger_gpus = options_.larger_gpus,
         .space = &request_.space,
         .most_work = options_.most_work_of_remedies,
         .is_offered = [this](const Plan& plan, const Model& model) { return unsaid(release_, plan, model).empty(); }});
  }

 private:
  struct Said {
    Plan plan;
    StepReport report;
    std::string label;
    std::vector<std::string> notes;  ///< Notes of the search that found it.
  };

  static Candidate candidate_of(const Said& said) {
    Candidate candidate{.plan = said.plan,
                        .label = said.label,
                        .step = said.report.time.step,
                        .device_peak = said.report.memory.peaks.device};
    const MemoryReport& memory = said.report.memory;
    candidate.missing = std::max(Bytes(0), memory.peaks.device + memory.margin - memory.budget);
    return candidate;
  }

  /// The least is the best: plans with room to spare, those without, then those that do not fit, each by the objective.
  std::tuple<int, double, double> key_of(const Said& said) const {
    const auto memory = static_cast<double>(said.report.memory.peaks.device.count());
    if (said.report.verdict != Verdict::Fits) return {2, memory, 0};
    const int kind = is_tight(said.report) ? 1 : 0;
    const double time = said.report.time.step.count() / static_cast<double>(samples_of(said.plan));
    const bool wants_memory = request_.space.objective == SearchObjective::Memory;
    return wants_memory ? std::tuple{kind, memory, time} : std::tuple{kind, time, memory};
  }

  Result<Predictor*> predictor_of(const Plan& plan) {
    for (auto& [dimensions, predictor] : predictors_) {
      if (dimensions == plan.dimensions) return &predictor;
    }
    Workload workload = request_.workload;
    FSDP_TRY(workload.dimensions, own_sizes_of(plan, request_.spec));
    FSDP_TRY(Model model, build_model(request_.spec, workload));
    predictors_.emplace_back(plan.dimensions, Predictor(std::move(model), request_.cluster));
    return &predictors_.back().second;
  }

  TrainerRelease release_;
  const ResolvedRequest& request_;
  const SearchOptions& options_;
  std::vector<std::pair<std::vector<Dimension>, Predictor>> predictors_;
  std::vector<Said> plans_;
};

/// Adds the counts of several searches.
void add_proof(Proof& sum, const Proof& more) {
  sum.space += more.space;
  sum.evaluated += more.evaluated;
  for (const RuledOut& each : more.ruled_out) {
    const auto found = std::find_if(sum.ruled_out.begin(), sum.ruled_out.end(),
                                    [&](const RuledOut& known) { return known.reason == each.reason; });
    if (found == sum.ruled_out.end()) {
      sum.ruled_out.push_back(each);
    } else {
      found->plans += each.plans;
    }
  }
  sum.optimality_gap = std::max(sum.optimality_gap, more.optimality_gap);
  sum.stopped_early = sum.stopped_early || more.stopped_early;
  sum.is_proven = sum.is_proven && more.is_proven;
  if (sum.doubt.empty()) sum.doubt = more.doubt;
}

/// Adds the open questions of any of the searches to the notes of the answer. A search that found nothing that fits is
/// no doubt if another did.
void add_doubt(Proof& proof, SearchResult& result) {
  if (result.verdict == Verdict::Fits && proof.is_proven) proof.doubt.clear();
  const bool is_told = std::find(result.notes.begin(), result.notes.end(), proof.doubt) != result.notes.end();
  if (!proof.doubt.empty() && !is_told) result.notes.push_back(proof.doubt);
}

std::string needs_of(const SearchResult& result) {
  return fmt::format("{} a step, {} on each GPU", format_time(result.best.step), format_bytes(result.best.device_peak));
}

/// "0.09 s slower than ...": the cost of the trainer's limits.
std::string comparison(const TrainerRelease& release, const SearchResult& said, const SearchResult& free) {
  if (free.verdict != Verdict::Fits) return {};
  const std::string other = fmt::format("the best plan of hand-written fully_shard ({})", needs_of(free));
  if (said.verdict != Verdict::Fits) {
    return fmt::format("No plan fits that {} can express; {} does. Leave out --for, and export it to fsdp2.",
                       name_of(release), other);
  }
  const auto rate = [](const SearchResult& result) {
    return result.best.step.count() / static_cast<double>(samples_of(result.best.plan));
  };
  const double ratio = rate(said) / rate(free);
  const Seconds difference(std::abs(rate(said) - rate(free)) * static_cast<double>(samples_of(said.best.plan)));
  if (std::abs(ratio - 1) < 0.0005) return fmt::format("For {}: as fast as {}.", name_of(release), other);
  std::string text = fmt::format("For {}: {} a step {} than {}", name_of(release), format_time(difference),
                                 ratio > 1 ? "slower" : "faster", other);
  const std::optional<Dtype> reduces = said.best.plan.mixed_precision.reduce_dtype;
  if (ratio < 1 && reduces != free.best.plan.mixed_precision.reduce_dtype && reduces) {
    text += fmt::format(", which does not reduce gradients in {0}. Plan it with --reduce-dtype {0}", name_of(*reduces));
  }
  return text + ".";
}

}  // namespace

Result<SearchResult> search_for(const TrainerRelease& release, const ResolvedRequest& request,
                                const SearchOptions& options) {
  FSDP_TRY(const Model model, build_model(request.spec, request.workload));
  FSDP_TRY(const Plan said, said_base(release, request.space, model, world_size(request.cluster)));
  const std::vector<Space> spaces = spaces_of(release, request.space, said, model);
  SearchOptions shared = options;
  shared.on_best = {};
  // They share the models and the work, including the search of the whole space.
  if (shared.predictors == nullptr) shared.predictors = std::make_shared<Predictors>();
  const auto num_searches = static_cast<std::int64_t>(spaces.size()) + (options.prices_trainer ? 1 : 0);
  if (shared.most_work > 0) shared.most_work = std::max<std::int64_t>(1, shared.most_work / num_searches);
  SaidPlans plans(release, request, options);
  std::optional<SearchResult> result;
  Proof proof{.compared_ties = false};
  double fastest = std::numeric_limits<double>::infinity();
  for (const Space& space : spaces) {
    FSDP_TRY(SearchResult found, search(request.spec, request.workload, request.cluster, space, shared));
    add_proof(proof, found.proof);
    if (has_room(found.report)) fastest = std::min(fastest, found.best.step.count());
    found.pareto.push_back(found.best);
    for (const Candidate& each : found.pareto) {
      if (const Result<void> added = plans.add(each, found.notes); !added) return tl::unexpected(added.error());
    }
    if (!result) result = std::move(found);
  }
  if (!result || !plans.give(*result)) {
    return failure("--for", fmt::format("{} can express no plan of this request.", name_of(release)),
                   "Leave out options that fix units, resharding or checkpointing.");
  }
  const bool is_time = request.space.objective == SearchObjective::Time && has_room(result->report);
  if (is_time && fastest < result->best.step.count()) {
    proof.optimality_gap = std::max(proof.optimality_gap, 1 - fastest / result->best.step.count());
  }
  add_doubt(proof, *result);
  result->proof = std::move(proof);
  result->refinement.clear();
  if (!options.prices_trainer) return *std::move(result);
  Space whole_space = is_always_of_torchtitan(release, request.space) ? with_root_kept(request.space) : request.space;
  whole_space.explain = false;
  whole_space.pareto_points = 0;
  FSDP_TRY(const SearchResult free, search(request.spec, request.workload, request.cluster, whole_space, shared));
  if (std::string note = comparison(release, *result, free); !note.empty()) result->notes.push_back(std::move(note));
  if (request.space.explain) {
    FSDP_TRY(result->explanation.remedies, plans.remedies_of(*result));
  }
  return *std::move(result);
}

}  // namespace fsdp::planner
