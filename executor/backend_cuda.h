#pragma once

#include <memory>

#include "executor/backend.h"

namespace fsdp::executor {

/// A GPU and NCCL: the visible GPU with the number of the local rank, modulo the number of visible GPUs.
std::unique_ptr<Backend> cuda_backend();

}  // namespace fsdp::executor
