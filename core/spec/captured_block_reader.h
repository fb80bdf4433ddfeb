#pragma once

// For the files that read a captured model; all others include core/spec/captured_model.h.

#include <string_view>
#include <vector>

#include "core/base/object_reader.h"
#include "core/model/model.h"

namespace fsdp::captured_reader {

constexpr std::string_view kAgain = "Capture the script again.";

/// Calls `read` for each member of a required list.
template <class Read>
void for_each(ObjectReader& object, std::string_view key, JsonErrors& errors, Read read) {
  const JsonValue* list = object.required_value(key);
  if (list == nullptr || !expect_type(*list, JsonType::Array, "a list", errors)) return;
  for (const JsonValue& item : list->elements) read(item);
}

/// Sizes of at least 1, with at most 2^53 elements.
void read_shape(const JsonValue& value, Shape& out, JsonErrors& errors);

/// Values with "name", "shape" and "dtype". A null dtype means that of the activations.
void read_values(const JsonValue& value, std::vector<Value>& out, JsonErrors& errors);

/// Indices below `size`.
void read_indices(const JsonValue& value, std::vector<int>& out, std::size_t size, JsonErrors& errors);

/// The passes of a step with several backwards, and the clearings between them (may be null). `is_made`: values that
/// are inputs or that a call makes. REQUIRES: the model has its modules, values, blocks and calls.
void read_passes(Model& model, const std::vector<bool>& is_made, const JsonValue& passes, const JsonValue* clearings,
                 JsonErrors& errors);

/// A block with its recording, checked by check_recording().
void read_block(const JsonValue& value, Block& out, JsonErrors& errors);

}  // namespace fsdp::captured_reader
