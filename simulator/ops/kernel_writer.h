#pragma once

// The tools of the op rules. A rule reads like the Python code that it models: `mul(x, y)` makes the output tensor,
// notes what autograd saves and how it makes the gradients, and returns the output.

#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "core/model/kernel_workspaces.h"
#include "core/model/model.h"
#include "simulator/ops/kernels.h"
#include "simulator/ops/op_rules.h"

namespace fsdp::simulator {

/// [rows, inner] x [inner, columns], or `batches` of them.
struct Product {
  std::string name = "mm";  ///< ATen's name of its forward.
  std::int64_t batches = 0;
  std::int64_t rows = 0;
  std::int64_t inner = 0;
  std::int64_t columns = 0;
  int left = 0;         ///< Index among the kernel's inputs,
  int right = 1;        ///< Index of the other operand.
  bool turned = false;  ///< True if the right operand is in column-major order.
};

class KernelWriter {
 public:
  /// `input_strides`, `input_dtypes` and `parameter_dtypes` as of expand_block().
  KernelWriter(const Block& block, const OpRuleContext& context, const std::vector<Shape>& input_strides,
               const std::vector<std::optional<Dtype>>& input_dtypes, const std::vector<Dtype>& parameter_dtypes);

  const Block& block() const { return block_; }
  const OpRuleContext& context() const { return context_; }
  Dtype activation() const { return context_.activation; }
  /// The dtype of products, convolutions and attention.
  Dtype product_dtype() const { return context_.autocast.value_or(context_.activation); }
  bool is_autocast() const { return context_.autocast.has_value(); }
  KernelProgram take() { return std::move(program_); }

  /// The op whose kernels follow; it reads its parameters first (gathered_parameters.cpp).
  void start_op(int op);
  /// Frees the op's copies of parameters with its last kernel, unless autograd has saved them.
  void end_op();
  const Op& op() const { return block_.ops[op_]; }

  /// The slots of the op's operands. REQUIRES: the index exists.
  int input(int index) const;
  int parameter(int index) const;
  bool has_input(int index) const { return index < static_cast<int>(op().inputs.size()); }
  bool has_parameter(int index) const { return index < static_cast<int>(op().parameters.size()); }
  const Shape& input_shape(int index) const;
  const Shape& output_shape(int index) const;
  const Shape& parameter_shape(int index) const;
  /// The slot of a value of the block.
  int slot_of(int value) const { return program_.value_slot[value]; }
  /// Notes the logits as the model returns them, one for each cross entropy of the block.
  void return_as(std::vector<int> logits) { program_.returned = std::move(logits); }
  /// Makes a slot an output of the op.
  void set_output(int index, int slot);

  const Slot& slot(int index) const { return program_.slots[index]; }
  /// True if the tensor comes from outside the block.
  bool is_input(int index) const { return program_.storages[slot(index).storage].kind == Storage::Kind::Input; }
  /// True if the tensor is a view of a part of its storage.
  bool is_part(int index) const { return bytes(index) < program_.storages[slot(index).storage].bytes; }
  std::int64_t elements(int index) const { return slot(index).elements; }
  std::int64_t bytes(int index) const { return slot(index).bytes(); }

  /// A new tensor, made by the next kernel.
  int make(std::int64_t elements, Dtype dtype, bool differentiable = true);
  /// Another name of the same storage, possibly with another number of elements.
  int alias(int of, std::int64_t elements);
  int alias(int of) { return alias(of, elements(of)); }
  /// Another name of x, written in place from a tensor that needs a gradient.
  int written_in_place(int x);
  /// x as the operand of a wider one, whose kernel casts while it reads; its gradient comes in `dtype` and is cast.
  int seen_as(int x, Dtype dtype);

  /// x as an argument of an op that autocast runs in its dtype, or in fp32: a copy if x has another dtype. x itself
  /// without autocast. Compilers evaluate the arguments of autocast's wrappers from the last to the first.
  int lowered(int x);
  int widened(int x);

  /// The latest kernel, for details that a shared call does not know. REQUIRES: there is one.
  Kernel& last_kernel() { return program_.kernels.back(); }
  /// Makes the gradient of the kernel's input number `input` a sum of `terms` values for each of its elements. Rows are
  /// summed along the last dimension. `unsummed`: bytes that the node makes to be summed; 0 if it sums the output's
  /// gradient.
  void note_sum(Kernel& kernel, int input, std::int64_t terms, bool sums_rows, std::int64_t unsummed = 0) const;
  /// The temporaries, in bytes, of `outputs` sums of `terms` values each.
  std::vector<std::int64_t> scratch_of(std::int64_t outputs, std::int64_t terms, bool sums_rows) const;
  /// Notes the temporaries of such a sum that the node itself makes.
  void note_scratch(Kernel& kernel, int input, std::int64_t terms, bool sums_rows) const;

  /// CPU memory of a call while it runs; `assumed` bytes without a measurement. 0 on GPUs.
  Workspace workspace_of(const KernelCall& call, std::int64_t assumed = 0);
  /// Notes the workspaces of the calls of a product: forward, and for the gradients of its operands.
  void note_product(Kernel& kernel, const Product& product);
  /// The same for fused attention, forward and backward. If the call has a workspace, it replaces the assumed
  /// temporaries.
  void note_attention(Kernel& kernel, KernelCall call);

  /// Under autocast operands can have two dtypes, and the result has the wider one. Notes for each narrow operand of an
  /// elementwise kernel that its gradient comes in the result's dtype, and that the engine casts it.
  void note_narrow_operands(Kernel& kernel) const;
  /// The same whatever the precision.
  void note_cast_gradients(Kernel& kernel) const;
  /// Refuses the op under autocast if x is not in fp32.
  void require_wide(int x, std::string_view call);

  /// Notes that PyTorch would not run the current op with the requested implementation. Keeps the first reason.
  void refuse(Error why);

  /// A kernel of the current op.
  Kernel& add(KernelKind kind, std::vector<KernelInput> inputs, std::vector<int> outputs);

  // Calls that many rules share.

  /// f(x), saving its input or its result.
  int unary(int x, bool saves_input, bool saves_result);
  /// x * y, with a smaller y broadcast to x: along the first dimensions, or (`per_row`) along the last.
  int mul(int x, int y, bool per_row = false);
  /// x + y, with y broadcast to x if it is smaller or lacks leading dimensions (`is_flatter`); then its gradient is a
  /// sum even for a single sample.
  int sum_of(int x, int y, bool is_flatter = false);
  /// The dtype of x and y together: under autocast the wider one, otherwise that of x.
  Dtype wider_of(int x, int y) const;
  /// x - y, with a smaller y broadcast to x: along the first dimensions, or (`per_row`) along the last.
  int minus(int x, int y, bool per_row);
  /// x * number.
  int scale(int x);
  /// x + number: the gradient passes through.
  int shifted(int x);
  /// x.to(dtype); x itself if it has that dtype already.
  int cast(int x, Dtype dtype);
  /// A reduction of x to fewer elements whose gradient is a new tensor (mean) or a view (sum). `sums_rows`: along the
  /// last dimension.
  int reduce(int x, std::int64_t outputs, bool fresh_gradient, bool sums_rows = true);
  /// softmax: saves its result, and on GPUs multiplies it with the gradient before the backward's kernel runs.
  int softmax(int x);
  /// The same with its result in fp32: a cast first, except for fp16, which the GPU kernel reads.
  int softmax_in_fp32(int x);
  int log_softmax(int x) { return unary(x, false, true); }
  /// Dropout with the op's probability: saves a mask of booleans. x itself if the probability is 0.
  int dropout(int x);
  /// Notes that y has the memory order of x, which has the same shape.
  void lay_as(int y, int x);
  /// Notes that y has the memory order of the result of an elementwise function of x.
  void lay_as_result_of(int y, int x);
  /// Notes the strides of x; without strides, those of its shape.
  void lay(int x, const Shape& shape, const Shape& strides);
  /// x of shape `from` seen as `to`.
  int reshape(int x, const Shape& from, const Shape& to);
  /// x of `shape` with two dimensions exchanged.
  int transpose(int x, const Shape& shape, int dim, int other_dim);
  /// x of shape `from` expanded to `to` without a copy: its gradient is summed.
  int expand(int x, const Shape& from, const Shape& to);
  /// A view of a part of x: its gradient is a zero-filled tensor of x's size.
  int slice(int x, std::int64_t elements);
  /// A copy in order; the gradient passes through.
  int copy(int x, std::int64_t elements);
  int copy(int x) { return copy(x, elements(x)); }
  /// Concatenated tensors; the gradients are views. Under autocast parts of several dtypes give the widest.
  int cat(const std::vector<int>& parts, const GradientOrder& order = {});
  /// [rows, inner] x [inner, columns] in `batches` batches. Autograd makes the gradient of b first.
  int matmul(int a, int b, std::int64_t batches, std::int64_t rows, std::int64_t inner, std::int64_t columns);

 private:
  void own_parameter(std::size_t p, Dtype own);
  int read(int parameter);
  void write_reduction(Kernel& kernel, int parameter, Dtype read, Dtype own) const;

  const Block& block_;
  const OpRuleContext& context_;
  KernelProgram program_;
  std::vector<int> reads_;  // Slots of the parameters that the op has read, in their order.
  int op_ = 0;
};

// One function per family of op kinds; each writes the kernels of the writer's current op.
void write_dense_op(KernelWriter& w);              // op_rules_dense.cpp
void write_linear_4bit(KernelWriter& w);           // op_rules_quantized.cpp
void write_float8_linear(KernelWriter& w);         // op_rules_float8.cpp
void write_liger_op(KernelWriter& w);              // op_rules_liger.cpp
void write_low_rank_op(KernelWriter& w);           // op_rules_low_rank.cpp
void write_norm_op(KernelWriter& w);               // op_rules_norm.cpp
void write_attention_op(KernelWriter& w);          // op_rules_attention.cpp
void write_rotary_op(KernelWriter& w);             // op_rules_rotary.cpp
void write_linear_attention_op(KernelWriter& w);   // op_rules_linear_attention.cpp
void write_gated_delta_rule(KernelWriter& w);      // op_rules_delta_rule.cpp
void write_state_space(KernelWriter& w);           // op_rules_state_space.cpp
void write_elementwise_op(KernelWriter& w);        // op_rules_elementwise.cpp
void write_shape_op(KernelWriter& w);              // op_rules_shape.cpp
void write_expert_op(KernelWriter& w);             // op_rules_experts.cpp
void write_grouped_experts(KernelWriter& w);       // op_rules_grouped_experts.cpp
void write_dense_experts(KernelWriter& w);         // op_rules_dense_experts.cpp
void write_loss_op(KernelWriter& w);               // op_rules_loss.cpp
void write_loss_with_head(KernelWriter& w);        // op_rules_loss_with_head.cpp
void write_loss_that_calls_head(KernelWriter& w);  // op_rules_loss_calls_head.cpp

/// The labels of a loss.
struct Labels {
  int labels = 0;  ///< Those of the next tokens if the op shifts them,
  int padded = 0;  ///< out of this copy, which is one token longer. The same otherwise.
};
/// The labels of the current op, its second input.
Labels labels_of(KernelWriter& w);  // op_rules_loss.cpp

/// The labels that are not ignored.
struct CountedLabels {
  int are_counted = 0;  ///< A boolean for each label.
  int count = 0;
};
/// Counts the `rows` labels.
CountedLabels count_labels(KernelWriter& w, int labels, std::int64_t rows);  // op_rules_loss.cpp

}  // namespace fsdp::simulator
