// NeMo Automodel's adapters: y + scale * (x a^T) b^T for N rows, a of rank r, in one autograd Function.
//
// The forward adds y to the product, in place, and keeps x and both weights. The backward makes the gradient of x and
// the products of N rows and r, from which the weights' gradients follow:
//
//   dx, 2 N r, the gradient of a, 2 N r, the gradient of b
//
// The gradient of y is that of the result. The first call of each kernel with other sizes has Triton measure which of
// its variants is the fastest, with a buffer of 256 MiB.
//
// Sources: nemo_automodel 0.7.0, components/_peft/lora.py (LoRATritonFunction, apply_memory_efficient_lora) and
// lora_kernel.py; triton 3.6, runtime/autotuner.py and testing.py (do_bench). Not modeled: the same without Triton,
// which makes the gradient of x last.

#include <initializer_list>

#include "simulator/ops/kernel_writer.h"

namespace fsdp::simulator {

namespace {

// The sizes by which triton.autotune tells calls of a kernel apart, as a number.
int benchmark_of(int kernel, std::initializer_list<std::int64_t> sizes) {
  std::uint64_t number = static_cast<std::uint64_t>(kernel);
  for (const std::int64_t size : sizes) number = (number ^ static_cast<std::uint64_t>(size)) * 1099511628211U;
  return static_cast<int>(number >> 33U);
}

}  // namespace

void write_low_rank_op(KernelWriter& w) {
  if (w.context().is_cpu() || w.is_autocast()) {
    w.refuse({"--lora", "NeMo Automodel's adapters are written in Triton, and predicted in the weights' own dtype.",
              "Plan for a GPU and --precision bf16, or with --flavor transformers."});
  }
  const int y = w.input(0);
  const int x = w.input(1);
  const std::int64_t inner = w.input_shape(1).back();
  const std::int64_t rows = w.elements(x) / inner;
  const std::int64_t rank = w.parameter_shape(0).front();
  const std::int64_t between = rows * rank * size_of(w.slot(x).dtype).count();
  const int sum = w.make(w.elements(y), w.slot(y).dtype);
  const GradRule of_x = w.input_shape(1).size() > 2 ? GradRule::FreshView : GradRule::Fresh;
  Kernel& kernel = w.add(
      KernelKind::Gemm,
      {{x, of_x}, {w.parameter(0), GradRule::Fresh}, {w.parameter(1), GradRule::Fresh}, {y, GradRule::Alias}}, {sum});
  const std::int64_t outer = w.output_shape(0).back();
  kernel.benchmark = benchmark_of(1, {rank, inner, outer});
  kernel.inputs[0].benchmark = benchmark_of(2, {rank, outer, inner});
  kernel.inputs[1].benchmark = benchmark_of(3, {rank, inner});
  kernel.saved = {{x, -1}, {w.parameter(0), -1}, {w.parameter(1), -1}};
  kernel.saves_when_done = true;
  kernel.backward_temps = {{between, TempLife::Whole}, {between, TempLife::Late}};
  const auto columns = static_cast<double>(outer);
  kernel.flops = 2.0 * static_cast<double>(rows * rank) * (static_cast<double>(inner) + columns);
  kernel.backward_flops = 3.0 * kernel.flops;
  kernel.backward_launches = 4;
  // The sum reads the frozen layer's result, and writes its own again.
  kernel.extra_bytes = 2.0 * static_cast<double>(w.bytes(y));
  w.set_output(0, sum);
}

}  // namespace fsdp::simulator
