#pragma once

// One rank's part of a checkpoint as a safetensors file.

#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/formats/checkpoint_index.h"
#include "core/model/model.h"

namespace fsdp::executor {

struct TensorPart {
  std::string name;
  at::Tensor rows;             ///< Contiguous, on any device.
  std::int64_t first_row = 0;  ///< Counted in the whole tensor.
};

/// Writes a new file, and returns when it is on the disk. `name` is relative to `folder`. Error: the disk is full or
/// refuses; then a part of the file may remain.
Result<CheckpointFile> write_part_file(const std::string& folder, const std::string& name,
                                       const std::vector<TensorPart>& parts);

/// Makes the names in a folder survive a crash. Error: the disk refuses.
Result<void> sync_folder(const std::string& folder);

}  // namespace fsdp::executor
