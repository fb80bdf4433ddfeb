#pragma once

// Makes the curves of a plan that is prepared (simulator/curves/step_curves.h).

#include <memory>
#include <string>

#include "simulator/curves/step_curves.h"
#include "simulator/prepared/prediction.h"

namespace fsdp::simulator {

/// `keeps` is what the plan refers to; it lives as long as the curves. Error: settings of the allocator that it does
/// not know.
Result<StepCurves> build_curves(PreparedPlan prepared, const MeshCosts& mesh, CachingAllocator& allocator,
                                std::shared_ptr<const void> keeps);

/// An instruction in the words of a report.
struct PlaceInStep {
  std::string instruction;  ///< "Backward model.layers.27".
  std::string unit;         ///< FSDP unit at work; "" is the root.
};
PlaceInStep place_of(const PreparedPlan& prepared, const Instruction& step);

}  // namespace fsdp::simulator
