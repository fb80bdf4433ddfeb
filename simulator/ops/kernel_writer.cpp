#include "simulator/ops/kernel_writer.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/plan/loss_table.h"
#include "simulator/ops/reduction_scratch.h"
#include "simulator/ops/strides.h"

namespace fsdp::simulator {

KernelWriter::KernelWriter(const Block& block, const OpRuleContext& context, const std::vector<Shape>& input_strides,
                           const std::vector<std::optional<Dtype>>& input_dtypes,
                           const std::vector<Dtype>& parameter_dtypes)
    : block_(block), context_(context) {
  program_.value_slot.assign(block.values.size(), -1);
  for (int v = 0; v < block.num_inputs; ++v) {
    const Value& value = block.values[v];
    // Scalars that pass between calls are losses.
    const Implementations& use = context.implementations;
    const bool is_wide = use.upcast_logits || loss_row(use.loss).is_float32;
    const bool is_loss = value.shape.empty() && is_wide;
    Dtype dtype = value.dtype.value_or(is_loss ? Dtype::Float32 : context.activation);
    if (!input_dtypes.empty()) dtype = input_dtypes[v].value_or(dtype);
    const std::int64_t elements = num_elements(value.shape);
    program_.storages.push_back({Storage::Kind::Input, v, elements * size_of(dtype).count(), -1});
    program_.slots.push_back({v, elements, dtype, is_floating_point(dtype)});
    program_.value_slot[v] = v;
    if (!input_strides.empty()) lay(v, value.shape, input_strides[v]);
  }
  for (std::size_t p = 0; p < block.parameters.size(); ++p) {
    const std::int64_t elements = num_elements(block.parameters[p]);
    const int storage = static_cast<int>(program_.storages.size());
    program_.storages.push_back(
        {Storage::Kind::Parameter, static_cast<int>(p), elements * size_of(context.activation).count(), -1});
    program_.parameter_slot.push_back(static_cast<int>(program_.slots.size()));
    program_.slots.push_back({storage, elements, context.activation, true});
    if (!parameter_dtypes.empty()) own_parameter(p, parameter_dtypes[p]);
  }
}

int KernelWriter::lowered(int x) {
  const std::optional<Dtype>& to = context_.autocast;
  if (!to || !is_floating_point(slot(x).dtype) || slot(x).dtype == *to) return x;
  const int y = cast(x, *to);
  // Autocast caches copies of fp32 leaves that require a gradient.
  const Storage& from = program_.storages[slot(x).storage];
  const bool is_parameter = from.kind == Storage::Kind::Parameter && program_.parameter_slot[from.index] == x;
  if (is_parameter && slot(x).dtype == Dtype::Float32) program_.storages[slot(y).storage].cast_of = from.index;
  return y;
}

int KernelWriter::widened(int x) {
  return is_autocast() && is_floating_point(slot(x).dtype) ? cast(x, Dtype::Float32) : x;
}

void KernelWriter::note_narrow_operands(Kernel& kernel) const {
  if (is_autocast()) note_cast_gradients(kernel);
}

void KernelWriter::note_cast_gradients(Kernel& kernel) const {
  const Slot& result = slot(kernel.outputs.front());
  for (KernelInput& input : kernel.inputs) {
    if (input.grad == GradRule::None || size_of(slot(input.slot).dtype) >= size_of(result.dtype)) continue;
    if (input.is_summed) {
      input.sum_bytes = elements(input.slot) * size_of(result.dtype).count();
    } else if (input.grad == GradRule::Alias) {
      input.grad = GradRule::Fresh;
    } else {
      input.unsummed = elements(input.slot) * size_of(result.dtype).count();
    }
    input.is_summed = true;
  }
}

void KernelWriter::require_wide(int x, std::string_view call) {
  if (!is_autocast() || slot(x).dtype == Dtype::Float32) return;
  refuse({"/mixed_precision/autocast", fmt::format("{} of tensors in 16 bits under autocast is not predicted.", call),
          "Plan with the precision of the parameters: --precision bf16 or fp32."});
}

int KernelWriter::input(int index) const {
  return program_.value_slot[op().inputs[index]];
}
int KernelWriter::parameter(int index) const {
  return reads_.empty() ? program_.parameter_slot[op().parameters[index]] : reads_[index];
}
const Shape& KernelWriter::input_shape(int index) const {
  return block_.values[op().inputs[index]].shape;
}
const Shape& KernelWriter::output_shape(int index) const {
  return block_.values[op().outputs[index]].shape;
}
const Shape& KernelWriter::parameter_shape(int index) const {
  return block_.parameters[op().parameters[index]];
}

void KernelWriter::set_output(int index, int slot) {
  program_.value_slot[op().outputs[index]] = slot;
}

int KernelWriter::make(std::int64_t elements, Dtype dtype, bool differentiable) {
  const int storage = static_cast<int>(program_.storages.size());
  program_.storages.push_back({Storage::Kind::Inside, -1, elements * size_of(dtype).count(), op_});
  program_.slots.push_back({storage, elements, dtype, differentiable && is_floating_point(dtype)});
  return static_cast<int>(program_.slots.size()) - 1;
}

int KernelWriter::alias(int of, std::int64_t elements) {
  Slot slot = program_.slots[of];
  slot.elements = elements;
  program_.slots.push_back(slot);
  return static_cast<int>(program_.slots.size()) - 1;
}

int KernelWriter::written_in_place(int x) {
  const int y = alias(x);
  program_.slots[y].differentiable = true;
  return y;
}

int KernelWriter::seen_as(int x, Dtype dtype) {
  const int y = alias(x);
  program_.slots[y].dtype = dtype;
  add(KernelKind::View, {{x, GradRule::Fresh}}, {y});
  return y;
}

Kernel& KernelWriter::add(KernelKind kind, std::vector<KernelInput> inputs, std::vector<int> outputs) {
  Kernel kernel;
  kernel.kind = kind;
  kernel.op = op_;
  kernel.inputs = std::move(inputs);
  kernel.outputs = std::move(outputs);
  program_.kernels.push_back(std::move(kernel));
  return program_.kernels.back();
}

void KernelWriter::refuse(Error why) {
  if (!program_.refusal) program_.refusal = std::move(why);
}

int KernelWriter::unary(int x, bool saves_input, bool saves_result) {
  const int y = make(elements(x), slot(x).dtype);
  Kernel& kernel = add(KernelKind::Elementwise, {{x, GradRule::Fresh}}, {y});
  if (saves_input) kernel.saved.push_back({x, 0});
  if (saves_result) kernel.saved.push_back({y, 0});
  lay_as_result_of(y, x);
  return y;
}

int KernelWriter::softmax(int x) {
  const int y = unary(x, false, true);
  lay(y, {}, {});  // The op first copies its input if it is not contiguous.
  if (!context_.is_cpu()) program_.kernels.back().backward_temps = {{bytes(y), TempLife::Late}};
  return y;
}

int KernelWriter::softmax_in_fp32(int x) {
  if (slot(x).dtype != Dtype::Float16 || context_.is_cpu()) return softmax(cast(x, Dtype::Float32));
  const int y = make(elements(x), Dtype::Float32);
  Kernel& kernel = add(KernelKind::Elementwise, {{x, GradRule::Fresh}}, {y});
  kernel.saved.push_back({y, 0});
  kernel.backward_temps = {{bytes(y), TempLife::Late}};
  return y;
}

int KernelWriter::dropout(int x) {
  if (op().attributes.probability == 0) return x;
  const int y = make(elements(x), slot(x).dtype);
  // On CPU the mask is a factor (aten/src/ATen/native/Dropout.cpp, _dropout_impl); on GPUs it is fused.
  const int mask = make(elements(x), context_.is_cpu() ? slot(x).dtype : Dtype::Bool, false);
  add(KernelKind::Elementwise, {{x, GradRule::Fresh}}, {mask, y}).saved = {{mask, 0}};
  return y;
}

std::vector<std::int64_t> KernelWriter::scratch_of(std::int64_t outputs, std::int64_t terms, bool sums_rows) const {
  const LaunchLimits limits = launch_limits(context_.num_sms, context_.compute_capability);
  return reduction_scratch(outputs, terms, sums_rows, limits);
}

void KernelWriter::note_sum(Kernel& kernel, int input, std::int64_t terms, bool sums_rows,
                            std::int64_t unsummed) const {
  KernelInput& of = kernel.inputs[input];
  of.is_summed = true;
  of.unsummed = unsummed;
  of.scratch = scratch_of(elements(of.slot), terms, sums_rows);
}

void KernelWriter::note_scratch(Kernel& kernel, int input, std::int64_t terms, bool sums_rows) const {
  for (const std::int64_t bytes : scratch_of(elements(kernel.inputs[input].slot), terms, sums_rows)) {
    kernel.backward_temps.push_back({bytes, TempLife::Brief, input});
  }
}

int KernelWriter::minus(int x, int y, bool per_row) {
  const int result = make(elements(x), wider_of(x, y));
  Kernel& kernel = add(KernelKind::Elementwise, {{y, GradRule::Fresh}, {x, GradRule::Alias}}, {result});
  if (elements(y) < elements(x)) note_sum(kernel, 0, elements(x) / elements(y), per_row, bytes(result));
  note_narrow_operands(kernel);
  kernel.sums_in_reverse = true;
  return result;
}

int KernelWriter::mul(int x, int y, bool per_row) {
  const bool wider = size_of(slot(y).dtype) > size_of(slot(x).dtype);
  const int product = make(elements(x), wider ? slot(y).dtype : slot(x).dtype);
  // `other` before `self`, as the generated MulBackward0 goes through its arguments by name.
  Kernel& kernel = add(KernelKind::Elementwise, {{y, GradRule::Fresh}, {x, GradRule::Fresh}}, {product});
  kernel.saved = {{y, 1}, {x, 0}};
  // CPUs make a copy of a smaller operand in the other's dtype; GPUs cast while they read (TensorIterator.cpp).
  if (context_.is_cpu() && elements(y) < elements(x) && slot(y).dtype != slot(product).dtype) {
    const std::int64_t copy = elements(y) * size_of(slot(product).dtype).count();
    kernel.forward_temps = {copy};
    kernel.backward_temps = {{copy, TempLife::Late, 1}};
  }
  // The gradient of a broadcast operand is a full product, summed afterwards.
  if (elements(y) < elements(x)) {
    note_sum(kernel, 0, elements(x) / elements(y), per_row, bytes(product));
    const std::int64_t in_its_dtype = elements(y) * size_of(slot(product).dtype).count();
    if (in_its_dtype != bytes(y)) kernel.inputs[0].sum_bytes = in_its_dtype;
  }
  note_narrow_operands(kernel);
  return product;
}

Dtype KernelWriter::wider_of(int x, int y) const {
  const bool is_other = is_autocast() && size_of(slot(y).dtype) > size_of(slot(x).dtype);
  return slot(is_other ? y : x).dtype;
}

int KernelWriter::sum_of(int x, int y, bool is_flatter) {
  const bool broadcast = elements(y) < elements(x) || is_flatter;
  const int result = make(elements(x), wider_of(x, y));
  lay_as_result_of(result, x);
  Kernel& kernel = add(KernelKind::Elementwise,
                       {{x, GradRule::Alias}, {y, broadcast ? GradRule::Fresh : GradRule::Alias}}, {result});
  if (broadcast) note_sum(kernel, 1, elements(x) / elements(y), false);
  note_narrow_operands(kernel);
  return result;
}

int KernelWriter::scale(int x) {
  return unary(x, false, false);
}

int KernelWriter::shifted(int x) {
  const int y = make(elements(x), slot(x).dtype);
  add(KernelKind::Elementwise, {{x, GradRule::Alias}}, {y});
  lay_as_result_of(y, x);
  return y;
}

int KernelWriter::cast(int x, Dtype dtype) {
  if (slot(x).dtype == dtype) return x;
  const int y = make(elements(x), dtype, slot(x).differentiable);
  add(KernelKind::Elementwise, {{x, slot(x).differentiable ? GradRule::Fresh : GradRule::None}}, {y});
  lay_as_result_of(y, x);
  return y;
}

int KernelWriter::reduce(int x, std::int64_t outputs, bool fresh_gradient, bool sums_rows) {
  const int y = make(outputs, slot(x).dtype);
  Kernel& kernel = add(KernelKind::Elementwise, {{x, fresh_gradient ? GradRule::Fresh : GradRule::Alias}}, {y});
  kernel.forward_temps = scratch_of(outputs, elements(x) / outputs, sums_rows);
  return y;
}

void KernelWriter::lay_as(int y, int x) {
  lay(y, slot(x).shape, slot(x).strides);
}

void KernelWriter::lay_as_result_of(int y, int x) {
  if (!slot(x).strides.empty()) lay(y, slot(x).shape, strides_of_result(slot(x).shape, slot(x).strides));
}

void KernelWriter::lay(int x, const Shape& shape, const Shape& strides) {
  Slot& slot = program_.slots[x];
  slot.strides = strides;
  slot.shape = strides.empty() ? Shape{} : shape;
}

int KernelWriter::reshape(int x, const Shape& from, const Shape& to) {
  const int y = alias(x);
  if (!slot(x).strides.empty()) lay(y, to, strides_as(from, slot(x).strides, to).value_or(Shape{}));
  add(KernelKind::View, {{x, GradRule::Alias}}, {y}).order = {GradientOrder::Kind::Reshaped, from, to};
  return y;
}

int KernelWriter::transpose(int x, const Shape& shape, int dim, int other_dim) {
  const int y = alias(x);
  Shape strides = slot(x).strides.empty() ? dense_strides(shape) : slot(x).strides;
  Shape turned = shape;
  std::swap(strides[dim], strides[other_dim]);
  std::swap(turned[dim], turned[other_dim]);
  lay(y, turned, strides);
  add(KernelKind::View, {{x, GradRule::Alias}}, {y}).order = {
      GradientOrder::Kind::Transposed, shape, {}, dim, other_dim};
  return y;
}

int KernelWriter::expand(int x, const Shape& from, const Shape& to) {
  const int y = slice(x, num_elements(to));
  Shape strides = slot(x).strides;
  if (strides.empty() || from.size() != to.size()) return y;
  for (std::size_t d = 0; d < from.size(); ++d) strides[d] = from[d] == to[d] ? strides[d] : 0;
  lay(y, to, strides);
  return y;
}

int KernelWriter::slice(int x, std::int64_t elements) {
  const int y = alias(x, elements);
  add(KernelKind::View, {{x, GradRule::Fresh}}, {y});
  return y;
}

int KernelWriter::copy(int x, std::int64_t elements) {
  const int y = make(elements, slot(x).dtype, slot(x).differentiable);
  const GradRule grad = elements > this->elements(x) ? GradRule::Fresh : GradRule::Alias;
  add(KernelKind::Elementwise, {{x, grad}}, {y});
  return y;
}

int KernelWriter::cat(const std::vector<int>& parts, const GradientOrder& order) {
  std::int64_t total = 0;
  std::vector<KernelInput> inputs;
  int widest = parts.front();
  for (const int part : parts) {
    total += elements(part);
    inputs.push_back({part, GradRule::Alias});
    if (size_of(slot(part).dtype) > size_of(slot(widest).dtype)) widest = part;
  }
  const int y = make(total, slot(is_autocast() ? widest : parts.front()).dtype);
  Kernel& kernel = add(KernelKind::Elementwise, std::move(inputs), {y});
  kernel.order = order;
  note_narrow_operands(kernel);
  return y;
}

int KernelWriter::matmul(int a, int b, std::int64_t batches, std::int64_t rows, std::int64_t inner,
                         std::int64_t columns) {
  const int y = make(batches * rows * columns, slot(a).dtype);
  Kernel& kernel = add(KernelKind::Gemm, {{b, GradRule::Fresh}, {a, GradRule::Fresh}}, {y});
  kernel.saved = {{a, 0}, {b, 1}};
  kernel.flops = 2.0 * static_cast<double>(batches) * static_cast<double>(rows) * static_cast<double>(inner) *
                 static_cast<double>(columns);
  const Shape& strides = slot(b).strides;
  const bool turned = strides.size() >= 2 && strides.back() != 1;
  note_product(kernel, {.name = "bmm",
                        .batches = batches,
                        .rows = rows,
                        .inner = inner,
                        .columns = columns,
                        .left = 1,
                        .right = 0,
                        .turned = turned});
  return y;
}

}  // namespace fsdp::simulator
