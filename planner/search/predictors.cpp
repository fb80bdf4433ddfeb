#include "planner/search/predictors.h"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <utility>

#include "planner/space/batches.h"

namespace fsdp::planner {

Result<Predictors> Predictors::make(const ModelSpec& spec, const Workload& workload, const Cluster& cluster,
                                    const std::vector<std::int64_t>& micro_batches) {
  Predictors predictors;
  if (auto made = predictors.add(spec, workload, cluster, micro_batches); !made) {
    return tl::unexpected(std::move(made).error());
  }
  return predictors;
}

Result<std::vector<std::int64_t>> Predictors::add(const ModelSpec& spec, const Workload& workload,
                                                  const Cluster& cluster,
                                                  const std::vector<std::int64_t>& micro_batches) {
  std::vector<std::int64_t> made;
  Errors errors;
  for (const std::int64_t micro_batch : micro_batches) {
    if (std::find(made.begin(), made.end(), micro_batch) != made.end()) continue;
    if (!predictors_.contains(micro_batch)) {
      Result<Model> model = build_model(spec, with_micro_batch(workload, micro_batch));
      if (!model) {
        if (errors.empty()) errors = std::move(model).error();
        continue;
      }
      predictors_.emplace(micro_batch, simulator::Predictor(*std::move(model), cluster));
      micro_batches_.push_back(micro_batch);
    }
    made.push_back(micro_batch);
  }
  if (made.empty()) return tl::unexpected(std::move(errors));
  return made;
}

simulator::Predictor& Predictors::of(std::int64_t micro_batch) {
  const auto found = predictors_.find(micro_batch);
  assert(found != predictors_.end());
  return found->second;
}

std::int64_t Predictors::work() const {
  return std::accumulate(predictors_.begin(), predictors_.end(), std::int64_t{0},
                         [](std::int64_t sum, const auto& predictor) { return sum + predictor.second.work(); });
}

}  // namespace fsdp::planner
