#include "executor/network/collective_clock.h"

#include <utility>

namespace fsdp::executor {

class CollectiveClock::TimedPending final : public Pending {
 public:
  TimedPending(CollectiveClock& clock, std::unique_ptr<Pending> pending, std::size_t index)
      : clock_(clock), pending_(std::move(pending)), step_(clock.step_), index_(index) {}

  void wait() override {
    const Seconds from = clock_.now();
    pending_->wait();
    if (step_ != clock_.step_) return;
    clock_.times_[index_].waited_from = from;
    clock_.times_[index_].waited_to = clock_.now();
  }

 private:
  CollectiveClock& clock_;
  std::unique_ptr<Pending> pending_;
  int step_;
  std::size_t index_;
};

class CollectiveClock::TimedGroup final : public Group {
 public:
  TimedGroup(CollectiveClock& clock, std::unique_ptr<Group> group) : clock_(clock), group_(std::move(group)) {}

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }

  std::unique_ptr<Pending> all_gather(const at::Tensor& output, const at::Tensor& input) override {
    const Seconds called = clock_.now();
    return clock_.note(group_->all_gather(output, input), called);
  }
  std::unique_ptr<Pending> reduce_scatter(const at::Tensor& output, const at::Tensor& input, ReduceOp op) override {
    const Seconds called = clock_.now();
    return clock_.note(group_->reduce_scatter(output, input, op), called);
  }
  std::unique_ptr<Pending> all_reduce(const at::Tensor& tensor, ReduceOp op) override {
    const Seconds called = clock_.now();
    return clock_.note(group_->all_reduce(tensor, op), called);
  }

 private:
  CollectiveClock& clock_;
  std::unique_ptr<Group> group_;
};

void CollectiveClock::begin_step(Clock::time_point began) {
  began_ = began;
  ++step_;
  times_.clear();
}

std::unique_ptr<Group> CollectiveClock::timed(std::unique_ptr<Group> group) {
  if (group == nullptr) return nullptr;
  return std::make_unique<TimedGroup>(*this, std::move(group));
}

std::unique_ptr<Pending> CollectiveClock::note(std::unique_ptr<Pending> pending, Seconds called) {
  times_.push_back({.called = called});
  return std::make_unique<TimedPending>(*this, std::move(pending), times_.size() - 1);
}

}  // namespace fsdp::executor
