// Losses.
//
// Cross entropy over N rows of V classes, as ForCausalLMLoss and torchtitan run it on 16-bit logits: a copy in fp32
// (4 N V), log_softmax (4 N V, saved), nll_loss. Its backward makes the gradient of nll_loss and of log_softmax, 4 N V
// each, and casts back. The three of them are the peak of many models with a large vocabulary.
//
// Sources: transformers loss/loss_utils.py (ForCausalLMLoss), torch/nn/functional.py (cross_entropy),
// aten/src/ATen/native/LossNLL.cpp, derivatives.yaml (nll_loss_forward, _log_softmax).

#include "simulator/ops/kernel_writer.h"

namespace fsdp::simulator {

namespace {

// Each row of labels is padded by one and its first cut off: two small copies, or one where a single row lies in order
// without its first.
int shifted_labels(KernelWriter& w) {
  const int labels = w.input(1);
  const std::int64_t rows = w.elements(labels) / w.input_shape(1).back();
  const int padded = w.make(w.elements(labels) + rows, Dtype::Int64, false);
  w.add(KernelKind::Elementwise, {{labels, GradRule::None}}, {padded});
  if (rows == 1) return padded;
  const int shifted = w.make(w.elements(labels), Dtype::Int64, false);
  w.add(KernelKind::Elementwise, {{padded, GradRule::None}}, {shifted});
  return shifted;
}

void write_cross_entropy(KernelWriter& w) {
  const int logits = w.input(0);
  const bool upcast = w.context().implementations.upcast_logits;
  const int wide = upcast ? w.cast(logits, Dtype::Float32) : logits;
  const int labels = w.op().attributes.shift ? shifted_labels(w) : w.input(1);
  const int log_probabilities = w.log_softmax(wide);
  const int loss = w.make(1, w.slot(wide).dtype);
  const int total_weight = w.make(1, w.slot(wide).dtype, false);
  Kernel& nll = w.add(KernelKind::Elementwise, {{log_probabilities, GradRule::Fresh}}, {loss, total_weight});
  nll.saved = {{log_probabilities, -1}, {labels, -1}, {total_weight, -1}};
  // The caller's variables live until the loss function returns.
  if (wide != logits) nll.holds.push_back(wide);
  nll.holds.push_back(logits);
  w.set_output(0, loss);
}

void write_mse(KernelWriter& w) {
  const int prediction = w.input(0);
  // The squares are made in the result's own storage, which is not given back when the result becomes their mean.
  const int squares = w.make(w.elements(prediction), w.slot(prediction).dtype);
  const int loss = w.alias(squares, 1);
  Kernel& kernel =
      w.add(KernelKind::Elementwise, {{prediction, GradRule::Fresh}, {w.input(1), GradRule::Fresh}}, {loss});
  kernel.forward_temps = {w.bytes(squares)};
  for (const std::int64_t bytes : w.scratch_of(1, w.elements(prediction), true)) kernel.forward_temps.push_back(bytes);
  kernel.saved = {{prediction, -1}, {w.input(1), -1}};
  w.set_output(0, loss);
}

}  // namespace

void write_loss_op(KernelWriter& w) {
  if (w.op().kind == OpKind::CrossEntropy) return write_cross_entropy(w);
  write_mse(w);
}

}  // namespace fsdp::simulator
