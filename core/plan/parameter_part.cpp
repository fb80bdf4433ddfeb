#include "core/plan/parameter_part.h"

#include <algorithm>
#include <cassert>

namespace fsdp {

namespace {

ParameterPart cut_in_chunks(std::int64_t elements, std::int64_t chunk, std::int64_t ranks, std::int64_t rank) {
  return {elements, chunk, local_elements(elements, chunk, rank), ranks * chunk};
}

std::int64_t rounded_up(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

}  // namespace

std::int64_t local_elements(std::int64_t elements, std::int64_t chunk, std::int64_t rank) {
  return std::clamp<std::int64_t>(elements - rank * chunk, 0, chunk);
}

ParameterPart part_of(std::int64_t elements, CutBy cut, std::int64_t ranks, std::int64_t rank) {
  assert(cut != CutBy::Rows);
  if (cut == CutBy::None) return {elements, elements, elements, elements};
  return cut_in_chunks(elements, rounded_up(elements, ranks), ranks, rank);
}

ParameterPart part_of(const Shape& shape, CutBy cut, std::int64_t ranks, std::int64_t rank) {
  const std::int64_t elements = num_elements(shape);
  if (cut != CutBy::Rows) return part_of(elements, cut, ranks, rank);
  const std::int64_t rows = shape.empty() ? 1 : shape.front();
  const std::int64_t row = rows > 0 ? elements / rows : 0;
  return cut_in_chunks(elements, rounded_up(rows, ranks) * row, ranks, rank);
}

}  // namespace fsdp
