// torchtitan's ChunkedLossWrapper: after the root's forward it cuts the sequence into n parts, and for each part calls
// the head, its cross entropy and their backward, so that the logits of one part exist at a time.
//
// With B sequences of S tokens of width H and V classes, a part has R = B S / n tokens:
//
//   before   each part of hidden states and labels, contiguous: copies (R H and 8 R) if B > 1, views otherwise; a
//            buffer in fp32 for the gradient of the hidden states, 4 B S H
//   a part   logits R V; the same in fp32; log_softmax, 4 R V; loss. Then its backward: the gradients of nll_loss,
//            4 R V, of log_softmax, 4 R V, of the logits, of the head's weight, V H, and of the part, R H, which goes
//            into the buffer through a copy in fp32. The variable `logits` keeps those of a part until the next part's
//            exist
//   after    the buffer in the dtype of the hidden states: the node saves it, and its backward hands it on
//
// The weight's gradient is that of the unsharded parameter. A unit of FSDP2 keeps it in the dtype of its reduction: the
// first part casts it, later ones are added to it (from PyTorch 2.15 on through a copy in that dtype), and with the
// last one the unit reduces it, before the variables of the loss are gone. A head in the root's unit keeps it as it is,
// and the root reduces it with all others.
//
// Sources: torchtitan/components/loss.py (ChunkedLossWrapper, GradAccumulator, CrossEntropyLoss) of torchtitan 0.3.0;
// torch/distributed/fsdp/_fully_shard/_fsdp_param.py (to_accumulated_grad_if_needed,
// accumulate_unsharded_grad_if_needed); torch/csrc/autograd/generated/Functions.cpp (MmBackward0: the second operand
// first).
//
// Not modeled: a compiled inner loss; further inputs of the loss, such as positions, whose parts are copied, too.

#include "core/plan/loss_table.h"
#include "simulator/ops/kernel_writer.h"

namespace fsdp::simulator {

namespace {

KernelInput reads(int slot) {
  return {slot, GradRule::None};
}

class LossInParts {
 public:
  explicit LossInParts(KernelWriter& w)
      : w_(w),
        hidden_(w.input(0)),
        labels_(w.input(1)),
        weight_(w.parameter(0)),
        dtype_(w.slot(hidden_).dtype),
        width_(w.input_shape(0).back()),
        classes_(w.elements(weight_) / width_),
        tokens_(w.elements(hidden_) / width_),
        parts_(num_chunks(w.context().implementations.loss)),
        rows_(tokens_ / parts_) {}

  void write() {
    const int count = w_.make(1, Dtype::Int64, false);  // The tokens of all ranks, by which the trainer divides.
    fill({count});
    hidden_parts_ = cut(hidden_, rows_ * width_);
    label_parts_ = cut(labels_, rows_);
    const int buffer = w_.make(tokens_ * width_, Dtype::Float32, false);
    fill({buffer});
    int total = w_.make(1, Dtype::Float32);
    fill({total});
    call_unit(UnitCall::Gather);
    int logits = -1;
    for (std::int64_t part = 0; part < parts_; ++part) {
      logits = forward(part, logits);
      total = add_loss(total, count);
      backward(part, logits, buffer, count);
    }
    finish(buffer, total, logits, count);
  }

 private:
  // t.split(dim=1) with each part contiguous.
  std::vector<int> cut(int whole, std::int64_t elements) {
    std::vector<int> parts;
    if (w_.input_shape(1).front() == 1) return parts;
    for (std::int64_t i = 0; i < parts_; ++i) {
      parts.push_back(w_.make(elements, w_.slot(whole).dtype, false));
      w_.add(KernelKind::Elementwise, {reads(whole)}, {parts.back()});
    }
    return parts;
  }

  int part_of(const std::vector<int>& parts, int whole, std::int64_t part) const {
    return parts.empty() ? whole : parts[static_cast<std::size_t>(part)];
  }

  void fill(std::vector<int> tensors) { w_.add(KernelKind::Elementwise, {}, std::move(tensors)); }

  Kernel& product(ProductSizes sizes, std::vector<KernelInput> inputs, std::vector<int> outputs) {
    Kernel& kernel = w_.add(KernelKind::Gemm, std::move(inputs), std::move(outputs));
    kernel.product = sizes;
    kernel.flops = sizes.flops();
    return kernel;
  }

  // The head and its cross entropy. Returns the logits.
  int forward(std::int64_t part, int logits_before) {
    const int logits = w_.make(rows_ * classes_, dtype_, false);
    Kernel& head =
        product({1, rows_, classes_, width_}, {reads(part_of(hidden_parts_, hidden_, part)), reads(weight_)}, {logits});
    if (logits_before >= 0) head.holds = {logits_before};
    int wide = logits;
    if (dtype_ != Dtype::Float32) {
      wide = w_.make(rows_ * classes_, Dtype::Float32, false);
      w_.add(KernelKind::Elementwise, {reads(logits)}, {wide});
    }
    log_probabilities_ = w_.make(rows_ * classes_, Dtype::Float32, false);
    w_.add(KernelKind::Elementwise, {reads(wide)}, {log_probabilities_});
    sum_ = w_.make(1, Dtype::Float32, false);
    total_weight_ = w_.make(1, Dtype::Float32, false);
    w_.add(KernelKind::Elementwise, {reads(log_probabilities_), reads(part_of(label_parts_, labels_, part))},
           {sum_, total_weight_})
        .holds = {wide};
    return logits;
  }

  // loss / tokens, and total + that.
  int add_loss(int total, int count) {
    const int loss_before = loss_;
    loss_ = w_.make(1, Dtype::Float32, false);
    Kernel& mean = w_.add(KernelKind::Elementwise, {reads(sum_), reads(count)}, {loss_});
    if (loss_before >= 0) mean.holds = {loss_before};
    const int sum = w_.make(1, Dtype::Float32);
    w_.add(KernelKind::Elementwise, {reads(total), reads(loss_)}, {sum});
    return sum;
  }

  void backward(std::int64_t part, int logits, int buffer, int count) {
    const int seed = w_.make(1, Dtype::Float32, false);
    fill({seed});
    const int of_sum = w_.make(1, Dtype::Float32, false);
    w_.add(KernelKind::Elementwise, {reads(seed), reads(count)}, {of_sum});
    const int of_nll = w_.make(rows_ * classes_, Dtype::Float32, false);
    w_.add(KernelKind::Elementwise, {reads(of_sum), reads(total_weight_), reads(part_of(label_parts_, labels_, part))},
           {of_nll});
    int of_logits = w_.make(rows_ * classes_, Dtype::Float32, false);
    w_.add(KernelKind::Elementwise, {reads(of_nll), reads(log_probabilities_)}, {of_logits});
    if (dtype_ != Dtype::Float32) {
      const int narrow = w_.make(rows_ * classes_, dtype_, false);
      w_.add(KernelKind::Elementwise, {reads(of_logits)}, {narrow});
      of_logits = narrow;
    }
    const int of_weight = w_.make(classes_ * width_, dtype_, false);
    Kernel& first = product({1, classes_, width_, rows_},
                            {reads(of_logits), reads(part_of(hidden_parts_, hidden_, part))}, {of_weight});
    first.runs_for = weight_;
    first.is_on_backward_thread = true;
    if (gradient_ < 0 && w_.context().head_reduces_in == dtype_) first.gradient_of = weight_;
    const int of_part = w_.make(rows_ * width_, dtype_, false);
    product({1, rows_, width_, classes_}, {reads(of_logits), reads(weight_)}, {of_part}).is_on_backward_thread = true;
    keep_gradient(of_weight);
    if (part + 1 == parts_ && w_.context().head_reduces_in) {
      Kernel& given = w_.add(KernelKind::View, {reads(gradient_), reads(of_part), reads(logits), reads(buffer)}, {});
      given.unit_call = UnitCall::Reduce;
      given.runs_for = given.gradient_of = weight_;
    }
    w_.add(KernelKind::View, {reads(seed)}, {});  // backward() returns.
    put_into(buffer, of_part);
  }

  // The first gradient of the weight, or one that is added to it.
  void keep_gradient(int made) {
    const Dtype kept = w_.context().head_reduces_in.value_or(dtype_);
    if (gradient_ >= 0) {
      if (kept != dtype_ && w_.context().head_casts_each_part) {
        const int cast = w_.make(classes_ * width_, kept, false);
        w_.add(KernelKind::Elementwise, {reads(made)}, {cast}).runs_for = weight_;
        made = cast;
      }
      w_.add(KernelKind::Elementwise, {reads(made), reads(gradient_)}, {}).runs_for = weight_;
      return;
    }
    gradient_ = made;
    if (kept == dtype_) return;
    gradient_ = w_.make(classes_ * width_, kept, false);
    Kernel& cast = w_.add(KernelKind::Elementwise, {reads(made)}, {gradient_});
    cast.runs_for = cast.gradient_of = weight_;
  }

  void put_into(int buffer, int of_part) {
    Kernel& copy = w_.add(KernelKind::Elementwise, {reads(of_part), reads(buffer)}, {});
    if (dtype_ != Dtype::Float32) copy.forward_temps = {4 * rows_ * width_};
  }

  void call_unit(UnitCall call) {
    if (w_.context().head_reduces_in) w_.add(KernelKind::View, {}, {}).unit_call = call;
  }

  // The gradient in the dtype of the hidden states, and the node that hands it on.
  void finish(int buffer, int total, int logits, int count) {
    call_unit(UnitCall::Reshard);
    int of_hidden = buffer;
    if (dtype_ != Dtype::Float32) {
      of_hidden = w_.make(tokens_ * width_, dtype_, false);
      w_.add(KernelKind::Elementwise, {reads(buffer)}, {of_hidden});
    }
    const int loss = w_.alias(total);
    const GradRule of_weight = w_.context().head_reduces_in ? GradRule::None : GradRule::Kept;
    Kernel& node = w_.add(KernelKind::Elementwise, {}, {loss});
    node.inputs = {{.slot = hidden_, .grad = GradRule::Kept, .kept = of_hidden},
                   {.slot = weight_, .grad = of_weight, .kept = gradient_}};
    node.saved = {{of_hidden, 0}};
    if (of_weight == GradRule::Kept) node.saved.push_back({gradient_, 1});
    node.saves_when_done = true;
    node.holds = {buffer, logits, loss_, count};
    node.holds.insert(node.holds.end(), hidden_parts_.begin(), hidden_parts_.end());
    node.holds.insert(node.holds.end(), label_parts_.begin(), label_parts_.end());
    w_.set_output(0, loss);
  }

  KernelWriter& w_;
  const int hidden_, labels_, weight_;
  const Dtype dtype_;
  const std::int64_t width_, classes_, tokens_, parts_, rows_;
  std::vector<int> hidden_parts_, label_parts_;  // Empty if the parts are views.
  int log_probabilities_ = -1;                   // The current part's, as all below:
  int sum_ = -1;
  int total_weight_ = -1;
  int loss_ = -1;
  int gradient_ = -1;  // The weight's, over all parts.
};

}  // namespace

void write_loss_that_calls_head(KernelWriter& w) {
  LossInParts(w).write();
}

}  // namespace fsdp::simulator
