#include "executor/training/later_number.h"

#include <ATen/ops/empty.h>

namespace fsdp::executor {

LaterNumber::LaterNumber(const at::Tensor& scalar) {
  if (scalar.is_cpu()) {
    value_ = scalar.item<double>();
    return;
  }
  on_host_ = at::empty({}, at::TensorOptions().dtype(scalar.scalar_type()).pinned_memory(true));
  on_host_.copy_(scalar, /*non_blocking=*/true);
}

double LaterNumber::value() const {
  return on_host_.defined() ? on_host_.item<double>() : value_;
}

}  // namespace fsdp::executor
