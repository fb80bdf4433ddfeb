#pragma once

// Old names of tensors in published files, which transformers still reads.

#include <string>
#include <vector>

#include "core/formats/stored_tensors.h"
#include "core/model/model.h"

namespace fsdp::executor {

/// Gives tensors the model's names, and leaves out those that the published code computes itself, as from_pretrained
/// does. Returns a sentence for each kind of change. Empty if all names are current.
std::vector<std::string> settle_old_names(StoredTensors& stored, const Model& model);

}  // namespace fsdp::executor
