// A text occupies a slot of fixed size that starts with its length. The shard group gathers its slots, and then the
// group of replicas gathers those of each shard group: slot s of replica c belongs to rank c * shard + s. On CPU the
// bytes are in vectors, so that they are not counted among the tensors of the training.

#include "executor/training/agreement.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cstring>

namespace fsdp::executor {

namespace {

/// [slots of all ranks of the group], in `memory` on CPU.
at::Tensor gathered(Group& group, const at::Tensor& own, std::vector<char>& memory) {
  if (group.size() == 1) return own;
  const std::int64_t bytes = group.size() * own.numel();
  memory.resize(static_cast<std::size_t>(bytes));
  at::Tensor all = own.is_cpu() ? at::from_blob(memory.data(), {bytes}, c10::kByte) : at::empty({bytes}, own.options());
  group.all_gather(all, own)->wait();
  return all;
}

}  // namespace

// Every rank's shard group first: after all groups of replicas have passed, all ranks have come.
void Agreement::sync() {
  const at::Tensor flag = at::zeros({1}, at::TensorOptions().dtype(c10::kFloat).device(trainer_.device()));
  trainer_.shard_group().all_reduce(flag, ReduceOp::Sum)->wait();
  if (trainer_.replicate_group() != nullptr) trainer_.replicate_group()->all_reduce(flag, ReduceOp::Sum)->wait();
  static_cast<void>(flag.item<float>());  // On a GPU only this waits.
}

std::vector<std::string> Agreement::gather(const std::string& text) {
  const std::uint64_t length = std::min(text.size(), kMostBytes);
  constexpr std::int64_t slot = sizeof(length) + kMostBytes;
  std::vector<char> own(slot), of_shard_group, of_all;
  std::memcpy(own.data(), &length, sizeof(length));
  std::memcpy(own.data() + sizeof(length), text.data(), length);
  const at::Tensor written = at::from_blob(own.data(), {slot}, c10::kByte).to(trainer_.device());
  at::Tensor all = gathered(trainer_.shard_group(), written, of_shard_group);
  if (trainer_.replicate_group() != nullptr) all = gathered(*trainer_.replicate_group(), all, of_all);
  all = all.cpu();
  std::vector<std::string> texts;
  for (std::int64_t rank = 0; rank < world_size_; ++rank) {
    const char* at = static_cast<const char*>(all.const_data_ptr()) + rank * slot;
    std::uint64_t its_length = 0;
    std::memcpy(&its_length, at, sizeof(its_length));
    texts.emplace_back(at + sizeof(its_length), std::min<std::uint64_t>(its_length, kMostBytes));
  }
  return texts;
}

std::vector<double> Agreement::numbers(double own) {
  std::vector<double> all(static_cast<std::size_t>(world_size_));
  all[trainer_.rank()] = own;
  at::Tensor sums = at::from_blob(all.data(), {world_size_}, c10::kDouble).to(trainer_.device());
  trainer_.shard_group().all_reduce(sums, ReduceOp::Sum)->wait();
  if (trainer_.replicate_group() != nullptr) trainer_.replicate_group()->all_reduce(sums, ReduceOp::Sum)->wait();
  sums = sums.cpu();
  return {sums.const_data_ptr<double>(), sums.const_data_ptr<double>() + world_size_};
}

}  // namespace fsdp::executor
