#pragma once

// The values with which a run begins: from a seed, or from the files of the options.

#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/formats/stored_tensors.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "executor/checkpoint/checkpoint_load.h"
#include "executor/options/options.h"
#include "executor/training/agreement.h"
#include "executor/training/sample_source.h"
#include "executor/training/trainer.h"

namespace fsdp::executor {

struct RunStart {
  std::optional<StoredTensors> weights;      ///< All parameters. nullopt: from the seed or the checkpoint.
  std::optional<ResumedCheckpoint> resumed;  ///< The checkpoint from which the run resumes.
  std::vector<std::string> notes;            ///< Notes about values that were converted.
  std::shared_ptr<const SampleSource> tokens;
  std::shared_ptr<const SampleSource> evaluated;  ///< In the order of its files.
};

/// A damaged input file.
class UnusableInput : public std::runtime_error {
 public:
  explicit UnusableInput(Errors errors) : std::runtime_error("unusable input"), errors_(std::move(errors)) {}
  const Errors& errors() const { return errors_; }

 private:
  Errors errors_;
};

/// Checks all files that the options name, and reads no tensor of them. Options that were not given take a checkpoint's
/// values. Errors: all faults of the files; options that contradict a checkpoint; a checkpoint folder that has
/// checkpoints of another run; a result file without a folder.
Result<RunStart> read_run_start(RunOptions& options, const Model& model, const Plan& plan);

/// The facts that all ranks must share, without those that need the tensors.
std::string summary_of(const RunStart& start);

/// Puts the values of `start` into a trainer that has not trained yet. Returns a line about it, or an empty one.
/// `agreement` may be null if nothing is resumed. Error: a file cannot be read. Throws UnusableInput.
Result<std::string> begin_run(const RunStart& start, Trainer& trainer, Agreement* agreement);

}  // namespace fsdp::executor
