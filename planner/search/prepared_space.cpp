#include "planner/search/prepared_space.h"

#include <utility>
#include <vector>

#include "core/frameworks/ddp/ddp_buckets.h"
#include "core/plan/framework_traits.h"
#include "planner/search/plain_plan.h"
#include "planner/space/batches.h"
#include "planner/space/checkpointed_blocks.h"
#include "planner/space/families.h"
#include "planner/space/wrap_apart.h"

namespace fsdp::planner {

namespace {

/// We refuse a space before the search if the capture has no recording that every plan of it needs.
Result<void> check_recorded(const ModelSpec& spec, const Space& space, const Cluster& cluster, Predictors& predictors) {
  if (spec.captured == nullptr) return {};
  for (const std::int64_t micro_batch : space.micro_batches) {
    simulator::Predictor& predictor = predictors.of(micro_batch);
    if (auto misfit = passes_misfit(space.base, predictor.model())) return tl::unexpected(Errors{*std::move(misfit)});
    Plan plan = space.base;
    const std::int64_t gpus = world_size(cluster);
    plan.mesh = traits_of(plan).mesh == MeshRule::AllCopies ? Mesh{gpus, 1} : Mesh{1, gpus};
    Wrapping wrapping{.stacks = {}, .others = {}, .roots = models_of_passes(predictor.model())};
    if (traits_of(plan).has_flat_parameters) wrap_apart(predictor.model(), plan, wrapping);
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

/// We refuse a space before the search if PyTorch runs no plan of it: the kernels of its ops refuse the GPU, the
/// precision or what keeps documents apart, which all plans share.
Result<void> check_kernels(const PreparedSpace& prepared, const Cluster& cluster) {
  const std::int64_t micro_batch = prepared.space.micro_batches.front();
  const auto plan = plain_plan(prepared.space, prepared.index(), cluster, micro_batch);
  if (!plan) return {};  // The search says why.
  const auto outcome = prepared.predictors->of(micro_batch).evaluate(*plan, simulator::Detail::Time);
  if (!outcome) return tl::unexpected(outcome.error());
  return {};
}

}  // namespace

Result<PreparedSpace> prepare(const ModelSpec& spec, const Workload& workload, const Cluster& cluster,
                              const Space& space, const std::shared_ptr<Predictors>& shared) {
  FSDP_TRY(const std::vector<Batch> batches, batches_of(space, cluster));
  std::vector<std::int64_t> micro_batches;
  for (const Batch& batch : batches) micro_batches.push_back(batch.micro_batch);
  PreparedSpace prepared{shared ? shared : std::make_shared<Predictors>(), space};
  keep_recorded(spec, prepared.space);
  // A formula of the spec may refuse some of them.
  FSDP_TRY(prepared.space.micro_batches, prepared.predictors->add(spec, workload, cluster, micro_batches));
  if (const auto recorded = check_recorded(spec, prepared.space, cluster, *prepared.predictors); !recorded) {
    return tl::unexpected(recorded.error());
  }
  if (space.objective == SearchObjective::Tokens && !space.micro_batch && !space.global_batch &&
      has_batch_norm(prepared.model())) {
    return failure("--objective", "The statistics of a batch norm are those of a micro-batch, whose size changes them.",
                   "Say the micro-batch with --batch.");
  }
  if (traits_of(prepared.space.base).options == OptionsMember::Ddp) {
    bool& finds_unused = prepared.space.base.ddp.find_unused_parameters;
    finds_unused = finds_unused || has_unused_parameters(prepared.model());
  }
  prepared.space.base.model = prepared.model().name;
  prepared.space.base.model_fingerprint = fingerprint_of(prepared.model());
  if (auto runs = check_kernels(prepared, cluster); !runs) return tl::unexpected(std::move(runs).error());
  return prepared;
}

}  // namespace fsdp::planner
