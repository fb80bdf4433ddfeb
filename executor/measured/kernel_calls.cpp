// A call's memory is the highest sum of its thread's requests to PyTorch's allocator, less the bytes of its results.
// oneDNN uses that allocator, too. The memory depends on shapes, dtypes, strides and settings, never on values.
//
// The gradient for a convolution's backward counts as contiguous: PyTorch copies it first if it is not, and a
// prediction includes that copy.
//
// Source: aten/src/ATen/native/mkldnn/IDeepRegistration.cpp (its allocator), torch 2.11.
//
// Not modeled: a library that chooses another algorithm for a repeated call.

#include "executor/measured/kernel_calls.h"

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>
#include <torch/headeronly/version.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "executor/measured/function_listener.h"
#include "executor/memory/counting_allocator.h"
#include "executor/memory/tensors.h"

namespace fsdp::executor {

/// Its tensors have shapes and no memory.
struct NotedCall {
  c10::OperatorName name{"", ""};
  std::vector<c10::IValue> arguments;
};

namespace {

/// The places of the operands and the settings among the arguments.
struct KnownCall {
  const char* name;
  std::size_t first_operand = 0;
  std::size_t num_operands = 2;
  int settings = -1;  ///< Index of a convolution's stride, padding, dilation; three later the groups.
  bool has_gradients = false;
  int causal = -1;  ///< For attention, whose operands may come in any order.
};

constexpr std::array kKnownCalls = {
    KnownCall{"aten::mm"},
    KnownCall{"aten::addmm", 1},
    KnownCall{"aten::bmm"},
    KnownCall{"aten::convolution", 0, 2, 3},
    KnownCall{"aten::convolution_backward", 0, 3, 4, true},
    KnownCall{"aten::_scaled_dot_product_flash_attention_for_cpu", 0, 3, -1, false, 4},
    KnownCall{"aten::_scaled_dot_product_flash_attention_for_cpu_backward", 1, 3, -1, false, 7}};

KernelOperand operand_of(const c10::IValue& value) {
  const at::Tensor& tensor = value.toTensor();
  return {.sizes = tensor.sizes().vec(), .strides = tensor.strides().vec()};
}

KernelCall describe(const KnownCall& known, c10::ArrayRef<const c10::IValue> arguments) {
  KernelCall call;
  call.name = known.name + std::string("aten::").size();
  call.dtype = dtype_of(arguments[known.first_operand].toTensor().scalar_type());
  for (std::size_t i = 0; i < known.num_operands; ++i) {
    call.operands.push_back(operand_of(arguments[known.first_operand + i]));
  }
  if (known.causal >= 0) {
    for (KernelOperand& operand : call.operands) operand.strides.clear();
    call.settings = {{"causal", {arguments[known.causal].toBool() ? 1 : 0}}};
  }
  if (known.settings < 0) return call;
  const auto first = static_cast<std::size_t>(known.settings);
  call.settings = {{"stride", arguments[first].toIntVector()},
                   {"padding", arguments[first + 1].toIntVector()},
                   {"dilation", arguments[first + 2].toIntVector()},
                   {"groups", {arguments[first + 5].toInt()}}};
  if (!known.has_gradients) return call;
  call.operands.front().strides.clear();
  call.settings.push_back({"gradients", {}});
  const auto wanted = arguments[first + 6].toBoolList();
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    if (wanted[i]) call.settings.back().second.push_back(static_cast<std::int64_t>(i));
  }
  return call;
}

c10::IValue without_memory(const c10::IValue& value, bool in_order) {
  if (!value.isTensor() || !value.toTensor().defined()) return value;
  const at::Tensor& tensor = value.toTensor();
  const at::Tensor shape = at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(c10::kMeta));
  return in_order ? shape.contiguous() : shape;
}

c10::IValue with_memory(const c10::IValue& value) {
  if (!value.isTensor() || !value.toTensor().defined()) return value;
  const at::Tensor& tensor = value.toTensor();
  return at::empty_strided(tensor.sizes(), tensor.strides(), tensor.options().device(c10::kCPU)).zero_();
}

Bytes measure_call(const NotedCall& call) {
  std::vector<c10::IValue> stack;
  for (const c10::IValue& value : call.arguments) stack.push_back(with_memory(value));
  const c10::OperatorHandle found =
      c10::Dispatcher::singleton().findSchemaOrThrow(call.name.name.c_str(), call.name.overload_name.c_str());
  // The call consumes the operands, and they must not count as freed by it.
  const std::vector<c10::IValue> kept = stack;
  const ThreadPeak peak;
  found.callBoxed(&stack);
  return peak.highest() - peak.now();
}

std::string cpu_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("model name") && line.find(": ") != std::string::npos) return line.substr(line.find(": ") + 2);
  }
  return "unknown CPU";
}

// oneDNN's limit is part of the instruction set.
std::string machine() {
  std::string text = fmt::format("{}, {}", cpu_name(), at::get_cpu_capability());
  for (const char* name : {"ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"}) {
    if (const char* value = std::getenv(name)) text += fmt::format(", {}={}", name, value);
  }
  return fmt::format("{}, PyTorch {}", text, TORCH_VERSION);
}

}  // namespace

struct KernelCalls::Impl {
  void hear(const CalledFunction& called) {
    const auto known = std::find_if(kKnownCalls.begin(), kKnownCalls.end(),
                                    [&](const KnownCall& each) { return called.name == each.name; });
    if (known == kKnownCalls.end() || !called.operator_name) return;
    const KernelCall described = describe(*known, called.arguments);
    if (!takes_workspace(described)) return;
    auto [place, is_new] = noted.try_emplace(text_of(described));
    if (!is_new) return;
    place->second.name = *called.operator_name;
    for (const c10::IValue& value : called.arguments) {
      const bool is_gradient = known->has_gradients && place->second.arguments.empty();
      place->second.arguments.push_back(without_memory(value, is_gradient));
    }
  }

  std::map<std::string, NotedCall> noted;
  std::optional<FunctionListener> listener;
};

KernelCalls::KernelCalls() : impl_(std::make_unique<Impl>()) {}
KernelCalls::~KernelCalls() = default;

void KernelCalls::listen() {
  impl_->listener.emplace([impl = impl_.get()](const CalledFunction& called) { impl->hear(called); });
}

void KernelCalls::stop() {
  impl_->listener.reset();
}

KernelWorkspaces KernelCalls::measure(const std::vector<int>& threads) const {
  KernelWorkspaces found;
  found.measured_on = machine();
  const c10::AutoGradMode without_graph(false);
  const int before = at::get_num_threads();
  for (const int number : threads) {
    at::set_num_threads(number);
    for (const auto& [text, call] : impl_->noted) found.set(text, number, measure_call(call));
  }
  at::set_num_threads(before);
  return found;
}

std::vector<int> threads_of_ranks(int cores) {
  std::vector<int> numbers;
  for (int ranks = 1; ranks <= cores; ++ranks) {
    if (numbers.empty() || numbers.back() != cores / ranks) numbers.push_back(cores / ranks);
  }
  return numbers;
}

}  // namespace fsdp::executor
