#pragma once

// Expert parallelism as transformers 5.24 runs it beside FSDP2: DistributedConfig(fsdp_size=N, ep_size=E).

#include <optional>
#include <string_view>

#include "core/base/result.h"
#include "core/model/model.h"
#include "core/plan/plan.h"

namespace fsdp {

/// The release whose code is predicted.
inline constexpr std::string_view kExpertParallelVersion = "5.24.0";

/// Why experts cannot be divided so on a mesh, or the plan is not predicted beside it. `nullopt` if they are not
/// divided, or all is well.
std::optional<Error> expert_misfit(const Plan& plan, const Model& model, const Mesh& mesh, bool cpu_offload);

/// Whether blocks with experts as a unit of their own can be checkpointed: FSDP2 casts wide routing weights once only.
bool experts_can_run_again(const Plan& plan, const Model& model);

}  // namespace fsdp
