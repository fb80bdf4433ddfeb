#pragma once

// The weights beside a config.json, by the headers of their safetensors files. Checks that they belong to its model.

#include <optional>
#include <string>

#include "core/base/dtype.h"
#include "core/base/result.h"
#include "core/formats/stored_tensors.h"
#include "core/spec/model_spec.h"

namespace fsdp {

struct HfWeights {
  std::string path;             ///< Path of the index, or of the one file; empty if there is none.
  StoredTensors tensors;        ///< Empty if they could not be read.
  std::optional<Dtype> dtype;   ///< Dtype of the first floating point tensor by name.
  std::optional<Error> unread;  ///< The reason if they could not be read: files that were not fetched.
};

/// Reads the headers of model.safetensors, or of the files that model.safetensors.index.json names. "" is the working
/// folder.
HfWeights read_hf_weights(const std::string& folder);

/// Compares the weights with the model. Adds notes to the spec: what transformers does with weights of other names, and
/// which were not compared. Errors: tensors of another shape; no tensor of the model.
Errors check_hf_weights(const HfWeights& weights, ModelSpec& spec);

}  // namespace fsdp
