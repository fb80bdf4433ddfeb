#pragma once

// Suggestions for a script that ran out of memory in a rehearsal, priced by the tensors that were alive.

#include <string>
#include <vector>

#include "core/report/report.h"

namespace fsdp::render {

/// A line for each change, the largest saving first: "-5.00 GiB at most: checkpoint activations ...". Prices count
/// the tensors that were alive; the requests of the rest of the step are unknown. Empty if the script fits. REQUIRES: a
/// report with a rehearsal.
std::vector<std::string> remedies_of_rehearsal(const StepReport& report);

}  // namespace fsdp::render
