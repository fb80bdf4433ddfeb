#pragma once

// The parts of planner/trainers/trainers.cpp: what each trainer's configuration cannot say.

#include <optional>
#include <span>
#include <vector>

#include "planner/trainers/trainers.h"

namespace fsdp::planner {

/// One thing that a configuration has no words for.
struct Limit {
  /// What a plan has of it, with the options that ask for something else; nothing: the plan has nothing of it.
  std::optional<Error> (*find)(const Plan& plan, const Model& model);
  /// Changes a plan that has something of it to what is nearest; null: nothing is near.
  void (*mend)(Plan& plan, const Model& model);
  bool ends = false;  ///< Nothing else is asked of a plan that has something of it.
};

/// For accelerate, by itself or below transformers' Trainer; and what the Trainer's loop adds.
std::span<const Limit> limits_of_accelerate(const TrainerRelease& release);
std::span<const Limit> limits_of_accelerate_fsdp1();
std::span<const Limit> limits_of_transformers_loop(const TrainerRelease& release);
std::vector<Limit> limits_of_torchtitan(const TrainerRelease& release);
std::span<const Limit> limits_of_deepspeed();

/// For every trainer of FSDP2: PyTorch's own optimizers, and its own order of gathering.
std::span<const Limit> limits_of_all();
/// For those that cast the inputs of all units.
Limit limit_of_cast_inputs();

/// What a plan without shards is told; `program`: "accelerate".
std::optional<Error> not_sharded(const Plan& plan, std::string_view program);
/// One shard on each GPU.
void shard_over_all(Plan& plan, const Model& model);

/// Whether full checkpointing of all blocks, or none, is what the plan says. Else what it says, for a trainer that
/// `recomputes` so.
std::optional<Error> not_all_blocks(const Plan& plan, const Model& model);
/// All blocks of all stacks, in full.
void checkpoint_all(Plan& plan, const Model& model);

}  // namespace fsdp::planner
