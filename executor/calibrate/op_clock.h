#pragma once

// Times each op of a step, forward and backward, without changing how the step runs.

#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/units.h"
#include "executor/calibrate/marks.h"
#include "executor/measured/function_listener.h"
#include "executor/training/model_run.h"

namespace fsdp::executor {

/// One run of an op.
struct OpSample {
  int call = 0;
  int op = 0;
  Seconds forward{0};
  Seconds backward{0};
  bool has_backward = false;  ///< A node of autograd ran for it.
};

class OpClock final : public OpListener {
 public:
  explicit OpClock(c10::Device device);

  /// The ops that ran since the last call, in forward order; waits for the device.
  std::vector<OpSample> take();

  void op_begins() override;
  void op_ended(int call, int op) override;
  void backward_begins() override;
  void backward_ended() override;

 private:
  struct Ran {
    int call = 0;
    int op = 0;
    std::size_t begin = 0, end = 0;  ///< Marks.
    std::int64_t first_node = 0, end_node = 0;
  };
  struct Node {
    std::int64_t number = 0;
    std::size_t begin = 0, end = 0;  ///< Marks: of the previous node, or of the backward's start, and its own.
  };

  Marks marks_;
  std::vector<Ran> ran_;  ///< Sorted by node.
  std::vector<Node> nodes_;
  std::size_t last_mark_ = 0;  ///< In a backward.
  bool is_in_backward_ = false;
  std::unique_ptr<NodeListener> listener_;
};

}  // namespace fsdp::executor
