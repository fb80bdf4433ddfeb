#pragma once

// Shapes of an op's outputs: the first of the three rules of an op kind.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/model/model.h"
#include "core/model/op.h"

namespace fsdp {

/// The most elements of a tensor: the largest integer that survives a JSON reader, far above any training run.
inline constexpr std::int64_t kMostElements = std::int64_t{1} << 53;

/// The inputs of a shape rule.
struct OpShapes {
  std::span<const Shape> inputs = {};
  std::span<const Shape> parameters = {};
  Shape requested = {};  ///< Reshape, Expand and Constant: the requested shape.
  int num_outputs = 1;   ///< Split: the number of parts.
};

/// The shapes of the outputs of an op, in order. Error, with the name of the op kind as its place: shapes that do not
/// match, sizes below one, and tensors of more than 2^53 elements.
Result<std::vector<Shape>> infer_output_shapes(OpKind kind, const OpAttributes& attributes, const OpShapes& shapes);

/// "[2, 512, 2048]".
std::string to_string(const Shape& shape);

/// The number of elements; `nullopt` if it exceeds kMostElements.
std::optional<std::int64_t> checked_num_elements(const Shape& shape);

/// Checks every op of a block against its shape rule, and the range of every index.
Errors check_block(const Block& block);

}  // namespace fsdp
