#pragma once

// Whether Liger's kernels are predicted for a model.

#include <vector>

#include "core/base/result.h"
#include "core/plan/liger_kernels.h"
#include "core/spec/block_builder.h"

namespace fsdp {

/// The parts of a model's blocks that were asked for.
class LigerParts {
 public:
  void note(const BlockBuilder& builder);

  /// Errors: a family without such kernels, a kernel that the library does not have for it or that is not predicted,
  /// and a kernel that replaces nothing in the model.
  Errors check(const LigerKernels& kernels, const std::string& model) const;

 private:
  std::vector<LigerPart> parts_;
};

}  // namespace fsdp
