#pragma once

// What a framework is, as facts: one row of a table for each. Code asks for the fact that it needs and never for the
// framework, so that a new framework answers every such question by its row. What a framework does (its layout, its
// order of events, its checks) is in its folder of core/frameworks/.

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/plan/plan.h"
#include "core/plan/runtime.h"

namespace fsdp {

/// The meshes that a framework can train on.
enum class MeshRule : std::uint8_t {
  Chosen,     ///< Any: the user or a search chooses.
  AllCopies,  ///< Every rank has a copy: shard 1.
  AllShards,  ///< One group of all ranks: replicate 1.
};

/// The meaning of `Plan::mixed_precision`.
enum class PrecisionRule : std::uint8_t {
  None,        ///< Everything is in the parameters' own dtype.
  Policy,      ///< Parameters are cast when they are gathered, gradients when they are reduced.
  MasterCopy,  ///< Parameters and gradients are in param_dtype; the optimizer updates a flat copy in parameter_dtype.
};

/// The member of a plan, and key of a plan file, with a framework's own arguments.
enum class OptionsMember : std::uint8_t { None, Fsdp1, Ddp, Zero };

/// The framework of a plan that names none, and the one that others are compared with.
inline constexpr Framework kDefaultFramework = Framework::Fsdp2;

struct FrameworkTraits {
  Framework framework = kDefaultFramework;
  std::string_view plan_name;  ///< In plan files: "pytorch-fsdp2".
  std::string_view option;     ///< As people type it: "fsdp2".
  std::string_view title;      ///< As people call it: "FSDP2".
  std::string_view sentence;   ///< In the schema of plan files.
  std::string_view call = {};  ///< What a script applies to its model: "fully_shard".
  /// What is predicted on PyTorch `kDefaultTorch` alone: "DeepSpeed 0.19.8". Empty: all known releases are predicted.
  std::string_view pinned = {};

  MeshRule mesh = MeshRule::Chosen;
  PrecisionRule precision = PrecisionRule::Policy;
  OptionsMember options = OptionsMember::None;

  // Parameters. Where neither a unit nor a read gathers them, and the ZeRO stage is below 3, each rank has them whole.
  bool wraps_units = false;          ///< Modules are wrapped as units, which are gathered, freed and reduced whole.
  bool has_flat_parameters = false;  ///< A unit is one flat parameter, of one kind of parameters.
  bool has_dtensors = false;         ///< A parameter is a DTensor, which not every optimizer can update.
  bool gathers_each_read = false;    ///< Each read of a parameter gathers a copy of it.
  /// DeepSpeed's zero_optimization.stage: 1 cuts the optimizer's states, 2 the gradients, too, 3 the parameters, too.
  /// Defaults to 0, without DeepSpeed.
  int zero_stage = 0;
  bool replaces_linear = false;  ///< torch.nn.functional.linear is another function (`Implementations::zero3_linear`).

  // How a script uses it.
  bool is_wrapper = false;             ///< The script calls a wrapper of the model, which has no_sync().
  bool has_unit_setters = false;       ///< FSDPModule's: explicit prefetches, buffers and group of reduce-scatters.
  bool may_offload = false;            ///< To host memory.
  bool offloads_inputs = false;        ///< Inputs of checkpointed blocks in host memory are predicted.
  bool chooses_gradient_sync = false;  ///< Gradients can be reduced in each micro-batch, or in the last one alone.
  bool casts_inputs = false;           ///< Inputs are cast to param_dtype.
  bool predicts_autocast = false;      ///< A forward under torch.autocast is predicted.
  bool predicts_passes = false;        ///< A step that trains several models by turns is predicted.

  /// True for FSDP2 and DDP: each parameter is a tensor of its own, which PyTorch itself gathers, if anybody does.
  constexpr bool keeps_each_parameter() const { return !has_flat_parameters && zero_stage == 0 && !gathers_each_read; }
};

inline constexpr std::array kFrameworkTraits = {
    FrameworkTraits{.framework = Framework::Fsdp2,
                    .plan_name = "pytorch-fsdp2",
                    .option = "fsdp2",
                    .title = "FSDP2",
                    .sentence = "torch.distributed.fsdp.fully_shard.",
                    .call = "fully_shard",
                    .wraps_units = true,
                    .has_dtensors = true,
                    .has_unit_setters = true,
                    .may_offload = true,
                    .offloads_inputs = true,
                    .chooses_gradient_sync = true,
                    .casts_inputs = true,
                    .predicts_autocast = true,
                    .predicts_passes = true},
    FrameworkTraits{.framework = Framework::Fsdp1,
                    .plan_name = "pytorch-fsdp1",
                    .option = "fsdp1",
                    .title = "FSDP1",
                    .sentence = "FullyShardedDataParallel (FSDP1): one strategy for all units, each of one module.",
                    .call = "FullyShardedDataParallel",
                    .pinned = "FSDP1",
                    .options = OptionsMember::Fsdp1,
                    .wraps_units = true,
                    .has_flat_parameters = true,
                    .is_wrapper = true,
                    .may_offload = true,
                    .offloads_inputs = true,
                    .chooses_gradient_sync = true,
                    .casts_inputs = true,
                    .predicts_autocast = true},
    FrameworkTraits{.framework = Framework::Ddp,
                    .plan_name = "pytorch-ddp",
                    .option = "ddp",
                    .title = "DDP",
                    .sentence =
                        "DistributedDataParallel: one unit, the root, and shard 1; on one GPU the model without "
                        "any wrapper.",
                    .call = "DistributedDataParallel",
                    .mesh = MeshRule::AllCopies,
                    .precision = PrecisionRule::None,
                    .options = OptionsMember::Ddp,
                    .is_wrapper = true,
                    .offloads_inputs = true,
                    .chooses_gradient_sync = true,
                    .casts_inputs = true,
                    .predicts_autocast = true},
    FrameworkTraits{.framework = Framework::Zero1,
                    .plan_name = "deepspeed-zero1",
                    .option = "zero1",
                    .title = "ZeRO-1",
                    .sentence = "DeepSpeed 0.19.8, zero_optimization.stage 1: one unit, the root, and shard over all "
                                "ranks.",
                    .pinned = "DeepSpeed 0.19.8",
                    .mesh = MeshRule::AllShards,
                    .precision = PrecisionRule::MasterCopy,
                    .options = OptionsMember::Zero,
                    .zero_stage = 1,
                    .may_offload = true},
    FrameworkTraits{.framework = Framework::Zero2,
                    .plan_name = "deepspeed-zero2",
                    .option = "zero2",
                    .title = "ZeRO-2",
                    .sentence = "The same with stage 2.",
                    .pinned = "DeepSpeed 0.19.8",
                    .mesh = MeshRule::AllShards,
                    .precision = PrecisionRule::MasterCopy,
                    .options = OptionsMember::Zero,
                    .zero_stage = 2,
                    .may_offload = true},
    FrameworkTraits{.framework = Framework::Zero3,
                    .plan_name = "deepspeed-zero3",
                    .option = "zero3",
                    .title = "ZeRO-3",
                    .sentence = "The same with stage 3, the model made under deepspeed.zero.Init.",
                    .pinned = "DeepSpeed 0.19.8",
                    .mesh = MeshRule::AllShards,
                    .precision = PrecisionRule::MasterCopy,
                    .options = OptionsMember::Zero,
                    .zero_stage = 3,
                    .replaces_linear = true,
                    .may_offload = true},
    FrameworkTraits{.framework = Framework::SimpleFsdp,
                    .plan_name = "torchtitan-simple-fsdp",
                    .option = "simple_fsdp",
                    .title = "SimpleFSDP",
                    .sentence = "torchtitan 0.3.0, data_parallel of simple_fsdp.py without a compiler: one unit, the "
                                "root. The mesh sets its mode: fully_shard, hybrid_shard, or replicate if shard is "
                                "1.",
                    .call = "data_parallel",
                    .pinned = "SimpleFSDP of torchtitan 0.3.0",
                    .has_dtensors = true,
                    .gathers_each_read = true},
};

/// The row of a framework in a table with a member `framework`. REQUIRES: the table has one.
template <class Table>
constexpr const auto& row_of(const Table& table, Framework framework) {
  std::size_t row = 0;
  while (table[row].framework != framework) ++row;
  return table[row];
}

constexpr const FrameworkTraits& traits_of(Framework framework) {
  return row_of(kFrameworkTraits, framework);
}
inline const FrameworkTraits& traits_of(const Plan& plan) {
  return traits_of(plan.runtime.framework);
}

/// The framework of a stage of ZeRO. REQUIRES: 1 to 3.
constexpr Framework framework_of_stage(int stage) {
  std::size_t row = 0;
  while (kFrameworkTraits[row].zero_stage != stage) ++row;
  return kFrameworkTraits[row].framework;
}

}  // namespace fsdp
