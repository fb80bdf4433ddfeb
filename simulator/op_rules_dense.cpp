// Linear layers, embeddings, convolutions.
//
// A linear layer is one matrix product on x flattened to [rows, in]. Autograd saves x when the weight is trained and
// the weight when x needs a gradient; the backward makes the weight's gradient, then x's. With a bias it is addmm,
// which cuBLASLt runs with its own workspace.
//
// The backward of an embedding fills a dense gradient of the whole table. Above 3072 indices it sorts them first and
// sums equal ones in fp32: scratch of 4 width (rows / 10 + min(rows, table)) bytes and index arrays beside it.
//
// Sources: aten/src/ATen/native/Linear.cpp, native/cuda/Embedding.cu and EmbeddingBackwardKernel.cu,
// tools/autograd/derivatives.yaml (mm, addmm, embedding, convolution), torch 2.11.
//
// Not modelled: the workspaces of cuDNN's convolution plans, which cannot be derived from shapes (taken as none).

#include <algorithm>

#include "simulator/kernel_writer.h"

namespace fsdp::simulator {

namespace {

constexpr std::int64_t kSortedEmbeddingRows = 3072;

void write_linear(KernelWriter& w) {
  const int x = w.input(0);
  const int weight = w.parameter(0);
  const std::int64_t inner = w.input_shape(0).back();
  const std::int64_t rows = w.elements(x) / inner;
  const std::int64_t columns = w.elements(weight) / inner;
  const int y = w.make(rows * columns, w.activation());
  const bool bias = w.has_parameter(1);
  // Above two dimensions x is flattened first, and its gradient handed back as a view.
  const GradRule of_x = w.input_shape(0).size() > 2 ? GradRule::FreshView : GradRule::Fresh;
  Kernel& kernel = w.add(bias ? KernelKind::GemmLt : KernelKind::Gemm, {}, {y});
  if (bias) {
    // AddmmBackward0 goes through mat1, mat2, self.
    kernel.inputs = {{x, of_x}, {weight, GradRule::Fresh}, {w.parameter(1), GradRule::Fresh}};
    kernel.saved = {{x, 1}, {weight, 0}};
  } else {
    // MmBackward0 goes through mat2, self.
    kernel.inputs = {{weight, GradRule::Fresh}, {x, of_x}};
    kernel.saved = {{x, 0}, {weight, 1}};
  }
  kernel.flops = 2.0 * static_cast<double>(rows) * static_cast<double>(inner) * static_cast<double>(columns);
  w.set_output(0, y);
}

void write_embedding(KernelWriter& w) {
  const int ids = w.input(0);
  const int table = w.parameter(0);
  const std::int64_t entries = w.parameter_shape(0).front();
  const std::int64_t width = w.parameter_shape(0).back();
  const std::int64_t rows = w.elements(ids);
  const int y = w.make(rows * width, w.activation());
  Kernel& kernel = w.add(KernelKind::Elementwise, {{table, GradRule::Fresh}}, {y});
  kernel.saved = {{ids, 0}};
  // Only the rows looked up are read, not the table.
  kernel.extra_bytes = static_cast<double>(w.bytes(y)) - static_cast<double>(w.bytes(table));
  if (rows > kSortedEmbeddingRows) {
    const std::int64_t segments = std::min(rows, entries);
    kernel.backward_temps = {8 * rows, 8 * rows, 8 * segments, 8 * (rows / 10 + segments),
                             4 * width * (rows / 10 + segments)};
  }
  w.set_output(0, y);
}

void write_convolution(KernelWriter& w) {
  const int x = w.input(0);
  const int weight = w.parameter(0);
  const int y = w.make(num_elements(w.output_shape(0)), w.activation());
  Kernel& kernel = w.add(KernelKind::Convolution, {{x, GradRule::Fresh}, {weight, GradRule::Fresh}}, {y});
  kernel.saved = {{x, 1}, {weight, 0}};
  if (w.has_parameter(1)) kernel.inputs.push_back({w.parameter(1), GradRule::Fresh});
  const std::int64_t out_channels = w.parameter_shape(0).front();
  kernel.flops = 2.0 * static_cast<double>(w.elements(y)) * static_cast<double>(w.elements(weight) / out_channels);
  w.set_output(0, y);
}

}  // namespace

void write_dense_op(KernelWriter& w) {
  switch (w.op().kind) {
    case OpKind::Linear:
      return write_linear(w);
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
