#include "planner/space/batches.h"

#include <fmt/core.h>

#include <optional>
#include <string>
#include <utility>

#include "core/base/limits.h"
#include "core/model/op.h"

namespace fsdp::planner {

Workload with_dimension(Workload workload, std::string_view name, double value) {
  std::erase_if(workload.dimensions, [&](const Dimension& dimension) { return dimension.name == name; });
  workload.dimensions.push_back({std::string(name), value});
  return workload;
}

Workload with_micro_batch(Workload workload, std::int64_t micro_batch) {
  if (micro_batch == 0) return workload;
  return with_dimension(std::move(workload), kBatchDimension, static_cast<double>(micro_batch));
}

std::int64_t samples_of(const Plan& plan) {
  const Dimension* batch = find_dimension(plan.dimensions, kBatchDimension);
  const std::int64_t micro_batch = batch == nullptr ? 1 : static_cast<std::int64_t>(batch->value);
  return micro_batch * micro_batches_of_step(plan);
}

std::vector<std::int64_t> tried_micro_batches(std::int64_t most) {
  std::vector<std::int64_t> tried;
  for (std::int64_t power = 1; power <= most; power *= 2) {
    tried.push_back(power);
    if (power > 1 && power + power / 2 <= most) tried.push_back(power + power / 2);
  }
  return tried;
}

bool has_batch_norm(const Model& model) {
  return std::any_of(model.blocks.begin(), model.blocks.end(), [](const Block& block) {
    return std::any_of(block.ops.begin(), block.ops.end(), [](const Op& op) { return op.kind == OpKind::BatchNorm; });
  });
}

namespace {

/// If the number of samples of a step is the answer, not an input.
std::vector<Batch> free_batches(const Space& space) {
  std::vector<std::int64_t> micro_batches = space.micro_batches;
  if (space.micro_batch) micro_batches = {*space.micro_batch};
  if (micro_batches.empty()) micro_batches = tried_micro_batches(space.max_micro_batch);
  std::vector<Batch> batches;
  for (const std::int64_t micro : micro_batches) {
    for (const std::int64_t accumulation : kTriedAccumulations) {
      if (!space.accumulation) batches.push_back({micro, accumulation});
    }
    if (space.accumulation) batches.push_back({micro, *space.accumulation});
  }
  return batches;
}

}  // namespace

Result<std::vector<Batch>> batches_of(const Space& space, const Cluster& cluster) {
  const std::int64_t world = world_size(cluster);
  if (space.objective == SearchObjective::Tokens && !space.global_batch) return free_batches(space);
  if (!space.global_batch && !space.samples_per_gpu) {
    return std::vector{Batch{space.micro_batch.value_or(0), space.accumulation.value_or(space.base.accumulation)}};
  }
  const std::int64_t global = space.global_batch.value_or(space.samples_per_gpu.value_or(0) * world);
  if (global < 1 || global % world != 0) {
    return failure("--global-batch", fmt::format("{} samples cannot be split evenly over {} GPUs.", global, world),
                   fmt::format("Write a multiple of {}.", world));
  }
  const std::int64_t per_gpu = global / world;
  std::vector<Batch> batches;
  for (std::int64_t micro = std::min(per_gpu, space.max_micro_batch); micro >= 1; --micro) {
    if (per_gpu % micro != 0 || per_gpu / micro > kMostMicroBatches) continue;
    if (space.micro_batch && *space.micro_batch != micro) continue;
    const auto& tried = space.micro_batches;
    if (!tried.empty() && std::find(tried.begin(), tried.end(), micro) == tried.end()) continue;
    if (space.accumulation && *space.accumulation != per_gpu / micro) continue;
    batches.push_back({micro, per_gpu / micro});
  }
  if (batches.empty() && !space.micro_batch && !space.accumulation) {
    return failure("--global-batch",
                   fmt::format("{} samples are {} for each of {} GPUs: more than {} micro-batches of at most {}.",
                               global, per_gpu, world, kMostMicroBatches, space.max_micro_batch),
                   "Take a smaller global batch, or more GPUs.");
  }
  if (batches.empty()) {
    const bool divides = !space.micro_batch || per_gpu % *space.micro_batch == 0;
    return failure("--global-batch",
                   fmt::format("{} samples are {} for each of {} GPUs, {}.", global, per_gpu, world,
                               divides ? "and micro-batch x accumulation is a different number"
                                       : fmt::format("no multiple of a micro-batch of {}", *space.micro_batch)),
                   "Leave one of --global-batch, --batch and --accumulate out.");
  }
  return batches;
}

}  // namespace fsdp::planner
