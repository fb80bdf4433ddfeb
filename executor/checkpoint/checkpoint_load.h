#pragma once

// Resumes from a checkpoint, with the same number of ranks as wrote it or another.

#include <cstdint>
#include <string>

#include "core/base/result.h"
#include "core/formats/checkpoint_index.h"
#include "core/formats/stored_tensors.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "executor/training/agreement.h"
#include "executor/training/trainer.h"

namespace fsdp::executor {

struct ResumedCheckpoint {
  std::string folder;
  CheckpointIndex index;
  StoredTensors model;   ///< Parameters and buffers.
  StoredTensors states;  ///< States of the optimizer and of generators.
};

/// Checks the files of a checkpoint, and reads no tensor. Errors: everything that is wrong with the index and the
/// headers; files of another size; another model, optimizer or shape of a moment.
Result<ResumedCheckpoint> read_checkpoint(const std::string& folder, const Model& model, const Plan& plan);

/// All ranks call it: together they read every file once and compare its checksum. Errors, the same on all ranks.
Errors verify_checkpoint(const ResumedCheckpoint& checkpoint, const Trainer& trainer, std::int64_t world_size,
                         Agreement& agreement);

/// Reads this rank's rows of parameters and moments; counters, the place in the data and, with as many ranks as before,
/// the rank's generator. Error: a file cannot be read.
Result<void> load_checkpoint(const ResumedCheckpoint& checkpoint, Trainer& trainer);

}  // namespace fsdp::executor
