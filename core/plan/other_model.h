#pragma once

// Another model on the same GPUs, which computes beside the trained one and is not trained: the reference model of DPO,
// KTO, GRPO or PPO, or a reward model.
//
//   wrap      how each rank holds it                            whose default it is
//   root      one unit: sharded, and gathered whole             FSDP2, as TRL's prepare_fsdp calls fully_shard
//   blocks    its blocks and the rest as units                  FSDP1, as TRL wraps it; verl under both
//   none      whole on each GPU, without a wrapper              DDP and one GPU: accelerate's prepare_model
//
// Sources: TRL 1.16.0, models/utils.py (prepare_fsdp), trainer/dpo_trainer.py (__init__, _compute_loss),
// trainer/grpo_trainer.py; accelerate 1.15.0, accelerator.py (prepare_model with evaluation_mode); verl 0.7,
// workers/fsdp_workers.py (_build_model_optimizer: CPUOffloadPolicy for the role "ref").

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"
#include "core/base/result.h"
#include "core/plan/runtime.h"

namespace fsdp {

/// The most models beside the trained one: PPO has three.
inline constexpr std::size_t kMostOtherModels = 3;

/// The units of another model.
enum class OtherWrap : std::uint8_t {
  Root,    ///< One unit of the whole model.
  Blocks,  ///< Each of its repeated blocks, and one unit of the rest.
  None,    ///< No units: each GPU has it whole.
};

/// When the forward of another model runs in a micro-batch.
enum class OtherTurn : std::uint8_t {
  After,   ///< After that of the trained model, whose activations wait for its backward: TRL's DPO and KTO.
  Before,  ///< Before it: TRL's GRPO, and trainers that score a batch before they train on it.
};

/// One such model. Its forward has no gradients, and its parameters have one dtype.
struct OtherModel {
  std::string file;               ///< As given: a shipped name, a file, or a folder of Hugging Face.
  std::optional<OtherWrap> wrap;  ///< Defaults to that of its framework: `wrap_of`.
  bool offload = false;           ///< Its shards are in pinned host memory: CPUOffloadPolicy.
  std::optional<Dtype> dtype;     ///< For its parameters. Defaults to the checkpoint's.
  OtherTurn turn = OtherTurn::After;

  bool operator==(const OtherModel&) const = default;
};

/// The units of the model under a framework.
OtherWrap wrap_of(const OtherModel& other, Framework framework);

/// "qwen3_1_7b,wrap=blocks,offload=yes,dtype=bf16,turn=before"; all but the model may be left out. Errors, at `where`:
/// every unknown key, with the nearest one, and every wrong value.
Result<OtherModel> parse_other_model(std::string_view text, std::string_view where);

/// The text that parse_other_model reads as this.
std::string to_text(const OtherModel& other);

/// "qwen3_1_7b beside it (one unit, offloaded)".
std::string sentence_of(const OtherModel& other, Framework framework);

}  // namespace fsdp
