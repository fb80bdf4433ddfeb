#include "gui/state/evaluate.h"

#include <algorithm>
#include <utility>

#include "core/cluster/cluster_library.h"
#include "core/library/model_file.h"
#include "core/library/model_library.h"
#include "core/report/device_verdict.h"
#include "core/spec/other_specs.h"
#include "gui/state/plan_edit.h"
#include "planner/advice/explain.h"
#include "planner/advice/explained_search.h"
#include "planner/advice/remedies.h"
#include "planner/request/larger_gpus.h"
#include "planner/request/plan_machines.h"
#include "planner/search/plain_plan.h"
#include "planner/space/batches.h"
#include "planner/space/wrapping.h"
#include "simulator/predictor.h"

namespace fsdp::gui {

/// A plan on the machines and with the work of the inputs.
struct Evaluator::Kept {
  ModelSpec spec;
  Workload workload;
  Model model;
  Cluster cluster;
  Plan plan;
};

namespace {

planner::Candidate candidate_of(const StepReport& report) {
  planner::Candidate candidate{.plan = report.plan,
                               .label = "this plan",
                               .step = report.time.step,
                               .device_peak = report.memory.peaks.device,
                               .missing = {}};
  candidate.missing = missing_room(report.memory);
  return candidate;
}

Snapshot snapshot_of(Model model, Cluster cluster, StepReport report) {
  Snapshot snapshot;
  snapshot.model = std::make_shared<const Model>(std::move(model));
  snapshot.cluster = std::move(cluster);
  snapshot.explanation.binding = planner::binding_of(report);
  snapshot.report = std::move(report);
  return snapshot;
}

/// Plans to compare with; always includes the shown one.
std::vector<planner::Candidate> with_shown(std::vector<planner::Candidate> plans, const planner::Candidate& shown) {
  const bool is_there =
      std::any_of(plans.begin(), plans.end(), [&](const planner::Candidate& each) { return each.plan == shown.plan; });
  if (!is_there) plans.push_back(shown);
  return plans;
}

/// The machines of a request, applied over those of a plan if it has some.
Result<Cluster> machines_of(const planner::PlanRequest& request, const std::optional<Cluster>& of_plan,
                            const std::string& library) {
  if (std::any_of(request.unread.begin(), request.unread.end(), planner::is_about_machines)) {
    return tl::unexpected(planner::check_machines(request.choices, library));
  }
  return of_plan ? planner::override_machines(request.choices, *of_plan, library)
                 : planner::resolve_machines(request.choices, library);
}

/// A plan has its own micro-batch, which the search chose, unless the inputs give another one.
Workload with_own_batch(Workload workload, const Plan& plan, const ModelSpec& spec) {
  const bool is_known = find_dimension(spec.dimensions, planner::kBatchDimension) != nullptr;
  const bool is_given = find_dimension(workload.dimensions, planner::kBatchDimension) != nullptr;
  const Dimension* own = find_dimension(plan.dimensions, planner::kBatchDimension);
  if (!is_known || is_given || own == nullptr) return workload;
  return planner::with_dimension(std::move(workload), planner::kBatchDimension, own->value);
}

/// Looked up on the worker, because the names and formulas of many tensors take too long for the window's thread.
LiveTensors at_peak_of(const simulator::StepCurves& curves) {
  if (curves.empty()) return nullptr;
  const std::size_t phase = curves.peak_phase();
  return std::make_shared<const std::vector<simulator::LiveTensorDetail>>(
      curves.live_tensors_at(phase, curves.phases[phase].peak()));
}

}  // namespace

Evaluator::Evaluator(std::string library) : library_(std::move(library)) {}
Evaluator::~Evaluator() = default;

Result<Evaluator::Kept> Evaluator::read_kept(const Inputs& inputs) const {
  const planner::PlanRequest request = request_of(inputs);
  const planner::PlanChoices& choices = request.choices;
  Errors errors = unread_errors(inputs);
  Kept kept;
  kept.plan = inputs.kept->plan;
  kept.workload = planner::workload_of(choices, errors);
  read_other_models(choices.also, library_, kept.workload, errors);
  planner::apply_work_choices(choices, kept.plan, errors);
  kept.plan.accumulation = choices.accumulation.value_or(kept.plan.accumulation);
  const auto path = find_model_file(inputs.model, library_);
  if (!path) append(errors, path.error());
  auto cluster = machines_of(request, inputs.kept->cluster, library_);
  if (!cluster) append(errors, cluster.error());
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  FSDP_TRY(kept.spec, read_model_file(*path));
  kept.workload = with_own_batch(std::move(kept.workload), kept.plan, kept.spec);
  apply_implementations(kept.plan.runtime.implementations, kept.workload);
  FSDP_TRY(kept.model, build_model(kept.spec, kept.workload));
  if (choices.loss) planner::leave_to_root_what_never_runs(kept.plan, kept.model);
  if (choices.batch && !choices.accumulation && !planner::has_batch_norm(kept.model)) {
    if (const Dimension* own = find_dimension(inputs.kept->plan.dimensions, planner::kBatchDimension)) {
      const std::int64_t samples = static_cast<std::int64_t>(own->value) * inputs.kept->plan.accumulation;
      kept.plan.accumulation = planner::accumulation_of(samples, *choices.batch);
    }
  }
  kept.cluster = *std::move(cluster);
  if (inputs.kept->cluster) {
    FSDP_TRY(const ClusterLibrary shipped, read_cluster_library(library_ + "/clusters"));
    take_measurements(kept.cluster.gpu, shipped.gpus);
  }
  kept.plan.mesh = mesh_on(kept.plan.mesh, world_size(kept.cluster));
  kept.plan.model_file = inputs.model;
  kept.plan.recipe = kept.workload.recipe.empty() ? kept.plan.recipe : kept.workload.recipe;
  kept.plan.dimensions = kept.model.dimensions;
  kept.plan.trainable = kept.workload.trainable;
  kept.plan.frozen = kept.workload.frozen;
  kept.plan.lora = kept.workload.lora;
  kept.plan.also = options_of(kept.workload.also);
  kept.plan.packing = kept.workload.packing;
  kept.plan.quantization = kept.workload.quantization;
  kept.plan.liger = kept.workload.liger;
  kept.plan.float8 = kept.workload.float8;
  return kept;
}

std::optional<Snapshot> Evaluator::preview(const Inputs& inputs) {
  if (inputs.kept || !last_ || last_model_ != inputs.model) return std::nullopt;
  Inputs like_last = inputs;
  like_last.kept = PlanFile{last_->plan, std::nullopt};
  const Result<Kept> kept = read_kept(like_last);
  if (!kept) return std::nullopt;
  simulator::Predictor predictor(kept->model, kept->cluster);
  Result<StepReport> report = predictor.report(kept->plan);
  if (!report) return std::nullopt;
  Snapshot snapshot = snapshot_of(kept->model, kept->cluster, *std::move(report));
  if (auto curves = predictor.curves(kept->plan)) snapshot.curves = *std::move(curves);
  snapshot.at_peak = at_peak_of(snapshot.curves);
  snapshot.stage = Stage::Preview;
  snapshot.plans = front_;
  return snapshot;
}

// A previous search's result is nearer to the truth than any rule of ours; until the search ends some picture is better
// than none.
std::optional<Snapshot> Evaluator::guess(const planner::ResolvedRequest& request) const {
  const Result<std::int64_t> micro_batch = planner::plain_micro_batch(request.space, request.cluster);
  if (!micro_batch) return std::nullopt;
  const Result<Model> model = build_model(request.spec, planner::with_micro_batch(request.workload, *micro_batch));
  if (!model) return std::nullopt;
  simulator::Predictor predictor(*model, request.cluster);
  const Result<Plan> plan = planner::plain_plan(request.space, predictor.index(), request.cluster, *micro_batch);
  if (!plan) return std::nullopt;
  Result<StepReport> report = predictor.report(*plan);
  Result<simulator::StepCurves> curves = predictor.curves(*plan);
  if (!report || !curves) return std::nullopt;
  const planner::Candidate candidate = candidate_of(*report);
  Snapshot snapshot = snapshot_of(*model, request.cluster, *std::move(report));
  snapshot.curves = *std::move(curves);
  snapshot.at_peak = at_peak_of(snapshot.curves);
  snapshot.stage = Stage::Guess;
  snapshot.plans = {candidate};
  return snapshot;
}

Result<Snapshot> Evaluator::answer_kept(const Inputs& inputs, const Watcher& watcher) {
  FSDP_TRY(const Kept kept, read_kept(inputs));
  simulator::Predictor predictor(kept.model, kept.cluster);
  FSDP_TRY(StepReport report, predictor.report(kept.plan));
  Snapshot snapshot = snapshot_of(kept.model, kept.cluster, std::move(report));
  FSDP_TRY(snapshot.curves, predictor.curves(kept.plan));
  snapshot.at_peak = at_peak_of(snapshot.curves);
  const planner::Candidate candidate = candidate_of(snapshot.report);
  snapshot.plans = with_shown(last_model_ == inputs.model ? front_ : std::vector<planner::Candidate>(), candidate);
  if (watcher.on_answer) watcher.on_answer(snapshot);
  const auto larger = [&] {
    // As for its plan file: its machines contain what was chosen.
    return planner::larger_gpus({}, kept.cluster, true, library_);
  };
  FSDP_TRY(snapshot.explanation.remedies,
           planner::remedies_for({.spec = kept.spec,
                                  .workload = kept.workload,
                                  .cluster = kept.cluster,
                                  .predictor = predictor,
                                  .best = candidate,
                                  .verdict = has_room(snapshot.report) ? Verdict::Fits : Verdict::DoesNotFit,
                                  .should_stop = watcher.should_stop,
                                  .larger_gpus = larger}));
  snapshot.stage = Stage::Explained;
  return snapshot;
}

Result<Snapshot> Evaluator::answer(const Inputs& inputs, const Watcher& watcher, bool guesses) {
  if (inputs.kept) return answer_kept(inputs, watcher);
  const planner::PlanRequest asked = request_of(inputs);
  if (Errors errors = unread_errors(inputs); !errors.empty()) {
    append(errors, planner::check_request(asked, library_));
    return tl::unexpected(std::move(errors));
  }
  FSDP_TRY(planner::ResolvedRequest request, planner::resolve(asked, library_));
  planner::set_objective(inputs.objective, asked.choices, request);
  if (guesses && watcher.on_answer) {
    if (std::optional<Snapshot> guessed = guess(request)) watcher.on_answer(*std::move(guessed));
  }
  std::shared_ptr<const Model> model;
  simulator::StepCurves curves;
  LiveTensors at_peak;
  const auto snapshot_with = [&](const planner::SearchResult& found) {
    Snapshot snapshot;
    snapshot.model = model;
    snapshot.cluster = request.cluster;
    snapshot.report = found.report;
    snapshot.curves = curves;
    snapshot.at_peak = at_peak;
    snapshot.explanation = found.explanation;
    snapshot.proof = found.proof;
    snapshot.objective = found.objective;
    snapshot.refinement = found.refinement;
    snapshot.notes = found.notes;
    return snapshot;
  };
  const auto on_best = [&](const planner::SearchResult& found) {
    Workload workload = request.workload;
    workload.dimensions = found.report.plan.dimensions;
    Result<Model> built = build_model(request.spec, workload);
    if (built) {
      model = std::make_shared<const Model>(*std::move(built));
      auto made = simulator::Predictor(*model, request.cluster).curves(found.report.plan);
      if (made) curves = *std::move(made);
      at_peak = at_peak_of(curves);
    }
    last_ = PlanFile{found.report.plan, request.cluster};
    if (last_model_ != inputs.model) front_.clear();
    last_model_ = inputs.model;
    if (!watcher.on_answer) return;
    Snapshot snapshot = snapshot_with(found);
    snapshot.plans = with_shown(front_, found.best);
    watcher.on_answer(std::move(snapshot));
  };
  FSDP_TRY(const planner::SearchResult found,
           planner::search(request.spec, request.workload, request.cluster, request.space,
                           {.on_progress = watcher.on_progress,
                            .should_stop = watcher.should_stop,
                            .on_best = on_best,
                            .larger_gpus = request.larger_gpus}));
  front_ = found.pareto;
  if (front_.empty()) front_.push_back(found.best);
  front_.insert(front_.end(), found.explanation.rejected.begin(), found.explanation.rejected.end());
  Snapshot snapshot = snapshot_with(found);
  snapshot.plans = front_;
  snapshot.stage = Stage::Explained;
  return snapshot;
}

}  // namespace fsdp::gui
