#include "executor/kernels/kernels.h"

#include <algorithm>
#include <array>

#include "executor/kernels/kernel_families.h"
#include "executor/memory/tensors.h"

namespace fsdp::executor {

namespace {

// In the order of the enum. Recorded ops have no kernel: only their script can run them, and an earlier check refuses
// them. So have layers of bitsandbytes, Liger and NeMo
// Automodel, whose kernels are on GPUs.
constexpr std::array<Kernel, kNumRuledOpKinds> kKernels = {
    kernels::linear,
    kernels::embedding,
    kernels::conv1d,
    kernels::conv2d,
    kernels::parameter,
    nullptr,
    kernels::rms_norm,
    kernels::layer_norm,
    kernels::group_norm,
    kernels::batch_norm,
    kernels::rotary_table,
    kernels::rotary,
    kernels::attention,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
    kernels::silu,
    kernels::gelu,
    kernels::relu,
    kernels::sigmoid,
    kernels::tanh,
    kernels::mul,
    kernels::add,
    kernels::sub,
    kernels::scale,
    kernels::softcap,
    nullptr,
    nullptr,
    kernels::dropout,
    kernels::cast,
    kernels::detach,
    kernels::reshape,
    kernels::transpose,
    kernels::slice,
    kernels::select,
    kernels::expand,
    kernels::split,
    kernels::contiguous,
    kernels::cat,
    kernels::stack,
    kernels::set_slice,
    kernels::kv_cache,
    kernels::index,
    kernels::pad,
    kernels::softmax,
    kernels::mean,
    kernels::sum,
    kernels::std_deviation,
    kernels::max_pool2d,
    kernels::adaptive_avg_pool2d,
    kernels::router,
    kernels::experts,
    kernels::grouped_experts,
    kernels::dense_experts,
    kernels::cross_entropy,
    kernels::linear_cross_entropy,
    kernels::mse_loss,
    kernels::constant,
};

static_assert(kKernels.back() != nullptr, "every kind of op has its kernel");

}  // namespace

c10::ScalarType OpRun::dtype_or_activation() const {
  return attributes().dtype ? scalar_type(*attributes().dtype) : context.activation;
}

const std::string& OpRun::module_name() const {
  const int module = call.modules[op.module];
  return model.modules[std::max(module, 0)].name;
}

Kernel kernel_of(OpKind kind) {
  return kKernels[static_cast<std::size_t>(kind)];
}

Tensors run_op(const OpRun& run) {
  return kernel_of(run.op.kind)(run);
}

}  // namespace fsdp::executor
