// Linear layers, embeddings, convolutions.
//
// A linear layer is one matrix product on x flattened to [rows, in]. Autograd saves x if the weight is trained and the
// weight if x needs a gradient; the backward makes the weight's gradient, then x's. With a bias it is addmm, which
// cuBLASLt runs with its own workspace. Under ZeRO-3 F.linear is DeepSpeed's own function: one node that saves x, the
// weight and the bias themselves, adds a bias after the product, and makes the gradients of x, weight and bias in that
// order.
//
// The backward of an embedding fills a dense gradient of the whole table. Above 3072 indices it sorts them first and
// sums equal ones in fp32: scratch of 4 width (rows / 10 + min(rows, table)) bytes and index arrays beside it. If the
// table is so small that few blocks would compute the sum, atomics add the parts to the gradient instead: one more
// array of indices, and for 16-bit types a table in fp32.
//
// Sources: aten/src/ATen/native/Linear.cpp, native/cuda/Embedding.cu and EmbeddingBackwardKernel.cu,
// tools/autograd/derivatives.yaml (mm, addmm, embedding, convolution), torch 2.11; deepspeed/runtime/zero/linear.py.
//
// Not modeled: the workspaces of cuDNN's convolution plans, which do not follow from shapes (taken as 0). Those of a
// CPU are measured (simulator/ops/kernel_workspaces.cpp).

#include <algorithm>

#include "core/base/rounding.h"
#include "simulator/ops/kernel_writer.h"

namespace fsdp::simulator {

namespace {

constexpr std::int64_t kSortedEmbeddingRows = 3072;

/// The operands of a product with a weight, cast by autocast.
struct WeightedOperands {
  int x = -1;
  int weight = -1;
  int bias = -1;  // -1 if there is none.
};

// F.linear and convolutions cast (x, weight, bias), and addmm of a transposed weight (bias, x, weight), each from the
// last to the first.
WeightedOperands cast_operands(KernelWriter& w) {
  WeightedOperands all;
  const auto cast_bias = [&] {
    if (w.has_parameter(1)) all.bias = w.lowered(w.parameter(1));
  };
  const bool is_transposed = w.op().attributes.transposed_weight;
  if (!is_transposed) cast_bias();
  all.weight = w.lowered(w.parameter(0));
  all.x = w.lowered(w.input(0));
  if (is_transposed) cast_bias();
  return all;
}

void write_linear(KernelWriter& w) {
  const auto [x, weight, bias_slot] = cast_operands(w);
  const std::int64_t inner = w.input_shape(0).back();
  const std::int64_t rows = w.elements(x) / inner;
  const std::int64_t columns = w.elements(weight) / inner;
  const int y = w.make(rows * columns, w.product_dtype());
  const bool bias = bias_slot >= 0;
  // Above two dimensions, x is flattened first, and its gradient is returned as a view.
  const GradRule of_x = w.input_shape(0).size() > 2 ? GradRule::FreshView : GradRule::Fresh;
  // x.matmul(weight.t()): the gradient of the transposed weight is returned as a view.
  const GradRule of_weight = w.op().attributes.transposed_weight ? GradRule::Fresh : GradRule::FreshView;
  const bool is_flat = w.input_shape(0).size() == 2;
  const bool is_zero3 = w.context().implementations.zero3_linear && !w.op().attributes.transposed_weight;
  const bool is_addmm = bias && (!is_zero3 || is_flat);
  Kernel& kernel = w.add(is_addmm ? KernelKind::GemmLt : KernelKind::Gemm, {}, {y});
  if (is_zero3) {
    // One node, which makes all gradients in this order.
    kernel.inputs = {{x, GradRule::Fresh}, {weight, GradRule::Fresh}};
    kernel.saved = {{x}, {weight}};
    kernel.saves_when_done = true;
    if (bias) kernel.inputs.push_back({bias_slot, GradRule::Fresh});
    if (bias) kernel.saved.push_back({bias_slot});
    if (bias) w.note_sum(kernel, 2, rows, false);
    if (bias && !is_addmm) kernel.extra_bytes = 2 * static_cast<double>(w.bytes(y));
  } else if (bias) {
    // AddmmBackward0 goes through mat1, mat2, self.
    kernel.inputs = {{x, of_x}, {weight, of_weight}, {bias_slot, GradRule::Fresh}};
    kernel.saved = {{x, 1}, {weight, 0}};
    w.note_sum(kernel, 2, rows, false);
  } else {
    // MmBackward0 goes through mat2, self.
    kernel.inputs = {{weight, of_weight}, {x, of_x}};
    kernel.saved = {{x, 0}, {weight, 1}};
  }
  if (w.input_shape(0).size() > 2) kernel.order = {GradientOrder::Kind::Flattened, {}, w.output_shape(0)};
  kernel.flops = 2.0 * static_cast<double>(rows) * static_cast<double>(inner) * static_cast<double>(columns);
  w.note_product(kernel, {.name = bias ? "addmm" : "mm",
                          .rows = rows,
                          .inner = inner,
                          .columns = columns,
                          .left = bias || is_zero3 ? 0 : 1,
                          .right = bias || is_zero3 ? 1 : 0,
                          .turned = !w.op().attributes.transposed_weight});
  w.set_output(0, y);
}

// cub's temporary storage, as observed on sm_90: two more arrays of indices and a table per tile of 4608.
std::int64_t sort_scratch(std::int64_t rows) {
  const std::int64_t array = (8 * rows + 255) / 256 * 256;
  return 2 * array + 1024 * ((rows + 4607) / 4608) + 16895;
}

std::int64_t scan_scratch(std::int64_t rows) {
  return 1279 + 256 * (rows / 16384);
}

constexpr std::int64_t kWarpSize = 32;
constexpr std::int64_t kMaxBlock = 1024;
constexpr std::int64_t kBlocksPerSm = 4;  // Beyond this, the sum in two passes fills the GPU.

bool sums_by_atomics(const KernelWriter& w, std::int64_t segments, std::int64_t parts, std::int64_t width) {
  const std::int64_t threads = round_up(width, kWarpSize);
  const std::int64_t blocks = div_up(segments * threads, std::min(threads, kMaxBlock));
  return blocks < kBlocksPerSm * w.context().num_sms && parts > 4 * blocks;
}

/// requires_grad_() of a result that has no history: the node that gathers its gradient holds it.
int leaf_of(KernelWriter& w, int x) {
  const int leaf = w.alias(x);
  w.add(KernelKind::View, {{x, GradRule::None}}, {leaf}).saved = {{leaf, -1}};
  return leaf;
}

void write_embedding(KernelWriter& w) {
  const int ids = w.input(0);
  const int table = w.parameter(0);
  const std::int64_t entries = w.parameter_shape(0).front();
  const std::int64_t width = w.parameter_shape(0).back();
  const std::int64_t rows = w.elements(ids);
  const int y = w.make(rows * width, w.is_autocast() ? w.slot(table).dtype : w.activation());
  Kernel& kernel = w.add(KernelKind::Elementwise, {{table, GradRule::Fresh}}, {y});
  kernel.saved = {{ids, 0}};
  kernel.order = {GradientOrder::Kind::Copied, {}, w.output_shape(0)};
  // It reads only the looked-up rows, not the table.
  kernel.extra_bytes = static_cast<double>(w.bytes(y)) - static_cast<double>(w.bytes(table));
  if (rows > kSortedEmbeddingRows && !w.context().is_cpu()) {
    const std::int64_t segments = std::min(rows, entries);
    const std::int64_t parts = rows / 10 + segments;
    kernel.backward_temps = {
        {8 * rows, TempLife::Whole},                // Sorted indices,
        {8 * rows, TempLife::Whole},                // and their original positions;
        {8 * rows, TempLife::Early},                // before the sort.
        {sort_scratch(rows), TempLife::Early},      //
        {8 * rows, TempLife::Late},                 // Start of each value,
        {8, TempLife::Late},                        // the number of values,
        {8 * rows, TempLife::Brief},                //
        {scan_scratch(1), TempLife::Brief},         //
        {8 * segments, TempLife::Late},             // the number of parts of ten for each,
        {8 * segments, TempLife::Late},             // the start of each part,
        {scan_scratch(segments), TempLife::Brief},  //
        {8, TempLife::Late},                        //
        {8 * parts, TempLife::Late},                //
    };
    if (sums_by_atomics(w, segments, parts, width)) {
      kernel.backward_temps.push_back({8 * parts, TempLife::Late});
      if (w.slot(y).dtype != Dtype::Float32) kernel.backward_temps.push_back({4 * width * entries, TempLife::Late});
    } else {
      kernel.backward_temps.push_back({4 * width * parts, TempLife::Late});  // Their sums.
    }
  }
  w.set_output(0, w.block().values[w.op().outputs[0]].requires_grad ? leaf_of(w, y) : y);
}

// oneDNN returns results in tensors of its own order, and PyTorch copies them: we assume that on CPU for a convolution
// that was not measured (aten/src/ATen/native/mkldnn/Conv.cpp, mkldnn_to_dense).
void note_convolution(KernelWriter& w, Kernel& kernel) {
  const OpAttributes& a = w.op().attributes;
  const Shape& x = w.input_shape(0);
  const Shape& weight = w.parameter_shape(0);
  KernelCall call{.name = "convolution", .dtype = w.activation(), .operands = {{x, {}}, {weight, {}}}};
  call.settings = {
      {"stride", {a.stride}}, {"padding", {a.padding}}, {"dilation", {a.dilation}}, {"groups", {a.groups}}};
  kernel.forward_workspace = w.workspace_of(call, w.bytes(kernel.outputs.front()));
  call.name = "convolution_backward";
  call.operands.insert(call.operands.begin(), {w.output_shape(0), {}});
  call.settings.push_back({"gradients", {}});
  kernel.backward_workspaces.resize(std::size_t{1} << kernel.inputs.size());
  for (std::size_t wanted = 1; wanted < kernel.backward_workspaces.size(); ++wanted) {
    auto& gradients = call.settings.back().second;
    gradients.clear();
    std::int64_t of_weights = 0;
    for (std::size_t i = 0; i < kernel.inputs.size(); ++i) {
      if ((wanted >> i & 1) == 0) continue;
      gradients.push_back(static_cast<std::int64_t>(i));
      if (i > 0) of_weights += w.bytes(kernel.inputs[i].slot);
    }
    const std::int64_t of_input = (wanted & 1) != 0 ? w.bytes(kernel.inputs[0].slot) - of_weights : 0;
    kernel.backward_workspaces[wanted] = w.workspace_of(call, std::max(of_input, of_weights));
  }
}

void write_convolution(KernelWriter& w) {
  const auto [x, weight, bias] = cast_operands(w);
  const int y = w.make(num_elements(w.output_shape(0)), w.product_dtype());
  Kernel& kernel = w.add(KernelKind::Convolution, {{x, GradRule::Fresh}, {weight, GradRule::Fresh}}, {y});
  kernel.saved = {{x, -1}, {weight, -1}};  // One formula makes all gradients, so it saves both for any of them.
  kernel.order = {GradientOrder::Kind::Copied, {}, w.output_shape(0)};
  const std::int64_t out_channels = w.parameter_shape(0).front();
  if (bias >= 0) {
    kernel.inputs.push_back({bias, GradRule::Fresh});
    if (!w.context().is_cpu()) w.note_sum(kernel, 2, w.elements(y) / out_channels, true);
  }
  if (w.context().is_cpu()) note_convolution(w, kernel);
  kernel.flops = 2.0 * static_cast<double>(w.elements(y)) * static_cast<double>(w.elements(weight) / out_channels);
  w.set_output(0, y);
}

}  // namespace

void write_dense_op(KernelWriter& w) {
  switch (w.op().kind) {
    case OpKind::Linear:
      return w.op().attributes.float8 ? write_float8_linear(w) : write_linear(w);
    case OpKind::Linear4bit:
      return write_linear_4bit(w);
    case OpKind::Embedding:
      return write_embedding(w);
    case OpKind::Parameter:
      w.set_output(0, w.parameter(0));
      return;
    default:
      return write_convolution(w);
  }
}

}  // namespace fsdp::simulator
