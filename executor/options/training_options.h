#pragma once

// The training options of fsdp-exec (core/spec/hyperparameters.h).

#include <set>
#include <string>

#include "core/base/result.h"
#include "core/plan/plan.h"
#include "core/spec/hyperparameters.h"

namespace CLI {
class App;
}

namespace fsdp::executor {

struct TrainingOptions {
  Hyperparameters values;
  std::set<std::string> given;  ///< Flags of the given options: "--lr".
};

/// Adds the options to a command line. REQUIRES: `options` outlives its parsing.
void describe_training_options(CLI::App& app, TrainingOptions& options);
/// The given options. REQUIRES: the command line is parsed.
void note_given(const CLI::App& app, TrainingOptions& options);

/// Uses the values of `before`, a checkpoint's, for options that were not given.
void go_on_with(const Hyperparameters& before, TrainingOptions& options);

/// Sets the length of the schedule, which defaults to that of the run. Errors: options that contradict each other or
/// the plan's optimizer.
Errors settle_training_options(const Plan& plan, std::int64_t steps, TrainingOptions& options);

/// All settings, for the comparison between ranks.
std::string text_of(const Hyperparameters& settings);

}  // namespace fsdp::executor
