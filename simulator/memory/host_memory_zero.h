#pragma once

// Host memory of a rank of DeepSpeed's ZeRO with offload. host_memory_zero.cpp has the tensors.

#include <cstdint>
#include <string_view>
#include <vector>

#include "core/plan/plan.h"
#include "core/plan/sharding.h"

namespace fsdp::simulator {

/// A tensor, or several of a kind.
struct HostTensor {
  std::string_view name;
  std::int64_t bytes = 0;  ///< Pinned ones include the rest of their blocks.
  bool is_pinned = false;
  std::string_view source;  ///< The source of the number.

  bool operator==(const HostTensor&) const = default;
};

/// While `rank` trains. REQUIRES: a plan of ZeRO with cpu_offload.
std::vector<HostTensor> zero_host_tensors(const Plan& plan, const Layout& layout, std::int64_t rank);

/// The maximum of their bytes during the construction of the engine. REQUIRES: the same.
std::int64_t zero_host_making(const Plan& plan, const Layout& layout);

}  // namespace fsdp::simulator
