#pragma once

#include <ATen/core/Tensor.h>

namespace fsdp::executor {

/// A number that a device computes. Asking for it would make the host wait until the device has come there; so it is
/// sent to the host in the order of the stream, and read when the step has ended.
class LaterNumber {
 public:
  LaterNumber() = default;
  explicit LaterNumber(const at::Tensor& scalar);

  /// REQUIRES: the stream that was current when it was made has come past it. 0 where none was given.
  double value() const;

 private:
  at::Tensor on_host_;  ///< On a GPU: pinned. On a CPU the number is read at once.
  double value_ = 0;
};

}  // namespace fsdp::executor
