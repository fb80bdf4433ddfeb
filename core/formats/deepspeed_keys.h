#pragma once

// The keys of DeepSpeed's configuration, and what each means for a prediction.

#include <span>
#include <string_view>

namespace fsdp {

enum class DeepSpeedMeaning {
  Read,      ///< Taken over, by core/formats/deepspeed_config.cpp.
  Free,      ///< Says nothing about memory, collectives or the time of a step.
  Usual,     ///< Predicted with one value alone.
  Disabled,  ///< A part that is off unless it says "enabled": true, and predicted when it is.
  Absent,    ///< A part that is predicted when nothing of it is said: null, false, {}, or "enabled": false.
  Removed,   ///< DeepSpeed had it once, and ends with an error.
  Ignored,   ///< Written in many files, and read by nobody: names of DeepSpeed's classes.
};

struct DeepSpeedKey {
  std::string_view name;
  DeepSpeedMeaning meaning = DeepSpeedMeaning::Free;
  std::string_view usual = {};  ///< For Usual, as JSON.
};

/// Keys of the file itself, and of the object of that name in it.
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
