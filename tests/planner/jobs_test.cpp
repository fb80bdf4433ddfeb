// Configurations of other programs as our options.

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "planner/jobs/job.h"
#include "planner/space/plan_choices.h"

namespace fsdp::planner {
namespace {

class Jobs : public testing::Test {
 protected:
  static std::string file(const std::string& name, const std::string& text) {
    std::string path = testing::TempDir() + "jobs_of_" + name;
    std::ofstream(path) << text;
    return path;
  }

  /// The text of a choice; empty if the job does not make it.
  static std::string said(const Job& job, PlanChoice choice) {
    for (const JobWord& word : job.words) {
      if (word.choice == choice) return word.text;
    }
    return {};
  }

  static std::string first_error(const Result<Job>& job) { return job ? "" : to_string(job.error().front()); }
};

TEST_F(Jobs, ALaunchLineSaysThePlanOfTheTrainer) {
  const std::string launch = file("fsdp.yaml",
                                  "distributed_type: FSDP\nmixed_precision: bf16\nnum_processes: 16\nnum_machines: 2\n"
                                  "fsdp_config:\n  fsdp_version: 2\n  fsdp_reshard_after_forward: false\n"
                                  "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
                                  "  fsdp_transformer_layer_cls_to_wrap: Qwen3DecoderLayer\n");
  const std::vector<std::string> words = {"accelerate",
                                          "launch",
                                          "--config_file",
                                          launch,
                                          "trl/scripts/sft.py",
                                          "--model_name_or_path",
                                          "Qwen/Qwen3-8B",
                                          "--max_length=2048",
                                          "--per_device_train_batch_size",
                                          "2",
                                          "--no_gradient_checkpointing"};
  ASSERT_TRUE(is_job_line(words));
  const Result<Job> job = read_job_line(words);
  ASSERT_TRUE(job) << first_error(job);
  EXPECT_EQ(job->model, "Qwen/Qwen3-8B");
  EXPECT_EQ(job->trainer, "accelerate");
  EXPECT_EQ(said(*job, PlanChoice::Gpus), "8");
  EXPECT_EQ(said(*job, PlanChoice::Nodes), "2");
  EXPECT_EQ(said(*job, PlanChoice::Reshard), "false");
  EXPECT_EQ(said(*job, PlanChoice::Wrap), "class:Qwen3DecoderLayer");
  EXPECT_EQ(said(*job, PlanChoice::Sequence), "2048");
  EXPECT_EQ(said(*job, PlanChoice::Batch), "2");
  EXPECT_EQ(said(*job, PlanChoice::PaddingMask), "yes");
  EXPECT_EQ(said(*job, PlanChoice::Checkpoint), "none");
  EXPECT_EQ(said(*job, PlanChoice::Precision), "mixed");
  EXPECT_EQ(said(*job, PlanChoice::OptimizerImpl), "fused");
}

TEST_F(Jobs, DefaultsAreThoseOfTrl) {
  const Result<Job> job = read_job(file("sft.yaml", "model_name_or_path: Qwen/Qwen3-8B\naccelerate_config: fsdp2\n"));
  ASSERT_TRUE(job) << first_error(job);
  EXPECT_EQ(said(*job, PlanChoice::Gpus), "8");
  EXPECT_EQ(said(*job, PlanChoice::Batch), "8");
  EXPECT_EQ(said(*job, PlanChoice::Sequence), "1024");
  EXPECT_EQ(said(*job, PlanChoice::Checkpoint), "full");
  EXPECT_EQ(said(*job, PlanChoice::LossName), "chunked_nll");
  EXPECT_EQ(said(*job, PlanChoice::Clip), "1");
}

TEST_F(Jobs, ALineCountsBeforeAFile) {
  const std::string path = file("sft.yaml", "model_name_or_path: a/b\nmax_length: 512\nbf16: false\ndtype: bfloat16\n");
  const Result<Job> job = read_job_line(std::vector<std::string>{
      "trl", "sft", "--config", path, "--max_length", "4096", "--num_processes", "4", "--accelerate_config", "fsdp2"});
  ASSERT_TRUE(job) << first_error(job);
  EXPECT_EQ(said(*job, PlanChoice::Sequence), "4096");
  EXPECT_EQ(said(*job, PlanChoice::Precision), "mixed") << "the launch's mixed_precision";
  EXPECT_EQ(said(*job, PlanChoice::Gpus), "4");
  EXPECT_EQ(said(*job, PlanChoice::Runtime), "fsdp2");
}

TEST_F(Jobs, EveryProblemIsReportedAtItsPlace) {
  const std::string path = file("sft.yaml",
                                "model_name_or_path: a/b\nmax_lenght: 512\nuse_peft: true\ntorch_compile: true\n"
                                "optim: galore_adamw\nlora_r: many\n");
  const Result<Job> job = read_job(path);
  ASSERT_FALSE(job);
  std::string all;
  for (const Error& error : job.error()) all += to_string(error) + "\n";
  EXPECT_NE(all.find(path + ":2:1: /max_lenght: Unknown key \"max_lenght\". Did you mean \"max_length\"?"),
            std::string::npos)
      << all;
  EXPECT_NE(all.find(path + ":4:16: /torch_compile: It asks for torch.compile, which is not predicted."),
            std::string::npos)
      << all;
  EXPECT_NE(all.find("The optimizer \"galore_adamw\" is not predicted."), std::string::npos) << all;
  EXPECT_NE(all.find("Expected a number, found the string \"many\"."), std::string::npos) << all;
  EXPECT_NE(all.find("The frozen base is loaded in float32"), std::string::npos) << all;
}

TEST_F(Jobs, OtherScriptsAreNotRead) {
  EXPECT_FALSE(is_job_line(std::vector<std::string>{"accelerate", "launch", "train.py", "--max_length", "2"}));
  EXPECT_FALSE(is_job_line(std::vector<std::string>{"python", "sft.py"}));
  EXPECT_NE(first_error(read_job(file("other.yaml", "base_model: a/b\n"))).find("It is no configuration of TRL"),
            std::string::npos);
}

}  // namespace
}  // namespace fsdp::planner
