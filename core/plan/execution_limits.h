#pragma once

// Which plans fsdp-exec trains.

#include "core/base/result.h"
#include "core/plan/plan.h"

namespace fsdp {

/// Why fsdp-exec does not train a plan, as far as its framework decides: it has FSDP2 on all devices, and FSDP1, DDP,
/// ZeRO and SimpleFSDP on CPUs, each with what it can compute alike. Empty: it does.
Errors refuse_execution(const Plan& plan, bool on_gpus);

}  // namespace fsdp
