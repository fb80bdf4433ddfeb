#pragma once

// The linear layers of a model that multiply in 8-bit floats: the mistakes in the choice of them.

#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/plan/float8.h"
#include "core/spec/block_builder.h"
#include "core/spec/model_spec.h"

namespace fsdp {

/// The names of the modules that an entry of a spec stands for: "model.layers.0", "model.layers.1", ...
std::vector<std::string> names_of_runs(const SpecModule& module);

/// The layers of a model's blocks that were converted, and those that were not.
class Float8Layers {
 public:
  void note(const BlockBuilder& builder);

  /// Errors: nothing was converted, and names in `skip` that no linear layer has.
  Errors check(const Float8Training& float8, const std::string& model) const;

 private:
  std::vector<bool> found_;
  int converted_ = 0;
};

/// The release, which layers multiply in 8 bits, and what they cost without a compiler.
std::string note_of_float8(const Float8Training& float8, const Model& model);

}  // namespace fsdp
