#pragma once

#include <ATen/core/Tensor.h>

namespace fsdp::executor {

/// A number that a device computes. Reading it at once would make the host wait for the device. So the stream copies it
/// to the host, which reads it after the step.
class LaterNumber {
 public:
  LaterNumber() = default;
  explicit LaterNumber(const at::Tensor& scalar);

  /// REQUIRES: the stream that was current at its creation has passed it. Defaults to 0.
  double value() const;

 private:
  at::Tensor on_host_;  ///< On a GPU: pinned. On a CPU the number is read at once.
  double value_ = 0;
};

}  // namespace fsdp::executor
