// Losses.
//
// Cross entropy over N rows of V classes, as ForCausalLMLoss and torchtitan run it on 16-bit logits: a copy in fp32 (4
// N V), log_softmax (4 N V, saved), nll_loss. Its backward makes the gradient of nll_loss and of log_softmax, 4 N V
// each, and casts back. The three of them are the peak of many models with a large vocabulary. flash-attn's works on
// the 16-bit logits and saves them; its backward makes only their gradient. verl calls the same kernel for the log
// probabilities of tokens, with a backward that writes the gradient over the logits, and makes the loss of them: here
// their masked sum, as in supervised fine-tuning.
//
// Sources: transformers loss/loss_utils.py (ForCausalLMLoss), torch/nn/functional.py (cross_entropy),
// aten/src/ATen/native/LossNLL.cpp, derivatives.yaml (nll_loss_forward, _log_softmax); flash_attn 2.8 losses and
// ops/triton/cross_entropy.py; verl 0.9.1, workers/engine/fsdp/transformer_impl.py (prepare_model_outputs),
// utils/torch_functional.py (logprobs_from_logits, masked_sum) and workers/utils/losses.py (sft_loss).
//
// Not modeled: verl's loss of a policy, which makes some more tensors of a number per token.

#include <fmt/format.h>

#include "core/plan/loss_table.h"
#include "simulator/ops/kernel_writer.h"

namespace fsdp::simulator {

namespace {

// Pads each row of labels by one and drops its first: two small copies, or one if a single row without its first is
// contiguous.
Labels shift_labels(KernelWriter& w) {
  const int labels = w.input(1);
  const std::int64_t rows = w.elements(labels) / w.input_shape(1).back();
  const int padded = w.make(w.elements(labels) + rows, Dtype::Int64, false);
  w.add(KernelKind::Elementwise, {{labels, GradRule::None}}, {padded});
  if (rows == 1) return {.labels = padded, .padded = padded};
  const int shifted = w.make(w.elements(labels), Dtype::Int64, false);
  w.add(KernelKind::Elementwise, {{padded, GradRule::None}}, {shifted});
  return {.labels = shifted, .padded = padded};
}

// The mean over the labels that count: loss.sum() / (labels != ignore_index).sum().
int mean_of_labeled(KernelWriter& w, int losses, int labels, std::int64_t rows) {
  const int sum = w.reduce(losses, 1, false);
  const int count = count_labels(w, labels, rows).count;
  const int loss = w.make(1, Dtype::Float32);
  w.add(KernelKind::Elementwise, {{sum, GradRule::Fresh}}, {loss}).saved = {{count, -1}};
  return loss;
}

// Triton requires labels at addresses that divide by 16; those of a single row without its first do not.
int aligned_labels(KernelWriter& w, int labels, std::int64_t rows) {
  const bool is_aligned = !w.op().attributes.shift || w.input_shape(1).back() != rows;
  if (is_aligned) return labels;
  const int padded = w.make(rows + 1, Dtype::Int64, false);
  w.add(KernelKind::Elementwise, {{labels, GradRule::None}}, {padded});
  return padded;
}

/// What flash-attn's kernel makes, a number per row each.
struct RowLosses {
  int losses = -1;
  int z_losses = -1;
};

/// `labels`: at an address that Triton takes. `rule`: how the backward makes the gradient of the logits.
RowLosses add_flash_attn_kernel(KernelWriter& w, int logits, int labels, std::int64_t rows, GradRule rule) {
  const int losses = w.make(rows, Dtype::Float32);
  const int log_sums = w.make(rows, Dtype::Float32, false);
  const int z_losses = w.make(rows, Dtype::Float32, false);
  Kernel& kernel = w.add(KernelKind::Elementwise, {}, {losses, log_sums, z_losses});
  kernel.inputs = {{.slot = logits, .grad = rule, .kept = logits}};
  kernel.saved = {{logits, -1}, {log_sums, -1}, {labels, -1}};
  kernel.backward_temps = {{w.bytes(z_losses), TempLife::Whole}};  // Zeros for the output that is not differentiable.
  return {losses, z_losses};
}

// log_probabilities = -losses; loss = -masked_sum(log_probabilities, mask) / tokens.
// Labels and mask are rolled by one.
void write_verl(KernelWriter& w, int logits) {
  const std::int64_t rows = w.elements(w.input(1));
  const auto roll = [&] {
    const int rolled = w.make(rows, Dtype::Int64, false);
    w.add(KernelKind::Elementwise, {{w.input(1), GradRule::None}}, {rolled});
    return rolled;
  };
  const int labels = roll();
  const int losses = add_flash_attn_kernel(w, logits, labels, rows, GradRule::Kept).losses;
  const int log_probabilities = w.make(rows, Dtype::Float32);
  w.add(KernelKind::Elementwise, {{losses, GradRule::Fresh}}, {log_probabilities});
  const int mask = roll();
  const int is_counted = w.make(rows, Dtype::Bool, false);
  w.add(KernelKind::Elementwise, {{mask, GradRule::None}}, {is_counted});
  const int counted = w.make(rows, Dtype::Float32);
  w.add(KernelKind::Elementwise, {{log_probabilities, GradRule::Fresh}}, {counted}).saved = {{is_counted, -1}};
  const int masked = w.make(rows, Dtype::Float32);
  w.add(KernelKind::Elementwise, {{counted, GradRule::Fresh}}, {masked}).saved = {{mask, -1}};
  int loss = w.reduce(masked, 1, false);
  for (int step = 0; step < 3; ++step) {  // Negated, divided by the tokens of all ranks, and multiplied by the ranks.
    const int scaled = w.make(1, Dtype::Float32);
    w.add(KernelKind::Elementwise, {{loss, GradRule::Fresh}}, {scaled});
    loss = scaled;
  }
  w.last_kernel().holds = {log_probabilities, mask, logits, labels};
  w.set_output(0, loss);
}

void write_flash_attn_cross_entropy(KernelWriter& w, int logits, int wide, int labels) {
  const std::int64_t rows = w.elements(w.input(1));
  const int aligned = aligned_labels(w, labels, rows);
  const auto [losses, z_losses] = add_flash_attn_kernel(w, wide, aligned, rows, GradRule::Fresh);
  const int loss = mean_of_labeled(w, losses, labels, rows);
  Kernel& last = w.last_kernel();
  last.holds = {losses, z_losses, wide, labels};
  if (wide != logits) last.holds.push_back(logits);
  w.set_output(0, loss);
}

void write_cross_entropy(KernelWriter& w) {
  const int logits = w.input(0);
  const LossKind loss_kind = w.context().implementations.loss.kind;
  if (loss_kind == LossKind::Verl) return write_verl(w, logits);
  const bool upcast = w.context().implementations.upcast_logits;
  const int wide = upcast ? w.cast(logits, Dtype::Float32) : logits;
  const int labels = labels_of(w).labels;
  if (loss_kind == LossKind::FlashAttn) return write_flash_attn_cross_entropy(w, logits, wide, labels);
  // cross_entropy asks log_softmax for the dtype of the logits, and autocast respects that.
  const int log_probabilities = w.widened(w.log_softmax(wide));
  const Dtype dtype = w.slot(log_probabilities).dtype;
  const int loss = w.make(1, dtype);
  const int total_weight = w.make(1, dtype, false);
  Kernel& nll = w.add(KernelKind::Elementwise, {{log_probabilities, GradRule::Fresh}}, {loss, total_weight});
  nll.saved = {{log_probabilities, -1}, {labels, -1}, {total_weight, -1}};
  // The caller's variables live until the loss function returns.
  if (wide != logits) nll.holds.push_back(wide);
  nll.holds.insert(nll.holds.end(), {logits, labels});
  w.set_output(0, loss);
}

void write_mse(KernelWriter& w) {
  const int target = w.widened(w.input(1));
  const int prediction = w.widened(w.input(0));
  // The squares are made in the result's own storage, which is not freed when the result becomes their mean.
  const int squares = w.make(w.elements(prediction), w.slot(prediction).dtype);
  const int loss = w.alias(squares, 1);
  Kernel& kernel = w.add(KernelKind::Elementwise, {{prediction, GradRule::Fresh}, {target, GradRule::Fresh}}, {loss});
  kernel.forward_temps = {w.bytes(squares)};
  for (const std::int64_t bytes : w.scratch_of(1, w.elements(prediction), true)) kernel.forward_temps.push_back(bytes);
  kernel.saved = {{prediction, -1}, {target, -1}};
  w.set_output(0, loss);
}

}  // namespace

Labels labels_of(KernelWriter& w) {
  return w.op().attributes.shift ? shift_labels(w) : Labels{.labels = w.input(1), .padded = w.input(1)};
}

CountedLabels count_labels(KernelWriter& w, int labels, std::int64_t rows) {
  const int are_counted = w.make(rows, Dtype::Bool, false);
  w.add(KernelKind::Elementwise, {{labels, GradRule::None}}, {are_counted});
  const int count = w.make(1, Dtype::Int64, false);
  Kernel& counting = w.add(KernelKind::Elementwise, {{are_counted, GradRule::None}}, {count});
  // A sum of booleans reads a copy of them in its result's type.
  counting.forward_temps = {rows * size_of(Dtype::Int64).count()};
  for (const std::int64_t bytes : w.scratch_of(1, rows, true)) counting.forward_temps.push_back(bytes);
  return {.are_counted = are_counted, .count = count};
}

void write_loss_op(KernelWriter& w) {
  if (w.op().kind == OpKind::MseLoss) return write_mse(w);
  const LossRow& loss = loss_row(w.context().implementations.loss);
  if (w.context().is_cpu() && !loss.runs_on_cpu) {
    w.refuse(
        {"/runtime/implementations/loss", fmt::format("{} is a kernel for GPUs.", loss.title), "Write \"pytorch\"."});
  }
  if (w.op().kind == OpKind::CrossEntropy) return write_cross_entropy(w);
  write_loss_with_head(w);
}

}  // namespace fsdp::simulator
