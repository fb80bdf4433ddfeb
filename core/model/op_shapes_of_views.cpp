// Shape rules of the kinds that move elements or reduce along a dimension.

#include "core/model/op_shape_rules.h"

namespace fsdp::op_shape_rules {
namespace {

/// The index of a dimension, counted from the end if negative; `nullopt` if it does not exist.
std::optional<std::size_t> dimension(std::int64_t dim, std::size_t rank) {
  const auto signed_rank = static_cast<std::int64_t>(rank);
  if (dim < -signed_rank || dim >= signed_rank) return std::nullopt;
  return static_cast<std::size_t>(dim < 0 ? dim + signed_rank : dim);
}

tl::unexpected<std::string> no_dimension(std::int64_t dim, const Shape& x) {
  return wrong("{} has no dimension {}.", to_string(x), dim);
}

/// `length` indices from `start` on.
Rule part_of(std::int64_t length, const OpAttributes& attributes, const OpShapes& s) {
  Shape y = s.inputs[0];
  const auto dim = dimension(attributes.dim, y.size());
  if (!dim) return no_dimension(attributes.dim, y);
  const std::int64_t size = y[*dim];
  const std::int64_t start = attributes.start;
  if (start < 0 || start >= size || length < 1 || length > size - start) {
    return wrong("{} from {} on are not within dimension {} of {}.", length, start, attributes.dim, to_string(y));
  }
  y[*dim] = length;
  return one(y);
}

}  // namespace

Rule reshape(const OpAttributes& /*unused*/, const OpShapes& s) {
  const auto from = checked_num_elements(s.inputs[0]);
  const auto to = checked_num_elements(s.requested);
  if (from != to) return wrong("{} does not reshape to {}.", to_string(s.inputs[0]), to_string(s.requested));
  return one(s.requested);
}

Rule expand(const OpAttributes& /*unused*/, const OpShapes& s) {
  if (!broadcasts_to(s.inputs[0], s.requested)) {
    return wrong("{} does not expand to {}.", to_string(s.inputs[0]), to_string(s.requested));
  }
  return one(s.requested);
}

Rule transpose(const OpAttributes& attributes, const OpShapes& s) {
  Shape y = s.inputs[0];
  const auto a = dimension(attributes.dim, y.size());
  const auto b = dimension(attributes.other_dim, y.size());
  if (!a) return no_dimension(attributes.dim, y);
  if (!b) return no_dimension(attributes.other_dim, y);
  std::swap(y[*a], y[*b]);
  return one(y);
}

Rule set_slice(const OpAttributes& attributes, const OpShapes& s) {
  const Shape& x = s.inputs[0];
  const auto dim = dimension(attributes.dim, x.size());
  if (!dim) return no_dimension(attributes.dim, x);
  Shape room = x;
  room[*dim] -= attributes.start;
  const Shape& part = s.inputs[1];
  const bool fits = part.size() == x.size() && attributes.start >= 0 && part[*dim] <= room[*dim];
  if (fits) room[*dim] = part[*dim];
  if (!fits || part != room) {
    return wrong("A slice of {} does not fit into {} at offset {}.", to_string(part), to_string(x), attributes.start);
  }
  return one(x);
}

namespace {

Rule split_by_lengths(const std::vector<std::int64_t>& lengths, std::size_t dim, const OpShapes& s) {
  const Shape& x = s.inputs[0];
  std::int64_t left = x[dim];
  std::vector<Shape> parts;
  for (const std::int64_t length : lengths) {
    left -= length;
    Shape part = x;
    part[dim] = length;
    parts.push_back(std::move(part));
    if (length < 1 || left < 0) break;
  }
  if (left != 0 || std::ssize(parts) != s.num_outputs) {
    return wrong("{} does not split into {} parts of these lengths.", to_string(x), s.num_outputs);
  }
  return parts;
}

}  // namespace

Rule split(const OpAttributes& attributes, const OpShapes& s) {
  Shape y = s.inputs[0];
  const auto dim = dimension(attributes.dim, y.size());
  if (!dim) return no_dimension(attributes.dim, y);
  if (!attributes.lengths.empty()) return split_by_lengths(attributes.lengths, *dim, s);
  if (attributes.length > 0) {
    const std::int64_t others = s.num_outputs - 1;
    const std::int64_t left = y[*dim] - attributes.length;
    if (others < 1 || left < 1 || left % others != 0) {
      return wrong("Dimension {} of {} does not split at {}.", attributes.dim, to_string(y), attributes.length);
    }
    Shape rest = y;
    y[*dim] = attributes.length;
    rest[*dim] = left / others;
    std::vector<Shape> parts(static_cast<std::size_t>(s.num_outputs), rest);
    parts.front() = y;
    return parts;
  }
  if (s.num_outputs < 1 || y[*dim] % s.num_outputs != 0) {
    return wrong("Dimension {} of {} does not split into {}.", attributes.dim, to_string(y), s.num_outputs);
  }
  y[*dim] /= s.num_outputs;
  return std::vector<Shape>(static_cast<std::size_t>(s.num_outputs), y);
}

Rule cat(const OpAttributes& attributes, const OpShapes& s) {
  Shape y = s.inputs[0];
  const auto dim = dimension(attributes.dim, y.size());
  if (!dim) return no_dimension(attributes.dim, y);
  for (const Shape& part : s.inputs.subspan(1)) {
    Shape expected = y;
    if (part.size() == y.size()) expected[*dim] = part[*dim];
    if (part != expected) return wrong("{} and {} do not concatenate.", to_string(s.inputs[0]), to_string(part));
    if (part[*dim] > kMostElements - y[*dim]) return wrong("The sum of the sizes is above 2^53.");
    y[*dim] += part[*dim];
  }
  return one(y);
}

Rule stack(const OpAttributes& attributes, const OpShapes& s) {
  Shape y = s.inputs[0];
  const auto dim = dimension(attributes.dim, y.size() + 1);
  if (!dim) return wrong("{} takes no new dimension {}.", to_string(y), attributes.dim);
  for (const Shape& part : s.inputs) {
    if (part != y) return wrong("{} and {} do not stack.", to_string(y), to_string(part));
  }
  y.insert(y.begin() + static_cast<std::ptrdiff_t>(*dim), static_cast<std::int64_t>(s.inputs.size()));
  return one(y);
}

Rule index(const OpAttributes& attributes, const OpShapes& s) {
  const Shape& x = s.inputs[0];
  const Shape& indices = s.inputs[1];
  const auto dim = dimension(attributes.dim, x.size());
  if (!dim) return no_dimension(attributes.dim, x);
  Shape y(x.begin(), x.begin() + static_cast<std::ptrdiff_t>(*dim));
  y.insert(y.end(), indices.begin(), indices.end());
  y.insert(y.end(), x.begin() + static_cast<std::ptrdiff_t>(*dim) + 1, x.end());
  return one(y);
}

Rule pad(const OpAttributes& attributes, const OpShapes& s) {
  Shape y = s.inputs[0];
  const auto dim = dimension(attributes.dim, y.size());
  if (!dim) return no_dimension(attributes.dim, y);
  if (attributes.length < y[*dim]) return wrong("{} is longer than {} already.", to_string(y), attributes.length);
  y[*dim] = attributes.length;
  return one(y);
}

Rule reduction(const OpAttributes& attributes, const OpShapes& s) {
  Shape y = s.inputs[0];
  const auto dim = dimension(attributes.dim, y.size());
  if (!dim) return no_dimension(attributes.dim, y);
  for (const Shape& other : s.inputs.subspan(1)) {  // For Std: the mean and the weights.
    if (!broadcasts_to(other, y)) return wrong("{} does not broadcast to {}.", to_string(other), to_string(y));
  }
  if (attributes.keep_dim) {
    y[*dim] = 1;
  } else {
    y.erase(y.begin() + static_cast<std::ptrdiff_t>(*dim));
  }
  return one(y);
}

Rule slice(const OpAttributes& attributes, const OpShapes& s) {
  return part_of(attributes.length, attributes, s);
}

Rule select(const OpAttributes& attributes, const OpShapes& s) {
  Rule one_index = part_of(1, attributes, s);
  if (!one_index) return one_index;
  Shape& y = one_index->front();
  y.erase(y.begin() + static_cast<std::ptrdiff_t>(*dimension(attributes.dim, y.size())));
  return one_index;
}

Rule kv_cache(const OpAttributes& /*unused*/, const OpShapes& s) {
  return std::vector<Shape>{s.inputs[0], s.inputs[1]};
}

Rule softmax(const OpAttributes& attributes, const OpShapes& s) {
  const Shape& x = s.inputs[0];
  if (!dimension(attributes.dim, x.size())) return no_dimension(attributes.dim, x);
  return one(x);
}

}  // namespace fsdp::op_shape_rules
