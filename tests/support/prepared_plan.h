#pragma once

// A plan on its way through the simulator, with all that it refers to.

#include <memory>

#include "core/cluster/cluster.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "simulator/prepared/prediction.h"

namespace fsdp::simulator {

/// A cluster of one node whose GPUs have an invented speed, for tests of memory.
Cluster cluster_of(const Mesh& mesh, int compute_capability);

/// Stays where it is, because the prepared plan refers to the model.
class PreparedRun {
 public:
  /// Ends the test program when the plan does not fit the model.
  PreparedRun(Model model, const Plan& plan, int compute_capability = 90, std::int64_t rank = 0);
  PreparedRun(const PreparedRun&) = delete;
  PreparedRun& operator=(const PreparedRun&) = delete;

  const Model& model() const { return model_; }
  const ModelIndex& index() const { return index_; }
  const PreparedPlan& prepared() const { return prepared_; }

 private:
  Model model_;
  ModelIndex index_;
  TapeLibrary library_;
  Cluster cluster_;
  PreparedPlan prepared_;
};

}  // namespace fsdp::simulator
