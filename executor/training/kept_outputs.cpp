// A fallback for every function of PyTorch, under a dispatch key below autograd that nothing else uses, sees the calls
// of autograd's kernels. Views are never kept, because they would keep the whole tensor.
//
// PyTorch uses a Python mode for this. While there is a mode, composite attention adds its mask to a new tensor and not
// in place. So the list of modes has an entry here, too, which is never called.
//
// Sources: torch/utils/checkpoint.py (_CachingTorchDispatchMode, _CachedTorchDispatchMode),
// ATen/TensorSubclassLikeUtils.h, c10/core/impl/TorchDispatchModeTLS.cpp, torch 2.11.

#include "executor/training/kept_outputs.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/variable.h>
#include <torch/library.h>

#include <memory>
#include <utility>

namespace fsdp::executor {

namespace {

// The key of fake tensors from outside of PyTorch, of which there are none here.
constexpr c10::DispatchKey kBelowAutograd = c10::DispatchKey::Fake;

thread_local KeptOutputs* active = nullptr;

bool is_view(const c10::FunctionSchema& schema) {
  bool aliases = false;
  for (const c10::Argument& argument : schema.arguments()) {
    if (argument.alias_info() == nullptr) continue;
    if (argument.alias_info()->isWrite()) return false;
    aliases = true;
  }
  return aliases;
}

bool is_fused_attention(const std::string& function) {
  return function == "aten::_flash_attention_forward" || function == "aten::_scaled_dot_product_cudnn_attention" ||
         function == "aten::_scaled_dot_product_efficient_attention" ||
         function == "aten::_scaled_dot_product_flash_attention" ||
         function == "aten::_scaled_dot_product_flash_attention_for_cpu";
}

bool is_wanted(const c10::OperatorHandle& function) {
  switch (active->wanted()) {
    case KeptOutputs::Wanted::Nothing:
      return false;
    case KeptOutputs::Wanted::FusedAttention:
      return is_fused_attention(function.operator_name().name);
    case KeptOutputs::Wanted::Everything:
      break;
  }
  return !is_view(function.schema());
}

using c10::impl::TorchDispatchModeTLS;

void push_mode() {
  static const auto nobody = std::make_shared<c10::impl::PyObject_TorchDispatchMode>(nullptr, nullptr);
  TorchDispatchModeTLS::push_non_infra_mode_onto_stack(nobody);
  // Otherwise it would be called.
  c10::impl::tls_set_dispatch_key_included(c10::DispatchKey::Python, false);
  c10::impl::tls_set_dispatch_key_included(c10::DispatchKey::PythonTLSSnapshot, false);
}

/// A mode is inactive while it works.
class WithoutMode {
 public:
  WithoutMode() : is_on_(TorchDispatchModeTLS::any_modes_set()) {
    if (is_on_) TorchDispatchModeTLS::pop_stack();
  }
  ~WithoutMode() {
    if (is_on_) push_mode();
  }
  WithoutMode(const WithoutMode&) = delete;
  WithoutMode& operator=(const WithoutMode&) = delete;

 private:
  bool is_on_;
};

void keep_or_give(const c10::OperatorHandle& function, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::impl::ExcludeDispatchKeyGuard once(kBelowAutograd);
  const WithoutMode without_mode;
  const c10::DispatchKeySet below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kBelowAutograd);
  if (!is_wanted(function)) return function.redispatchBoxed(below, stack);
  const std::string name = c10::toString(function.operator_name());
  if (active->is_giving()) {
    torch::jit::drop(*stack, function.schema().arguments().size());
    for (c10::IValue& output : active->give(name)) stack->push_back(std::move(output));
    return;
  }
  function.redispatchBoxed(below, stack);
  active->keep(name, torch::jit::last(*stack, function.schema().returns().size()).vec());
}

TORCH_LIBRARY_IMPL(_, Fake, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&keep_or_give>());
}

// A second tensor with the same memory and versions: autograd will write into the returned one.
at::Tensor another(const at::Tensor& tensor) {
  at::Tensor same = tensor.variable_data();
  torch::autograd::impl::set_version_counter(same, torch::autograd::impl::version_counter(tensor));
  return same;
}

}  // namespace

KeptOutputs::Scope::Scope(KeptOutputs* kept) : before_(std::exchange(active, kept)) {
  if (kept != nullptr) sees_calls_.emplace(kBelowAutograd);
}

KeptOutputs::Scope::~Scope() {
  active = before_;
}

KeptOutputs::Mode::Mode(bool is_on) : is_on_(is_on) {
  if (is_on) push_mode();
}

KeptOutputs::Mode::~Mode() {
  if (is_on_) TorchDispatchModeTLS::pop_stack();
}

void KeptOutputs::keep(const std::string& function, const std::vector<c10::IValue>& outputs) {
  std::vector<Output>& kept = kept_[function].emplace_back();
  for (const c10::IValue& output : outputs) {
    if (output.isTensor() && output.toTensor().defined()) {
      kept.push_back({another(output.toTensor()), static_cast<std::uint32_t>(output.toTensor()._version())});
    } else {
      kept.push_back({output, 0});
    }
  }
}

std::vector<c10::IValue> KeptOutputs::give(const std::string& function) {
  std::deque<std::vector<Output>>& calls = kept_[function];
  TORCH_CHECK(!calls.empty(), "No output was saved of this call of ", function);
  const std::vector<Output> kept = std::move(calls.front());
  calls.pop_front();
  std::vector<c10::IValue> outputs;
  for (const Output& output : kept) {
    const bool is_tensor = output.value.isTensor() && output.value.toTensor().defined();
    TORCH_CHECK(!is_tensor || output.value.toTensor()._version() == output.version,
                "The output that selective checkpointing saved of ", function,
                " has been changed in place. Leave its op out of selective_keep.");
    outputs.push_back(output.value);
  }
  return outputs;
}

}  // namespace fsdp::executor
