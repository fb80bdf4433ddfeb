#pragma once

// The keys of DeepSpeed's configuration, and their meaning for a prediction.

#include <span>
#include <string_view>

namespace fsdp {

enum class DeepSpeedMeaning {
  Read,      ///< Read by core/formats/deepspeed_config.cpp.
  Free,      ///< Does not affect memory, collectives or the time of a step.
  Usual,     ///< Predicted with one value only.
  Disabled,  ///< A part that is off without "enabled": true, and not predicted if on.
  Absent,    ///< A part that is predicted only if unset: null, false, {}, or "enabled": false.
  Removed,   ///< Removed from DeepSpeed, which fails with an error.
  Ignored,   ///< Present in many files, and read by nothing: names of DeepSpeed's classes.
};

struct DeepSpeedKey {
  std::string_view name;
  DeepSpeedMeaning meaning = DeepSpeedMeaning::Free;
  std::string_view usual = {};  ///< For Usual, as JSON.
};

/// Keys of the file itself, and of the objects in it by name.
std::span<const DeepSpeedKey> deepspeed_keys();
std::span<const DeepSpeedKey> deepspeed_zero_keys();
std::span<const DeepSpeedKey> deepspeed_offload_optimizer_keys();
std::span<const DeepSpeedKey> deepspeed_offload_param_keys();
std::span<const DeepSpeedKey> deepspeed_aio_keys();  ///< Keys of "aio".
std::span<const DeepSpeedKey> deepspeed_bf16_keys();
std::span<const DeepSpeedKey> deepspeed_fp16_keys();
std::span<const DeepSpeedKey> deepspeed_dtype_keys();
std::span<const DeepSpeedKey> deepspeed_checkpointing_keys();

}  // namespace fsdp
