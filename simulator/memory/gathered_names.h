#pragma once

// Chooses between the two names of a parameter that ZeRO-3 gathers. A checkpointed block that runs again saves the
// parameters that its modules release: each lives until its node of the backward has run, while the module of that node
// gathers it once more.

#include <algorithm>
#include <cstddef>
#include <optional>
#include <utility>
#include <vector>

#include "simulator/memory/memory_ids.h"
#include "simulator/memory/memory_walk.h"

namespace fsdp::simulator {

class GatheredNames {
 public:
  struct Kept {
    ParameterTensor name = ParameterTensor::Unsharded;
    bool is_on_compute = false;  ///< True if its memory belongs to the compute stream.
  };

  explicit GatheredNames(const WalkInput& input) : in_(input), of_(input.index->model->parameters.size()) {}

  /// The name of the existing copy, or of the next one.
  ParameterTensor name(int p) const {
    return at(p).is_other ? ParameterTensor::OtherUnsharded : ParameterTensor::Unsharded;
  }

  /// True if the existing copy stays after its release, because the call `rerun` has saved it; -1 for no call. Among
  /// several copies, the first stays.
  bool keep(int p, int rerun, bool is_on_compute) {
    OfParameter& of = of_[static_cast<std::size_t>(p)];
    if (rerun < 0 || of.kept || !is_saved_by(rerun, p)) return false;
    of.kept = Kept{.name = name(p), .is_on_compute = is_on_compute};
    of.is_other = !of.is_other;
    return true;
  }

  /// Returns the kept copy, and removes it.
  std::optional<Kept> take(int p) { return std::exchange(of_[static_cast<std::size_t>(p)].kept, std::nullopt); }

 private:
  struct OfParameter {
    bool is_other = false;
    std::optional<Kept> kept;
  };

  const OfParameter& at(int p) const { return of_[static_cast<std::size_t>(p)]; }

  bool is_saved_by(int call, int p) const {
    const std::vector<int>& of_call = in_.index->model->calls[call].parameters;
    const std::vector<int>& kept = (*in_.tapes)[call]->kept_parameters;
    return std::any_of(kept.begin(), kept.end(), [&](int index) { return of_call[index] == p; });
  }

  const WalkInput& in_;
  std::vector<OfParameter> of_;  // [num parameters]
};

}  // namespace fsdp::simulator
