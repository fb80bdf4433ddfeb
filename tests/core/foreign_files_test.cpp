// Files of other kinds get one sentence.

#include "core/base/foreign_files.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <string>

#include "core/cluster/cluster_reader.h"
#include "core/plan/plan_file.h"
#include "core/spec/model_spec_reader.h"

namespace fsdp {
namespace {

using namespace std::string_literals;

// What the three readers say of a text.
std::vector<std::string> answers(const std::string& text) {
  const std::string path = testing::TempDir() + "/foreign." + std::to_string(getpid());
  std::ofstream(path, std::ios::binary) << text;
  std::vector<std::string> said;
  const auto add = [&](const auto& result) {
    EXPECT_FALSE(result.has_value());
    if (result) return;
    EXPECT_EQ(result.error().size(), 1u) << to_string(result.error()[1]);
    said.push_back(result.error().front().what);
    EXPECT_EQ(result.error().front().where, path);
    EXPECT_NE(result.error().front().hint, "");
  };
  add(read_model_spec(path));
  add(read_plan_file(path));
  add(read_cluster_file(path, {}));
  std::filesystem::remove(path);
  return said;
}

std::vector<std::string> thrice(const std::string& what) {
  return {what, what, what};
}

TEST(ForeignFiles, AConfigurationOfHuggingFace) {
  EXPECT_EQ(answers(R"({"architectures": ["Qwen3ForCausalLM"], "hidden_size": 4096, "model_type": "qwen3"})"),
            thrice("This is a configuration of Hugging Face."));
}

TEST(ForeignFiles, AConfigurationOfDeepSpeed) {
  EXPECT_EQ(answers(R"({"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 3}})"),
            thrice("This is a configuration of DeepSpeed."));
}

TEST(ForeignFiles, AConfigurationOfAccelerate) {
  EXPECT_EQ(answers("compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\n"),
            thrice("This is a configuration of accelerate."));
}

TEST(ForeignFiles, AConfigurationOfTorchtitan) {
  EXPECT_EQ(answers("[job]\ndump_folder = \"out\"\n"), thrice("This is a configuration of torchtitan."));
}

TEST(ForeignFiles, TensorsAndPickles) {
  EXPECT_EQ(answers("\x10\0\0\0\0\0\0\0{\"a\":{\"dtype\":1}}"s),
            thrice("This is a file of tensors (safetensors), which has no model in it."));
  EXPECT_EQ(answers("\x80\x04\x95junk"s), thrice("This is a pickle."));
  EXPECT_EQ(answers("PK\x03\x04junk"s),
            thrice("This is a zip archive, as torch.save writes it; tensors alone describe no model."));
  EXPECT_EQ(answers(R"({"metadata": {}, "weight_map": {}})"), thrice("This is an index of safetensors files."));
}

TEST(ForeignFiles, OtherFilesOfAHuggingFaceModel) {
  EXPECT_EQ(answers(R"({"peft_type": "LORA", "base_model_name_or_path": "Qwen/Qwen3-8B", "r": 8})"),
            thrice("This is the configuration of an adapter (PEFT), which is added to a model."));
  EXPECT_EQ(answers(R"({"_class_name": "FluxPipeline", "_diffusers_version": "0.30.0"})"),
            thrice("This is a part of a pipeline of diffusers."));
  EXPECT_EQ(answers(R"({"_from_model_config": true, "transformers_version": "4.57.3"})"),
            thrice("This is a configuration of generation."));
  EXPECT_EQ(answers(R"({"tokenizer_class": "LlamaTokenizer"})"), thrice("This is a tokenizer's file."));
  EXPECT_EQ(answers(R"({"image_processor_type": "ViTImageProcessor", "size": 224})"),
            thrice("This is the configuration of an input processor."));
  EXPECT_EQ(answers(R"({"log_history": [], "global_step": 3})"), thrice("This is the saved state of a Trainer."));
}

TEST(ForeignFiles, PythonProgramErrorSuggestsCapture) {
  const auto error = recognize_text("import torch\nprint(1)\n", "train.py");
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(to_string(*error),
            "train.py: This is a Python program. Capture it: fsdp-plan capture -o my.model.json -- python train.py.");
}

TEST(ForeignFiles, LargeFilesAreRecognizedByTheirFirstBytes) {
  const std::string path = testing::TempDir() + "/large." + std::to_string(getpid());
  std::ofstream(path, std::ios::binary) << "PK\x03\x04";
  std::filesystem::resize_file(path, (std::uintmax_t{64} << 20) + 1);
  const auto spec = read_model_spec(path);
  std::filesystem::remove(path);
  ASSERT_FALSE(spec.has_value());
  EXPECT_EQ(spec.error()[0].what, "This is a zip archive, as torch.save writes it; tensors alone describe no model.");
}

TEST(ForeignFiles, OwnFilesOfAnotherKind) {
  const std::string folder = "model_specs/";
  EXPECT_EQ(read_plan_file(folder + "mlp.json").error().front().what, "This is a model spec, not a plan.");
  EXPECT_EQ(read_model_spec(folder + "clusters/dgx_h100.json").error().front().what,
            "This is a cluster or a GPU, not a model spec.");
  EXPECT_EQ(read_model_spec(folder + "clusters/gpus/t4_16gb.json").error().front().what,
            "This is a cluster or a GPU, not a model spec.");
  EXPECT_EQ(read_cluster_file(folder + "mlp.json", {}).error().front().what, "This is a model spec, not a cluster.");
}

TEST(ForeignFiles, ErrorsInOurOwnFilesKeepTheirPlaces) {
  const std::string path = testing::TempDir() + "/own." + std::to_string(getpid()) + ".json";
  std::ofstream(path) << R"({"format_version": "1.0", "mesh": {}, "units": 3})";
  const auto plan = read_plan_file(path);
  ASSERT_FALSE(plan.has_value());
  EXPECT_GT(plan.error().size(), 1u);
  EXPECT_EQ(plan.error().front().where.find(path + ":1:"), 0u);
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace fsdp
