#pragma once

// The models beside the trained one, made once for each way to hold them: nothing of them depends on the units, the
// checkpointing or the optimizer of the trained model's plan.

#include <cstdint>
#include <deque>
#include <memory>

#include "core/base/result.h"
#include "core/cluster/cluster.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "simulator/prepared/prepared_others.h"

namespace fsdp::simulator {

class OtherModels {
 public:
  /// `model`: the trained one, with `Model::beside`. REQUIRES: both outlive this.
  OtherModels(const Model& model, const Cluster& cluster);
  ~OtherModels();

  /// The other models of a plan, seen from a rank of the shard group; null if it has none. Valid for this object's
  /// life. Errors: those of prepare().
  Result<const PreparedOthers*> of(const Plan& plan, std::int64_t rank);

  /// Work so far, in requests for memory.
  std::int64_t work() const { return work_; }

 private:
  class Made;
  const Model& model_;
  const Cluster& cluster_;
  std::deque<std::unique_ptr<Made>> made_;
  std::int64_t work_ = 0;
};

}  // namespace fsdp::simulator
