// Linear layers of torchao's Float8Linear: a Python Function (matmul_with_hp_or_float8_args) around products of 8-bit
// floats, and after it the sum with a bias.
//
// The Function saves the input and the weight as they are. Forward and backward cast what they multiply:
//
//   a cast of n numbers      |x|, its maximum (of a transposed weight's copy if one scale holds for all of it), six to
//                            nine tensors of the scales' size, x in fp32 (4 n), that times the scale (4 n), the product
//                            clamped (4 n), and the result (n): at most 9 n at once
//   forward                  casts of input and weight, the product
//   gradient of the input    casts of the output's gradient and of the weight, which a product reads in column-major
//                            order and so copies (n)
//   gradient of the weight   both operands are cast again, for scales of rows along the other dimension, and copied; or
//                            one product in the dtype of the activations (rowwise_with_gw_hp)
//
// The results of all casts of a backward live until it returns. Rows have scales in the product of the forward; the
// backward multiplies without fast accumulation, by cuBLASLt with scales of 1, and then by both scales, whose
// product over all elements is a tensor in fp32. In fp32 the product by rows is bfloat16, and cast.
//
// Weights that FSDP2 gathers in 8 bits need no cast.
//
// Sources: torchao 0.18.0, float8/float8_linear.py, float8_scaling_utils.py, float8_utils.py (tensor_to_amax,
// amax_to_scale, to_fp8_saturated), float8_training_tensor.py (_ToFloat8ConstrFunc), float8_ops.py (preprocess_addmm,
// addmm_float8_unwrapped); torch/_tensor.py (__rtruediv__), aten/src/ATen/native/cuda/ScaledBlas.cpp,
// native/ReduceAllOps.cpp (max), torch 2.11.
//
// Not modeled: torch.compile, which fuses a cast into two kernels without the tensors between; sizes that 16 does not
// divide (pad_inner_dim); emulation; parts of sums of the kernel for rows on compute capability 8.9, 14 MiB of a
// Qwen3-0.6B on L40S.

#include <fmt/format.h>

#include "simulator/ops/kernel_writer.h"
#include "simulator/ops/reduction_scratch.h"

namespace fsdp::simulator {

namespace {

constexpr std::int64_t kSingle = 4;
constexpr std::int64_t kDouble = 8;

/// A tensor that is cast.
struct CastTensor {
  std::int64_t elements = 0;
  Dtype dtype = Dtype::BFloat16;
  std::int64_t scales = 1;        ///< 1 if one holds for all of it.
  bool is_contiguous = true;      ///< Otherwise transposed.
  bool runs_along_memory = true;  ///< The numbers of a scale are neighbors.
  bool is_rounded = false;        ///< Scales are powers of two.
};

std::vector<std::int64_t> scratch_of_maximum(const KernelWriter& w, const CastTensor& x) {
  const LaunchLimits limits = launch_limits(w.context().num_sms, w.context().compute_capability);
  std::vector<std::int64_t> scratch;
  if (x.scales == 1 && !x.is_contiguous) scratch.push_back(x.elements * size_of(x.dtype).count());
  const auto of_blocks =
      reduction_scratch(x.scales, x.elements / x.scales, x.runs_along_memory, limits, size_of(x.dtype).count());
  scratch.insert(scratch.end(), of_blocks.begin(), of_blocks.end());
  return scratch;
}

/// Traffic of a cast: reads and writes of |x|, of x in fp32, of its product and of the clamped product.
double bytes_of_cast(const CastTensor& x) {
  const auto n = static_cast<double>(x.elements);
  const auto item = static_cast<double>(size_of(x.dtype).count());
  const double widened = x.dtype == Dtype::Float32 ? 0 : item + 4;
  return n * (3 * item + widened + 8 + 8 + 5);
}

/// Kernels of a cast.
int launches_of_cast(const CastTensor& x) {
  return 2 + 5 + (x.is_rounded ? 3 : 0) + (x.dtype == Dtype::Float32 ? 3 : 4);
}

/// A tensor of the forward in 8 bits, and its scales.
struct CastSlots {
  int numbers = -1;
  int scales = -1;
};

/// The casts of the forward, each call a kernel.
class ForwardCasts {
 public:
  explicit ForwardCasts(KernelWriter& w) : w_(w) {}

  CastSlots cast(int x, const CastTensor& t) {
    const int magnitudes = call(x, t.elements, t.dtype);
    const int maximum = call(magnitudes, t.scales, t.dtype);
    w_.last_kernel().forward_temps = scratch_of_maximum(w_, t);
    const int scales = scales_of(maximum, t);
    const int widened = t.dtype == Dtype::Float32 ? x : call(x, t.elements, Dtype::Float32);
    const int scaled = call(widened, t.elements, Dtype::Float32);
    const int clamped = call(scaled, t.elements, Dtype::Float32);
    const int numbers = call(clamped, t.elements, Dtype::Int8);
    w_.last_kernel().holds = {scaled};
    return {numbers, scales};
  }

 private:
  int call(int x, std::int64_t elements, Dtype dtype) {
    const int y = w_.make(elements, dtype, false);
    w_.add(KernelKind::Elementwise, {{x, GradRule::None}}, {y});
    return y;
  }

  int scales_of(int maximum, const CastTensor& t) {
    const int wide = call(maximum, t.scales, Dtype::Float64);
    const int clamped = call(wide, t.scales, Dtype::Float64);
    const int inverse = call(clamped, t.scales, Dtype::Float64);
    const int quotient = call(inverse, t.scales, Dtype::Float64);
    w_.last_kernel().holds = {clamped};
    const int narrow = call(quotient, t.scales, Dtype::Float32);
    if (!t.is_rounded) {
      w_.last_kernel().holds = {wide, maximum};
      return narrow;
    }
    const int logarithm = call(narrow, t.scales, Dtype::Float32);
    const int floor = call(logarithm, t.scales, Dtype::Float32);
    const int power = call(floor, t.scales, Dtype::Float32);
    w_.last_kernel().holds = {narrow, wide, maximum};
    return power;
  }

  KernelWriter& w_;
};

/// Writes the steps of a backward.
class BackwardScript {
 public:
  BackwardScript(KernelWriter& w, std::vector<BackwardStep>& steps) : w_(w), steps_(steps) {}

  int make(std::int64_t bytes) {
    steps_.push_back({BackwardStep::Kind::Make, next_, bytes});
    return next_++;
  }
  void drop(int made) { steps_.push_back({BackwardStep::Kind::Drop, made, 0}); }
  void gradient(int input) { steps_.push_back({BackwardStep::Kind::Gradient, input, 0}); }
  void workspace(int which) { steps_.push_back({BackwardStep::Kind::Workspace, which, 0}); }

  /// Leaves the scales and the result, in this order.
  void cast(const CastTensor& t) {
    const std::int64_t item = size_of(t.dtype).count();
    const int magnitudes = make(t.elements * item);
    const int maximum = make(t.scales * item);
    std::vector<int> scratch;
    for (const std::int64_t bytes : scratch_of_maximum(w_, t)) scratch.push_back(make(bytes));
    for (auto i = scratch.rbegin(); i != scratch.rend(); ++i) drop(*i);
    drop(magnitudes);
    scales(t, maximum);
    const int widened = t.dtype == Dtype::Float32 ? -1 : make(t.elements * kSingle);
    const int scaled = make(t.elements * kSingle);
    if (widened >= 0) drop(widened);
    const int clamped = make(t.elements * kSingle);
    make(t.elements);
    drop(clamped);
    drop(scaled);
    bytes_ += bytes_of_cast(t);
    launches_ += launches_of_cast(t);
  }

  /// A product whose result is the gradient of `input`. `copies`: bytes of operands that are copied. `repeated`: scales
  /// of a whole tensor that are repeated for the rows. `rows` and `columns`: of the result.
  void product(int input, const std::vector<std::int64_t>& copies, std::int64_t repeated, std::int64_t left_scales,
               std::int64_t right_scales, std::int64_t rows, std::int64_t columns, bool casts_result) {
    std::vector<int> made;
    for (const std::int64_t bytes : copies) {
      made.push_back(make(bytes));
      bytes_ += 2.0 * static_cast<double>(bytes);
      ++launches_;
    }
    if (repeated > 0) made.push_back(make(repeated * kSingle));
    const int left = make(left_scales * kSingle);
    const int right = make(right_scales * kSingle);
    const bool is_by_rows = left_scales > 1;
    int both = -1;
    int left_one = left;
    int right_one = right;
    if (is_by_rows) {
      both = make(rows * columns * kSingle);
      left_one = make(kSingle);
      drop(left);
      right_one = make(kSingle);
      drop(right);
      bytes_ += static_cast<double>(rows * columns) * (2 * kSingle + 4);
      launches_ += 4;
    }
    const int narrow = casts_result ? make(rows * columns * size_of(Dtype::BFloat16).count()) : -1;
    if (!casts_result) gradient(input);
    workspace(1);
    if (casts_result) {
      gradient(input);
      drop(narrow);
    }
    drop(left_one);
    drop(right_one);
    if (both >= 0) drop(both);
    for (const int copy : made) drop(copy);
    launches_ += 3;
  }

  double bytes() const { return bytes_; }
  int launches() const { return launches_; }

 private:
  void scales(const CastTensor& t, int maximum) {
    const int wide = make(t.scales * kDouble);
    const int clamped = make(t.scales * kDouble);
    const int inverse = make(t.scales * kDouble);
    const int quotient = make(t.scales * kDouble);
    drop(inverse);
    drop(clamped);
    const int narrow = make(t.scales * kSingle);
    drop(quotient);
    if (t.is_rounded) {
      const int logarithm = make(t.scales * kSingle);
      const int floor = make(t.scales * kSingle);
      drop(logarithm);
      make(t.scales * kSingle);
      drop(floor);
      drop(narrow);
    }
    drop(wide);
    drop(maximum);
  }

  KernelWriter& w_;
  std::vector<BackwardStep>& steps_;
  int next_ = 0;
  double bytes_ = 0;
  int launches_ = 0;
};

/// Sizes of a layer [rows, in] x [in, out].
struct Float8Sizes {
  std::int64_t rows = 0;
  std::int64_t in = 0;
  std::int64_t out = 0;
  Dtype dtype = Dtype::BFloat16;
  Float8Recipe recipe = Float8Recipe::Tensorwise;
  bool is_gathered = false;

  bool is_by_rows() const { return recipe != Float8Recipe::Tensorwise; }
  std::int64_t scales(std::int64_t rows_of_it) const { return is_by_rows() ? rows_of_it : 1; }
  CastTensor input() const {
    return {.elements = rows * in, .dtype = dtype, .scales = scales(rows), .is_rounded = is_by_rows()};
  }
  /// W^T, with a scale for each column of it.
  CastTensor weight() const {
    return {.elements = in * out,
            .dtype = dtype,
            .scales = scales(out),
            .is_contiguous = false,
            .is_rounded = is_by_rows()};
  }
};

// TORCH_CHECK of _scaled_mm. The rows are the inner dimension of the product that makes the weight's gradient.
void refuse_float8(KernelWriter& w, const Float8Sizes& s) {
  constexpr int kAda = 89;
  const int capability = w.context().compute_capability;
  if (capability < kAda) {
    w.refuse({"--fp8",
              capability == 0
                  ? std::string("Float8 layers of torchao run on GPUs alone.")
                  : fmt::format("torch._scaled_mm is only supported on CUDA devices with compute capability "
                                ">= 9.0 or 8.9, and this GPU has {}.{}.",
                                capability / 10, capability % 10),
              "Plan without --fp8, or for a GPU such as H100 or L40S."});
    return;
  }
  if (s.is_by_rows() && capability == kAda) {
    w.refuse(
        {"--fp8",
         "Rows have scales in a kernel of CUTLASS on compute capability 8.9, whose parts of sums are not predicted.",
         "Write --fp8 tensorwise, or plan for a GPU such as H100."});
  }
  if (s.recipe != Float8Recipe::RowwiseWithGwHp && s.rows % 16 != 0) {
    w.refuse(
        {"--fp8",
         fmt::format("{} tokens of a micro-batch are not divisible by 16, and torch._scaled_mm refuses the product "
                     "that makes a weight's gradient.",
                     s.rows),
         "Take a batch and sequence whose product 16 divides."});
  }
}

void write_backward(KernelWriter& w, const Float8Sizes& s, Kernel& kernel) {
  BackwardScript script(w, kernel.backward_steps);
  const bool is_cast = s.is_by_rows() && s.dtype == Dtype::Float32;
  const CastTensor gradient{
      .elements = s.rows * s.out, .dtype = s.dtype, .scales = s.scales(s.rows), .is_rounded = s.is_by_rows()};
  script.cast(gradient);
  const bool has_one_scale = s.recipe == Float8Recipe::RowwiseWithGwHp;  // The weight, here.
  CastTensor weight = s.weight();
  weight.scales = has_one_scale ? 1 : s.scales(s.in);
  weight.runs_along_memory = weight.scales == 1;
  if (!s.is_gathered) script.cast(weight);
  script.product(0, {s.in * s.out}, has_one_scale ? s.in : 0, s.scales(s.rows), s.scales(s.in), s.rows, s.in, is_cast);
  const double product = 2.0 * static_cast<double>(s.rows) * static_cast<double>(s.in) * static_cast<double>(s.out);
  kernel.float8_flops = product;
  kernel.backward_float8_flops = product;
  if (has_one_scale) {
    script.gradient(1);
    script.workspace(0);
    kernel.backward_flops = product;
  } else {
    CastTensor turned = gradient;
    turned.scales = s.scales(s.out);
    turned.runs_along_memory = turned.scales == 1;
    script.cast(turned);
    CastTensor input = s.input();
    input.scales = s.scales(s.in);
    input.runs_along_memory = input.scales == 1;
    script.cast(input);
    script.product(1, {s.rows * s.out, s.rows * s.in}, 0, s.scales(s.out), s.scales(s.in), s.out, s.in, is_cast);
    kernel.backward_float8_flops += product;
  }
  kernel.backward_bytes = script.bytes();
  kernel.backward_launches = script.launches();
}

}  // namespace

void write_float8_linear(KernelWriter& w) {
  const int x = w.input(0);
  const int weight = w.parameter(0);
  Float8Sizes s{.in = w.input_shape(0).back(),
                .dtype = w.activation(),
                .recipe = *w.op().attributes.float8,
                .is_gathered = w.op().attributes.gathered_in_float8};
  s.out = w.output_shape(0).back();
  s.rows = w.elements(x) / s.in;
  refuse_float8(w, s);
  ForwardCasts casts(w);
  CastTensor input = s.input();
  input.is_contiguous = w.slot(x).strides.empty();
  const CastSlots x8 = casts.cast(x, input);
  CastSlots w8;
  if (!s.is_gathered) w8 = casts.cast(weight, s.weight());
  const int x_inverse = w.make(s.scales(s.rows), Dtype::Float32, false);
  w.add(KernelKind::Elementwise, {{x8.scales, GradRule::None}}, {x_inverse});
  const int w_inverse = w.make(s.scales(s.out), Dtype::Float32, false);
  w.add(KernelKind::Elementwise, {{s.is_gathered ? x8.scales : w8.scales, GradRule::None}}, {w_inverse});
  const bool is_cast = s.is_by_rows() && s.dtype == Dtype::Float32;
  std::vector<int> locals = {x_inverse, w_inverse};
  std::vector<int> made = {x8.numbers, x8.scales};
  if (!s.is_gathered) made.insert(made.begin(), {w8.numbers, w8.scales});
  if (is_cast) {
    const int narrow = w.make(s.rows * s.out, Dtype::BFloat16, false);
    w.add(KernelKind::Elementwise, {{x8.numbers, GradRule::None}}, {narrow});
    locals.insert(locals.begin(), narrow);
  }
  const int y = w.make(s.rows * s.out, s.dtype);
  // Rows have scales in cuBLASLt on Hopper, and on Blackwell in a kernel of CUTLASS that takes no workspace.
  const bool is_of_cublas = !s.is_by_rows() || w.context().compute_capability / 10 == 9;
  Kernel& kernel = w.add(is_of_cublas ? KernelKind::GemmLt : KernelKind::Elementwise,
                         {{x, GradRule::Fresh}, {weight, GradRule::FreshView}}, {y});
  kernel.saved = {{x}, {weight}};
  kernel.saves_when_done = true;
  kernel.order = {GradientOrder::Kind::Unrolled, {}, w.output_shape(0)};
  kernel.holds = std::move(locals);
  kernel.holds.insert(kernel.holds.end(), made.begin(), made.end());
  write_backward(w, s, kernel);
  w.set_output(0, w.has_parameter(1) ? w.sum_of(y, w.parameter(1), true) : y);
}

}  // namespace fsdp::simulator
