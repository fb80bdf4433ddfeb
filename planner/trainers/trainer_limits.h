#pragma once

// The parts of planner/trainers/trainers.cpp: the limits of each trainer's configuration.

#include <optional>
#include <span>
#include <vector>

#include "planner/trainers/trainers.h"

namespace fsdp::planner {

/// Something that a configuration cannot express.
struct Limit {
  /// Returns the part of a plan that exceeds the limit, with the options that request something else; nullopt if there
  /// is none.
  std::optional<Error> (*find)(const Plan& plan, const Model& model);
  /// Changes the plan to the nearest within the limit; nullptr if there is none.
  void (*mend)(Plan& plan, const Model& model);
  bool ends = false;  ///< True if a plan that exceeds this limit is not checked for others.
};

/// For accelerate, alone or under transformers' Trainer, and the additions of the Trainer's loop.
std::span<const Limit> limits_of_accelerate(const TrainerRelease& release);
std::span<const Limit> limits_of_accelerate_fsdp1();
/// A precision that accelerate does not give FSDP2's or FSDP1's units, and the change to the nearest that it does.
std::optional<Error> other_precision(const Plan& plan, const Model& model);
void mix_units_alike(Plan& plan, const Model& model);
std::optional<Error> other_flat_precision(const Plan& plan, const Model& model);
void mix_flat_units(Plan& plan, const Model& model);
/// Frozen parameters that a release up to 1.12 would convert to float32.
std::optional<Error> frozen_upcast(const Plan& plan, const Model& model);
std::span<const Limit> limits_of_transformers_loop(const TrainerRelease& release);
std::vector<Limit> limits_of_torchtitan(const TrainerRelease& release);
std::span<const Limit> limits_of_deepspeed();

/// For every trainer of FSDP2: PyTorch's own optimizers and its default order of gathers.
std::span<const Limit> limits_of_all();
/// No CUDA graph of forward and backward.
Limit limit_of_graphs();
/// For trainers that cast the inputs of all units.
Limit limit_of_cast_inputs();

/// The error for a plan without shards. `program`: "accelerate".
std::optional<Error> not_sharded(const Plan& plan, std::string_view program);
/// One shard on each GPU.
void shard_over_all(Plan& plan, const Model& model);

/// An error if a plan checkpoints anything but all blocks in full, or nothing.
std::optional<Error> not_all_blocks(const Plan& plan, const Model& model);
/// All blocks of all stacks, in full.
void checkpoint_all(Plan& plan, const Model& model);

}  // namespace fsdp::planner
