#pragma once

// DeepSpeed's configuration of a run (ds_config.json), as far as it decides memory, collectives and time.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/json_document.h"
#include "core/base/result.h"
#include "core/plan/plan.h"

namespace fsdp {

/// Dtypes of computation and parameters in a file.
enum class DeepSpeedPrecision : std::uint8_t {
  Float32,
  BFloat16,      ///< bf16.enabled, with an fp32 copy.
  PureBFloat16,  ///< Also bf16_master_weights_and_grads and bf16_optimizer_states: no copy.
  Float16,       ///< fp16.enabled.
};

/// The sizes of `zero` that are "auto". transformers' Trainer and accelerate compute them from the model's hidden_size;
/// without either, DeepSpeed uses its defaults, which are those in `zero`.
struct DeepSpeedAutoSizes {
  bool reduce_bucket = false;          ///< hidden_size^2.
  bool prefetch_bucket = false;        ///< 0.9 hidden_size^2, of stage 3.
  bool persistence_threshold = false;  ///< 10 hidden_size, of stage 3.

  bool any() const { return reduce_bucket || prefetch_bucket || persistence_threshold; }
  bool operator==(const DeepSpeedAutoSizes&) const = default;
};

/// Sets the sizes that transformers and accelerate compute.
void fill_in(const DeepSpeedAutoSizes& sizes, std::int64_t hidden_size, ZeroOptions& zero);

/// The contents of a file. `nullopt` if the file omits a value or says "auto", which transformers and accelerate fill
/// in.
struct DeepSpeedConfig {
  Framework framework = Framework::Zero2;  ///< From zero_optimization.stage.
  ZeroOptions zero;
  bool offload = false;                      ///< The optimizer is on the host.
  std::optional<std::int64_t> train_batch;   ///< Samples of a step on all GPUs.
  std::optional<std::int64_t> micro_batch;   ///< Samples of one GPU in a micro-batch.
  std::optional<std::int64_t> accumulation;  ///< Micro-batches of a step.
  std::optional<double> clip_grad_norm;      ///< 0 does not clip gradients.
  std::optional<DeepSpeedPrecision> precision;
  std::optional<OptimizerKind> optimizer;
  OptimizerImplementation implementation = OptimizerImplementation::Foreach;  ///< From `optimizer`.
  bool has_fused_adam = false;  ///< The optimizer is DeepSpeed's own, predicted as PyTorch's fused one.
  DeepSpeedAutoSizes auto_sizes;
  std::vector<std::string> ignored;  ///< Keys of the file that DeepSpeed ignores.

  bool operator==(const DeepSpeedConfig&) const = default;
};

/// Reads a file with the defaults of DeepSpeed 0.19.8. Errors, each with its place: keys that DeepSpeed does not know
/// and that look like a slip, or that make it fail; values that it refuses; settings that would change memory or
/// collectives and are not predicted.
Result<DeepSpeedConfig> read_deepspeed_config(const std::string& path);
Result<DeepSpeedConfig> read_deepspeed_config(const JsonDocument& document);

/// Micro-batch and accumulation of a run on `world` GPUs; DeepSpeed's own rule fills in missing ones of its three
/// sizes. `nullopt` if the file has too few. Errors, at `where`: sizes that contradict each other or the number of
/// GPUs.
struct DeepSpeedBatch {
  std::optional<std::int64_t> micro_batch;
  std::optional<std::int64_t> accumulation;

  bool operator==(const DeepSpeedBatch&) const = default;
};
Result<DeepSpeedBatch> batch_of(const DeepSpeedConfig& config, std::int64_t world, const std::string& where);

}  // namespace fsdp
