#include "core/model/call_name.h"

#include <gtest/gtest.h>

namespace fsdp {
namespace {

Model model_with_call(const std::string& module, const std::string& block) {
  Model model;
  Module named;
  named.name = module;
  model.modules = {named};
  Block made;
  made.kind = block;
  model.blocks = {made};
  return model;
}

TEST(NameOfCall, NamesTheModuleOrTheLoss) {
  const Call inside{.block = 0, .module = 0};
  EXPECT_EQ(name_of_call(model_with_call("model.layers.3", "decoder_layer"), inside), "model.layers.3");
  EXPECT_EQ(name_of_call(model_with_call("", "cross_entropy"), inside), "cross_entropy");
  EXPECT_EQ(name_of_call(model_with_call("", "glue"), inside), "root") << "what a capture saw between the blocks";
  EXPECT_EQ(name_of_call(model_with_call("", "glue"), {.block = 0, .module = -1}), "loss")
      << "after the model's forward";
}

}  // namespace
}  // namespace fsdp
