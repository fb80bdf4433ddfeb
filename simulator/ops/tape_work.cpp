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

}  // namespace

std::vector<OpWork> measure_work(const Block& block, const KernelProgram& program, const TapeFlow& flow) {
  std::vector<OpWork> result(block.ops.size());
  for (std::size_t k = 0; k < program.kernels.size(); ++k) {
    const Kernel& kernel = program.kernels[k];
    double read = 0;
    double written = 0;
    double gradients = 0;
    int num_products = 0;
    for (const KernelInput& input : kernel.inputs) {
      const auto bytes = static_cast<double>(program.slots[input.slot].bytes());
      read += bytes;
      const bool fresh = input.grad == GradRule::Fresh || input.grad == GradRule::FreshView;
      if (!fresh || !flow.requires_grad[input.slot]) continue;
      gradients += bytes;
      // A third input is the bias, whose gradient is a sum.
      if (&input - kernel.inputs.data() < 2) ++num_products;
    }
    for (const int slot : kernel.outputs) written += static_cast<double>(program.slots[slot].bytes());
    OpWork& work = result[kernel.op];
    add_part(work.forward, kernel, kernel.flops, read + written + kernel.extra_bytes);
    if (!flow.active[k] || gradients == 0) continue;
    const double flops = kernel.backward_flops > 0 ? kernel.backward_flops : kernel.flops * num_products;
    add_part(work.backward, kernel, flops, written + read + gradients + kernel.extra_bytes);
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
