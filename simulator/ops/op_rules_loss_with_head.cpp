// Losses that are given the hidden states and the head's weight and make the logits themselves, a part at a time, so
// that no tensor of all logits exists.
//
// Liger's has N tokens of width H and V classes. Parts of C tokens, the power of two from N / ceil(V / H) up, at most
// N, share one buffer of C V, in which the kernel of the cross entropy replaces the logits by their gradient. The
// forward also makes the gradients of the hidden states (N H) and of the weight (V H, only if it is trained), in their
// own dtype, and the node keeps these two. In 16 bits the products add to the gradient of the weight itself. In fp32
// each part makes another tensor of V H first. The backward hands both on; if the loss is scaled, it multiplies them in
// place. Release 0.8.1 makes a tensor of logits for each part, of which the one before is still named, and so is the
// last one at the end. Its gradient of the weight in 16 bits is a product, its copy in fp32, and a sum in place.
//
// TRL's picks the N tokens whose labels count and makes tiles of 4096 tokens and 32768 classes in one buffer, of that
// width even if there are fewer classes. Its kernel folds a tile into running sums of each token. The node keeps the
// picked hidden states and two fp32 numbers per token. The backward makes each tile again, and adds to gradients in
// fp32, 4 N H and 4 V H, which it casts at its end, so that both copies of each exist beside the buffer. The log
// probabilities of the picked tokens, their entropies and whether they are the likeliest go back to their places.
// Under autocast the tiles are in its dtype, and hidden states and weights of another are copied for each.
// Boolean indexing sorts and counts in small buffers of CUB, whose sizes are those observed on sm_90.
//
// Apple's keeps the hidden states, the places of the labels that count, a logsumexp of each token and a sum of each
// class. No logits exist outside of registers. The backward sorts the classes by their sums and makes both gradients.
//
// Sources: liger_kernel/ops/fused_linear_cross_entropy.py, transformers/model/loss_utils.py (LigerForCausalLMLoss) and
// transformers/functional.py of liger-kernel 0.8.5 and 0.8.1; aten/src/ATen/native/cuda/Equal.cpp;
// trl/kernels/chunked_logprob.py, trainer/utils.py (add_fused_lm_head) and trainer/sft_trainer.py (compute_loss) of
// trl 1.16.0; cut_cross_entropy/{cce,cce_lse_forward,cce_backward}.py of cut-cross-entropy 25.1.1;
// aten/src/ATen/native/cuda/{Nonzero.cu,Indexing.cu,IndexKernel.cpp}.
//
// Not modeled: num_items_in_batch, which divides the loss by a number; ignored labels, which TRL's leaves out (all
// count here); the gathers of TRL's metrics.

#include <algorithm>

#include "core/base/rounding.h"
#include "core/plan/loss_table.h"
#include "simulator/ops/kernel_writer.h"

namespace fsdp::simulator {

namespace {

/// The operands of the current op: hidden states seen as [tokens, width], labels, weight [classes, width].
struct HeadAndLoss {
  int hidden = 0;
  int weight = 0;
  std::int64_t tokens = 0;
  std::int64_t width = 0;
  std::int64_t classes = 0;
};

HeadAndLoss operands_of(const KernelWriter& w) {
  HeadAndLoss it{.hidden = w.input(0), .weight = w.parameter(0), .width = w.input_shape(0).back()};
  it.tokens = w.elements(it.hidden) / it.width;
  it.classes = w.elements(it.weight) / it.width;
  return it;
}

std::int64_t next_power_of_two(std::int64_t number) {
  std::int64_t power = 1;
  while (power < number) power *= 2;
  return power;
}

/// The tokens of each part.
std::vector<std::int64_t> parts_of(std::int64_t tokens, std::int64_t part) {
  std::vector<std::int64_t> parts(static_cast<std::size_t>(tokens / part), part);
  if (tokens % part > 0) parts.push_back(tokens % part);
  return parts;
}

/// A product [rows, inner] x [inner, columns] that writes into an existing tensor.
void add_product(KernelWriter& w, std::vector<KernelInput> reads, ProductSizes sizes, int runs_for = -1) {
  Kernel& kernel = w.add(KernelKind::Gemm, std::move(reads), {});
  kernel.runs_for = runs_for;
  kernel.product = sizes;
  kernel.flops = sizes.flops();
}

/// Some filled tensors, made one after the other.
void fill(KernelWriter& w, std::vector<int> tensors, int runs_for = -1) {
  w.add(KernelKind::Elementwise, {}, std::move(tensors)).runs_for = runs_for;
}

/// The logits of each part and the gradients that they give, in one buffer.
void write_liger_parts(KernelWriter& w, const HeadAndLoss& it, int logits, std::int64_t part, int grad_hidden,
                       int grad_weight) {
  const auto none = [](int slot) { return KernelInput{slot, GradRule::None}; };
  const Dtype dtype = w.slot(it.hidden).dtype;
  const std::int64_t item = size_of(dtype).count();
  const bool adds_in_place = dtype != Dtype::Float32 && w.context().compute_capability >= 80;
  for (const std::int64_t rows : parts_of(it.tokens, part)) {
    add_product(w, {none(it.hidden), none(it.weight), none(logits)}, {1, rows, it.classes, it.width});
    Kernel& loss = w.add(KernelKind::Elementwise, {none(logits)}, {});
    // It reads the logits twice and writes their gradient.
    loss.extra_bytes = static_cast<double>(3 * rows * it.classes * item - w.bytes(logits));
    add_product(w, {none(logits), none(it.weight), none(grad_hidden)}, {1, rows, it.width, it.classes});
    add_product(w, {none(logits), none(it.hidden), none(grad_weight)}, {1, it.classes, it.width, rows}, it.weight);
    if (adds_in_place) continue;
    std::vector<std::int64_t>& temps = w.last_kernel().forward_temps;
    temps = {it.classes * it.width * item};
    if (dtype != Dtype::Float32) temps.push_back(it.classes * it.width * size_of(Dtype::Float32).count());
  }
}

/// The same in release 0.8.1. Returns the last logits, which the function still names when it returns.
int write_liger_parts_of_081(KernelWriter& w, const HeadAndLoss& it, std::int64_t part, int grad_hidden,
                             int grad_weight) {
  const auto none = [](int slot) { return KernelInput{slot, GradRule::None}; };
  const Dtype dtype = w.slot(it.hidden).dtype;
  const std::int64_t item = size_of(dtype).count();
  int last = -1;
  for (const std::int64_t rows : parts_of(it.tokens, part)) {
    const int logits = w.make(rows * it.classes, dtype, false);
    Kernel& head = w.add(KernelKind::Gemm, {none(it.hidden), none(it.weight)}, {logits});
    head.product = {1, rows, it.classes, it.width};
    head.flops = head.product.flops();
    w.add(KernelKind::Elementwise, {none(logits)}, {}).extra_bytes = static_cast<double>(2 * w.bytes(logits));
    add_product(w, {none(logits), none(it.weight), none(grad_hidden)}, {1, rows, it.width, it.classes});
    w.last_kernel().forward_temps = {rows * it.width * item};
    // Its transpose is named until here.
    if (last >= 0) w.last_kernel().holds = {last};
    add_product(w, {none(logits), none(it.hidden), none(grad_weight)}, {1, it.classes, it.width, rows}, it.weight);
    std::vector<std::int64_t>& temps = w.last_kernel().forward_temps;
    temps = {it.classes * it.width * item};
    if (dtype != Dtype::Float32) temps.push_back(it.classes * it.width * size_of(Dtype::Float32).count());
    last = logits;
  }
  return last;
}

void write_liger(KernelWriter& w) {
  const HeadAndLoss it = operands_of(w);
  const Dtype dtype = w.slot(it.hidden).dtype;
  const Labels labels = labels_of(w);
  const bool is_of_081 = w.context().implementations.loss.kind == LossKind::Liger081;
  const std::int64_t part = std::min(it.tokens, next_power_of_two(div_up(it.tokens, div_up(it.classes, it.width))));
  const int grad_hidden = w.make(it.tokens * it.width, dtype, false);
  const int grad_weight = w.make(it.classes * it.width, dtype, false);
  const int losses = w.make(it.tokens, Dtype::Float32, false);
  fill(w, {grad_hidden});
  fill(w, {grad_weight}, it.weight);
  fill(w, {losses});
  const int counts = count_labels(w, labels.labels, it.tokens).are_counted;
  int logits = -1;
  if (is_of_081) {
    logits = write_liger_parts_of_081(w, it, part, grad_hidden, grad_weight);
  } else {
    logits = w.make(part * it.classes, dtype, false);
    w.add(KernelKind::View, {}, {logits});
    write_liger_parts(w, it, logits, part, grad_hidden, grad_weight);
  }

  const int loss = w.make(1, Dtype::Float32);
  Kernel& node = w.add(KernelKind::Elementwise, {}, {loss});
  node.inputs = {{.slot = it.hidden, .grad = GradRule::Kept, .kept = grad_hidden},
                 {.slot = it.weight, .grad = GradRule::Kept, .kept = grad_weight}};
  node.saved = {{grad_hidden, 0}, {grad_weight, 1}};
  node.saves_when_done = true;
  node.forward_temps = w.scratch_of(1, it.tokens, true);
  // torch.equal(grad_output, torch.tensor(1.0)): the number, the comparison and whether all are equal.
  node.backward_temps = {{4, TempLife::Early}, {1, TempLife::Early}, {1, TempLife::Early}};
  node.holds = {counts, losses, labels.padded, labels.labels, grad_hidden, grad_weight};
  if (is_of_081) node.holds.push_back(logits);
  w.set_output(0, loss);
}

// ---- TRL's

constexpr std::int64_t kTileTokens = 4096;
constexpr std::int64_t kTileClasses = 32768;

constexpr std::int64_t kSelectScratch = 1023;  // cub::DeviceSelect.
std::int64_t count_scratch(const KernelWriter& w, std::int64_t tokens) {
  constexpr std::int64_t kOfOneBlock = 4096;
  constexpr std::int64_t kBytesPerSm = 160;
  return tokens <= kOfOneBlock ? 1 : round_up(kBytesPerSm * w.context().num_sms, 256) + 255;
}
std::int64_t prefix_scratch(std::int64_t tokens) {
  return 1279 + 256 * (tokens / 16384);
}
std::int64_t sort_scratch_of(std::int64_t tokens) {
  constexpr std::int64_t kOfOneBlock = 2048;
  return tokens <= kOfOneBlock ? 1 : 2 * round_up(8 * tokens, 256) + 1024 * div_up(tokens, 4608) + 4607;
}

int fp32_of_each(KernelWriter& w, std::int64_t tokens) {
  return w.make(tokens, Dtype::Float32, false);
}

/// mask.nonzero() for a mask [tokens] of two dimensions.
int find_places(KernelWriter& w, int mask, std::int64_t tokens) {
  const int count = w.make(1, Dtype::Int32, false);
  w.add(KernelKind::Elementwise, {{mask, GradRule::None}}, {count}).forward_temps = {count_scratch(w, tokens)};
  const int places = w.make(2 * tokens, Dtype::Int64, false);
  Kernel& finding = w.add(KernelKind::Elementwise, {{mask, GradRule::None}}, {places});
  finding.forward_temps = {kSelectScratch};
  finding.holds = {count};
  return places;
}

/// x[mask] for a mask [tokens]. Its backward puts the gradient into zeros, by sorted places.
int pick(KernelWriter& w, int x, int mask, std::int64_t tokens, std::int64_t width) {
  const int places = find_places(w, mask, tokens);
  const int picked = w.make(tokens * width, w.slot(x).dtype);
  Kernel& kernel = w.add(KernelKind::Elementwise, {{x, GradRule::Fresh}, {places, GradRule::None}}, {picked});
  kernel.saved = {{mask, 0}};
  const std::int64_t array = 8 * tokens;
  kernel.backward_temps = {{4, TempLife::Late, 0},         {count_scratch(w, tokens), TempLife::Brief, 0},
                           {2 * array, TempLife::Late, 0}, {kSelectScratch, TempLife::Brief, 0},
                           {array, TempLife::Late, 0},     {array, TempLife::Brief, 0},
                           {array, TempLife::Brief, 0},    {array, TempLife::Late, 0},
                           {array, TempLife::Late, 0},     {sort_scratch_of(tokens), TempLife::Brief, 0}};
  return picked;
}

/// zeros.masked_scatter(mask, x): x in the places of the labels that count.
int put_back(KernelWriter& w, int x, int mask, std::int64_t tokens) {
  const Dtype dtype = w.slot(x).dtype;
  const int zeros = w.make(tokens, dtype, false);
  fill(w, {zeros});
  const int places = w.make(tokens, dtype);
  const GradRule rule = w.slot(x).differentiable ? GradRule::Fresh : GradRule::None;
  Kernel& kernel = w.add(KernelKind::Elementwise, {{x, rule}, {mask, GradRule::None}}, {places});
  kernel.forward_temps = {8 * tokens, prefix_scratch(tokens)};
  kernel.saved = {{mask, 0}};
  kernel.holds = {zeros};
  kernel.backward_temps = {{4, TempLife::Early, 0},
                           {count_scratch(w, tokens), TempLife::Early, 0},
                           {16 * tokens, TempLife::Early, 0},
                           {kSelectScratch, TempLife::Early, 0}};
  return places;
}

/// mask.sum().clamp(min=1): it reads a copy of the booleans.
int counted(KernelWriter& w, int mask, std::int64_t tokens) {
  const int sum = w.make(1, Dtype::Int64, false);
  Kernel& counting = w.add(KernelKind::Elementwise, {{mask, GradRule::None}}, {sum});
  counting.forward_temps = {tokens * size_of(Dtype::Int64).count()};
  for (const std::int64_t bytes : w.scratch_of(1, tokens, true)) counting.forward_temps.push_back(bytes);
  const int clamped = w.make(1, Dtype::Int64, false);
  w.add(KernelKind::Elementwise, {{sum, GradRule::None}}, {clamped});
  return clamped;
}

int divided(KernelWriter& w, int number, int by) {
  const int quotient = w.make(1, Dtype::Float32);
  w.add(KernelKind::Elementwise, {{number, GradRule::Fresh}, {by, GradRule::None}}, {quotient}).saved = {{by, 0}};
  return quotient;
}

/// What the tokens' log probabilities are made of, all fp32 [tokens] but the last, which is boolean.
struct TokenStatistics {
  int log_probs = 0;
  int entropy = 0;
  int is_top = 0;
};

/// What a loop over the tiles copies to the dtype of its products: the hidden states of a tile, which a variable keeps,
/// and the tile's part of the weight.
struct TileCopies {
  std::int64_t hidden = 0;  // Bytes; 0 for no copy.
  std::int64_t weight = 0;
  bool has_more_tokens = false;   // The next copy is made while the variable names the one before.
  bool has_more_classes = false;  // In backward, where the weight's copy has a name, too.
};

TileCopies copies_of(const KernelWriter& w, const HeadAndLoss& it, int hidden, std::int64_t tokens) {
  const Dtype computed = w.product_dtype();
  const std::int64_t row = it.width * size_of(computed).count();
  TileCopies copies{.has_more_tokens = tokens > kTileTokens, .has_more_classes = it.classes > kTileClasses};
  if (w.slot(hidden).dtype != computed) copies.hidden = std::min(tokens, kTileTokens) * row;
  if (w.slot(it.weight).dtype != computed) copies.weight = std::min(it.classes, kTileClasses) * row;
  return copies;
}

/// The gradients that the backward adds to, of which those of 16-bit tensors are copied at its end, and its buffers.
void note_backward_of_tiles(const KernelWriter& w, Kernel& node, const HeadAndLoss& it, int hidden, std::int64_t tile,
                            const TileCopies& copies) {
  const bool hands_on_hidden = w.slot(hidden).dtype == Dtype::Float32;
  const bool hands_on_weight = w.slot(it.weight).dtype == Dtype::Float32;
  std::vector<BackwardTemp> sums;
  if (!hands_on_hidden) sums.push_back({4 * w.elements(hidden), TempLife::Whole, 0});
  if (!hands_on_weight) sums.push_back({4 * w.elements(it.weight), TempLife::Whole, 1});
  node.backward_temps.insert(node.backward_temps.begin(), sums.begin(), sums.end());
  const TempLife life = hands_on_hidden && hands_on_weight ? TempLife::Late : TempLife::Whole;
  node.backward_temps.push_back({tile, life});
  const auto add = [&](std::int64_t bytes, bool is_twice) {
    for (int i = 0; bytes > 0 && i < (is_twice ? 2 : 1); ++i) node.backward_temps.push_back({bytes, life});
  };
  add(copies.hidden, copies.has_more_tokens);
  add(copies.weight, copies.has_more_classes);
}

/// The node. Its backward makes the tiles again, and gradients in fp32.
TokenStatistics write_tiles(KernelWriter& w, const HeadAndLoss& it, int hidden, int labels, std::int64_t tokens) {
  const Dtype dtype = w.product_dtype();
  const std::int64_t item = size_of(dtype).count();
  const auto logit_bytes = static_cast<double>(tokens * it.classes * item);
  const TileCopies copies = copies_of(w, it, hidden, tokens);
  std::vector<int> sums;
  for (int i = 0; i < 7; ++i) sums.push_back(fp32_of_each(w, tokens));
  fill(w, sums);
  const int tile = w.make(std::min(tokens, kTileTokens) * kTileClasses, dtype, false);
  fill(w, {tile});
  if (copies.hidden > 0) {
    sums.push_back(w.make(copies.hidden / item, dtype, false));
    fill(w, {sums.back()});
  }
  Kernel& folding = w.add(KernelKind::Elementwise, {{tile, GradRule::None}}, {});
  folding.extra_bytes = logit_bytes - static_cast<double>(w.bytes(tile));
  if (copies.weight > 0) folding.forward_temps = {copies.weight};
  if (copies.has_more_tokens && copies.hidden > 0) folding.forward_temps.push_back(copies.hidden);
  const int log = fp32_of_each(w, tokens);
  fill(w, {log});
  const int log_sum = fp32_of_each(w, tokens);
  w.add(KernelKind::Elementwise, {{log, GradRule::None}}, {log_sum});

  TokenStatistics made{.log_probs = w.make(tokens, Dtype::Float32)};
  const int ratio = fp32_of_each(w, tokens);
  made.entropy = fp32_of_each(w, tokens);
  Kernel& node = w.add(KernelKind::Gemm, {{hidden, GradRule::Fresh}, {it.weight, GradRule::Fresh}}, {made.log_probs});
  node.saved = {{hidden, -1}, {it.weight, -1}, {labels, -1}, {log_sum, -1}, {made.entropy, -1}};
  node.product = {1, tokens, it.classes, it.width};
  node.flops = node.product.flops();
  node.repeats_product = true;
  node.backward_bytes = 2 * logit_bytes;
  if (w.has_parameter(1)) {
    node.inputs.push_back({w.parameter(1), GradRule::Fresh});
    node.backward_temps.push_back({4 * it.classes, TempLife::Whole, 2});
  }
  note_backward_of_tiles(w, node, it, hidden, w.bytes(tile), copies);
  fill(w, {ratio});
  w.add(KernelKind::Elementwise, {{ratio, GradRule::None}}, {made.entropy});
  const int is_most = w.make(tokens, Dtype::Bool, false), is_first = w.make(tokens, Dtype::Bool, false);
  fill(w, {is_most, is_first});
  made.is_top = w.make(tokens, Dtype::Bool, false);
  Kernel& last = w.add(KernelKind::Elementwise, {{is_most, GradRule::None}, {is_first, GradRule::None}}, {made.is_top});
  last.holds = sums;
  last.holds.push_back(tile);
  return made;
}

void write_chunked_nll(KernelWriter& w) {
  const HeadAndLoss it = operands_of(w);
  const Shape& labels_shape = w.input_shape(1);
  const bool shifts = w.op().attributes.shift;
  const std::int64_t tokens = shifts ? it.tokens / labels_shape.back() * (labels_shape.back() - 1) : it.tokens;
  const int hidden = shifts ? w.slice(it.hidden, tokens * it.width) : it.hidden;
  const int mask = w.make(tokens, Dtype::Bool, false);
  w.add(KernelKind::Elementwise, {{w.input(1), GradRule::None}}, {mask});
  const int picked = pick(w, hidden, mask, tokens, it.width);
  const int labels = pick(w, w.input(1), mask, tokens, 1);
  const TokenStatistics of_picked = write_tiles(w, it, picked, labels, tokens);
  const int log_probs = put_back(w, of_picked.log_probs, mask, tokens);
  const int entropy = put_back(w, of_picked.entropy, mask, tokens);
  const int is_top = put_back(w, of_picked.is_top, mask, tokens);
  std::vector<int>& held = w.last_kernel().holds;
  held.insert(held.end(), {of_picked.log_probs, of_picked.is_top});
  // The model's own loss, which the trainer does not use, and the trainer's.
  const int of_model = divided(w, w.scale(w.reduce(log_probs, 1, false)), counted(w, mask, tokens));
  const int losses = w.scale(log_probs);
  const int sum = w.reduce(losses, 1, false);
  const int loss = divided(w, sum, counted(w, mask, tokens));
  w.last_kernel().holds = {of_model, log_probs, entropy, is_top, losses};
  w.set_output(0, loss);
}

// ---- Apple's

/// torch.argsort of fp32 [numbers] to int32, compiled by Inductor.
void note_sorting(Kernel& kernel, std::int64_t numbers) {
  const std::int64_t values = 4 * numbers;
  kernel.backward_temps = {{values, TempLife::Early},
                           {2 * values, TempLife::Early},
                           {2 * values, TempLife::Early},
                           {3 * round_up(values, 256) + 10751, TempLife::Early},
                           {values, TempLife::Whole}};
}

void write_cut(KernelWriter& w) {
  constexpr std::int64_t kTokensOfLock = 128;
  constexpr std::int64_t kWidthOfLock = 64;
  const HeadAndLoss it = operands_of(w);
  const Shape& labels_shape = w.input_shape(1);
  const bool shifts = w.op().attributes.shift;
  const std::int64_t tokens = shifts ? it.tokens / labels_shape.back() * (labels_shape.back() - 1) : it.tokens;
  const int mask = w.make(tokens, Dtype::Bool, false);
  w.add(KernelKind::Elementwise, {{w.input(1), GradRule::None}}, {mask});
  const int places = find_places(w, mask, tokens);
  w.last_kernel().holds.push_back(mask);
  const int narrow = w.make(2 * tokens, Dtype::Int32, false);
  w.add(KernelKind::Elementwise, {{places, GradRule::None}}, {narrow});
  const int valid = w.make(tokens, Dtype::Int64, false);
  w.add(KernelKind::Elementwise, {{narrow, GradRule::None}}, {valid}).forward_temps = {16 * tokens};
  const int log_sums = fp32_of_each(w, tokens);
  const int locks = w.make(div_up(tokens, kTokensOfLock), Dtype::Int32, false);
  const int averages = fp32_of_each(w, it.classes);
  fill(w, {log_sums, locks, averages});
  const int losses = fp32_of_each(w, tokens);
  fill(w, {losses});
  w.last_kernel().holds = {locks};
  const int loss = w.make(1, Dtype::Float32);
  Kernel& node = w.add(KernelKind::Gemm, {{it.hidden, GradRule::Fresh}, {it.weight, GradRule::Fresh}}, {loss});
  node.saved = {{it.hidden, -1}, {it.weight, -1}, {log_sums, -1}, {w.input(1), -1}, {valid, -1}, {averages, -1}};
  node.keeps = {valid};  // CCEParams.
  node.saves_when_done = true;
  node.product = {1, tokens, it.classes, it.width};
  node.flops = node.product.flops();
  node.repeats_product = true;
  node.forward_temps = w.scratch_of(1, tokens, true);
  node.holds = {losses};
  note_sorting(node, it.classes);
  const std::int64_t columns = div_up(it.width, kWidthOfLock);
  node.backward_temps.push_back({4 * div_up(tokens, columns) * columns, TempLife::Late});
  node.backward_temps.push_back({4 * div_up(it.classes, columns) * columns, TempLife::Late});
  w.set_output(0, loss);
}

}  // namespace

void write_loss_with_head(KernelWriter& w) {
  switch (w.context().implementations.loss.kind) {
    case LossKind::Liger:
    case LossKind::Liger081:
      return write_liger(w);
    case LossKind::ChunkedNll:
      return write_chunked_nll(w);
    case LossKind::Cut:
      return write_cut(w);
    case LossKind::TitanChunked:
      return write_loss_that_calls_head(w);
    default:
      break;
  }
  w.refuse({"/runtime/implementations/loss", "The model was built for a loss that makes the logits itself.",
            "Build it with the loss of its plan."});
  const int loss = w.make(1, Dtype::Float32);
  w.add(KernelKind::Elementwise, {{w.input(0), GradRule::Fresh}}, {loss});
  w.set_output(0, loss);
}

}  // namespace fsdp::simulator
