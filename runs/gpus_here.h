#pragma once

namespace fsdp::planner {

/// GPUs of this machine that a process may use: those of NVIDIA's driver that CUDA_VISIBLE_DEVICES does not hide. Asks
/// no library, because the planner links none of CUDA's.
int num_gpus_here();

}  // namespace fsdp::planner
