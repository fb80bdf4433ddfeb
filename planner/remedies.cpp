// A remedy is the plan with one thing changed. Nothing is estimated: each changed plan is predicted in full, on a model
// and a cluster built anew where the change is in them.
//
// A choice that fixes more starts a new search, whose space holds the changed plan: it finds one that is at least as
// fast, unless a limit stops it. Where only a search can tell (how the samples of a step are best shared out over other
// GPUs), a search runs. A change of the samples of a step is said.
//
// When no plan fits, four questions are answered by asking the predictor for the plan that needs least: how much memory
// a GPU must have, how many GPUs are enough (doubling them), and up to which batch or length it fits (bisection: a
// smaller batch or length never needs more live memory). Another plan may do with even less; what is printed is enough.
// Only machines are offered that can be had, and only choices that can be made beside those that were made.

#include "planner/remedies.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "planner/remedy_list.h"
#include "text/figures.h"

namespace fsdp::planner {

namespace {

/// Changes below these are noise of the allocator and the timeline, or not worth a word, and no remedies.
constexpr Bytes kLeastSaving(8 << 20);
constexpr double kLeastPart = 0.005;  ///< Of the step, and of the device's peak.

/// Of one search that a remedy may take.
constexpr std::int64_t kMostSearchPredictions = 600;

/// Device peak, verdict and times, without the statistics of whole reports, which cost ten times as much.
Result<simulator::Outcome> price(simulator::Predictor& predictor, const Plan& plan) {
  FSDP_TRY(simulator::Outcome outcome, predictor.evaluate(plan, simulator::Detail::Device));
  FSDP_TRY(const simulator::Outcome times, predictor.evaluate(plan, simulator::Detail::Time));
  outcome.step = times.step;
  return outcome;
}

}  // namespace

void RemedyList::try_plan(std::string what, PlanChoices change, const Plan& plan) {
  if (is_stopped() || !check(plan, request_.predictor.model()).empty()) return;
  add({std::move(what), std::move(change)}, price(request_.predictor, plan));
}

bool RemedyList::try_rebuilt(Trial trial, const Plan& plan, const Workload& workload, const Cluster& cluster) {
  Result<Model> model = build_model(request_.spec, workload);
  // What would be refused is no remedy.
  if (is_stopped() || !model || !check(plan, *model).empty()) return false;
  simulator::Predictor predictor(*std::move(model), cluster);
  const auto outcome = price(predictor, plan);
  add(std::move(trial), outcome);
  return outcome && outcome->fits;
}

std::optional<bool> RemedyList::fits(const Plan& plan, const Workload& workload, const Cluster& cluster) const {
  if (is_stopped()) return std::nullopt;
  Result<Model> model = build_model(request_.spec, workload);
  if (!model) return std::nullopt;
  simulator::Predictor predictor(*std::move(model), cluster);
  const auto outcome = predictor.evaluate(plan, simulator::Detail::Device, cluster.gpu.usable_memory.value);
  if (!outcome) return std::nullopt;
  return outcome->fits;
}

std::optional<bool> RemedyList::try_search(Trial trial, const Workload& workload, const Cluster& cluster,
                                           const Space& space) {
  if (is_stopped()) return std::nullopt;
  Space bounded = space;
  bounded.explain = false;
  bounded.pareto_points = 0;
  bounded.max_predictions = kMostSearchPredictions;
  SearchOptions options;
  options.should_stop = request_.should_stop;
  const auto found = search(request_.spec, workload, cluster, bounded, options);
  if (!found || found->proof.stopped_early) return std::nullopt;
  keep_if_it_helps({.what = std::move(trial.what),
                    .change = std::move(trial.change),
                    .is_searched = true,
                    .samples = trial.samples,
                    .delta_bytes = found->best.device_peak - request_.best.device_peak,
                    .delta_time = found->best.step - request_.best.step,
                    .verdict = found->verdict});
  return found->verdict == Verdict::Fits;
}

void RemedyList::add(Trial trial, const Result<simulator::Outcome>& outcome) {
  if (!outcome) return;  // The change makes no valid plan of this model: nothing to offer.
  if (trial.samples > 0) trial.what += fmt::format(", {} a step", counted(trial.samples, "sample"));
  keep_if_it_helps({.what = std::move(trial.what),
                    .change = std::move(trial.change),
                    .samples = trial.samples,
                    .delta_bytes = outcome->peaks.device - request_.best.device_peak,
                    .delta_time = outcome->step - request_.best.step,
                    .verdict = outcome->fits ? Verdict::Fits : Verdict::DoesNotFit});
}

void RemedyList::keep_if_it_helps(Remedy remedy) {
  const auto part_of_peak =
      Bytes(static_cast<std::int64_t>(kLeastPart * static_cast<double>(request_.best.device_peak.count())));
  const bool saves_bytes = remedy.delta_bytes <= -std::max(kLeastSaving, part_of_peak);
  const bool saves_time = remedy.delta_time < -kLeastPart * request_.best.step;
  const bool begins_to_fit = request_.verdict != Verdict::Fits && remedy.verdict == Verdict::Fits;
  if (saves_bytes || saves_time || begins_to_fit) remedies_.push_back(std::move(remedy));
}

std::vector<Remedy> RemedyList::take() {
  std::stable_sort(remedies_.begin(), remedies_.end(), [](const Remedy& a, const Remedy& b) {
    if (a.verdict != b.verdict) return a.verdict == Verdict::Fits;
    if (a.verdict != Verdict::Fits) return a.delta_bytes < b.delta_bytes;
    if (a.delta_time != b.delta_time) return a.delta_time < b.delta_time;
    return a.delta_bytes < b.delta_bytes;
  });
  return std::move(remedies_);
}

Result<std::vector<Remedy>> remedies_for(const RemedyRequest& request) {
  RemedyList list(request);
  try_plan_changes(list);
  try_size_changes(list);
  return list.take();
}

}  // namespace fsdp::planner
