#pragma once

// The index of a checkpoint: its model, the progress of its run, and its files with sizes and checksums. The files
// describe the tensors themselves (core/formats/stored_tensors.h).
//
//   CHECKPOINTS/step-00000010/checkpoint.json
//                             model/shard-00001-model-00001-of-00001.safetensors       parameters, persistent buffers
//                             optimizer/shard-00001-model-00001-of-00001.safetensors   state.NAME.exp_avg and others

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/plan/plan.h"
#include "core/spec/hyperparameters.h"

namespace fsdp {

inline constexpr std::string_view kCheckpointIndexName = "checkpoint.json";
inline constexpr std::string_view kCheckpointModel = "model";
inline constexpr std::string_view kCheckpointOptimizer = "optimizer";

struct CheckpointFile {
  std::string name;  ///< Relative to the checkpoint's folder: "model/shard-00001-...safetensors".
  std::int64_t bytes = 0;
  std::uint32_t crc32 = 0;  ///< Checksum of all bytes; the checksum of zlib and PNG.

  bool operator==(const CheckpointFile&) const = default;
};

struct CheckpointIndex {
  std::string model;
  std::string model_fingerprint;
  std::int64_t step = 0;           ///< Finished optimizer steps.
  std::int64_t micro_batches = 0;  ///< Trained micro-batches of all ranks together.
  std::int64_t samples = 0;        ///< Samples read from a token file.
  std::int64_t seed = 0;           ///< The bits of an unsigned number.
  Hyperparameters hyperparameters;
  OptimizerKind optimizer = OptimizerKind::AdamW;
  Mesh mesh;  ///< Mesh of the run that wrote the checkpoint.
  std::vector<CheckpointFile> files;

  bool operator==(const CheckpointIndex&) const = default;
};

std::string to_json(const CheckpointIndex& index);

/// Reads the index of a checkpoint's folder. Errors: all its faults; a folder that is not a checkpoint, with the
/// checkpoints inside it.
Result<CheckpointIndex> read_checkpoint_index(const std::string& folder);

/// "step-00000010"
std::string checkpoint_name(std::int64_t step);

/// The steps of the checkpoints in a folder, ascending. A checkpoint gets its name only when it is complete.
std::vector<std::int64_t> checkpoint_steps(const std::string& folder);

/// Compares the size of each file. Errors: every file that is missing or has another size.
Errors check_files(const CheckpointIndex& index, const std::string& folder);

/// Reads a whole file and compares its checksum. Error: it differs, or the file cannot be read.
Result<void> verify_file(const CheckpointFile& file, const std::string& folder);

/// Continues a checksum over further bytes; starts with 0.
std::uint32_t crc32_of(std::uint32_t crc, const void* bytes, std::size_t count);

}  // namespace fsdp
