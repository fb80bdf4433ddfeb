#pragma once

// Checkpoints of a run: every rank of the model's first replica writes its shards, all at the same time.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/formats/checkpoint_index.h"
#include "executor/checkpoint/part_file.h"
#include "executor/options/options.h"
#include "executor/training/agreement.h"
#include "executor/training/trainer.h"

namespace fsdp::executor {

class CheckpointWriter {
 public:
  /// `about` has the constant members: the model, the seed, the mesh. REQUIRES: all references outlive it.
  CheckpointWriter(CheckpointSettings settings, CheckpointIndex about, Trainer& trainer, Agreement& agreement);

  bool is_due(std::int64_t step, std::int64_t last_step) const;
  /// Whether the folder had the checkpoint of a step when the run began: the same answer on all ranks.
  bool has(std::int64_t step) const;

  /// All ranks call it. In any case the folder still has its earlier checkpoints, and this one complete or not at all.
  /// Returns a line about it. Error, the same on all ranks: the rank that could not write, and the reason.
  Result<std::string> save();

 private:
  std::string temporary() const;
  using RankFiles = std::vector<std::pair<std::string, std::vector<TensorPart>>>;  ///< By their names.
  RankFiles files_of_rank(const std::vector<std::string>& random_states);
  std::string write_own_files(const RankFiles& files);
  std::string publish(const std::vector<std::string>& statuses);
  void remove_old() const;

  CheckpointSettings settings_;
  std::vector<std::int64_t> steps_before_;
  CheckpointIndex about_;
  Trainer& trainer_;
  Agreement& agreement_;
};

}  // namespace fsdp::executor
