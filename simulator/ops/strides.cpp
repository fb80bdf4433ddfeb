// A view exists if each group of neighboring dimensions that is contiguous can be divided into the new dimensions. So
// we walk the dimensions from the last one to the first: at the end of a contiguous piece (the next dimension does not
// continue it), the new dimensions so far must hold exactly as many elements.

#include "simulator/ops/strides.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace fsdp::simulator {

Shape dense_strides(const Shape& shape) {
  Shape strides(shape.size(), 1);
  for (std::size_t d = shape.size(); d-- > 1;) strides[d - 1] = strides[d] * std::max<std::int64_t>(shape[d], 1);
  return strides;
}

std::optional<Shape> strides_as(const Shape& shape, const Shape& strides, const Shape& other) {
  Shape result(other.size(), 1);
  std::size_t wanted = other.size();
  std::int64_t base = strides.empty() ? 1 : strides.back();  // Base of the current piece.
  std::int64_t elements = 1;
  std::int64_t cut = 1;
  for (std::size_t d = shape.size(); d-- > 0;) {
    elements *= shape[d];
    const bool ends = d == 0 || (shape[d - 1] != 1 && strides[d - 1] != elements * base);
    if (!ends) continue;
    while (wanted > 0 && (cut < elements || other[wanted - 1] == 1)) {
      result[wanted - 1] = cut * base;
      cut *= other[--wanted];
    }
    if (cut != elements) return std::nullopt;
    if (d > 0) base = strides[d - 1];
    elements = cut = 1;
  }
  if (wanted > 0) return std::nullopt;
  return result;
}

Shape strides_of_result(const Shape& shape, const Shape& strides) {
  std::vector<std::size_t> order(shape.size());  // The fastest dimension first.
  for (std::size_t d = 0; d < order.size(); ++d) order[d] = order.size() - 1 - d;
  const auto goes_before = [&](std::size_t a, std::size_t b) {
    return strides[a] != strides[b] ? strides[a] < strides[b] : shape[a] < shape[b];
  };
  for (std::size_t i = 1; i < order.size(); ++i) {
    // A dimension along which the operand is repeated has no order: it stays in place.
    for (std::size_t place = i, other = i; other-- > 0;) {
      if (strides[order[place]] == 0 || strides[order[other]] == 0) continue;
      if (!goes_before(order[place], order[other])) break;
      std::swap(order[place], order[other]);
      place = other;
    }
  }
  Shape result(shape.size(), 1);
  std::int64_t elements = 1;
  for (const std::size_t d : order) {
    result[d] = elements;
    elements *= shape[d];
  }
  return result;
}

bool is_dense(const Shape& shape, const Shape& strides) {
  const Shape dense = dense_strides(shape);
  for (std::size_t d = 0; d < shape.size(); ++d) {
    if (shape[d] != 1 && strides[d] != dense[d]) return false;
  }
  return true;
}

}  // namespace fsdp::simulator
