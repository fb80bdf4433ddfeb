#pragma once

// The facts of each optimizer, one row a kind. A new optimizer is a row here, a kernel in
// executor/training/optimizer.cpp and in python/fsdp_plan_runner, and a rule in the simulator if it makes temporaries
// that no other has. Muon updates DTensors by products of its own and stands beside a row (`Optimizer::muon`).

#include <array>
#include <cstdint>
#include <iterator>
#include <string_view>

#include "core/plan/plan.h"

namespace fsdp {

/// Reads and writes of each element in an update, in tensors of the parameter's dtype (simulator/time/plan_times.cpp).
struct OptimizerPasses {
  double fused = 0;
  double list = 0;             ///< As foreach and the loop make it: an operation after the other.
  double without_moments = 0;  ///< If `moments_need_momentum` and there is none.
};

struct OptimizerRow {
  OptimizerKind kind = OptimizerKind::AdamW;
  std::string_view name;        ///< In files and on the command line: "adamw".
  std::string_view class_name;  ///< In torch.optim, and for people: "AdamW".
  std::string_view sentence;    ///< In schemas: "torch.optim.AdamW".

  // The states.
  std::array<std::string_view, 2> moments = {};  ///< PyTorch's names of tensors like the parameter; empty: no more.
  bool moments_need_momentum = false;            ///< It has the option momentum, and no moment if that is 0.
  bool counts_steps = false;      ///< The number of steps of each parameter is a state: a tensor if it is fused.
  bool has_small_states = false;  ///< Libraries keep its moments in bfloat16 or in 8 bits.

  // The update.
  bool decouples_decay = false;  ///< Weight decay scales the parameter; else a new tensor is gradient + decay.
  bool takes_roots = false;  ///< A root of the second moment: a temporary of foreach; root and quotient of the loop.
  bool has_betas = false;    ///< Options betas and eps.
  bool has_fused_shards = false;  ///< Its fused kernel takes DTensors.
  OptimizerPasses passes = {};

  // The trainers.
  bool has_cpu_adam = false;           ///< On the host DeepSpeed updates it by DeepSpeedCPUAdam.
  std::string_view hugging_face = {};  ///< TrainingArguments.optim, without "_fused"; empty: it has no name there.
  std::string_view torchtitan = {};    ///< Its name in torchtitan's [optimizer]; empty: torchtitan lacks it.
};

/// Sources: torch/optim/{adamw,adam,sgd}.py, torch 2.11; "aten._fused_sgd_.default does not have a sharding strategy
/// registered" of the same; deepspeed/ops/adam/cpu_adam.py; transformers, training_args.py (OptimizerNames);
/// torchtitan, components/optimizer.py.
inline constexpr OptimizerRow kOptimizerRows[] = {
    {.kind = OptimizerKind::AdamW,
     .name = "adamw",
     .class_name = "AdamW",
     .sentence = "torch.optim.AdamW",
     .moments = {"exp_avg", "exp_avg_sq"},
     .counts_steps = true,
     .has_small_states = true,
     .decouples_decay = true,
     .takes_roots = true,
     .has_betas = true,
     .has_fused_shards = true,
     .passes = {.fused = 7, .list = 18},
     .has_cpu_adam = true,
     .hugging_face = "adamw_torch",
     .torchtitan = "AdamW"},
    {.kind = OptimizerKind::Adam,
     .name = "adam",
     .class_name = "Adam",
     .sentence = "torch.optim.Adam",
     .moments = {"exp_avg", "exp_avg_sq"},
     .counts_steps = true,
     .has_small_states = true,
     .takes_roots = true,
     .has_betas = true,
     .has_fused_shards = true,
     .passes = {.fused = 7, .list = 18},
     .has_cpu_adam = true,
     .torchtitan = "Adam"},
    {.kind = OptimizerKind::Sgd,
     .name = "sgd",
     .class_name = "SGD",
     .sentence = "torch.optim.SGD",
     .moments = {"momentum_buffer"},
     .moments_need_momentum = true,
     .passes = {.fused = 5, .list = 5, .without_moments = 3}},
};

static_assert(
    [] {
      bool good = std::size(kOptimizerRows) == kNumOptimizerKinds;
      for (int i = 0; i < kNumOptimizerKinds && good; ++i)
        good = kOptimizerRows[i].kind == static_cast<OptimizerKind>(i);
      return good;
    }(),
    "a row for each kind, in order");

/// The row of a kind.
constexpr const OptimizerRow& optimizer_row(OptimizerKind kind) {
  return kOptimizerRows[static_cast<std::size_t>(kind)];
}
constexpr const OptimizerRow& optimizer_row(const Optimizer& optimizer) {
  return optimizer_row(optimizer.kind);
}

/// The number of state tensors for each updated tensor.
constexpr std::int64_t num_moments(const Optimizer& optimizer) {
  const OptimizerRow& row = optimizer_row(optimizer);
  if (row.moments_need_momentum && optimizer.momentum == 0) return 0;
  return row.moments[0].empty() ? 0 : row.moments[1].empty() ? 1 : 2;
}

/// Whether the update makes a new gradient for weight decay.
constexpr bool adds_decay(const Optimizer& optimizer) {
  return !optimizer_row(optimizer).decouples_decay && optimizer.weight_decay != 0;
}

}  // namespace fsdp
