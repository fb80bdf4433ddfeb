#pragma once

// What each model beside the trained one needs in a step, as lines of a report.

#include <vector>

#include "core/report/report.h"
#include "simulator/prepared/prediction.h"

namespace fsdp::simulator {

/// In the order of `Plan::also`. `traffic`: that of the whole step.
std::vector<OtherReport> other_reports(const PreparedPlan& prepared, const TrafficReport& traffic);

}  // namespace fsdp::simulator
