#pragma once

// The kernels that update the parameters: PyTorch's, with the temporaries of their implementation, or bitsandbytes'.
//
// PyTorch has no optimizer with 8-bit states. bitsandbytes updates one tensor after another with one kernel that reads
// and writes the states in blocks of 256, keeps the number of steps on the host, and allocates nothing beside the
// states. On the host the same update is a dozen operations in fp32.
//
// Sources: bitsandbytes 0.50.2, optim/optimizer.py (Optimizer8bit.step, Optimizer2State.init_state and update_step),
// backends/cuda/ops.py and backends/cpu/ops.py (optimizer_update_8bit_blockwise).
//
// Not modeled: torchao's 8-bit optimizers, which torch.compile makes of operations in fp32, one tensor after another,
// with temporaries of the largest tensor's size; the two lookup tables of 1 KiB.

#include <cstdint>

#include "core/plan/optimizer_table.h"
#include "core/plan/plan.h"

namespace fsdp::simulator {

inline constexpr std::int64_t kSmallestEightBit = 4096;  ///< Smaller tensors keep fp32 moments.
inline constexpr std::int64_t kEightBitBlock = 256;      ///< Elements that share one fp32 scale.

/// True if Optimizer::implementation decides how the update is computed.
constexpr bool has_torch_kernels(const Optimizer& optimizer) {
  return optimizer.states != OptimizerStates::EightBit;
}

/// True if the number of steps of each parameter is a tensor on the device.
constexpr bool counts_steps_on_device(const Optimizer& optimizer) {
  return optimizer_row(optimizer).counts_steps && optimizer.implementation == OptimizerImplementation::Fused &&
         has_torch_kernels(optimizer);
}

}  // namespace fsdp::simulator
