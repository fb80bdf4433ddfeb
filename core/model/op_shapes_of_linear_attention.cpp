// Shape rules of linear attention and state spaces.

#include "core/model/op_shape_rules.h"

namespace fsdp::op_shape_rules {
namespace {

/// Whether every parameter is [heads].
bool is_per_head(const OpShapes& s, std::int64_t heads) {
  for (const Shape& parameter : s.parameters) {
    if (parameter != Shape{heads}) return false;
  }
  return true;
}

/// The numbers of a token beyond its first `taken`. 0 if that leaves no equal parts.
std::int64_t part_of_rest(const Shape& mixed, std::int64_t taken, std::int64_t parts) {
  const std::int64_t rest = mixed.size() == 3 ? mixed[2] - taken : 0;
  return parts < 1 || rest < parts || rest % parts != 0 ? 0 : rest / parts;
}

}  // namespace

Rule causal_conv1d(const OpAttributes& /*unused*/, const OpShapes& s) {
  const Shape& x = s.inputs[0];
  const Shape& weight = s.parameters[0];
  const bool fits = x.size() == 3 && weight.size() == 3 && weight[0] == x[2] && weight[1] == 1 && weight[2] >= 1;
  if (!fits || (s.parameters.size() == 2 && s.parameters[1] != Shape{x[2]})) {
    return wrong("The weight {} does not match [batch, seq, channels] of {}.", to_string(weight), to_string(x));
  }
  return one(x);
}

Rule decay_rate(const OpAttributes& /*unused*/, const OpShapes& s) {
  const Shape& x = s.inputs[0];
  if (x.size() != 3 || !is_per_head(s, x[2])) {
    return wrong("The parameters are not [{}], one for each head of {}.", x.empty() ? 0 : x.back(), to_string(x));
  }
  return one(x);
}

Rule gated_delta_rule(const OpAttributes& attributes, const OpShapes& s) {
  const Shape& mixed = s.inputs[0];
  const std::int64_t heads = attributes.heads;
  const std::int64_t key_heads = attributes.kv_heads;
  const std::int64_t width = part_of_rest(mixed, 2 * key_heads * attributes.head_dim, heads);
  if (key_heads < 1 || heads % key_heads != 0 || attributes.length < 1 || width < 1) {
    return wrong("{} does not hold {} queries and keys of {} and {} values.", to_string(mixed), key_heads,
                 attributes.head_dim, heads);
  }
  const Shape steps = {mixed[0], mixed[1], heads};
  if (s.inputs[1] != steps || s.inputs[2] != steps) {
    return wrong("The decay {} and the beta {} are not {}.", to_string(s.inputs[1]), to_string(s.inputs[2]),
                 to_string(steps));
  }
  return one(Shape{mixed[0], mixed[1], heads, width});
}

Rule state_space(const OpAttributes& attributes, const OpShapes& s) {
  const Shape& mixed = s.inputs[0];
  const std::int64_t heads = attributes.heads;
  const std::int64_t inner = heads * attributes.head_dim;
  const std::int64_t state = part_of_rest(mixed, inner, 2 * attributes.groups);
  if (inner < 1 || attributes.groups < 1 || heads % attributes.groups != 0 || attributes.length < 1 || state < 1) {
    return wrong("{} does not hold {} values of {} and states of {} groups.", to_string(mixed), heads,
                 attributes.head_dim, attributes.groups);
  }
  if (s.inputs[1] != Shape{mixed[0], mixed[1], heads} || !is_per_head(s, heads)) {
    return wrong("The step {} and the parameters are not of {} heads.", to_string(s.inputs[1]), heads);
  }
  return one(Shape{mixed[0], mixed[1], inner});
}

Rule gated_rms_norm(const OpAttributes& attributes, const OpShapes& s) {
  const Shape& x = s.inputs[0];
  if (x.empty() || s.inputs[1] != x || s.parameters[0] != Shape{x.back()}) {
    return wrong("The gate {} and the weight {} do not match {}.", to_string(s.inputs[1]), to_string(s.parameters[0]),
                 to_string(x));
  }
  if (attributes.groups < 1 || x.back() % attributes.groups != 0) {
    return wrong("The width {} does not divide into {} groups.", x.back(), attributes.groups);
  }
  return one(x);
}

}  // namespace fsdp::op_shape_rules
