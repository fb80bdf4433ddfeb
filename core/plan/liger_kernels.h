#pragma once

// The kernels of liger-kernel that replace parts of a transformers model: rotary positions, RMSNorm, and the gated
// activation between the projections of an MLP. Its loss is LossKind::Liger.
//
//   use_liger_kernel=True       transformers' Trainer switches on what the library has for the model's family,
//   liger_kernel_config={...}   and these keys choose among them; axolotl has a key for each.
//
// Sources: liger_kernel/transformers/monkey_patch.py (_apply_liger_kernel_to_instance and apply_liger_kernel_to_*),
// rms_norm.py, swiglu.py, geglu.py and rope.py of liger-kernel 0.8.5; transformers 5.24.0, integrations/liger.py.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "core/base/result.h"

namespace fsdp {

/// The release whose kernels are predicted.
inline constexpr std::string_view kLigerVersion = "0.8.5";

enum class LigerKernel : std::uint8_t {
  Rope,     ///< liger_rotary_pos_emb: turns queries and keys in place.
  RmsNorm,  ///< LigerRMSNorm: keeps its input and a number per row.
  Glu,      ///< LigerSwiGLUMLP, LigerGEGLUMLP: keep gate and up, and write their gradients over them.
};
inline constexpr int kNumLigerKernels = static_cast<int>(LigerKernel::Glu) + 1;

/// The kernels that a user asked for.
struct LigerKernels {
  bool all = true;  ///< Those that the library switches on for the model's family if nothing is chosen.
  bool rope = false;
  bool rms_norm = false;
  bool glu = false;

  bool has(LigerKernel kernel) const;
  bool operator==(const LigerKernels&) const = default;
};

/// "rope", "rms_norm", "glu".
std::string_view name_of(LigerKernel kernel);

/// "all", or names of kernels with commas between them. Error, at `where`: every unknown name, with the nearest.
Result<LigerKernels> parse_liger(std::string_view text, std::string_view where);

/// The text that parse_liger reads as these.
std::string to_text(const LigerKernels& kernels);

/// "Liger's kernels", or "Liger's rope and rms_norm".
std::string sentence_of(const LigerKernels& kernels);

/// What the library does with one kind of part.
enum class LigerPatch : std::uint8_t {
  None,     ///< It leaves the part as it is.
  Fresh,    ///< Replaced. For a norm: the gradient of its input is a new tensor of zeros first.
  InPlace,  ///< For a norm: the gradient of its input is written over that of its output.
  Unknown,  ///< Replaced by kernels that are not predicted.
};

/// What it does with a family of models.
struct LigerFamily {
  std::string_view name;  ///< The first word of the class names: "Llama" in "LlamaRMSNorm".
  LigerPatch rope = LigerPatch::Fresh;
  LigerPatch norm = LigerPatch::InPlace;     ///< Norms of layers.
  LigerPatch qk_norm = LigerPatch::InPlace;  ///< Norms of queries and keys, if it has them.
  LigerPatch last_norm = LigerPatch::InPlace;
  LigerPatch glu = LigerPatch::Fresh;
};

/// All families that are known here.
std::span<const LigerFamily> liger_families();

/// The family of this name; null if there is none.
const LigerFamily* liger_family(std::string_view name);

}  // namespace fsdp
