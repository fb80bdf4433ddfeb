#pragma once

// Puts a model together from blocks, for tests that need one that no spec describes.

#include <string>
#include <vector>

#include "core/model/model.h"
#include "core/spec/block_builder.h"

namespace fsdp {

class ModelAssembler {
 public:
  /// `dtype` is that of the parameters.
  ModelAssembler(std::string name, Dtype dtype);

  /// A tensor that exists before the step: from the data loader, or (not `loaded`) made once and kept.
  void input(const std::string& name, Shape shape, std::optional<Dtype> dtype, bool loaded = true);
  /// A builder that sees all values so far.
  BlockBuilder block(const std::string& kind, const std::string& class_name) const;
  /// Runs a block as the forward of module `name`; "" for ops of the root's own forward. A block equal to the one
  /// before is shared. With `outside`, the ops run after the root's forward, as a training loop's loss does.
  void call(const std::string& name, BlockBuilder builder, bool repeated = false, bool outside = false);
  /// Makes parameter `alias` another name of `kept`.
  void tie(const std::string& alias, const std::string& kept);
  /// requires_grad_(False) for the parameters whose names begin so.
  void freeze(const std::string& prefix);
  /// Ends the test program on a mistake.
  Model finish(const std::string& loss);

 private:
  int value_of(const std::string& name) const;
  int parameter_of(const std::string& name) const;
  int module_at(const std::string& name, const std::string& class_name);

  Model model_;
  Dtype dtype_;
};

}  // namespace fsdp
