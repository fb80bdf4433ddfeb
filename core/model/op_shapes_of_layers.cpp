// Shape rules of layers with parameters, attention, experts and losses.

#include <algorithm>

#include "core/model/op_shape_rules.h"

namespace fsdp::op_shape_rules {
namespace {

/// The size of one spatial dimension after a convolution or a pooling; below 1 if the kernel does not fit.
std::int64_t windowed(std::int64_t size, const OpAttributes& a) {
  const std::int64_t reach = a.dilation * (a.kernel - 1);
  const std::int64_t room = size + 2 * a.padding - reach - 1;
  return room < 0 ? 0 : room / a.stride + 1;
}

bool sane_window(const OpAttributes& a) {
  constexpr std::int64_t kLargest = std::int64_t{1} << 30;
  return a.kernel >= 1 && a.stride >= 1 && a.dilation >= 1 && a.padding >= 0 && a.groups >= 1 && a.kernel <= kLargest &&
         a.dilation <= kLargest && a.padding <= kLargest;
}

Rule convolution(std::size_t spatial, const OpAttributes& attributes, const OpShapes& s) {
  const Shape& x = s.inputs[0];
  const Shape& weight = s.parameters[0];
  if (x.size() != spatial + 2 || weight.size() != spatial + 2) {
    return wrong("The input {} and the weight {} must have {} dimensions.", to_string(x), to_string(weight),
                 spatial + 2);
  }
  if (!sane_window(attributes)) return wrong("Kernel, stride, dilation and groups start at 1, padding at 0.");
  if (x[1] != weight[1] * attributes.groups || weight[0] % attributes.groups != 0) {
    return wrong("The input {} has {} channels; the weight {} in {} groups needs {}.", to_string(x), x[1],
                 to_string(weight), attributes.groups, weight[1] * attributes.groups);
  }
  if (s.parameters.size() == 2 && s.parameters[1] != Shape{weight[0]}) {
    return wrong("The bias is {}, not [{}].", to_string(s.parameters[1]), weight[0]);
  }
  Shape y = {x[0], weight[0]};
  for (std::size_t i = 2; i < x.size(); ++i) y.push_back(windowed(x[i], attributes));
  return one(y);
}

Rule norm_of(std::size_t channel, const OpShapes& s) {
  const Shape& x = s.inputs[0];
  if (channel >= x.size()) return wrong("The input {} has too few dimensions.", to_string(x));
  for (const Shape& parameter : s.parameters) {
    if (parameter != Shape{x[channel]}) {
      return wrong("The parameter {} is not [{}], the width of {}.", to_string(parameter), x[channel], to_string(x));
    }
  }
  return one(x);
}

}  // namespace

Rule linear_4bit(const OpAttributes& attributes, const OpShapes& s) {
  const Shape& x = s.inputs[0];
  const Shape& weight = s.parameters[0];
  if (x.empty() || weight.size() != 2 || weight[1] != 1 || attributes.out_features < 1) {
    return wrong("An input {} and a packed weight {} for {} outputs.", to_string(x), to_string(weight),
                 attributes.out_features);
  }
  // Two numbers to a byte, of which an element has one to eight.
  const std::int64_t numbers = x.back() * attributes.out_features;
  if (numbers < 2 * weight[0] || numbers > 16 * weight[0] + 15) {
    return wrong("The packed weight {} does not hold {} x {} numbers.", to_string(weight), attributes.out_features,
                 x.back());
  }
  if (s.parameters.size() == 2 && s.parameters[1] != Shape{attributes.out_features}) {
    return wrong("The bias is {}, not [{}].", to_string(s.parameters[1]), attributes.out_features);
  }
  Shape y = x;
  y.back() = attributes.out_features;
  return one(y);
}

Rule linear(const OpAttributes& attributes, const OpShapes& s) {
  const Shape& x = s.inputs[0];
  const Shape& weight = s.parameters[0];
  if (x.empty() || weight.size() != 2) return wrong("An input {} and a weight {}.", to_string(x), to_string(weight));
  const std::int64_t in = attributes.transposed_weight ? weight[0] : weight[1];
  const std::int64_t out = attributes.transposed_weight ? weight[1] : weight[0];
  if (x.back() != in)
    return wrong("The last dimension of the input {} must be {}, as in the weight.", to_string(x), in);
  if (s.parameters.size() == 2 && s.parameters[1] != Shape{out}) {
    return wrong("The bias is {}, not [{}].", to_string(s.parameters[1]), out);
  }
  Shape y = x;
  y.back() = out;
  return one(y);
}

Rule embedding(const OpAttributes& /*unused*/, const OpShapes& s) {
  if (s.parameters[0].size() != 2) return wrong("The weight {} must be 2-D.", to_string(s.parameters[0]));
  Shape y = s.inputs[0];
  y.push_back(s.parameters[0][1]);
  return one(y);
}

Rule max_pool2d(const OpAttributes& attributes, const OpShapes& s) {
  const Shape& x = s.inputs[0];
  if (x.size() != 4) return wrong("The input {} is not [batch, channels, height, width].", to_string(x));
  if (!sane_window(attributes)) return wrong("Kernel, stride, dilation and groups start at 1, padding at 0.");
  return one(Shape{x[0], x[1], windowed(x[2], attributes), windowed(x[3], attributes)});
}

Rule rotary(const OpAttributes& /*unused*/, const OpShapes& s) {
  const Shape& q = s.inputs[0];
  const Shape& k = s.inputs[1];
  const Shape& cos = s.inputs[2];
  if (q.size() != 4 || k.size() != 4 || q[0] != k[0] || q[1] != k[1] || q[3] != k[3]) {
    return wrong("The query {} and the key {} have incompatible shapes.", to_string(q), to_string(k));
  }
  if (cos != s.inputs[3] || cos.empty() || cos.back() > q[3] || cos.back() % 2 != 0) {
    return wrong("The tables {} and {} do not match a head width of {}.", to_string(cos), to_string(s.inputs[3]), q[3]);
  }
  if (cos.size() < 2 || cos[cos.size() - 2] != q[1]) {
    return wrong("The table {} must have {} positions.", to_string(cos), q[1]);
  }
  return std::vector{q, k};
}

Rule attention(const OpAttributes& attributes, const OpShapes& s) {
  const Shape& q = s.inputs[0];
  const Shape& k = s.inputs[1];
  const Shape& v = s.inputs[2];
  const bool ranks = q.size() == 4 && k.size() == 4 && v.size() == 4;
  if (!ranks || q[0] != k[0] || k[0] != v[0] || k[1] != v[1] || k[2] != v[2] || q[3] != k[3]) {
    return wrong("The query {}, key {} and value {} have incompatible shapes.", to_string(q), to_string(k),
                 to_string(v));
  }
  if (q[2] % k[2] != 0) return wrong("{} heads are not a multiple of {} key and value heads.", q[2], k[2]);
  if (!s.parameters.empty() && s.parameters[0] != Shape{q[2]}) {
    return wrong("The sinks {} are not [{}], one for each head.", to_string(s.parameters[0]), q[2]);
  }
  if (attributes.packed == PackedAttention::Flex) {
    if (s.inputs.size() != 4 || s.inputs[3].size() != 1)
      return wrong("FlexAttention takes a block mask of one dimension.");
  } else if (s.inputs.size() == 5) {
    const Shape boundaries = {static_cast<std::int64_t>(attributes.documents.size()) + 1};
    if (s.inputs[3] != boundaries || s.inputs[4] != boundaries) {
      return wrong("Boundaries of {} documents have {} elements.", attributes.documents.size(), boundaries[0]);
    }
  } else if (s.inputs.size() == 4) {
    const Shape scores = {q[0], q[2], q[1], k[1]};
    if (!broadcasts_to(s.inputs[3], scores)) {
      return wrong("The mask {} does not broadcast to {}.", to_string(s.inputs[3]), to_string(scores));
    }
  }
  return one(Shape{q[0], q[1], q[2] * v[3]});
}

Rule router(const OpAttributes& attributes, const OpShapes& s) {
  Shape scores = s.inputs[0];
  const std::int64_t k = attributes.experts_per_token;
  if (!s.parameters.empty()) {
    const Shape& weight = s.parameters[0];
    if (weight.size() != 2 || scores.size() != 2 || weight[1] != scores[1]) {
      return wrong("The weight {} does not match tokens {}.", to_string(weight), to_string(scores));
    }
    scores.back() = weight[0];
    const std::int64_t groups = attributes.groups;
    const bool is_ungrouped = groups == 0 && !attributes.sigmoid;
    const bool is_grouped = groups >= 1 && weight[0] % groups == 0 && weight[0] / groups >= 2;
    if (!is_ungrouped && (!is_grouped || attributes.topk_groups > groups)) {
      return wrong("{} experts do not divide into {} groups of two at least, {} of them chosen.", weight[0], groups,
                   attributes.topk_groups);
    }
  }
  if (scores.size() != 2 || k < 1 || k > scores[1]) {
    return wrong("Scores {} do not give {} experts per token.", to_string(scores), k);
  }
  return std::vector{Shape{scores[0], k}, Shape{scores[0], k}};
}

Rule experts(const OpAttributes& attributes, const OpShapes& s) {
  const Shape& x = s.inputs[0];
  const auto num_experts = static_cast<std::size_t>(std::max<std::int64_t>(attributes.num_experts, 0));
  if (x.size() != 2 || s.inputs[1].size() != 2 || s.inputs[1] != s.inputs[2] || s.inputs[1][0] != x[0]) {
    return wrong("Tokens {}, weights {} and indices {} have incompatible shapes.", to_string(x), to_string(s.inputs[1]),
                 to_string(s.inputs[2]));
  }
  if (num_experts == 0 || s.parameters.size() != 3 * num_experts) {
    return wrong("{} experts have {} parameters, not three each.", num_experts, s.parameters.size());
  }
  const Shape& gate = s.parameters[0];
  if (gate.size() != 2 || gate[1] != x[1])
    return wrong("The gate {} does not match {}.", to_string(gate), to_string(x));
  const Shape down = {gate[1], gate[0]};
  for (std::size_t e = 0; e < num_experts; ++e) {
    if (s.parameters[3 * e] != gate || s.parameters[3 * e + 1] != gate || s.parameters[3 * e + 2] != down) {
      return wrong("Expert {} is not gate {}, up {}, down {}.", e, to_string(gate), to_string(gate), to_string(down));
    }
  }
  return one(x);
}

Rule grouped_experts(const OpAttributes& attributes, const OpShapes& s) {
  const Shape& x = s.inputs[0];
  if (x.size() != 2 || s.inputs[1].size() != 2 || s.inputs[1] != s.inputs[2] || s.inputs[1][0] != x[0]) {
    return wrong("Tokens {}, weights {} and indices {} have incompatible shapes.", to_string(x), to_string(s.inputs[1]),
                 to_string(s.inputs[2]));
  }
  const bool is_clamped = s.parameters.size() == 4;
  if (is_clamped != (attributes.limit > 0) || s.parameters.size() == 3) {
    return wrong("{} parameters and a limit of {}.", s.parameters.size(), attributes.limit);
  }
  const Shape& both = s.parameters[is_clamped ? 1 : 0];
  const Shape& down = s.parameters[is_clamped ? 3 : 1];
  const std::size_t in = is_clamped ? 1 : 2;
  const std::size_t out = 3 - in;
  const bool fits = both.size() == 3 && down.size() == 3 && both[0] == attributes.num_experts && both[0] == down[0] &&
                    both[out] == 2 * down[in] && both[in] == x[1] && down[out] == x[1];
  if (is_clamped && fits && (s.parameters[0] != Shape{both[0], both[2]} || s.parameters[2] != Shape{both[0], x[1]})) {
    return wrong("The biases {} and {} do not match {} and {}.", to_string(s.parameters[0]), to_string(s.parameters[2]),
                 to_string(both), to_string(down));
  }
  if (!fits) {
    return wrong("{} experts with gate and up {} and down {} do not match {}.", attributes.num_experts, to_string(both),
                 to_string(down), to_string(x));
  }
  return one(x);
}

Rule dense_experts(const OpAttributes& attributes, const OpShapes& s) {
  const Shape& x = s.inputs[0];
  const Shape& scores = s.inputs[1];
  const std::int64_t experts = attributes.num_experts;
  if (x.size() != 2 || scores.size() != 2 || scores[0] != x[0] || scores[1] != experts) {
    return wrong("Tokens {} and scores {} do not match {} experts.", to_string(x), to_string(scores), experts);
  }
  if (attributes.experts_per_token < 1 || attributes.experts_per_token > experts) {
    return wrong("Scores {} do not give {} experts per token.", to_string(scores), attributes.experts_per_token);
  }
  const Shape& both = s.parameters[0];
  const Shape& down = s.parameters[1];
  const bool fits = both.size() == 3 && down.size() == 3 && both[0] == experts && down[0] == experts &&
                    both[1] == x[1] && down[2] == x[1] && both[2] == 2 * down[1];
  if (!fits) {
    return wrong("{} experts with gate and up {} and down {} do not match {}.", experts, to_string(both),
                 to_string(down), to_string(x));
  }
  const Shape repeated = {experts * x[0], x[1]};
  return std::vector{repeated, repeated, scores};
}

Rule cross_entropy(const OpAttributes& attributes, const OpShapes& s) {
  const Shape& logits = s.inputs[0];
  const Shape& labels = s.inputs[1];
  if (logits.empty() || Shape(logits.begin(), logits.end() - 1) != labels) {
    return wrong("Labels {} do not match logits {}.", to_string(labels), to_string(logits));
  }
  if (attributes.shift && (labels.empty() || labels.back() < 2)) {
    return wrong("Labels {} are too short to be shifted.", to_string(labels));
  }
  return one(Shape{});
}

Rule linear_cross_entropy(const OpAttributes& attributes, const OpShapes& s) {
  const Shape& hidden = s.inputs[0];
  const Shape& weight = s.parameters[0];
  if (hidden.empty() || weight.size() != 2 || weight[1] != hidden.back()) {
    return wrong("The head's weight {} does not match {}.", to_string(weight), to_string(hidden));
  }
  Shape logits = hidden;
  logits.back() = weight[0];
  const std::vector<Shape> inputs = {std::move(logits), s.inputs[1]};
  return cross_entropy(attributes, {.inputs = inputs});
}

Rule mse_loss(const OpAttributes& /*unused*/, const OpShapes& s) {
  if (s.inputs[0] != s.inputs[1]) return wrong("{} and {} differ.", to_string(s.inputs[0]), to_string(s.inputs[1]));
  return one(Shape{});
}

Rule group_norm(const OpAttributes& attributes, const OpShapes& s) {
  const Shape& x = s.inputs[0];
  if (x.size() > 1 && (attributes.groups < 1 || x[1] % attributes.groups != 0)) {
    return wrong("{} channels do not divide into {} groups.", x[1], attributes.groups);
  }
  return norm_of(1, s);
}

Rule rotary_table(const OpAttributes& attributes, const OpShapes& s) {
  if (attributes.head_dim < 2 || attributes.head_dim % 2 != 0) {
    return wrong("A head_dim of {} is not even.", attributes.head_dim);
  }
  Shape table = s.inputs[0];
  table.push_back(attributes.by_halves ? attributes.head_dim / 2 : attributes.head_dim);
  return std::vector{table, table};
}

Rule adaptive_avg_pool2d(const OpAttributes& attributes, const OpShapes& s) {
  const Shape& x = s.inputs[0];
  if (x.size() != 4) return wrong("The input {} is not [batch, channels, height, width].", to_string(x));
  return one(Shape{x[0], x[1], attributes.length, attributes.length});
}

Rule conv1d(const OpAttributes& attributes, const OpShapes& s) {
  return convolution(1, attributes, s);
}

Rule conv2d(const OpAttributes& attributes, const OpShapes& s) {
  return convolution(2, attributes, s);
}

Rule norm(const OpAttributes& /*unused*/, const OpShapes& s) {
  return norm_of(s.inputs[0].size() - 1, s);
}

Rule batch_norm(const OpAttributes& /*unused*/, const OpShapes& s) {
  return norm_of(1, s);
}

}  // namespace fsdp::op_shape_rules
