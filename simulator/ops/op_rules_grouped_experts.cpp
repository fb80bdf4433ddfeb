// Stacked experts: two grouped products over the rows of all choices, sorted by expert. With experts of several ranks,
// the rows first go to the ranks of their experts, and the results come back:
//
//   tokens [T, H], k experts each     rank with experts of others
//   rows [T k, H], sorted by expert --- exchange ---> [R, H] rows of E ranks for its own experts
//   results [T k, H]                <-- exchange ---  results [R, H]
//   back in order, weighted, summed: [T, H]
//
// R depends on the routers of all ranks. If they are balanced, it is T k, or a little more on the first rank. The host
// reads it, so it waits for the exchange of counts.
//
// Sources: transformers 5.24.0, integrations/moe.py (grouped_mm_experts_forward), distributed/expert_parallel.py
// (AllToAllEP); torch 2.11, _functional_collectives.py (all_to_all_single_autograd), derivatives.yaml (index,
// index_put, masked_fill, sort).
//
// Not modeled: unequal routing; the rows of later ranks, which get up to E - 1 fewer for each of their experts.

#include <utility>
#include <vector>

#include "core/model/experts.h"
#include "simulator/ops/kernel_writer.h"

namespace fsdp::simulator {

namespace {

// [rows, inner] x [experts, inner, columns]: each row by the matrix of its expert. `weight` is a view [experts,
// columns, inner] of the parameter.
int grouped_product(KernelWriter& w, int x, int weight, int offsets, std::int64_t rows, std::int64_t inner,
                    std::int64_t columns) {
  const int y = w.make(rows * columns, w.activation());
  Kernel& kernel =
      w.add(KernelKind::Gemm, {{weight, GradRule::Fresh}, {x, GradRule::Fresh}, {offsets, GradRule::None}}, {y});
  kernel.saved = {{x, 0}, {weight, 1}, {offsets, -1}};
  kernel.flops = 2.0 * static_cast<double>(rows) * static_cast<double>(inner) * static_cast<double>(columns);
  // Pointers and sizes of each expert's product, and a workspace: measured on sm_90.
  kernel.forward_temps = {60 * w.elements(offsets), std::int64_t{512} * w.context().num_sms};
  return y;
}

// Both by a limit, then (up + 1) * gate * sigmoid(alpha * gate): modeling_gpt_oss.py, _apply_gate. A limit on both
// sides compares twice.
int clamped_gate(KernelWriter& w, int both, std::int64_t elements) {
  const auto clamped = [&](int x, bool on_both_sides) {
    const int y = w.unary(x, true, false);
    Kernel& kernel = w.last_kernel();
    kernel.backward_temps = {{elements, TempLife::Early}, {1, TempLife::Early}};
    if (on_both_sides) kernel.backward_temps.push_back({elements, TempLife::Early});
    return y;
  };
  const int gate_part = w.slice(both, elements);
  const int up_part = w.slice(both, elements);
  const int gate = clamped(gate_part, false);
  const int up = clamped(up_part, true);
  const int glu = w.mul(gate, w.unary(w.scale(gate), false, true));
  const int gated = w.mul(w.shifted(up), glu);
  w.last_kernel().holds = {both, gate, up, glu};
  return gated;
}

// Each row times its share, which can be fp32.
int weighted_rows(KernelWriter& w, int rows, int share) {
  const int weighted = w.mul(rows, share, true);
  if (w.slot(weighted).dtype != w.slot(rows).dtype) {
    w.note_cast_gradients(w.last_kernel());
    w.last_kernel().sums_in_reverse = true;  // The engine goes through the gradients as rows, share.
  }
  return weighted;
}

// Tokens with the experts that they are for.
struct RoutedTokens {
  int hidden = -1;   // [tokens, width]
  int weights = -1;  // [tokens, k]
  int experts = -1;  // [tokens, k]
  std::int64_t tokens = 0;
  std::int64_t k = 1;
  bool are_masked = false;  // Rows of experts of other ranks are masked: `_is_expert_parallel`, whether there are any.
};

int integers(KernelWriter& w, std::int64_t count, Dtype dtype = Dtype::Int64) {
  return w.make(count, dtype, false);
}

// Rows of a tensor; their gradient is added up in it.
int picked(KernelWriter& w, int from, int by, std::int64_t count) {
  const std::int64_t rows = w.elements(by);
  const int y = w.make(count, w.slot(from).dtype, w.slot(from).differentiable);
  Kernel& kernel = w.add(KernelKind::Elementwise, {{from, GradRule::Fresh}}, {y});
  kernel.saved = {{by, 0}};
  kernel.backward_temps = {
      {8 * rows, TempLife::Brief}, {8 * rows, TempLife::Handed}, {8 * rows}, {8 * rows}, {8 * rows}, {1}};
  return y;
}

// x.masked_fill(mask, 0): a copy, as is its gradient. With `in_place` x itself.
int masked(KernelWriter& w, int x, int mask, bool in_place) {
  if (mask < 0) return x;
  const int y = in_place ? w.alias(x) : w.make(w.elements(x), w.slot(x).dtype);
  w.add(KernelKind::Elementwise, {{x, GradRule::Fresh}}, {y}).saved = {{mask, 0}};
  return y;
}

// transformers 5, integrations/moe.py, grouped_mm_experts_forward: the choices sorted by expert, two grouped products
// over all of them, and the sorting undone. No tensor depends on how the router spreads the tokens.
int run_grouped_experts(KernelWriter& w, const RoutedTokens& in) {
  const std::int64_t experts = w.parameter_shape(0).front();
  const std::int64_t width = w.elements(in.hidden) / in.tokens;
  const std::int64_t rows = in.tokens * in.k;
  const bool is_clamped = w.op().attributes.limit > 0;
  const std::int64_t inner = is_clamped ? w.parameter_shape(3)[1] : w.parameter_shape(1).back();
  const int sorted = integers(w, rows);
  const int order = integers(w, rows);
  w.add(KernelKind::Elementwise, {{in.experts, GradRule::None}}, {sorted, order}).forward_temps = {8 * rows};
  const int row = integers(w, rows);
  w.add(KernelKind::Elementwise, {{order, GradRule::None}}, {row});
  int x = picked(w, in.hidden, row, rows * width);
  const int share = picked(w, in.weights, order, rows);
  const int narrow = integers(w, rows, Dtype::Int32);
  w.add(KernelKind::Elementwise, {{sorted, GradRule::None}}, {narrow});
  const int counts = integers(w, experts, Dtype::Int32);
  w.add(KernelKind::Elementwise, {{narrow, GradRule::None}}, {counts});
  const int offsets = integers(w, experts, Dtype::Int32);
  w.add(KernelKind::Elementwise, {{counts, GradRule::None}}, {offsets});
  const int mask = in.are_masked ? integers(w, rows, Dtype::Bool) : -1;
  if (in.are_masked) w.add(KernelKind::Elementwise, {{sorted, GradRule::None}}, {mask});
  // The bias of each row's expert, added in place.
  const auto with_bias = [&](int product, int bias) {
    const int y = w.alias(product);
    w.add(KernelKind::Elementwise, {{product, GradRule::Alias}, {bias, GradRule::Alias}}, {y});
    return y;
  };
  int bias = -1;
  int gated = -1;
  int down = -1;
  if (is_clamped) {
    bias = picked(w, w.parameter(0), sorted, rows * 2 * inner);
    x = masked(w, x, mask, true);
    const int both = with_bias(grouped_product(w, x, w.parameter(1), offsets, rows, width, 2 * inner), bias);
    gated = clamped_gate(w, masked(w, both, mask, false), rows * inner);
    const int bias_of_both = bias;
    bias = picked(w, w.parameter(2), sorted, rows * width);
    w.last_kernel().holds = {bias_of_both};
    down = with_bias(grouped_product(w, gated, w.parameter(3), offsets, rows, inner, width), bias);
  } else {
    x = masked(w, x, mask, true);
    const int product = grouped_product(w, x, w.parameter(0), offsets, rows, width, 2 * inner);
    const int both = masked(w, product, mask, false);
    const int gate = w.alias(both, rows * inner);
    const int up = w.alias(both, rows * inner);
    w.add(KernelKind::View, {{both, GradRule::Fresh}}, {gate, up});
    gated = w.mul(w.unary(gate, true, false), up);
    down = grouped_product(w, gated, w.parameter(1), offsets, rows, inner, width);
  }
  down = masked(w, down, mask, false);
  const int weighted = weighted_rows(w, down, share);
  const int inverse = integers(w, rows);
  w.add(KernelKind::Elementwise, {}, {inverse});
  const int places = integers(w, rows);
  w.add(KernelKind::Elementwise, {{places, GradRule::None}, {inverse, GradRule::None}}, {});
  const int back = picked(w, weighted, inverse, rows * width);
  const int sum = w.reduce(back, in.tokens * width, false, false);
  const int result = w.cast(sum, w.activation());
  std::vector<int>& holds = w.last_kernel().holds;
  holds = {x, share, sorted, order, counts, narrow, offsets, back, inverse, sum};
  if (is_clamped) holds.push_back(bias);
  if (in.are_masked) holds.insert(holds.end(), {mask, down});
  return result;
}

// What ranks with other experts get of x: `elements` numbers. Its gradient comes back the same way.
int exchanged(KernelWriter& w, int x, std::int64_t elements) {
  const int y = w.make(elements, w.slot(x).dtype, w.slot(x).differentiable);
  Kernel& kernel = w.add(KernelKind::View, {{x, GradRule::Fresh}}, {y});
  kernel.exchanged = w.elements(x);
  return y;
}

// transformers 5.24, distributed/expert_parallel.py, AllToAllEP: the rows of all choices sorted by expert; how many go
// to each expert, and then the rows themselves, to the ranks of the experts; these run them as choices of one expert
// with a weight of one; the results go back, into the order of the choices, and are weighted and added there.
int exchange_with_experts(KernelWriter& w, const RoutedTokens& in) {
  const std::int64_t ranks = w.context().expert_parallel;
  const std::int64_t experts = w.op().attributes.num_experts;
  const std::int64_t width = w.elements(in.hidden) / in.tokens;
  const std::int64_t rows = in.tokens * in.k;
  const std::int64_t received = received_rows(rows, experts, ranks);
  const auto small = [&](std::vector<std::int64_t> temps) { w.last_kernel().forward_temps = std::move(temps); };
  // _dispatch_tokens
  const int order = integers(w, rows);
  w.add(KernelKind::Elementwise, {{in.experts, GradRule::None}}, {order});
  small({8 * rows, 8 * rows});
  const int row = integers(w, rows);
  w.add(KernelKind::Elementwise, {{order, GradRule::None}}, {row});
  const int sent = picked(w, in.hidden, row, rows * width);
  const int counts = integers(w, experts);
  w.add(KernelKind::Elementwise, {{in.experts, GradRule::None}}, {counts});
  small({8 * rows});
  const int received_counts = exchanged(w, counts, experts);
  const int sizes = integers(w, 2 * ranks);
  w.add(KernelKind::Elementwise, {{counts, GradRule::None}, {received_counts, GradRule::None}}, {sizes});
  small({8 * ranks, 8 * ranks});
  const int tokens = exchanged(w, sent, received * width);
  const int own = integers(w, experts);
  w.add(KernelKind::Elementwise, {}, {own});
  small({8 * experts / ranks});
  const int chosen = integers(w, received);
  w.add(KernelKind::Elementwise, {{own, GradRule::None}, {received_counts, GradRule::None}}, {chosen});
  small({8 * experts, 8 * received});
  const int ones = integers(w, received, w.slot(tokens).dtype);
  w.add(KernelKind::Elementwise, {{chosen, GradRule::None}}, {ones}).holds = {sent, counts, received_counts};
  const int results = run_grouped_experts(
      w, {.hidden = tokens, .weights = ones, .experts = chosen, .tokens = received, .are_masked = true});
  // _combine_tokens
  const int returned = exchanged(w, results, rows * width);
  const int in_order = w.make(rows * width, w.slot(returned).dtype);
  w.add(KernelKind::Elementwise, {{returned, GradRule::Fresh}}, {in_order}).saved = {{order, 0}};
  const int weighted = weighted_rows(w, in_order, in.weights);
  const int sum = w.reduce(weighted, in.tokens * width, false, false);
  w.last_kernel().holds = {tokens, chosen, ones, results, returned, in_order, order};
  return w.cast(sum, w.activation());
}

}  // namespace

void write_grouped_experts(KernelWriter& w) {
  const std::int64_t tokens = w.input_shape(0).front();
  const bool casts = w.context().casts_inputs_of_experts;
  const RoutedTokens routed{.hidden = w.input(0),
                            .weights = casts ? w.cast(w.input(1), w.activation()) : w.input(1),
                            .experts = w.input(2),
                            .tokens = tokens,
                            .k = num_elements(w.input_shape(2)) / tokens};
  const bool is_shared = w.context().expert_parallel > 1;
  w.set_output(0, is_shared ? exchange_with_experts(w, routed) : run_grouped_experts(w, routed));
}

}  // namespace fsdp::simulator
