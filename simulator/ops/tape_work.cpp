// FLOPs and memory traffic of each op. Products and fused attention count their FLOPs; everything else reads its inputs
// and writes its outputs once. The backward of a product runs one product for each gradient that it makes.

#include <algorithm>

#include "simulator/ops/tape_flow.h"

namespace fsdp::simulator {

namespace {

void add_part(OpWork::Part& part, const Kernel& kernel, double flops, double bytes) {
  if (kernel.kind == KernelKind::View) return;
  ++part.num_kernels;
  if (kernel.kind == KernelKind::Attention) {
    part.attention_flops += flops;
  } else if (kernel.kind == KernelKind::Convolution) {
    part.convolution_flops += flops;
  } else if (flops > 0) {
    part.gemm_flops += flops;
  } else {
    part.bytes += std::max(bytes, 0.0);
  }
}

/// A layer of 8-bit floats, whose casts are kernels of their own in the forward, and of its script in the backward.
void add_float8_backward(OpWork::Part& part, const Kernel& kernel) {
  part.float8_flops += kernel.backward_float8_flops;
  part.gemm_flops += kernel.backward_flops;
  part.bytes += kernel.backward_bytes;
  part.num_kernels += kernel.backward_launches;
}

// dA = dY B' and dB = A' dY: the summed dimension changes places with the operand's other one.
ProductSizes product_of_gradient(const Kernel& kernel, std::size_t input) {
  const ProductSizes& p = kernel.product;
  const bool of_left = static_cast<int>(input) == kernel.left;
  return of_left ? ProductSizes{p.batches, p.m, p.k, p.n} : ProductSizes{p.batches, p.k, p.n, p.m};
}

}  // namespace

std::vector<OpWork> measure_work(const Block& block, const KernelProgram& program, const TapeFlow& flow) {
  std::vector<OpWork> result(block.ops.size());
  for (std::size_t k = 0; k < program.kernels.size(); ++k) {
    const Kernel& kernel = program.kernels[k];
    if (!flow.runs(kernel)) continue;
    double read = 0;
    double written = 0;
    double gradients = 0;
    int num_products = 0;
    std::vector<ProductSizes> products;
    for (const KernelInput& input : kernel.inputs) {
      const auto bytes = static_cast<double>(program.slots[input.slot].bytes());
      read += bytes;
      const bool is_written = input.grad == GradRule::Kept || input.grad == GradRule::InPlace;
      if (is_written && flow.requires_grad[input.slot]) gradients += bytes;
      const bool fresh = input.grad == GradRule::Fresh || input.grad == GradRule::FreshView;
      if (!fresh || !flow.requires_grad[input.slot]) continue;
      gradients += bytes;
      // A third input is the bias, whose gradient is a sum.
      const auto index = static_cast<std::size_t>(&input - kernel.inputs.data());
      if (index < 2) ++num_products;
      if (index < 2 && kernel.product.batches > 0) products.push_back(product_of_gradient(kernel, index));
    }
    for (const int slot : kernel.outputs) written += static_cast<double>(program.slots[slot].bytes());
    OpWork& work = result[kernel.op];
    work.forward.float8_flops += kernel.float8_flops;
    if (kernel.float8_flops > 0) {
      if (flow.active[k]) add_float8_backward(work.backward, kernel);
      continue;
    }
    add_part(work.forward, kernel, kernel.flops, read + written + kernel.extra_bytes);
    if (kernel.product.batches > 0) work.forward.products.push_back(kernel.product);
    // Scans of linear attention compute in fp32, whatever the model does.
    if (kernel.flops > 0 && is_scan(block.ops[kernel.op].kind)) {
      work.forward.arithmetic = work.backward.arithmetic = program.slots[kernel.outputs.front()].dtype;
    }
    if (!flow.active[k] || gradients == 0) continue;
    if (kernel.repeats_product) {
      ++num_products;
      products.push_back(kernel.product);
    }
    work.backward.num_kernels += kernel.backward_launches - 1;
    const double flops = kernel.backward_flops > 0 ? kernel.backward_flops : kernel.flops * num_products;
    work.backward.bytes += kernel.backward_bytes;
    add_part(work.backward, kernel, flops, written + read + gradients + kernel.extra_bytes);
    work.backward.products.insert(work.backward.products.end(), products.begin(), products.end());
  }
  return result;
}

std::int64_t largest_convolution(const KernelProgram& program) {
  std::int64_t most = 0;
  for (const Kernel& kernel : program.kernels) {
    if (kernel.kind != KernelKind::Convolution) continue;
    std::int64_t bytes = 0;
    for (const KernelInput& input : kernel.inputs) bytes += program.slots[input.slot].bytes();
    for (const int slot : kernel.outputs) bytes += program.slots[slot].bytes();
    most = std::max(most, bytes);
  }
  return most;
}

}  // namespace fsdp::simulator
