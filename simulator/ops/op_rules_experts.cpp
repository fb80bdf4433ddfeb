// Mixture of experts.
//
// The router's scores become a softmax in fp32 and a top-k. Each expert then picks its rows, runs a gated MLP, scales
// and adds the result into the output: n_e rows for expert e. Which rows go where depends on the data; here every
// expert gets an equal share, tokens * k / experts, as the plan states. Stacked experts are in
// op_rules_grouped_experts.cpp.
//
// Sources: transformers modeling_mixtral.py and modeling_qwen3_moe.py (4.57), derivatives.yaml (topk, index,
// index_add).
//
// Not modeled: unequal routing, which makes the tensors of some experts larger and of others smaller with the same sum.

#include <algorithm>

#include "simulator/ops/kernel_writer.h"

namespace fsdp::simulator {

namespace {

// F.linear(x, weight.type(fp32)) of x in fp32.
int wide_logits(KernelWriter& w, int x) {
  const std::int64_t tokens = w.input_shape(0).front();
  const std::int64_t experts = w.parameter_shape(0).front();
  const std::int64_t hidden = w.parameter_shape(0).back();
  const int weight = w.cast(w.parameter(0), Dtype::Float32);
  const int logits = w.make(tokens * experts, Dtype::Float32);
  Kernel& product = w.add(KernelKind::Gemm, {{weight, GradRule::Fresh}, {x, GradRule::Fresh}}, {logits});
  product.saved = {{x, 0}, {weight, 1}};
  product.flops = 2.0 * static_cast<double>(tokens) * static_cast<double>(hidden) * static_cast<double>(experts);
  return logits;
}

// What is made of the scores for the choice alone, and has no gradient.
int read_alone(KernelWriter& w, int scores, std::int64_t elements, Dtype dtype) {
  const int y = w.make(elements, dtype, false);
  w.add(KernelKind::Elementwise, {{scores, GradRule::None}}, {y});
  return y;
}

// GLM-4.5 and DeepSeek-V3: F.linear(x.type(fp32), weight.type(fp32)).sigmoid(), and top-k of a corrected copy. What the
// choice alone reads lives until the function returns.
void write_sigmoid_router(KernelWriter& w) {
  const std::int64_t tokens = w.input_shape(0).front();
  const std::int64_t experts = w.parameter_shape(0).front();
  const std::int64_t groups = w.op().attributes.groups;
  const std::int64_t chosen = num_elements(w.output_shape(0));
  const int x = w.cast(w.input(0), Dtype::Float32);
  const int logits = wide_logits(w, x);
  const int scores = w.unary(logits, false, true);
  const auto plain = [&](std::int64_t elements, Dtype dtype) { return read_alone(w, scores, elements, dtype); };
  const int corrected = plain(tokens * experts, Dtype::Float32);
  const int sums = plain(tokens * groups, Dtype::Float32);
  const int best_groups = plain(tokens * w.op().attributes.topk_groups, Dtype::Int64);
  const int group_mask = plain(tokens * groups, Dtype::Float32);
  const int mask = groups > 1 ? plain(tokens * experts, Dtype::Float32) : w.alias(group_mask, tokens * experts);
  const int allowed = plain(tokens * experts, Dtype::Float32);
  const int indices = plain(chosen, Dtype::Int64);
  int weights = w.make(chosen, Dtype::Float32);
  w.add(KernelKind::Elementwise, {{scores, GradRule::Fresh}}, {weights}).saved = {{indices, 0}};
  if (w.op().attributes.norm_topk_prob) weights = w.mul(weights, w.shifted(w.reduce(weights, tokens, false)), true);
  w.set_output(0, w.scale(weights));
  w.last_kernel().holds = {x, corrected, sums, best_groups, group_mask, mask, allowed, logits};
  w.set_output(1, indices);
}

// MiniMax-M2: sigmoid(scores.float()), and top-k of a corrected copy.
void write_narrow_sigmoid_router(KernelWriter& w) {
  const std::int64_t tokens = w.output_shape(0).front();
  const std::int64_t chosen = num_elements(w.output_shape(0));
  const int scores = w.unary(w.cast(w.input(0), Dtype::Float32), false, true);
  const int corrected = read_alone(w, scores, w.elements(scores), Dtype::Float32);
  const int best = w.make(chosen, Dtype::Float32, false);
  const int indices = w.make(chosen, Dtype::Int64, false);
  w.add(KernelKind::Elementwise, {{corrected, GradRule::None}}, {best, indices});
  const int weights = w.make(chosen, Dtype::Float32);
  w.add(KernelKind::Elementwise, {{scores, GradRule::Fresh}}, {weights}).saved = {{indices, 0}};
  w.set_output(0, w.mul(weights, w.reduce(weights, tokens, false), true));
  w.last_kernel().holds = {scores, corrected, best};
  w.set_output(1, indices);
}

// gpt-oss: top-k of the scores, and a softmax of those alone.
void write_top_first_router(KernelWriter& w) {
  const std::int64_t chosen = num_elements(w.output_shape(0));
  const int best = w.make(chosen, w.slot(w.input(0)).dtype);
  const int indices = w.make(chosen, Dtype::Int64, false);
  w.add(KernelKind::Elementwise, {{w.input(0), GradRule::Fresh}}, {best, indices}).saved = {{indices, 0}};
  w.set_output(0, w.softmax(best));
  w.last_kernel().holds = {best};
  w.set_output(1, indices);
}

// DeepSeek-V2: a softmax in fp32 of logits in fp32; with groups, the scores of all others become 0.
void write_wide_softmax_router(KernelWriter& w) {
  const std::int64_t tokens = w.input_shape(0).front();
  const std::int64_t experts = w.parameter_shape(0).front();
  const std::int64_t groups = w.op().attributes.groups;
  const std::int64_t chosen = num_elements(w.output_shape(0));
  const int x = w.cast(w.input(0), Dtype::Float32);
  const int logits = wide_logits(w, x);
  int scores = w.softmax(logits);
  std::vector<int> locals = {x, logits, scores};
  if (groups > 0) {
    const auto plain = [&](std::int64_t elements, Dtype dtype) {
      return locals.emplace_back(read_alone(w, scores, elements, dtype));
    };
    plain(tokens * groups, Dtype::Float32);
    plain(tokens * w.op().attributes.topk_groups, Dtype::Int64);
    plain(tokens * groups, Dtype::Float32);
    const int mask = plain(tokens * experts, Dtype::Float32);
    const int hidden = w.make(tokens * experts, Dtype::Bool, false);
    w.add(KernelKind::Elementwise, {{mask, GradRule::None}}, {hidden}).forward_temps = {tokens * experts};
    const int kept = w.make(tokens * experts, Dtype::Float32);
    w.add(KernelKind::Elementwise, {{scores, GradRule::Fresh}}, {kept}).saved = {{hidden, 0}};
    scores = kept;
  }
  const int weights = w.make(chosen, Dtype::Float32);
  const int indices = w.make(chosen, Dtype::Int64, false);
  w.add(KernelKind::Elementwise, {{scores, GradRule::Fresh}}, {weights, indices}).saved = {{indices, 0}};
  w.set_output(0, w.scale(weights));
  w.last_kernel().holds = locals;
  w.set_output(1, indices);
}

void write_router(KernelWriter& w) {
  if (w.op().attributes.sigmoid && !w.has_parameter(0)) return write_narrow_sigmoid_router(w);
  if (w.op().attributes.sigmoid) return write_sigmoid_router(w);
  if (w.has_parameter(0)) return write_wide_softmax_router(w);
  if (w.op().attributes.top_first) return write_top_first_router(w);
  const int probabilities = w.softmax_in_fp32(w.input(0));
  const std::int64_t chosen = num_elements(w.output_shape(0));
  const int weights = w.make(chosen, Dtype::Float32);
  const int indices = w.make(chosen, Dtype::Int64, false);
  w.add(KernelKind::Elementwise, {{probabilities, GradRule::Fresh}}, {weights, indices}).saved = {{indices, 0}};
  // Divided by their sum, then cast.
  const std::int64_t tokens = w.output_shape(0).front();
  const bool divides = w.op().attributes.norm_topk_prob;
  const int normalized = divides ? w.mul(weights, w.reduce(weights, tokens, false), true) : weights;
  w.set_output(0, w.op().attributes.wide ? normalized : w.cast(normalized, w.slot(w.input(0)).dtype));
  w.set_output(1, indices);
}

int linear(KernelWriter& w, int x, int weight, std::int64_t rows, std::int64_t inner, std::int64_t columns) {
  const int y = w.make(rows * columns, w.activation());
  const bool is_zero3 = w.context().implementations.zero3_linear;  // op_rules_dense.cpp
  const KernelInput of_weight{.slot = weight, .grad = GradRule::Fresh};
  const KernelInput of_x{.slot = x, .grad = GradRule::Fresh};
  Kernel& kernel = w.add(KernelKind::Gemm, {is_zero3 ? of_x : of_weight, is_zero3 ? of_weight : of_x}, {y});
  kernel.saved = {{x, is_zero3 ? -1 : 0}, {weight, is_zero3 ? -1 : 1}};
  kernel.saves_when_done = is_zero3;
  kernel.flops = 2.0 * static_cast<double>(rows) * static_cast<double>(inner) * static_cast<double>(columns);
  w.note_product(kernel, {.rows = rows,
                          .inner = inner,
                          .columns = columns,
                          .left = is_zero3 ? 0 : 1,
                          .right = is_zero3 ? 1 : 0,
                          .turned = true});
  return y;
}

// One expert on its rows; returns the output tensor with the rows added in.
int run_expert(KernelWriter& w, int expert, int rows_index, std::int64_t rows, int sum) {
  const std::int64_t width = w.input_shape(0).back();
  const std::int64_t inner = w.elements(w.parameter(3 * expert)) / width;
  const int x = w.make(rows * width, w.activation());
  Kernel& pick = w.add(KernelKind::Elementwise, {{w.input(0), GradRule::FreshView}}, {x});
  pick.saved = {{rows_index, 0}};
  pick.extra_bytes = static_cast<double>(w.bytes(x) - w.bytes(w.input(0)));
  const int gate = w.unary(linear(w, x, w.parameter(3 * expert), rows, width, inner), true, false);
  const int up = linear(w, x, w.parameter(3 * expert + 1), rows, width, inner);
  const int down = linear(w, w.mul(gate, up), w.parameter(3 * expert + 2), rows, inner, width);
  const int share = w.make(rows, w.activation());
  Kernel& pick_weight = w.add(KernelKind::Elementwise, {{w.input(1), GradRule::Fresh}}, {share});
  pick_weight.saved = {{rows_index, 0}};
  const int weighted = w.mul(down, share, true);
  // index_add_ works in place; the gradient of the sum passes through, that of the rows is gathered anew.
  const int added = w.alias(sum);
  Kernel& add = w.add(KernelKind::Elementwise, {{sum, GradRule::Alias}, {weighted, GradRule::Fresh}}, {added});
  add.saved = {{rows_index, 1}};
  add.extra_bytes = static_cast<double>(w.bytes(weighted)) - 2.0 * static_cast<double>(w.bytes(sum));
  return added;
}

void write_experts(KernelWriter& w) {
  const std::int64_t experts = w.op().attributes.num_experts;
  const std::int64_t tokens = w.input_shape(0).front();
  const std::int64_t k = num_elements(w.input_shape(2)) / tokens;
  int sum = w.make(num_elements(w.output_shape(0)), w.activation());
  w.add(KernelKind::Elementwise, {}, {sum});
  // one_hot(indices): the expert of each token, and from it the rows of each expert.
  const int mask = w.make(tokens * k * experts, Dtype::Int64, false);
  w.add(KernelKind::Elementwise, {{w.input(2), GradRule::None}}, {mask});
  for (std::int64_t e = 0; e < experts; ++e) {
    const std::int64_t rows = tokens * k / experts + (e < tokens * k % experts ? 1 : 0);
    if (rows == 0) continue;
    const int rows_index = w.make(rows, Dtype::Int64, false);
    w.add(KernelKind::View, {{mask, GradRule::None}}, {rows_index});
    sum = run_expert(w, static_cast<int>(e), rows_index, rows, sum);
  }
  w.set_output(0, sum);
}

}  // namespace

void write_expert_op(KernelWriter& w) {
  if (w.op().kind == OpKind::Router) return write_router(w);
  if (w.op().kind == OpKind::GroupedExperts) return write_grouped_experts(w);
  if (w.op().kind == OpKind::DenseExperts) return write_dense_experts(w);
  write_experts(w);
}

}  // namespace fsdp::simulator
