#include <utility>

#include "executor/network/collectives.h"

namespace fsdp::executor {

namespace {

class Done final : public Pending {
 public:
  void wait() override {}
};

class StandInGroup final : public Group {
 public:
  StandInGroup(int rank, int size) : rank_(rank), size_(size) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }

  std::unique_ptr<Pending> all_gather(const at::Tensor& output, const at::Tensor& input) override {
    const at::Tensor slots = output.view({size_, -1});
    for (int i = 0; i < size_; ++i) {
      if (slots.select(0, i).data_ptr() != input.data_ptr()) slots.select(0, i).copy_(input);
    }
    return std::make_unique<Done>();
  }

  std::unique_ptr<Pending> reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) override {
    output.copy_(input.view({size_, -1}).select(0, rank_));
    if (op == ReduceOp::Sum) output.mul_(size_);
    return std::make_unique<Done>();
  }

  std::unique_ptr<Pending> all_reduce(const at::Tensor& tensor, ReduceOp op) override {
    if (op == ReduceOp::Sum) tensor.mul_(size_);
    return std::make_unique<Done>();
  }

 private:
  int rank_;
  int size_;
};

}  // namespace

std::unique_ptr<Group> stand_in_group(int rank, int size) {
  return std::make_unique<StandInGroup>(rank, size);
}

}  // namespace fsdp::executor
