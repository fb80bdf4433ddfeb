#pragma once

// The first step of DDP, which only an interpreter needs that really reduces: what it allocates and computes is that of
// any step, so predictions have the steady one alone.

#include "core/plan/schedule.h"

namespace fsdp {

/// As `lower_ddp` (core/plan/schedule.h), but that the first micro-batch that reduces has the buckets of
/// `first_step_buckets`: its `Instruction::bucket` is in those. The same schedule where the two do not differ.
Schedule lower_first_ddp_step(const ModelIndex& index, const Plan& plan, const Layout& layout);

}  // namespace fsdp
