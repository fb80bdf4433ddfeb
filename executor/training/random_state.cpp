#include "executor/training/random_state.h"

#include <ATen/Context.h>
#include <ATen/ops/empty.h>

#include <cstring>
#include <mutex>

namespace fsdp::executor {

std::string random_state(c10::Device device) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const std::lock_guard<std::mutex> lock(generator.mutex());
  const at::Tensor state = generator.get_state();
  return {static_cast<const char*>(state.const_data_ptr()), state.nbytes()};
}

void set_random_state(c10::Device device, const std::string& state) {
  at::Generator generator = at::globalContext().defaultGenerator(device);
  const at::Tensor bytes = at::empty({std::ssize(state)}, c10::kByte);
  std::memcpy(bytes.mutable_data_ptr(), state.data(), state.size());
  const std::lock_guard<std::mutex> lock(generator.mutex());
  generator.set_state(bytes);
}

}  // namespace fsdp::executor
