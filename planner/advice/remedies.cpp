// A remedy is the plan with one change. Nothing is estimated: each changed plan is predicted in full, on a new model or
// cluster if the change is in them.
//
// A change that fixes more choices starts a new search, whose space contains the changed plan: it finds one that is at
// least as fast, unless a limit stops it. A search runs if only it can tell how to divide the samples of a step over
// other GPUs. It also runs for the first changes that a short answer shows, so that they promise what the user gets by
// typing them. If nothing fits, the plan that needs least memory is far from the fastest of those that then fit; the
// fastest plan may need other wrapping after the change; and a plan that does not fit with the change may have a
// neighbor that does. We report a change in the samples of a step.
//
// If no plan fits, the predictor answers four questions about the plan that needs least: how much memory a GPU must
// have, how many GPUs suffice (by doubling them), and up to which batch and length it fits (by bisection: a smaller
// batch or length never needs more live memory). Another plan may need even less; the printed numbers suffice. We offer
// only machines that exist, and only choices that are compatible with the given ones.
//
// Free changes come before those that change the training, and these before other machines. Fewer bits of weights,
// gradients or states, frozen parameters, other samples and lengths are another training, which the user has to want.

#include "planner/advice/remedies.h"

#include <fmt/core.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "core/frameworks/check_plan.h"
#include "core/report/device_verdict.h"
#include "planner/advice/remedy_kind.h"
#include "planner/advice/remedy_list.h"
#include "planner/search/predictors.h"
#include "planner/space/batches.h"
#include "text/figures.h"

namespace fsdp::planner {

namespace {

/// Smaller changes are noise of the allocator and the timeline, or not worth a word, and no remedies.
constexpr Bytes kLeastSaving(8 << 20);
constexpr double kLeastSavedMemory = 0.01;  ///< Share of the device's peak.

/// Searches the changes that a short answer shows.
constexpr std::size_t kMostSearched = 3;

/// True if two workloads differ at most in sizes.
bool trains_the_same(const Workload& a, const Workload& b) {
  return a.recipe == b.recipe && a.trainable == b.trainable && a.frozen == b.frozen && a.lora == b.lora &&
         a.quantization == b.quantization && a.liger == b.liger && a.float8 == b.float8 && a.packing == b.packing &&
         a.padding_mask == b.padding_mask && a.loss_after_root == b.loss_after_root &&
         a.float_logits == b.float_logits && a.titan_attention == b.titan_attention &&
         a.automodel_decoders == b.automodel_decoders && a.lora_in_one_op == b.lora_in_one_op &&
         a.loss_takes_head == b.loss_takes_head && a.loss_calls_head == b.loss_calls_head &&
         std::equal(a.also.begin(), a.also.end(), b.also.begin(), b.also.end(),
                    [](const OtherSpec& x, const OtherSpec& y) { return x.options.file == y.options.file; });
}

/// Device peak, verdict and times. Omits the statistics of whole reports, which cost ten times as much.
Result<simulator::Outcome> price(simulator::Predictor& predictor, const Plan& plan) {
  FSDP_TRY(simulator::Outcome outcome, predictor.evaluate(plan, simulator::Detail::Tight));
  FSDP_TRY(const simulator::Outcome times, predictor.evaluate(plan, simulator::Detail::Time));
  outcome.step = times.step;
  return outcome;
}

}  // namespace

bool runs_tight(const simulator::Outcome& outcome) {
  const bool runs = outcome.is_whole && outcome.device.verdict == Verdict::Fits && outcome.host_missing == Bytes(0);
  return runs && !outcome.device.has_room();
}

Verdict verdict_of(const simulator::Outcome& outcome) {
  return outcome.fits || runs_tight(outcome) ? Verdict::Fits : Verdict::DoesNotFit;
}

std::int64_t RemedyList::work_of_request() const {
  return request_.predictors ? request_.predictors->work() : request_.predictor.work();
}

std::optional<std::int64_t> RemedyList::work_left() const {
  if (request_.most_work == 0) return std::nullopt;
  return request_.most_work / 100 * percent_ - (work_of_request() - work_before_) - other_work_;
}

// Expanding a spec takes as long as some predictions. A change of the machine brings its own model.
Result<Model> RemedyList::model_of(const Workload& workload) const {
  const Model& known = request_.predictor.model();
  const bool is_known =
      trains_the_same(workload, request_.workload) &&
      std::all_of(workload.dimensions.begin(), workload.dimensions.end(), [&](const Dimension& dimension) {
        const Dimension* now = find_dimension(known.dimensions, dimension.name);
        return now != nullptr && now->value == dimension.value;
      });
  return is_known ? Result<Model>(known) : build_model(request_.spec, workload);
}

void RemedyList::keep(Remedy remedy, const Plan& plan) {
  if (!is_over() && check(plan, request_.predictor.index()).empty()) {
    if (const auto outcome = price(request_.predictor, plan)) remedy.same_plan = price_of(*outcome);
  }
  keep_if_it_helps(std::move(remedy));
}

void RemedyList::try_plan(std::string what, PlanChoices change, const Plan& plan) {
  if (is_over() || !check(plan, request_.predictor.index()).empty()) return;
  if (!is_offered(plan, request_.predictor.model())) return;
  auto inputs = inputs_with(change, plan, request_.workload, request_.cluster);
  add({std::move(what), std::move(change)}, price(request_.predictor, plan), std::move(inputs));
}

bool RemedyList::try_rebuilt(Trial trial, const Plan& plan, const Workload& workload, const Cluster& cluster) {
  if (is_over()) return false;
  Result<Model> model = model_of(workload);
  // A plan that check() or the trainer would refuse is no remedy.
  if (!model || !check(plan, *model).empty() || !is_offered(plan, *model)) return false;
  simulator::Predictor predictor(*std::move(model), cluster);
  const auto outcome = price(predictor, plan);
  other_work_ += predictor.work();
  auto inputs = inputs_with(trial.change, plan, workload, cluster);
  add(std::move(trial), outcome, std::move(inputs));
  return outcome && outcome->fits;
}

std::optional<bool> RemedyList::fits(const Plan& plan, const Workload& workload, const Cluster& cluster) {
  if (is_over()) return std::nullopt;
  Result<Model> model = model_of(workload);
  if (!model) return std::nullopt;
  simulator::Predictor predictor(*std::move(model), cluster);
  const auto outcome = predictor.evaluate(plan, simulator::Detail::Device, cluster.gpu.usable_memory.value);
  other_work_ += predictor.work();
  if (!outcome) return std::nullopt;
  return outcome->fits;
}

std::optional<bool> RemedyList::try_search(Trial trial, const Workload& workload, const Cluster& cluster,
                                           const Space& space, const Plan* same_plan) {
  if (request_.is_offered) return std::nullopt;
  const SearchInputs inputs{workload, cluster, space};
  std::optional<Remedy> remedy = searched(std::move(trial), inputs, search_options(inputs));
  if (!remedy) return std::nullopt;
  const bool fits = remedy->has_room();
  same_plan != nullptr ? keep(*std::move(remedy), *same_plan) : keep_if_it_helps(*std::move(remedy));
  return fits;
}

// A search with another plan reuses the models and layouts of the same sizes and machine.
SearchOptions RemedyList::search_options(const SearchInputs& inputs, std::int64_t parts) const {
  SearchOptions options{.should_stop = request_.should_stop, .gives_up = true};
  const std::optional<std::int64_t> left = work_left();
  options.most_work = left ? std::max<std::int64_t>(1, *left / parts) : 0;
  const bool is_same = trains_the_same(inputs.workload, request_.workload) &&
                       inputs.workload.dimensions == request_.workload.dimensions && inputs.cluster == request_.cluster;
  options.predictors = is_same && request_.predictors ? request_.predictors : std::make_shared<Predictors>();
  return options;
}

void RemedyList::count_work(const SearchOptions& options) {
  if (options.predictors != request_.predictors) other_work_ += options.predictors->work();
}

// Every change also requests the settings that the search added.
Space RemedyList::as_typed(Space space, const PlanChoices& change) const {
  if (request_.added_settings.empty() || change.allocator_settings) return space;
  space.base.runtime.allocator_settings = request_.added_settings;
  space.may_expand_segments = false;
  return space;
}

std::optional<Remedy> RemedyList::searched(Trial trial, const SearchInputs& inputs, const SearchOptions& options) {
  if (is_over()) return std::nullopt;
  Space bounded = as_typed(inputs.space, trial.change);
  bounded.explain = false;
  bounded.pareto_points = 0;
  const auto found = find_plan(request_.spec, inputs.workload, inputs.cluster, bounded, options);
  count_work(options);
  if (!found || found->proof.stopped_early) return std::nullopt;
  return Remedy{.what = std::move(trial.what),
                .change = std::move(trial.change),
                .is_searched = true,
                .samples = trial.samples,
                .delta_bytes = found->best.device_peak - request_.best.device_peak,
                .delta_time = found->best.step - request_.best.step,
                .verdict = found->verdict,
                .is_tight = is_tight(found->report)};
}

/// nullopt if the choices affect a search in ways that this function does not copy: a batch, a mesh for another world,
/// or how reduce-scatters run.
std::optional<RemedyList::SearchInputs> RemedyList::inputs_with(const PlanChoices& change, const Plan& plan,
                                                                const Workload& workload,
                                                                const Cluster& cluster) const {
  const bool is_other_world = world_size(cluster) != world_size(request_.cluster);
  const bool says_how_it_reduces = change.reduce_scatter_buffers || change.separate_reduce_scatter;
  const bool says_more = change.batch || change.accumulation || says_how_it_reduces;
  const bool is_searched = request_.space != nullptr && !request_.is_offered;
  if (!is_searched || says_more || is_other_world) return std::nullopt;
  Space space = *request_.space;
  space.base.optimizer = plan.optimizer;
  space.base.initialization = plan.initialization;
  space.base.runtime = plan.runtime;
  space.base.also = plan.also;
  if (!change.allocator_settings) {
    space.base.runtime.allocator_settings = request_.space->base.runtime.allocator_settings;
  }
  space.base.parameter_dtype = plan.parameter_dtype;
  space.base.mixed_precision = plan.mixed_precision;
  // The requested workload with the changed sizes; the search chooses the rest.
  Workload asked = request_.workload;
  asked.frozen = workload.frozen;
  asked.loss_takes_head = workload.loss_takes_head;
  asked.loss_calls_head = workload.loss_calls_head;
  asked.lora = workload.lora;
  asked.packing = workload.packing;
  asked.quantization = workload.quantization;
  asked.liger = workload.liger;
  asked.float8 = workload.float8;
  for (std::size_t i = 0; i < asked.also.size() && i < plan.also.size(); ++i) asked.also[i].options = plan.also[i];
  for (const Dimension& dimension : workload.dimensions) {
    const Dimension* now = find_dimension(request_.predictor.model().dimensions, dimension.name);
    if (now != nullptr && now->value == dimension.value) continue;
    asked = with_dimension(std::move(asked), dimension.name, dimension.value);
  }
  if (change.allocator_settings) space.may_expand_segments = false;
  if (change.checkpoint) space.checkpoint = change.checkpoint;
  if (change.wrap) space.wrap = change.wrap;
  if (change.wrap_ends) space.wrap_ends = change.wrap_ends;
  if (change.forward_prefetch) space.forward_prefetch = change.forward_prefetch;
  if (change.backward_prefetch) space.backward_prefetch = change.backward_prefetch;
  if (change.cpu_offload) space.cpu_offload = change.cpu_offload->is_on;
  if (change.gradient_sync) space.sync_every_micro_batch = *change.gradient_sync == GradientSync::Every;
  return SearchInputs{std::move(asked), cluster, std::move(space)};
}

RemedyPrice RemedyList::price_of(const simulator::Outcome& outcome) const {
  return {.delta_bytes = outcome.peaks.device - request_.best.device_peak,
          .delta_time = outcome.step - request_.best.step,
          .verdict = verdict_of(outcome),
          .is_tight = runs_tight(outcome)};
}

void RemedyList::add(Trial trial, const Result<simulator::Outcome>& outcome, std::optional<SearchInputs> inputs) {
  if (!outcome) return;  // The change makes no valid plan of this model, so there is nothing to offer.
  if (trial.samples > 0) trial.what += fmt::format(", {} a step", text::counted(trial.samples, "sample"));
  const RemedyPrice priced = price_of(*outcome);
  keep_if_it_helps({.what = std::move(trial.what),
                    .change = std::move(trial.change),
                    .samples = trial.samples,
                    .delta_bytes = priced.delta_bytes,
                    .delta_time = priced.delta_time,
                    .verdict = priced.verdict,
                    .is_tight = priced.is_tight},
                   std::move(inputs));
}

bool RemedyList::helps(const Remedy& remedy) const {
  const auto part_of_peak =
      Bytes(static_cast<std::int64_t>(kLeastSavedMemory * static_cast<double>(request_.best.device_peak.count())));
  const bool saves_bytes = remedy.delta_bytes <= -std::max(kLeastSaving, part_of_peak);
  const bool saves_time = remedy.delta_time <= -kLeastSavedTime * request_.best.step;
  const bool begins_to_fit = request_.verdict != Verdict::Fits && remedy.has_room();
  return saves_bytes || saves_time || begins_to_fit;
}

void RemedyList::keep_if_it_helps(Remedy remedy, std::optional<SearchInputs> inputs) {
  if (helps(remedy)) remedies_.push_back({std::move(remedy), std::move(inputs)});
}

void RemedyList::sort() {
  // For a plan that fits, faster changes come before smaller ones.
  const auto is_second = [&](const Remedy& remedy) {
    return request_.verdict == Verdict::Fits && remedy.delta_time > -kLeastSavedTime * request_.best.step;
  };
  std::stable_sort(remedies_.begin(), remedies_.end(), [&](const Kept& one, const Kept& other) {
    const Remedy& a = one.remedy;
    const Remedy& b = other.remedy;
    if (a.has_room() != b.has_room()) return a.has_room();
    if (a.is_tight != b.is_tight) return a.is_tight;
    if (is_second(a) != is_second(b)) return is_second(b);
    if (kind_of(a) != kind_of(b)) return kind_of(a) < kind_of(b);
    if (!a.has_room()) return a.delta_bytes < b.delta_bytes;
    if (a.delta_time != b.delta_time) return a.delta_time < b.delta_time;
    return a.delta_bytes < b.delta_bytes;
  });
}

std::optional<Remedy> RemedyList::searched(Kept& kept, std::int64_t parts) {
  if (is_over()) return std::nullopt;
  const SearchInputs& inputs = *kept.inputs;
  const SearchOptions options = search_options(inputs, parts);
  // If one plan does not fit, another may.
  if (!kept.remedy.has_room()) {
    const Space asked = as_typed(inputs.space, kept.remedy.change);
    const auto fits = has_fitting_plan(request_.spec, inputs.workload, inputs.cluster, asked, options);
    if (fits) kept.may_have_room = *fits;
    if (!kept.may_have_room.value_or(false)) {
      count_work(options);
      return std::nullopt;
    }
  }
  return searched(Trial{kept.remedy.what, kept.remedy.change, kept.remedy.samples}, inputs, options);
}

// The changes that a short answer shows: at most two free ones, if there are others.
std::vector<RemedyList::Kept*> RemedyList::first_to_search() {
  std::vector<Kept*> first;
  std::vector<Kept*> more_free;
  for (Kept& kept : remedies_) {
    const bool is_shown =
        request_.verdict != Verdict::Fits || kept.remedy.delta_time <= -kLeastSavedTime * request_.best.step;
    if ((request_.verdict == Verdict::Fits && !kept.remedy.has_room()) || !is_shown || first.size() == kMostSearched)
      break;
    // Freezing makes it another job, and its line is too long for a short answer.
    if (kept.remedy.is_searched || !kept.inputs || !kept.remedy.change.frozen.empty()) continue;
    const bool is_one_more = kind_of(kept.remedy) == RemedyKind::Free && first.size() + 1 == kMostSearched;
    (is_one_more ? more_free : first).push_back(&kept);
  }
  if (first.size() < kMostSearched && !more_free.empty()) first.push_back(more_free.front());
  return first;
}

void RemedyList::replace_by_search(Kept& kept, std::int64_t parts) {
  std::optional<Remedy> found = searched(kept, parts);
  if (!found || !found->has_room()) return;
  found->same_plan = kept.remedy.price();
  kept.remedy = *std::move(found);
}

// A search prefers any plan with room to spare to a tight one, however fast that is. So the same plan may be promised,
// tight, only if a search of the change would not find room elsewhere.
void RemedyList::settle_tight_ones() {
  if (request_.space == nullptr || request_.is_offered) return;
  const auto is_open = [](const Kept& kept) { return kept.remedy.is_tight && !kept.remedy.is_searched; };
  std::int64_t parts = std::count_if(remedies_.begin(), remedies_.end(), is_open);
  for (Kept& kept : remedies_) {
    if (is_open(kept) && kept.inputs && !kept.may_have_room) replace_by_search(kept, parts--);
  }
  std::erase_if(remedies_, [&](const Kept& kept) { return is_open(kept) && kept.may_have_room.value_or(true); });
}

void RemedyList::search_the_first() {
  const std::vector<Kept*> first = first_to_search();
  for (std::size_t i = 0; i < first.size(); ++i) {
    replace_by_search(*first[i], static_cast<std::int64_t>(first.size() - i));
  }
  settle_tight_ones();
  // A search may name a plan that needs less and is only as fast as the given one.
  std::erase_if(remedies_, [this](const Kept& kept) { return !helps(kept.remedy); });
}

std::vector<Remedy> RemedyList::take() {
  sort();
  search_the_first();
  sort();
  std::vector<Remedy> remedies;
  for (Kept& kept : remedies_) {
    PlanChoices& change = kept.remedy.change;
    if (!change.allocator_settings && !request_.added_settings.empty()) {
      change.allocator_settings = request_.added_settings;
    }
    remedies.push_back(std::move(kept.remedy));
  }
  return remedies;
}

RemedyKind kind_of(const Remedy& remedy) {
  const PlanChoices& change = remedy.change;
  if (change.gpus || change.nodes || change.gpu_name || change.memory || change.cluster_file || change.host_memory) {
    return RemedyKind::OtherMachine;
  }
  const bool is_other_training = change.precision || change.reduce_dtype || change.optimizer ||
                                 change.optimizer_states || change.clip || change.sequence || change.packing ||
                                 remedy.samples > 0 || !change.trainable.empty() || !change.frozen.empty() ||
                                 change.lora || change.quantization || !change.dimensions.empty();
  return is_other_training ? RemedyKind::ChangesTraining : RemedyKind::Free;
}

// Each group leaves work for the next ones: the last may have the change that makes a plan fit.
Result<std::vector<Remedy>> remedies_for(const RemedyRequest& request) {
  constexpr int kOfPlan = 35;
  constexpr int kOfSizes = 60;
  RemedyList list(request);
  list.allow(kOfPlan);
  try_plan_changes(list);
  list.allow(kOfSizes);
  try_size_changes(list);
  list.allow(100);
  return list.take();
}

}  // namespace fsdp::planner
