#pragma once

namespace fsdp::runs {

/// The number of GPUs that a process may use: those of NVIDIA's driver that CUDA_VISIBLE_DEVICES does not hide.
/// Uses no library, because the planner links none of CUDA's.
int num_gpus_here();

}  // namespace fsdp::runs
