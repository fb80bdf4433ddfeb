// An op's forward lies between two marks. Autograd numbers its nodes as they are made, so an op's nodes have the
// numbers between its start and its end. After each of them has run in the backward, the time since the previous node
// is the op's. Autograd's work between nodes (adding gradients, freeing tensors) belongs to the next node.
//
// Not modeled: nodes of two ops that a device runs at once.

#include "executor/calibrate/op_clock.h"

#include <algorithm>
#include <utility>

namespace fsdp::executor {

OpClock::OpClock(c10::Device device)
    : marks_(device), listener_(std::make_unique<NodeListener>([this](std::int64_t number) {
        if (!is_in_backward_) return;
        const std::size_t now = marks_.mark();
        nodes_.push_back({number, std::exchange(last_mark_, now), now});
      })) {}

void OpClock::op_begins() {
  ran_.push_back({.begin = marks_.mark(), .first_node = next_node()});
}

void OpClock::op_ended(int call, int op) {
  Ran& ran = ran_.back();
  ran.call = call;
  ran.op = op;
  ran.end = marks_.mark();
  ran.end_node = next_node();
}

void OpClock::backward_begins() {
  last_mark_ = marks_.mark();
  is_in_backward_ = true;
}

void OpClock::backward_ended() {
  is_in_backward_ = false;
}

std::vector<OpSample> OpClock::take() {
  marks_.wait();
  std::vector<OpSample> samples;
  for (const Ran& ran : ran_)
    samples.push_back({.call = ran.call, .op = ran.op, .forward = marks_.between(ran.begin, ran.end)});
  for (const Node& node : nodes_) {
    const auto after = std::upper_bound(ran_.begin(), ran_.end(), node.number,
                                        [](std::int64_t number, const Ran& ran) { return number < ran.first_node; });
    if (after == ran_.begin()) continue;
    // Ops without nodes begin at the same place as the next op.
    auto of = after - 1;
    while (of != ran_.begin() && node.number >= of->end_node) --of;
    if (node.number < of->first_node || node.number >= of->end_node) continue;
    OpSample& sample = samples[static_cast<std::size_t>(of - ran_.begin())];
    sample.backward += marks_.between(node.begin, node.end);
    sample.has_backward = true;
  }
  ran_.clear();
  nodes_.clear();
  marks_.clear();
  return samples;
}

}  // namespace fsdp::executor
