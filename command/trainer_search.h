#pragma once

// The trainer of --for, and the options that it implies.

#include <optional>

#include "command/cli_options.h"
#include "core/base/result.h"
#include "planner/trainers/trainers.h"

namespace fsdp::command {

/// A line whose trainer was read.
struct WantedTrainer {
  std::optional<planner::Trainer> trainer;         ///< `nullopt` for FSDP2 by hand.
  std::optional<planner::TrainerRelease> release;  ///< The trainer's.
  CommandLine line;                                ///< With what the trainer implies, and without the trainer.

  /// Searched without the limits of a trainer: FSDP2 by hand, and DeepSpeed, whose limits are those of its runtimes.
  bool is_by_itself() const { return !trainer || trainer == planner::Trainer::DeepSpeed; }
};

/// REQUIRES: --for. Adds errors in the options to `errors`.
WantedTrainer wanted_trainer(const CommandLine& line, Errors& errors);

}  // namespace fsdp::command
