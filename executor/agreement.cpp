#include "executor/agreement.h"

#include <ATen/ops/zeros.h>
#include <fmt/format.h>

namespace fsdp::executor {

// Every rank's shard group first: when all groups of copies have passed after that, all ranks have come.
void Agreement::sync() {
  const at::Tensor flag = at::zeros({1}, at::TensorOptions().dtype(c10::kFloat).device(trainer_.device()));
  trainer_.shard_group().all_reduce(flag, ReduceOp::Sum)->wait();
  if (trainer_.replicate_group() != nullptr) trainer_.replicate_group()->all_reduce(flag, ReduceOp::Sum)->wait();
  static_cast<void>(flag.item<float>());  // On a GPU only this waits.
}

void Agreement::put(const std::string& key, const std::string& bytes) {
  network_.put(key, bytes);
  own_.push_back(key);
}

void Agreement::forget_own() {
  for (const std::string& key : own_) network_.forget(key);
  own_.clear();
}

std::vector<std::string> Agreement::gather(const std::string& key, const std::string& text) {
  put(fmt::format("{}/{}", key, trainer_.rank()), text);
  sync();
  std::vector<std::string> texts;
  if (trainer_.rank() != 0) return texts;
  for (std::int64_t rank = 0; rank < world_size_; ++rank)
    texts.push_back(network_.get(fmt::format("{}/{}", key, rank)));
  return texts;
}

std::string Agreement::tell(const std::string& key, const std::string& text) {
  if (trainer_.rank() == 0) put(key, text);
  sync();
  return network_.get(key);
}

}  // namespace fsdp::executor
