#pragma once

// The search space: every plan that the planner considers, defined in one place.
//
//   mesh        shard x replicate = all GPUs. Shard: every divisor of a node's GPUs (1 is NO_SHARD) and every number of
//               whole nodes that divides the GPUs.
//   experts     If degrees are given: each of them that divides the shard group. Experts are units of their own then.
//   wrap        Each stack of blocks in units of 1, 2, 4 ... neighboring blocks, or everything in the root. If a
//               gathered block is large, also units inside blocks: each sublayer (attention, MLP), or each projection.
//   ends        Embeddings, heads and other large modules outside the stacks: units of their own, or in the root.
//               Frozen modules: units of their own, or with the rest.
//   reshard     The last j units of every stack stay unsharded between forward and backward: j = 0 is
//               reshard_after_forward=True for all of them, j = all is False; between them the powers of two. Units
//               inside blocks count by the block. With several nodes also the integer "GPUs of a node".
//   checkpoint  The first k blocks of every stack, full or selective, which saves attention and no, every second or all
//               matmuls; k = 0 is none, and up to 14 equal steps lead to all of them. For several stacks that matter
//               (planner/space/checkpointed_blocks.h) also those of one first, then those of the others.
//   offload     CPUOffloadPolicy, or not.
//   batch       If the samples of a step are fixed: every micro-batch and accumulation that make them up.
//   sync        With several micro-batches: gradients reduced after each, or once a step after the last one
//               (set_requires_gradient_sync).
//   prefetch    Units gathered ahead, explicitly, in forward; in backward.
//   arguments   For FSDP1, DDP and ZeRO: those of planner/space/framework_arguments.cpp.
//
// If no plan of it fits, the planner searches the whole space before it reports that (whole()): every j and k, and
// units inside blocks of any size. If none of that fits either, it searches once more with expandable segments, which
// change only the memory that PyTorch's allocator wastes.
//
// A dimension that is fixed has one value. Two points of the space are never the same plan. The order of the space,
// which decides between plans that are equally fast, is the order in which the dimensions and their values are listed
// here.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/cluster/cluster.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "core/spec/model_spec.h"
#include "planner/space/framework_arguments.h"

namespace fsdp::planner {

/// Units inside the blocks of a stack. planner/space/wrapping.cpp explains where blocks are cut, and what happens to
/// the rest.
enum class BlockParts : std::uint8_t {
  Whole,        ///< No units inside: a unit is one block or several.
  Sublayers,    ///< The large modules of a block: attention, MLP.
  Projections,  ///< Down to the largest module that cannot be cut: attention, and each projection of the MLP.
};

/// How the blocks of the stacks become units. As text: "blocks" (of one), "4" (blocks in a unit), "sublayers" or
/// "projections" (units inside blocks), "root" (the root is the only unit), or patterns of module names separated by
/// commas ("model.layers.*,lm_head"). Or as PyTorch's auto-wrap policies choose: "size:100M" (elements) as
/// size_based_auto_wrap_policy, "class:LlamaDecoderLayer,Embedding" as ModuleWrapPolicy.
struct Wrap {
  std::int64_t blocks_per_unit = 1;   ///< Defaults to 1. 0 puts everything in the root.
  std::vector<std::string> patterns;  ///< If not empty: exactly the modules that they match, and the root, are units.
  BlockParts parts = BlockParts::Whole;
  std::int64_t min_elements = 0;          ///< Positive: min_num_params of the policy by size.
  std::vector<std::string> classes = {};  ///< If not empty: the classes of the policy by class.

  bool operator==(const Wrap&) const = default;
};

/// True if one of PyTorch's auto-wrap policies chooses the units.
inline bool is_policy(const Wrap& wrap) {
  return wrap.min_elements > 0 || !wrap.classes.empty();
}
/// True if it names every unit, so that blocks and ends do not matter.
inline bool names_units(const Wrap& wrap) {
  return is_policy(wrap) || !wrap.patterns.empty();
}

/// As text: "true", "false", "all", "8" (an integer: the smaller world size) or "keep-last:4"; after "true" or
/// "keep-last:4" also "+head".
struct ReshardChoice {
  ReshardAfterForward::Kind kind = ReshardAfterForward::Kind::Always;  ///< For the units that are resharded.
  std::int64_t world_size = 0;                                         ///< For Kind::Smaller.
  std::int64_t keep_last = 0;  ///< Last units of each stack that stay unsharded, with Kind::Always.
  bool root = false;           ///< With Kind::Always: the root is resharded, too, as fully_shard does if told so.
  bool head = false;           ///< With Kind::Always: a unit of an end after the blocks stays unsharded.

  bool operator==(const ReshardChoice&) const = default;
};

/// The tensors of a block that selective checkpointing saves instead of recomputing: the outputs of attention, and
/// those of no, every second or all linear layers. Each saves more than the one before it.
enum class SavedOps : std::uint8_t {
  Attention,
  EverySecondMatmul,  ///< torchtitan's policy.
  Matmuls,
};

/// A way to checkpoint a block. As text: "full", "nested", "reentrant", "selective", "save-matmuls",
/// "save-attention".
struct CheckpointWay {
  CheckpointMode mode = CheckpointMode::Full;
  SavedOps saved = SavedOps::EverySecondMatmul;  ///< For CheckpointMode::Selective.

  CheckpointWay() = default;
  // NOLINTNEXTLINE(google-explicit-constructor): a mode is a way.
  CheckpointWay(CheckpointMode of, SavedOps saves = SavedOps::EverySecondMatmul) : mode(of), saved(saves) {}
  auto operator<=>(const CheckpointWay&) const = default;
};

/// The ways that a search tries. Each saves more and recomputes less than the one before it.
inline const std::vector<CheckpointWay> kCheckpointWays = {
    CheckpointMode::Full,
    {CheckpointMode::Selective, SavedOps::Attention},
    {CheckpointMode::Selective, SavedOps::EverySecondMatmul},
    {CheckpointMode::Selective, SavedOps::Matmuls},
};

/// As text: "none", a way of all blocks ("full"), of the first 12 of each stack ("full:12" or "12", "selective:12"), or
/// of so many of each stack in turn ("full:32,12").
struct CheckpointChoice {
  CheckpointWay way = CheckpointMode::None;
  std::optional<std::int64_t> blocks = {};  ///< Empty if all are.
  std::vector<std::int64_t> by_stack = {};  ///< For each stack, if stacks differ; then `blocks` is empty.

  bool operator==(const CheckpointChoice&) const = default;
};

/// Errors name the text and the allowed values; `where` is the name of the option.
Result<Wrap> parse_wrap(std::string_view text);
Result<ReshardChoice> parse_reshard(std::string_view text);
Result<CheckpointChoice> parse_checkpoint(std::string_view text);
std::string to_text(const Wrap& wrap);
std::string to_text(const ReshardChoice& reshard);
std::string to_text(const CheckpointWay& way);
std::string to_text(const CheckpointChoice& checkpoint);

/// The criterion for the best of the plans that fit.
enum class SearchObjective : std::uint8_t {
  Time,    ///< The fastest step with the requested samples.
  Memory,  ///< The least memory of a GPU, then the fastest step.
  Tokens,  ///< Most samples per second. Micro-batch and accumulation are free unless they or the global batch are
           ///< given.
};

/// The fixed choices, and the ranges of the free ones.
/// How much free memory the answer must leave on its device (core/report/device_verdict.h).
enum class Room : std::uint8_t {
  Spare,   ///< Only plans with room to spare.
  Either,  ///< The same; if no plan has it, the fastest that runs.
  None,    ///< The fastest that runs.
};

struct Space {
  /// The choices that are not searched: precision, optimizer, runtime, allocator settings, recipe. The search
  /// overwrites its mesh, units, checkpointing, offload, gradient sync, prefetch, dimensions and accumulation.
  /// base_plan() makes it.
  Plan base;
  SearchObjective objective = SearchObjective::Time;

  // Fixed by the user; empty if searched.
  std::optional<std::int64_t> shard;                ///< The mesh: world size / shard replicas.
  std::vector<std::int64_t> expert_parallel = {1};  ///< Mesh::ep: each of them on each shard group that it divides.
  std::string strategy;                             ///< The strategy that decided `shard`. Empty if none did.
  std::optional<std::int64_t> replicate;            ///< The number of copies that decided `shard`.
  std::optional<Wrap> wrap;
  std::optional<bool> wrap_ends;         ///< Embeddings and heads as units of their own.
  std::optional<ReshardChoice> reshard;  ///< Also applies to the root if it is the only unit.
  bool hybrid = false;                   ///< Allows only meshes that both shard and replicate.
  std::optional<CheckpointChoice> checkpoint;
  std::optional<bool> cpu_offload;
  std::optional<bool> sync_every_micro_batch;  ///< Plan::sync_every_micro_batch.
  std::optional<std::int64_t> forward_prefetch;
  std::optional<std::int64_t> backward_prefetch;

  // The batch. If neither of the first two is given, the micro-batch is the workload's dimension `batch` and the
  // accumulation is that of `base`, and the search changes neither.
  std::optional<std::int64_t> global_batch;     ///< Samples per optimizer step, over all GPUs.
  std::optional<std::int64_t> samples_per_gpu;  ///< Samples of a step per GPU, for any number of GPUs. Excludes a
                                                ///< global batch.
  std::optional<std::int64_t> micro_batch;      ///< Samples per GPU and micro-batch. 0 for those of the workload.
  std::optional<std::int64_t> accumulation;

  // Ranges of the free choices.
  std::vector<std::int64_t> blocks_per_unit = {1, 2, 4, 0};  ///< 0 puts everything in the root.
  std::vector<BlockParts> block_parts = {BlockParts::Sublayers, BlockParts::Projections};
  /// Cuts blocks if the largest one, gathered, takes at least 1/parts_from of a device. 0 cuts always.
  std::int64_t parts_from = 64;
  std::vector<CheckpointWay> checkpoint_ways = kCheckpointWays;  ///< In that order.
  std::vector<bool> cpu_offloads = {false, true};
  std::vector<bool> gradient_syncs = {true, false};     ///< After every micro-batch, or after the last one.
  std::vector<std::int64_t> forward_prefetches = {0};   ///< 0 is FSDP2's own order.
  std::vector<std::int64_t> backward_prefetches = {1};  ///< 1 is FSDP2's own order.
  std::vector<FrameworkArguments> arguments = {};       ///< Empty for those of `base`.
  std::int64_t max_micro_batch = 1024;
  /// Micro-batches that make up the samples of a step. Empty for all of them.
  std::vector<std::int64_t> micro_batches = {};
  bool every_number = false;  ///< Searches every j and every k instead of some of them.
  /// If no plan fits under the default settings of `base`'s allocator, searches those with expandable segments.
  bool may_expand_segments = false;
  Room room = Room::Spare;

  // How much to search beside the best plan.
  /// The maximum. 0 for no other plans, neither a front nor the nearest that do not fit. planner/advice/other_plans.cpp
  /// explains how they are found.
  std::int64_t pareto_points = 8;
  bool explain = true;  ///< Prices remedies, and fully predicts the nearest plans that do not fit.
  /// Predictions of memory after which the search accepts a good plan and prints its gap. 0 for no limit.
  std::int64_t max_predictions = 3000;

  bool operator==(const Space&) const = default;
};

/// The same space with every value that can save memory: every j and k, and units inside blocks.
Space whole(const Space& space);

/// Removes the choices that the framework of `base` cannot express (planner/space/search_traits.h). Errors: a fixed
/// choice is one of them.
Result<Space> said_by_runtime(Space space);

/// The plan that a recipe describes before a search: its precision, optimizer and accumulation, and the workload's
/// patterns. Defaults to AdamW and FSDP2. Errors: those of find_recipe.
Result<Plan> base_plan(const ModelSpec& spec, const Workload& workload);

/// Removes choices that a captured model cannot answer: ways of checkpointing that were not recorded in the precision
/// of `base`, and reductions after the last micro-batch alone if the script does not mark that one. Limits
/// micro-batches to the largest that was captured. Does nothing for a spec.
void keep_recorded(const ModelSpec& spec, Space& space);

/// One line for people for each dimension: "mesh: shard 4, 2 x 2, NO_SHARD".
std::vector<std::string> describe(const Space& space, const Model& model, const Cluster& cluster);

}  // namespace fsdp::planner
