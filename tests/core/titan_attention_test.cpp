// The attention of torchtitan 0.3 (FusedQKVLinear, a rotary table in each layer): what a model of that flavor has.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "core/plan/plan.h"
#include "core/plan/runtime.h"
#include "core/spec/model_spec.h"
#include "tests/support/spec_models.h"

namespace fsdp {
namespace {

Workload titan_rows() {
  return Workload{.dimensions = {{"batch", 1}, {"seq", 1024}},
                  .packing = Packing{PackedAttention::Flex, "256"},
                  .titan_attention = true};
}

std::string titan_refusal(const std::string& spec, const Workload& workload) {
  const auto model = build_model(*read_model_spec("model_specs/" + spec), workload);
  return model ? "it is built" : to_string(model.error().front());
}

const Parameter* parameter_named(const Model& model, std::string_view end) {
  const auto found = std::find_if(model.parameters.begin(), model.parameters.end(),
                                  [&](const Parameter& each) { return each.name.ends_with(end); });
  return found == model.parameters.end() ? nullptr : &*found;
}

TEST(TitanAttention, HasOneWeightForQueriesKeysAndValues) {
  for (const char* spec : {"llama3_1_8b.json", "qwen3_8b.json"}) {
    const Model model = model_of(spec, titan_rows());
    const Parameter* weight = parameter_named(model, "layers.0.self_attn.qkv_linear.wqkv.weight");
    ASSERT_NE(weight, nullptr) << spec;
    EXPECT_EQ(weight->shape, (Shape{(32 + 2 * 8) * 128, 4096})) << spec;
    EXPECT_EQ(parameter_named(model, "q_proj.weight"), nullptr) << spec;
    EXPECT_EQ(num_parameters(model), num_parameters(model_of(spec))) << spec;
  }
}

// Complex numbers of half a head for Llama, cosines and sines of a head for Qwen3, of each position, in fp32.
TEST(TitanAttention, HasATableInEachLayer) {
  const auto tables_of = [](const char* spec) {
    const Model model = model_of(spec, titan_rows());
    std::vector<Shape> shapes;
    for (const Buffer& buffer : model.buffers) {
      if (buffer.name.ends_with("rope.cache")) shapes.push_back(buffer.shape);
    }
    return shapes;
  };
  EXPECT_EQ(tables_of("llama3_1_8b.json"), std::vector(32, Shape{1024, 128}));
  EXPECT_EQ(tables_of("qwen3_8b.json"), std::vector(36, Shape{1024, 256}));
}

TEST(TitanAttention, IsRefusedForOtherModelsAndOtherRows) {
  EXPECT_EQ(titan_refusal("gpt2.json", titan_rows()),
            "--flavor: torchtitan 0.3 has no model like GPT-2. Its models that are predicted are those of Llama 3 and "
            "Qwen3, without experts. Write --flavor transformers.");
  EXPECT_TRUE(titan_refusal("qwen2_5_7b.json", titan_rows())
                  .ends_with("torchtitan 0.3 has no attention of Qwen2. Write --flavor torchtitan or transformers."));
  Workload plain = titan_rows();
  plain.packing.reset();
  EXPECT_TRUE(
      titan_refusal("llama3_1_8b.json", plain)
          .ends_with("torchtitan 0.3 has positions for each row of documents. Write --packing, too, or --flavor "
                     "torchtitan."));
}

TEST(TitanAttention, ComesWithTheHabitsOfItsTrainer) {
  EXPECT_EQ(habits_of_flavor("torchtitan-0.3"), (FlavorHabits{.early_stop = false, .cast_forward_inputs = false}));
  EXPECT_EQ(habits_of_flavor("torchtitan"), FlavorHabits{});
  EXPECT_TRUE(runtime_of_flavor("torchtitan-0.3")->implementations.titan_attention);
  EXPECT_TRUE(is_of_torchtitan("torchtitan-0.3"));
  EXPECT_FALSE(is_of_torchtitan("transformers"));
}

}  // namespace
}  // namespace fsdp
