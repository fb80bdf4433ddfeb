#pragma once

// The facts of each loss of a language model, one row a kind. A new loss is a row here, an op rule in
// simulator/ops/op_rules_loss*.cpp and a function in python/fsdp_plan_runner/losses.py.

#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

#include "core/base/result.h"
#include "core/plan/runtime.h"

namespace fsdp {

struct LossRow {
  LossKind kind = LossKind::PyTorch;
  std::string_view name;      ///< In files and on the command line: "liger".
  std::string_view title;     ///< For people: "Liger's fused linear cross entropy".
  std::string_view library;   ///< The release that is predicted: "liger-kernel 0.8.5".
  std::string_view sentence;  ///< In schemas.

  /// It is given the hidden states and the head's weight and makes the logits itself, a part at a time. The model then
  /// ends with an op `linear_cross_entropy` in the root's forward, which reads the head's parameters.
  bool takes_head = false;
  /// With `takes_head`: it runs after the root's forward, calls the head's module for each part of the tokens, and runs
  /// that part's backward at once. A unit of FSDP2 with the head is gathered for it and reduced in it.
  bool calls_head = false;
  bool is_of_fsdp2 = false;  ///< Not predicted, or not possible, under other frameworks.
  bool is_of_fsdp = false;   ///< Not predicted but under FSDP2 and FSDP1, there beside autocast, too.
  bool takes_bias = false;   ///< With `takes_head`: of a head with a bias, too.
  bool takes_cap = true;     ///< With `takes_head`: of a model that caps its logits, too.
  bool runs_on_cpu = false;  ///< Else it is a kernel of Triton.
  bool is_float32 = false;   ///< The loss is a number in fp32, whatever the dtype of the logits.
  /// The weight's gradient is made only with that of the hidden states: a head alone cannot be trained.
  bool needs_hidden_gradient = false;
  bool needs_trained_head = false;  ///< Not predicted with a frozen head.
  bool needs_16_bits = false;       ///< It refuses hidden states in fp32.
  bool empties_cache = false;       ///< Its trainer empties the allocator's cache before the first step.
  /// Its trainer names the loss until the next micro-batch has one. Leaves of its graph that are no parameters stay
  /// until then, with their gradients: the output of a frozen embedding that was given one.
  bool keeps_last_loss = false;
  std::int64_t chunks = 0;  ///< The library's own number of parts, if the user may choose it. Otherwise 0.

  // The trainers.
  /// transformers' TrainingArguments, as Python after its name: "use_liger_kernel=True". Empty if it has none.
  std::string_view hugging_face = {};
  std::string_view axolotl = {};  ///< The same in axolotl's YAML.
  std::string_view trl = {};      ///< The same of TRL's SFTConfig.
  /// The class of torchtitan 0.3.0's components/loss.py. Versions that read TOML have PyTorch's loss alone.
  std::string_view torchtitan = {};
};

/// Sources: torch/nn/functional.py, torch 2.11; flash_attn/losses/cross_entropy.py; liger_kernel
/// ops/fused_linear_cross_entropy.py and transformers/model/loss_utils.py; trl trainer/utils.py (add_fused_lm_head) and
/// kernels/chunked_logprob.py; cut_cross_entropy/cce.py; torchtitan components/loss.py; transformers training_args.py
/// (use_liger_kernel, liger_kernel_config).
inline constexpr LossRow kLossRows[] = {
    {.kind = LossKind::PyTorch,
     .name = "pytorch",
     .title = "PyTorch's cross entropy",
     .library = "torch",
     .sentence = "torch.nn.functional.cross_entropy: makes and keeps log_softmax of the logits.",
     .runs_on_cpu = true,
     .torchtitan = "CrossEntropyLoss"},
    {.kind = LossKind::FlashAttn,
     .name = "flash_attn",
     .title = "flash-attn's cross entropy",
     .library = "flash-attn 2.8.3",
     .sentence =
         "flash_attn.losses.cross_entropy.CrossEntropyLoss, one Triton kernel: keeps the logits and a number per row.",
     .is_float32 = true},
    {.kind = LossKind::Liger,
     .name = "liger",
     .title = "Liger's fused linear cross entropy",
     .library = "liger-kernel 0.8.5",
     .sentence =
         "LigerFusedLinearCrossEntropyFunction: makes the logits of some tokens at a time, and the gradients of "
         "hidden states and head in the forward.",
     .takes_head = true,
     .is_float32 = true,
     .needs_hidden_gradient = true,
     .hugging_face = "use_liger_kernel=True",
     .axolotl = "liger_fused_linear_cross_entropy: true"},
    {.kind = LossKind::ChunkedNll,
     .name = "chunked_nll",
     .title = "TRL's loss in chunks",
     .library = "trl 1.16.0",
     .sentence = "SFTTrainer's loss (loss_type nll, formerly chunked_nll): makes the logits of 4096 tokens and 32768 "
                 "classes at a time, and again in the backward, whose gradients are in fp32.",
     .takes_head = true,
     .takes_bias = true,
     .is_float32 = true,
     .trl = "loss_type=\"nll\""},
    {.kind = LossKind::Cut,
     .name = "cut_cross_entropy",
     .title = "cut cross entropy",
     .library = "cut-cross-entropy 25.1.1",
     .sentence = "linear_cross_entropy of cut-cross-entropy: makes no logits in memory, neither forward nor backward.",
     .takes_head = true,
     .is_of_fsdp2 = true,
     .takes_cap = false,
     .is_float32 = true,
     .needs_16_bits = true,
     .axolotl = "cut_cross_entropy: true"},
    {.kind = LossKind::TitanChunked,
     .name = "torchtitan_chunked",
     .title = "torchtitan's loss in chunks",
     .library = "torchtitan 0.3.0",
     .sentence = "ChunkedLossWrapper around CrossEntropyLoss: the head, its cross entropy and their backward for one "
                 "part of the sequence at a time, after the root's forward.",
     .takes_head = true,
     .calls_head = true,
     .is_of_fsdp2 = true,
     .takes_cap = false,
     .is_float32 = true,
     .chunks = 8,
     .torchtitan = "ChunkedLossWrapper"},
    {.kind = LossKind::Liger081,
     .name = "liger-0.8.1",
     .title = "Liger's fused linear cross entropy of 0.8.1",
     .library = "liger-kernel 0.8.1",
     .sentence = "The same of an older release, which axolotl 0.19 pins: the logits of each part are another tensor.",
     .takes_head = true,
     .is_of_fsdp = true,
     .is_float32 = true,
     .needs_hidden_gradient = true,
     .needs_trained_head = true,
     .axolotl = "liger_fused_linear_cross_entropy: true"},
    {.kind = LossKind::Verl,
     .name = "verl",
     .title = "verl's log probabilities",
     .library = "verl 0.9.1",
     .sentence = "logprobs_from_logits of verl's engine for FSDP: flash-attn's kernel on logits in 16 bits, whose "
                 "backward writes their gradient over them.",
     .is_of_fsdp = true,
     .is_float32 = true,
     .empties_cache = true,
     .keeps_last_loss = true},
};

static_assert(
    [] {
      bool good = std::size(kLossRows) == kNumLossKinds;
      for (int i = 0; i < kNumLossKinds && good; ++i) good = kLossRows[i].kind == static_cast<LossKind>(i);
      return good;
    }(),
    "a row for each kind, in order");

/// The row of a kind.
constexpr const LossRow& loss_row(LossKind kind) {
  return kLossRows[static_cast<std::size_t>(kind)];
}
constexpr const LossRow& loss_row(const Loss& loss) {
  return loss_row(loss.kind);
}

/// The number of parts: the given one, or the library's own.
inline std::int64_t num_chunks(const Loss& loss) {
  return loss.chunks > 0 ? loss.chunks : loss_row(loss).chunks;
}

/// "liger", "NAME,chunks=8". Error: an unknown name, with the nearest; chunks that the loss does not let choose.
Result<Loss> parse_loss(std::string_view text);
/// Its inverse.
std::string to_text(const Loss& loss);

}  // namespace fsdp
