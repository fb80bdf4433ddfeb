#pragma once

// Arguments of a framework that the search chooses: when FSDP1 gathers ahead, how large DDP's buckets are, ZeRO's
// thresholds, how FSDP2 reduces from PyTorch 2.13 on. FSDP2 has a dimension of its own for each of its other arguments.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/plan/plan.h"

namespace fsdp::planner {

/// Elements of a rank's part that ZeRO-3 updates at a time where the optimizer is on a drive: DeepSpeed has four
/// buffers of that size in host memory.
inline constexpr std::int64_t kDriveSubGroup = 100'000'000;

/// Each is of one framework; what another one is given does nothing.
struct FrameworkArguments {
  std::optional<std::int64_t> bucket_cap_mb = {};              ///< For DdpOptions,
  BackwardPrefetch backward_prefetch = BackwardPrefetch::Pre;  ///< of Fsdp1Options,
  std::int64_t reduce_bucket_size = 0;                         ///< and from here on of ZeroOptions.
  std::int64_t prefetch_bucket_size = 0;
  std::int64_t max_live_parameters = 0;
  std::int64_t max_reuse_distance = 0;
  bool offload_param = false;  ///< For plans that offload.
  bool overlap_comm = false;
  std::int64_t hpz_partition_size = 1;
  bool drive = false;  ///< For plans that offload: the optimizer is on an NVMe drive.
  std::int64_t sub_group_size = ZeroOptions{}.sub_group_size;
  std::int64_t reduce_scatter_buffers = 1;  ///< From FSDP2, as is
  bool separate_reduce_scatter_group = false;

  bool operator==(const FrameworkArguments&) const = default;
};

FrameworkArguments arguments_of(const Plan& plan);
void set_arguments(Plan& plan, const FrameworkArguments& arguments);

/// What the framework of a plan may be given on so many GPUs, in nodes of so many: its own arguments first, then
/// others.
std::vector<FrameworkArguments> arguments_to_search(const Plan& base, std::int64_t gpus = 1,
                                                    std::int64_t gpus_per_node = 1);

/// Whether second copies that neighbors share are of one node each, of several. Without such copies: always.
bool suits(const FrameworkArguments& arguments, std::int64_t gpus, std::int64_t gpus_per_node);

/// Whether plans of different arguments do the same: nothing is gathered or reduced that they are about.
bool are_without_effect(Framework framework, const Mesh& mesh, bool has_units);

/// "reduce_bucket_size 5000000", "backward_prefetch none": what is not the framework's default.
std::vector<std::string> texts_of_arguments(Framework framework, const FrameworkArguments& arguments);

}  // namespace fsdp::planner
