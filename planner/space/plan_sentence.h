#pragma once

// A plan in one sentence, in the words of a trainer's configuration.

#include <optional>
#include <set>
#include <string>

#include "core/model/model.h"
#include "core/plan/plan.h"

namespace fsdp::planner {

/// Facts that a sentence about a plan needs and the plan does not contain.
struct ModelFacts {
  std::optional<Dtype> weights;  ///< Dtype of the trained parameters in the checkpoint. `nullopt` if they have several.
  std::set<std::string> blocks;  ///< Names of the repeated blocks of all stacks.
  std::vector<Stack> stacks;     ///< Stacks of the model.
  std::vector<std::vector<std::string>> blocks_of_stacks;  ///< [stack] Names of the blocks.

  bool operator==(const ModelFacts&) const = default;
};
ModelFacts facts_of(const Model& model);

/// "fp32", "bf16", "fp16"; the full name of another dtype.
std::string short_name(Dtype dtype);

/// "bf16"; "bf16 mixed precision" for fp32 weights, bf16 compute and fp32 reduce; the names of all three for another
/// combination.
std::string precision_of(const Plan& plan, const ModelFacts& facts);

/// "AdamW foreach", "AdamW fused, 8-bit states".
std::string optimizer_of(const Plan& plan);

/// "batch 2 (seq 8192) x 4 accumulation x 4 GPUs = 32 samples a step".
std::string batch_of(const Plan& plan);

/// "fully_shard per block + model.embed_tokens, lm_head"; "fully_shard per block and its self_attn, mlp".
std::string wrapping_of_plan(const Plan& plan, const ModelFacts& facts);

/// "gradient_as_bucket_view=True, bucket_cap_mb=10": the arguments of DistributedDataParallel that differ from its
/// defaults.
std::string ddp_arguments(const DdpOptions& ddp);

/// "LoRA r=16 on all linear layers · Liger's fused linear cross entropy": how the job differs from PyTorch's plain
/// training of all weights. Empty if it does not.
std::string job_of(const Plan& plan);

/// "FULL_SHARD (fully_shard per block, reshard_after_forward=True), batch 2 x 4 accumulation x 4 GPUs = 32 samples a
/// step, from recipe sft, checkpoint 23 of 33 blocks, bf16, AdamW foreach", without what `job_of` says. `batch_origin`
/// ("from recipe sft") may be empty.
std::string sentence_of(const Plan& plan, const ModelFacts& facts, const std::string& batch_origin);

}  // namespace fsdp::planner
