#pragma once

// Parameters from files instead of from a seed. Each rank reads only the bytes of its own rows.

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/formats/stored_tensors.h"
#include "core/model/model.h"
#include "executor/training/sharded_unit.h"

namespace fsdp::executor {

/// The stored tensor of a parameter, under its own name or one of its tied names; nullptr if there is none.
const StoredTensor* stored_parameter(const StoredTensors& stored, const Parameter& parameter);

/// Whether the files have the parameters of the model, and no others; its buffers are optional. Errors, for all
/// tensors: a parameter that no file has and a tensor that the model does not have, each with the nearest name of the
/// other side; other shapes; integers if the model has floating point. At most 50, and the number of the others.
Errors check_weights(const StoredTensors& stored, const Model& model);

/// Reads elements [first, first + to.numel()) of a stored tensor into a contiguous one, converted to its dtype, a piece
/// at a time. Error: a file cannot be read.
Result<void> read_into(const at::Tensor& to, StoredReader& reader, const StoredTensor& stored, std::int64_t first);

/// Reads this rank's rows of all parameters, and the buffers in the files; returns the number of bytes. Error: a file
/// cannot be read. REQUIRES: `check_weights` has no error; `shard_rank` is the rank in its shard group.
Result<std::int64_t> load_weights(const StoredTensors& stored, std::vector<std::unique_ptr<RunningUnit>>& units,
                                  const std::map<std::string, at::Tensor>& buffers, std::int64_t shard_rank);

}  // namespace fsdp::executor
