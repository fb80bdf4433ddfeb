#pragma once

// Captured models made from specs: what the simulator's own rules say, in the form in which a script is recorded.

#include <string>
#include <vector>

#include "core/cluster/cluster.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "core/spec/model_spec.h"
#include "simulator/ops/tape.h"

namespace fsdp {

/// A tape of the simulator as a recording. REQUIRES: it has no events of hooks.
RecordedTape recording_of(const simulator::Tape& tape, Dtype dtype, bool checkpointed);

/// The same model with recorded blocks: in the precision of each plan, with and without full checkpointing where calls
/// are repeated.
Model recorded_model(const Model& model, const std::vector<Plan>& plans, const Gpu& gpu);

/// The file of a captured model with these points. REQUIRES: they share modules and parameters.
std::string captured_text(const std::vector<Model>& points);

}  // namespace fsdp
