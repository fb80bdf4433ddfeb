#pragma once

// The runs of a calibration: plans of one model whose ops, units and collectives span the sizes of its other plans.

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/plan/plan.h"
#include "core/spec/model_spec.h"

namespace fsdp::runs {

/// One run of fsdp-exec.
struct CalibrationItem {
  std::string name;  ///< "2 ranks, batch 4, seq 128, units of 1 block"; unique.
  Plan plan;
  bool with_collectives = false;  ///< It times collectives, too.
};

/// Most useful runs first, so that a run that ends early has the important ones. `base`: precision, optimizer,
/// model; its units, mesh and sizes are overwritten. `ranks`: numbers of processes. Errors: those of the model.
Result<std::vector<CalibrationItem>> calibration_items(const ModelSpec& spec, const Workload& workload,
                                                       const Plan& base, const std::vector<std::int64_t>& ranks);

}  // namespace fsdp::runs
