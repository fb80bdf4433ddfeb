#pragma once

// The predictors of one search: one for each micro-batch, because a micro-batch changes the sizes of the model.

#include <cstdint>
#include <map>
#include <vector>

#include "core/base/result.h"
#include "core/cluster/cluster.h"
#include "core/spec/model_spec.h"
#include "planner/search/known_predictions.h"
#include "simulator/predictor.h"

namespace fsdp::planner {

class Predictors {
 public:
  /// Builds the model once for each micro-batch (0: the workload's own); omits those that the spec's formulas refuse.
  /// Errors: those of build_model, when it refuses all of them.
  static Result<Predictors> make(const ModelSpec& spec, const Workload& workload, const Cluster& cluster,
                                 const std::vector<std::int64_t>& micro_batches);

  /// The same for micro-batches without a model. Returns those that then have one, in the order given. REQUIRES: the
  /// same spec, workload and cluster each time.
  Result<std::vector<std::int64_t>> add(const ModelSpec& spec, const Workload& workload, const Cluster& cluster,
                                        const std::vector<std::int64_t>& micro_batches);

  /// Micro-batches with a model, in the order given.
  const std::vector<std::int64_t>& micro_batches() const { return micro_batches_; }

  /// REQUIRES: a micro-batch with a model.
  simulator::Predictor& of(std::int64_t micro_batch);

  /// The sum of Predictor::work.
  std::int64_t work() const;

  /// Predictions of the searches that use these predictors.
  KnownPredictions& known() { return known_; }

 private:
  std::map<std::int64_t, simulator::Predictor> predictors_;
  std::vector<std::int64_t> micro_batches_;
  KnownPredictions known_;
};

}  // namespace fsdp::planner
