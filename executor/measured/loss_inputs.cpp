#include "executor/measured/loss_inputs.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <mutex>
#include <optional>
#include <vector>

#include "core/formats/safetensors.h"
#include "executor/measured/function_listener.h"
#include "executor/memory/tensors.h"

namespace fsdp::executor {

struct LossInputs::Impl {
  void hear(const CalledFunction& called) {
    if (called.name != "aten::cross_entropy_loss") return;
    const at::Tensor copy = called.arguments[0].toTensor().detach().cpu().clone();
    const std::lock_guard lock(mutex);
    logits.push_back(copy);
  }

  std::mutex mutex;
  std::vector<at::Tensor> logits;
  std::optional<FunctionListener> listener;
};

LossInputs::LossInputs() : impl_(std::make_unique<Impl>()) {}
LossInputs::~LossInputs() = default;

void LossInputs::listen() {
  impl_->listener.emplace([impl = impl_.get()](const CalledFunction& called) { impl->hear(called); });
}

void LossInputs::stop() {
  impl_->listener.reset();
}

std::string LossInputs::text() const {
  std::vector<SafetensorsEntry> entries;
  for (std::size_t i = 0; i < impl_->logits.size(); ++i) {
    const at::Tensor& logits = impl_->logits[i];
    SafetensorsEntry& entry = entries.emplace_back();
    entry.name = fmt::format("loss.{}", i);
    entry.dtype = dtype_of(logits.scalar_type());
    entry.shape.assign(logits.sizes().begin(), logits.sizes().end());
  }
  std::string text = safetensors_header_text(entries);
  for (const at::Tensor& logits : impl_->logits) {
    text.append(static_cast<const char*>(logits.const_data_ptr()), logits.nbytes());
  }
  return text;
}

}  // namespace fsdp::executor
