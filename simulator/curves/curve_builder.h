#pragma once

// Makes the curves of a prepared plan (simulator/curves/step_curves.h).

#include <memory>
#include <string>

#include "simulator/curves/step_curves.h"
#include "simulator/prepared/prediction.h"

namespace fsdp::simulator {

/// `keeps` owns the objects that the plan refers to; it lives as long as the curves. Errors: settings that the
/// allocator does not know.
Result<StepCurves> build_curves(PreparedPlan prepared, const MeshCosts& mesh, CachingAllocator& allocator,
                                std::shared_ptr<const void> keeps);

/// An instruction in the words of a report.
struct PlaceInStep {
  std::string instruction;  ///< "Backward model.layers.27".
  std::string unit;         ///< FSDP unit at work; "" for the root.
};
PlaceInStep place_of(const PreparedPlan& prepared, const Instruction& step);

}  // namespace fsdp::simulator
