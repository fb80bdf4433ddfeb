#pragma once

// A space with a predictor for each micro-batch.

#include <cstdint>
#include <memory>

#include "core/base/result.h"
#include "core/cluster/cluster.h"
#include "core/model/model.h"
#include "core/model/model_index.h"
#include "core/spec/model_spec.h"
#include "planner/search/lower_bounds.h"
#include "planner/search/predictors.h"
#include "planner/space/space.h"

namespace fsdp::planner {

struct PreparedSpace {
  std::shared_ptr<Predictors> predictors;
  Space space;  ///< The space within the limits of the model and the cluster.

  const Model& model() const { return *index().model; }
  const ModelIndex& index() const { return predictors->of(space.micro_batches.front()).index(); }
  PredictorOf predictor_of() const {
    return [shared = predictors](std::int64_t micro_batch) -> simulator::Predictor& { return shared->of(micro_batch); };
  }
};

/// `shared`: predictors of the same spec, workload and cluster. If null, makes new ones. Errors: those of the spec, the
/// workload and the fixed choices; a capture without a recording that every plan of the space needs; an op whose kernel
/// does not run on this GPU in this precision.
Result<PreparedSpace> prepare(const ModelSpec& spec, const Workload& workload, const Cluster& cluster,
                              const Space& space, const std::shared_ptr<Predictors>& shared);

}  // namespace fsdp::planner
