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

/// The most elements of a tensor: the last integer that survives a JSON reader, and more than any training run has.
inline constexpr std::int64_t kMostElements = std::int64_t{1} << 53;

/// All that a shape rule may look at.
struct OpShapes {
  std::span<const Shape> inputs = {};
  std::span<const Shape> parameters = {};
  Shape requested = {};  ///< Reshape, Expand and Constant: the shape that is asked for.
  int num_outputs = 1;   ///< Split: into how many parts.
};

/// The shapes of the outputs of an op, in order.
/// Error: shapes that do not go together, sizes below one, and tensors of more than 2^53 elements. `where` of the error
/// is the name of the op kind.
Result<std::vector<Shape>> infer_output_shapes(OpKind kind, const OpAttributes& attributes, const OpShapes& shapes);

/// "[2, 512, 2048]".
std::string to_string(const Shape& shape);

/// The number of elements, or nothing where it is above kMostElements.
std::optional<std::int64_t> checked_num_elements(const Shape& shape);

/// Checks every op of a block against its shape rule, and every index against what it points into.
Errors check_block(const Block& block);

}  // namespace fsdp
