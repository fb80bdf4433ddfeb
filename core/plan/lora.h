#pragma once

// Low-rank adapters, PEFT's or NeMo Automodel's: a frozen linear layer W gets two small trained ones, and computes W x
// + scaling * B A x.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace fsdp {

/// The release whose layers are predicted.
inline constexpr std::string_view kPeftVersion = "0.21.2";

/// PEFT's `target_modules` for all linear layers except the output head.
inline constexpr std::string_view kAllLinear = "all-linear";

/// The largest rank.
inline constexpr std::int64_t kLargestRank = std::int64_t{1} << 20;

/// Arguments of peft.LoraConfig. The defaults are PEFT's, except for the targets.
struct LoraOptions {
  std::int64_t r = 8;  ///< Rank of the adapters: A is [r, in], B is [out, r].
  double alpha = 8;    ///< The output of B is multiplied by alpha / r.
  double dropout = 0;  ///< On the input of A.
  /// Names of linear layers, or the last parts of their names. {"all-linear"}: all but the output head.
  std::vector<std::string> targets = {std::string(kAllLinear)};
  /// Linear layers and embeddings that are trained whole: a trained copy beside the frozen original.
  std::vector<std::string> modules_to_save = {};
  /// model.enable_input_require_grads(): the output of the embedding requires a gradient, so that all blocks have one.
  bool input_grads = false;
  /// The frozen base is in float32, whatever the checkpoint has: loaded so, or converted.
  bool float32_base = false;

  bool operator==(const LoraOptions&) const = default;
};

/// Whether a module has this name, or a name that ends with it after a dot. "*_proj" is any name that ends so, as in
/// NeMo Automodel's target_modules.
bool is_named(std::string_view module, std::string_view target);

/// Whether the options mean all linear layers.
bool targets_all(const LoraOptions& lora);

/// "r=16,alpha=32,targets=q_proj+v_proj,dropout=0.05", or just the rank: "16". Error, at `where`: every unknown key,
/// with the nearest one, and every wrong value.
Result<LoraOptions> parse_lora(std::string_view text, std::string_view where);

/// What is wrong with the options; empty if nothing. `where` is the place of the errors.
Errors check_lora(const LoraOptions& lora, std::string_view where);

/// The text that parse_lora reads as these options.
std::string to_text(const LoraOptions& lora);

/// "LoRA r=16 on all linear layers", or "LoRA r=16 on q_proj and v_proj, lm_head trained".
std::string sentence_of(const LoraOptions& lora);

/// "LoraConfig(r=16, lora_alpha=32, target_modules=\"all-linear\")": PEFT's arguments for these adapters.
std::string python_of(const LoraOptions& lora);

}  // namespace fsdp
