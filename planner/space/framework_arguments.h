#pragma once

// Arguments of a framework that the search chooses: when FSDP1 gathers ahead, the size of DDP's buckets, ZeRO's
// thresholds, and how FSDP2 reduces in PyTorch 2.13 and later. Each other argument of FSDP2 is a dimension of its own.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/plan/plan.h"

namespace fsdp::planner {

struct PlanChoices;

/// Elements of a rank's part that ZeRO-3 updates at a time if the optimizer is on a drive. DeepSpeed has four buffers
/// of that size in host memory.
inline constexpr std::int64_t kDriveSubGroup = 100'000'000;

/// Each argument belongs to one framework, and has no effect under another.
struct FrameworkArguments {
  std::optional<std::int64_t> bucket_cap_mb = {};              ///< For DdpOptions.
  BackwardPrefetch backward_prefetch = BackwardPrefetch::Pre;  ///< For Fsdp1Options.
  std::int64_t reduce_bucket_size = 0;                         ///< This and the following ones are for ZeroOptions.
  std::int64_t prefetch_bucket_size = 0;
  std::int64_t max_live_parameters = 0;
  std::int64_t max_reuse_distance = 0;
  bool offload_param = false;  ///< For plans with offload.
  bool overlap_comm = false;
  std::int64_t hpz_partition_size = 1;
  bool drive = false;  ///< For plans with offload: the optimizer is on an NVMe drive.
  std::int64_t sub_group_size = ZeroOptions{}.sub_group_size;
  std::int64_t reduce_scatter_buffers = 1;  ///< This and the following one are for FSDP2.
  bool separate_reduce_scatter_group = false;

  bool operator==(const FrameworkArguments&) const = default;
};

FrameworkArguments arguments_of(const Plan& plan);
void set_arguments(Plan& plan, const FrameworkArguments& arguments);

/// The arguments to try for the framework of a plan on `gpus` GPUs in nodes of a given size: the plan's own first, then
/// others.
std::vector<FrameworkArguments> arguments_to_search(const Plan& base, std::int64_t gpus = 1,
                                                    std::int64_t gpus_per_node = 1);

/// Those of `all` that a user's choices allow. `prefetch`: FSDP1's, if it is fixed.
std::vector<FrameworkArguments> fixed_arguments(const PlanChoices& choices, std::optional<BackwardPrefetch> prefetch,
                                                std::vector<FrameworkArguments> all);

/// True if each group of GPUs that shares second copies is one whole node of several. True without such copies.
bool suits(const FrameworkArguments& arguments, std::int64_t gpus, std::int64_t gpus_per_node);

/// True if these arguments change nothing, because the step has no gather or reduction that they affect.
bool are_without_effect(Framework framework, const Mesh& mesh, bool has_units);

/// "reduce_bucket_size 5000000", "backward_prefetch none": the arguments that differ from the framework's default.
std::vector<std::string> texts_of_arguments(Framework framework, const FrameworkArguments& arguments);

}  // namespace fsdp::planner
