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

/// How the reader of a parameter makes a whole copy of it (SimpleFSDP; gathered_parameters.cpp).
struct GatheredReads {
  std::int64_t shard = 0;  ///< Ranks over which parameters are sharded. 0 if they are whole, and read without a copy.
  std::int64_t replicate = 1;
  std::int64_t rank = 0;  ///< In the shard group.
  MixedPrecision precision;

  bool operator==(const GatheredReads&) const = default;
};

/// The inputs of the rules other than the op.
struct OpRuleContext {
  Dtype activation = Dtype::BFloat16;  ///< Precision of activations and of unsharded parameters.
  Implementations implementations;
  int compute_capability = 90;  ///< Capability of the GPU: 90 is sm_90. 0 if the CPU computes.
  int num_sms = 132;            ///< Without a GPU: threads of a rank.
  GatheredReads reads = {};
  std::int64_t expert_parallel = 1;      ///< Ranks that share the experts of a layer (Mesh::ep).
  bool casts_inputs_of_experts = false;  ///< Experts are units, which cast what they are given (cast_forward_inputs).
  /// For a loss that calls the head (`LossRow::calls_head`) in a unit of its own: the dtype in which the unit keeps and
  /// reduces the head's gradient. nullopt: the root's backward gets it.
  std::optional<Dtype> head_reduces_in = {};
  /// Autograd casts the gradient of each part to it, and not only the first (Quirks::casts_gradients_as_they_come).
  bool head_casts_each_part = false;
  std::optional<Dtype> autocast = {};  ///< The dtype of torch.autocast around the forward. Empty: none.
  std::optional<Dtype> trained = {};   ///< That of trained parameters, if not that of the activations.
  bool float_outputs = false;          ///< The model copies its logits to fp32 before it returns (accelerate), and
  std::optional<Dtype> returned = {};  ///< the root casts the copies to this dtype. Empty: it does not.

  bool is_cpu() const { return compute_capability == 0; }

  bool operator==(const OpRuleContext&) const = default;
};

/// Expands a block to the ATen calls that the runtime makes for its ops. `input_strides` [num_inputs]: the strides of
/// inputs whose order is not that of their shape; empty if all are contiguous. `input_dtypes` [num_inputs]: of those
/// with another dtype than the block's; empty if there are none. `parameter_dtypes` [num parameters]: as stored, if
/// each read makes a copy, or under autocast; otherwise empty.
KernelProgram expand_block(const Block& block, const OpRuleContext& context,
                           const std::vector<Shape>& input_strides = {},
                           const std::vector<std::optional<Dtype>>& input_dtypes = {},
                           const std::vector<Dtype>& parameter_dtypes = {});

}  // namespace fsdp::simulator
