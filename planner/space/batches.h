#pragma once

// The samples of a step: micro-batches, and how many of them a step accumulates.

#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/cluster/cluster.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "core/spec/model_spec.h"
#include "planner/space/space.h"

namespace fsdp::planner {

/// The name of the dimension that counts the samples of a micro-batch.
inline constexpr const char* kBatchDimension = "batch";
/// The name of the dimension that counts the tokens of a sample.
inline constexpr const char* kSequenceDimension = "seq";

/// The workload with another micro-batch. 0 leaves it unchanged.
Workload with_micro_batch(Workload workload, std::int64_t micro_batch);

/// The workload with one dimension set.
Workload with_dimension(Workload workload, std::string_view name, double value);

/// The number of micro-batches that comes nearest to `samples` of one GPU.
constexpr std::int64_t accumulation_of(std::int64_t samples, std::int64_t micro_batch) {
  return std::max<std::int64_t>(1, (samples + micro_batch / 2) / micro_batch);
}

/// Samples of one step over all GPUs.
std::int64_t samples_of(const Plan& plan);

/// The micro-batches and accumulations that make up the samples of a step. If they are free, the workload's own.
struct Batch {
  std::int64_t micro_batch = 0;
  std::int64_t accumulation = 1;

  bool operator==(const Batch&) const = default;
};

/// Errors: samples that no micro-batch of the space makes up.
Result<std::vector<Batch>> batches_of(const Space& space, const Cluster& cluster);

/// Micro-batches and accumulations that SearchObjective::Tokens tries, up to `most`: 1, 2, 3, 4, 6, 8, 12 ... `most`,
/// and 1, 2, 4, 8.
std::vector<std::int64_t> tried_micro_batches(std::int64_t most);
inline constexpr std::int64_t kTriedAccumulations[] = {1, 2, 4, 8};

/// True if the size of a micro-batch changes the trained result: a batch norm takes its statistics from it.
bool has_batch_norm(const Model& model);

}  // namespace fsdp::planner
