#pragma once

// torch.optim.Muon's part of a step of a plan: its work on each of its matrices.

#include <memory>
#include <vector>

#include "core/cluster/cluster.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "core/plan/sharding.h"
#include "simulator/ops/newton_schulz.h"

namespace fsdp::simulator {

struct MuonStep {
  TensorMesh mesh;
  std::vector<MuonUpdate> updates;  ///< Matrices that differ.
  std::vector<int> of_parameter;    ///< [num parameters] An index of `updates`. -1 if Muon does not update it.

  /// nullptr if Muon does not update the parameter.
  const MuonUpdate* update_of(int parameter) const {
    const int update = of_parameter[static_cast<std::size_t>(parameter)];
    return update < 0 ? nullptr : &updates[static_cast<std::size_t>(update)];
  }
};

/// REQUIRES: optimizer_misfit(plan, model) is empty, and the plan has Muon.
MuonStep muon_step(const Model& model, const Layout& layout, const Plan& plan, const Cluster& cluster);

/// Steps of one model, each computed once: plans of a search differ in little that Muon sees.
class MuonSteps {
 public:
  /// As muon_step(). Valid for the life of this object. REQUIRES: the same model each time.
  const MuonStep& of(const Model& model, const Layout& layout, const Plan& plan, const Cluster& cluster);

 private:
  /// What a step depends on.
  struct Key {
    TensorMesh mesh;
    LaunchLimits limits;
    MuonOptions options;
    std::vector<Dtype> dtypes;  ///< [num parameters]

    bool operator==(const Key&) const = default;
  };
  struct Known {
    Key key;
    std::unique_ptr<MuonStep> step;
  };
  std::vector<Known> known_;
};

}  // namespace fsdp::simulator
