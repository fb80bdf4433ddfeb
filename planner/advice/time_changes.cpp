// We do not reason about what shortens a wait: each change below is predicted, and the account of its step has the
// remaining wait. A change counts for a wait if it removes a fifth of it, and shortens the step by a hundredth.
//
// Tried: units prefetched further, shards kept after the forward or inside a node, gradients reduced once a step or in
// bf16, reduce-scatters with buffers and a communicator of their own (PyTorch 2.13 and later), larger units, larger
// micro-batches of the same samples, bf16, no offload. Only changes that an option of the command asks for.

#include "planner/advice/time_changes.h"

#include <fmt/core.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "core/frameworks/check_plan.h"
#include "core/plan/framework_traits.h"
#include "core/plan/torch_version.h"
#include "planner/advice/changed_plans.h"
#include "planner/advice/remedy_kind.h"
#include "planner/advice/remedy_list.h"
#include "planner/space/batches.h"
#include "planner/space/rewrap.h"

namespace fsdp::planner {

namespace {

constexpr double kLeastOfWait = 0.2;

struct Tried {
  std::string what;
  PlanChoices change;
  Plan plan;
  std::optional<Workload> workload = {};  ///< If the sizes change, too.
};

/// A change, and the account of the step that it makes.
struct Priced {
  Remedy remedy;
  TimeAccount account;
};

class Changes {
 public:
  explicit Changes(const RemedyRequest& request) : request_(request), plan_(request.best.plan) {}

  std::vector<Tried> take() {
    if (traits_of(plan_).wraps_units) {
      for (const std::int64_t more : {0, 1, 2}) add(prefetching_more(plan_, more));
      keep_shards();
      add(reducing_apart(plan_));
      wrap();
    }
    reduce_less();
    double_batch();
    if (plan_.cpu_offload) {
      Plan plan = plan_;
      set_offload(plan, false);
      add("keep shards, gradients and optimizer on the GPU", {.cpu_offload = false}, plan);
    }
    return std::move(tried_);
  }

 private:
  void add(std::string what, PlanChoices change, Plan plan) {
    tried_.push_back({std::move(what), std::move(change), std::move(plan)});
  }

  void add(std::vector<ChangedPlan> changed) {
    for (ChangedPlan& each : changed) add(std::move(each.what), std::move(each.change), std::move(each.plan));
  }

  void keep_shards() {
    if (plan_.mesh.ep > 1) return;  // Experts that ranks share are always resharded.
    Plan plan = plan_;
    for (Unit& unit : plan.units) unit.reshard_after_forward = {ReshardAfterForward::Kind::Never, 0};
    add("keep parameters unsharded after the forward",
        {.reshard = ReshardChoice{ReshardAfterForward::Kind::Never, 0, 0}}, plan);
    const std::int64_t node = request_.cluster.gpus_per_node;
    if (plan_.mesh.dp_shard() <= node || plan_.mesh.dp_shard() % node != 0) return;
    plan = plan_;
    plan.mesh = {plan_.mesh.dp_replicate() * (plan_.mesh.dp_shard() / node), node};
    add("shard inside a node, and replicate over nodes",
        {.shard = plan.mesh.dp_shard(), .replicate = plan.mesh.dp_replicate()}, plan);
  }

  void wrap() {
    const Model& model = request_.predictor.model();
    const Wrappables wrappables = wrappables_of(model);
    const bool ends = has_ends(plan_, model, wrappables);
    for (const int blocks : {1, 2, 4}) {
      const Wrap wrap{blocks, {}};
      const Result<Plan> plan = with_wrap(plan_, wrap, ends, model, wrappables);
      if (!plan || plan->units == plan_.units) continue;
      add(blocks == 1 ? "wrap each block" : fmt::format("wrap {} blocks together", blocks), {.wrap = wrap}, *plan);
    }
  }

  void reduce_less() {
    Plan plan = plan_;
    const bool can_say = request_.predictor.model().says_last_micro_batch;
    if (can_say && plan_.accumulation > 1 && plan_.sync_every_micro_batch && traits_of(plan_).chooses_gradient_sync) {
      plan.sync_every_micro_batch = false;
      add("reduce gradients once a step", {.gradient_sync = GradientSync::Last}, plan);
    }
    const bool has_policy = traits_of(plan_).precision == PrecisionRule::Policy;
    if (!has_policy || !request_.cluster.gpu.bf16) return;
    plan = plan_;
    if (activation_dtype(request_.predictor.model(), plan_) == Dtype::Float32) {
      plan.parameter_dtype = Dtype::Float32;
      plan.mixed_precision = {.param_dtype = Dtype::BFloat16, .reduce_dtype = Dtype::Float32};
      add("bf16 mixed precision", {.precision = Precision::Mixed}, plan);
    } else if (plan_.mixed_precision.reduce_dtype == Dtype::Float32) {
      plan.mixed_precision.reduce_dtype = Dtype::BFloat16;
      add("reduce gradients in bf16", {.reduce_dtype = Dtype::BFloat16}, plan);
    }
  }

  void double_batch() {
    const Dimension* batch = find_dimension(request_.predictor.model().dimensions, kBatchDimension);
    if (batch == nullptr || plan_.accumulation % 2 != 0) return;
    Plan plan = plan_;
    plan.accumulation /= 2;
    const auto samples = static_cast<std::int64_t>(2 * batch->value);
    for (Dimension& dimension : plan.dimensions) {
      if (dimension.name == kBatchDimension) dimension.value = static_cast<double>(samples);
    }
    add(fmt::format("micro-batch {} x {} accumulation", samples, plan.accumulation),
        {.batch = samples, .accumulation = plan.accumulation}, plan);
    tried_.back().workload = with_dimension(request_.workload, std::string(kBatchDimension), 2 * batch->value);
  }

  const RemedyRequest& request_;
  const Plan& plan_;
  std::vector<Tried> tried_;
};

/// nullopt if the change makes no valid plan.
std::optional<Priced> price(const RemedyRequest& request, const Tried& tried) {
  std::optional<simulator::Predictor> own;
  if (tried.workload) {
    Result<Model> model = build_model(request.spec, *tried.workload);
    if (!model) return std::nullopt;
    own.emplace(*std::move(model), request.cluster);
  }
  simulator::Predictor& predictor = own ? *own : request.predictor;
  if (!check(tried.plan, predictor.model()).empty() || !check_torch(tried.plan).empty()) return std::nullopt;
  const auto timeline = predictor.timeline(tried.plan);
  const auto memory = predictor.evaluate(tried.plan, simulator::Detail::Tight);
  if (!timeline || !memory) return std::nullopt;
  return Priced{.remedy = {.what = tried.what,
                           .change = tried.change,
                           .delta_bytes = memory->peaks.device - request.best.device_peak,
                           .delta_time = timeline->step - request.best.step,
                           .verdict = verdict_of(*memory),
                           .is_tight = runs_tight(*memory)},
                .account = account_of(*timeline)};
}

std::optional<TimeChange> best_for(const Wait& wait, const std::vector<Priced>& all, Seconds step) {
  std::optional<TimeChange> best;
  for (const Priced& priced : all) {
    const Seconds left = exposed_of(priced.account, wait);
    const bool helps = wait.exposed - left > kLeastOfWait * wait.exposed;
    if (!helps || priced.remedy.delta_time > -kLeastSavedTime * step) continue;
    const auto place = [](const Remedy& remedy) {
      return std::tuple(remedy.verdict != Verdict::Fits, remedy.is_tight, remedy.delta_time);
    };
    if (!best || place(priced.remedy) < place(best->remedy)) best = TimeChange{priced.remedy, left};
  }
  return best;
}

}  // namespace

Result<TimeExplanation> explain_time(const RemedyRequest& request) {
  FSDP_TRY(const simulator::StepTimeline timeline, request.predictor.timeline(request.best.plan));
  TimeExplanation explanation{.account = account_of(timeline), .waits = {}};
  std::vector<Priced> all;
  for (const Tried& tried : Changes(request).take()) {
    if (auto priced = price(request, tried)) all.push_back(*std::move(priced));
  }
  for (const Wait& wait : explanation.account.waits) {
    if (explanation.waits.size() == kMostWaits) break;
    explanation.waits.push_back({wait, best_for(wait, all, explanation.account.step)});
  }
  return explanation;
}

}  // namespace fsdp::planner
