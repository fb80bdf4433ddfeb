#pragma once

#include <memory>

#include "executor/backend.h"

namespace fsdp::executor {

/// A GPU and NCCL: of the GPUs that this process sees the one whose number is the local rank, around the corner where
/// there are fewer.
std::unique_ptr<Backend> cuda_backend();

}  // namespace fsdp::executor
