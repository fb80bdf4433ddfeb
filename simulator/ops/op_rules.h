#pragma once

// The second rule of an op kind: what it allocates, saves for backward, computes and moves.

#include <cstdint>
#include <optional>
#include <vector>

#include "core/model/model.h"
#include "core/plan/plan.h"
#include "core/plan/runtime.h"
#include "simulator/ops/kernels.h"

namespace fsdp::simulator {

/// How whoever reads a parameter makes a whole copy of it (SimpleFSDP; gathered_parameters.cpp).
struct GatheredReads {
  std::int64_t shard = 0;  ///< Ranks over which parameters are cut; 0: they lie there whole, and are read as they are.
  std::int64_t replicate = 1;
  std::int64_t rank = 0;  ///< In the shard group.
  MixedPrecision precision;

  bool operator==(const GatheredReads&) const = default;
};

/// The inputs of the rules beside the op.
struct OpRuleContext {
  Dtype activation = Dtype::BFloat16;  ///< Precision of activations and of unsharded parameters.
  Implementations implementations;
  int compute_capability = 90;  ///< Capability of the GPU: 90 is sm_90; 0: there is none, and the CPU computes.
  int num_sms = 132;            ///< Without a GPU: threads of a rank.
  GatheredReads reads = {};

  bool is_cpu() const { return compute_capability == 0; }

  bool operator==(const OpRuleContext&) const = default;
};

/// Writes a block out in the ATen calls that the runtime makes of its ops. `input_strides` [num_inputs]: how the
/// block's inputs lie in memory, where that is not the order of their shape; empty: all of them lie in order.
/// `input_dtypes` [num_inputs]: of those that have another dtype than the block says; empty: none. `parameter_dtypes`
/// [num parameters]: as they lie there, where each read makes a copy; else empty.
KernelProgram expand_block(const Block& block, const OpRuleContext& context,
                           const std::vector<Shape>& input_strides = {},
                           const std::vector<std::optional<Dtype>>& input_dtypes = {},
                           const std::vector<Dtype>& parameter_dtypes = {});

}  // namespace fsdp::simulator
