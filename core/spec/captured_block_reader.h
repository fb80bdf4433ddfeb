#pragma once

// Between the files that read a captured model; everybody else includes core/spec/captured_model.h.

#include <vector>

#include "core/base/object_reader.h"
#include "core/model/model.h"

namespace fsdp::captured_reader {

/// Sizes from 1 on, with at most 2^53 elements.
void read_shape(const JsonValue& value, Shape& out, JsonErrors& errors);

/// Values with "name", "shape" and "dtype", which is null for that of the activations.
void read_values(const JsonValue& value, std::vector<Value>& out, JsonErrors& errors);

/// Indices below `size`.
void read_indices(const JsonValue& value, std::vector<int>& out, std::size_t size, JsonErrors& errors);

/// A block with its recording, which passes check_recording().
void read_block(const JsonValue& value, Block& out, JsonErrors& errors);

}  // namespace fsdp::captured_reader
