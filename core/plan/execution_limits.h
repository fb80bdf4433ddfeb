#pragma once

// Which plans fsdp-exec trains.

#include <optional>

#include "core/base/result.h"
#include "core/plan/plan.h"

namespace fsdp {

/// Refuses a plan whose framework fsdp-exec does not run: it has FSDP2 on all devices, FSDP1 and DDP on CPUs. Of FSDP1
/// it has no CPU offload.
std::optional<Error> refuse_execution(const Plan& plan, bool on_gpus);

}  // namespace fsdp
