#include "planner/predictors.h"

#include <algorithm>
#include <cassert>
#include <numeric>
#include <utility>

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
