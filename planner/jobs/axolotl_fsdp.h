#pragma once

// The sharding of an axolotl configuration: FSDP of version 1 or 2, its units and its offload.

#include <cstdint>

#include "planner/jobs/job.h"
#include "planner/jobs/job_keys.h"

namespace fsdp::planner {

enum class AxolotlFsdp : std::uint8_t { None, Version1, Version2 };

/// Which FSDP runs. None: another way of data parallelism, which is refused.
AxolotlFsdp fsdp_of_axolotl(JobKeys& keys);

/// Says the plan of FSDP. `has_adapters`: the units of their matrices, too. REQUIRES: `fsdp` is not None.
void say_fsdp_of_axolotl(JobKeys& keys, AxolotlFsdp fsdp, bool has_adapters, Job& job);

}  // namespace fsdp::planner
