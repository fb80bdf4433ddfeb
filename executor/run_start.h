#pragma once

// What a run begins with: values from a seed, or what the options name instead.

#include <memory>
#include <optional>
#include <string>

#include "core/model.h"
#include "core/result.h"
#include "core/stored_tensors.h"
#include "executor/options.h"
#include "executor/token_file.h"
#include "executor/trainer.h"

namespace fsdp::executor {

struct RunStart {
  std::optional<StoredTensors> weights;  ///< Of all parameters; nothing: from the seed.
  std::shared_ptr<const TokenFile> tokens;
};

/// Looks at all files that the options name, and reads no tensor of them. Errors: all that is wrong with them.
Result<RunStart> read_run_start(const RunOptions& options, const Model& model);

/// What all ranks must have alike, as far as it can be told without reading the tensors.
std::string summary_of(const RunStart& start);

/// Puts what `start` has into a trainer that has not trained yet. Returns a line that says so, or nothing. Error: a
/// file cannot be read.
Result<std::string> begin_run(const RunStart& start, Trainer& trainer);

}  // namespace fsdp::executor
