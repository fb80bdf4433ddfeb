#pragma once

// Files of all ranks of a node on its NVMe drives, and their traffic in a step. core/frameworks/zero/zero_nvme.cpp
// lists them.

#include <optional>

#include "core/cluster/cluster.h"
#include "core/plan/plan.h"
#include "core/plan/schedule.h"
#include "core/report/report.h"

namespace fsdp::simulator {

/// nullopt if the plan uses no drive.
std::optional<DriveReport> drive_report(const Cluster& cluster, const Plan& plan, const Layout& layout,
                                        const Schedule& steady);

}  // namespace fsdp::simulator
