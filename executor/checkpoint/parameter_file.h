#pragma once

// Whole parameters as one safetensors file.

#include <string>

#include "core/base/result.h"
#include "executor/training/trainer.h"

namespace fsdp::executor {

/// Gathers every parameter over the shard group and writes them one after the other, in the order of their names, in
/// the dtype of the shards. All ranks call it; one writes. Error: the file cannot be written.
Result<void> save_whole_parameters(Trainer& trainer, const std::string& path, bool writes);

}  // namespace fsdp::executor
