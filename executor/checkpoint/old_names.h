#pragma once

// Names of tensors that published files have had and that transformers reads to this day.

#include <string>
#include <vector>

#include "core/formats/stored_tensors.h"
#include "core/model/model.h"

namespace fsdp::executor {

/// Gives tensors the names that the model has for them, and leaves out those that the published code computes itself,
/// as from_pretrained does. Returns a sentence for each kind of change; none: all names are today's.
std::vector<std::string> settle_old_names(StoredTensors& stored, const Model& model);

}  // namespace fsdp::executor
