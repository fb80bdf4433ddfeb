#include "executor/measured/loss_inputs.h"

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/record_function.h>
#include <fmt/format.h>

#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "core/formats/safetensors.h"
#include "executor/memory/tensors.h"

namespace fsdp::executor {

struct LossInputs::Impl {
  std::mutex mutex;
  std::vector<at::Tensor> logits;
  std::optional<at::CallbackHandle> handle;

  static inline Impl* listening = nullptr;  // PyTorch's callback is a plain function.

  static std::unique_ptr<at::ObserverContext> hear(const at::RecordFunction& call) {
    if (listening == nullptr || std::string_view(call.name()) != "aten::cross_entropy_loss") return nullptr;
    const at::Tensor copy = call.inputs()[0].toTensor().detach().cpu().clone();
    const std::lock_guard lock(listening->mutex);
    listening->logits.push_back(copy);
    return nullptr;
  }
};

LossInputs::LossInputs() : impl_(std::make_unique<Impl>()) {}
LossInputs::~LossInputs() {
  stop();
}

void LossInputs::listen() {
  Impl::listening = impl_.get();
  impl_->handle = at::addGlobalCallback(
      at::RecordFunctionCallback(&Impl::hear).needsInputs(true).scopes({at::RecordScope::FUNCTION}));
}

void LossInputs::stop() {
  if (!impl_->handle) return;
  at::removeCallback(*impl_->handle);
  impl_->handle.reset();
  Impl::listening = nullptr;
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
