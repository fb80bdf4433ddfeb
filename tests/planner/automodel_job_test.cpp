// NeMo Automodel's configurations as our options.

#include <gtest/gtest.h>

#include <fstream>
#include <optional>
#include <string>

#include "core/base/result.h"
#include "planner/jobs/job.h"
#include "planner/space/plan_choices.h"
#include "tests/support/job_words.h"

namespace fsdp::planner {
namespace {

class AutomodelJobs : public testing::Test {
 protected:
  /// A file of the recipe, with more sections.
  static std::string file(const std::string& name, const std::string& more, const std::string& model = "") {
    std::string path = testing::TempDir() + "automodel_" + name + ".yaml";
    std::ofstream(path) << "recipe: TrainFinetuneRecipeForNextTokenPrediction\n"
                           "step_scheduler: {global_batch_size: 64, local_batch_size: 2}\n"
                           "model:\n  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained\n"
                           "  pretrained_model_name_or_path: Qwen/Qwen3-0.6B\n" +
                               model +
                               "loss_fn: {_target_: nemo_automodel.components.loss.masked_ce.MaskedCrossEntropy}\n"
                               "optimizer: {_target_: torch.optim.Adam, lr: 1.0e-5, weight_decay: 0}\n" +
                               more;
    return path;
  }
  static constexpr char kDistributed[] = "distributed: {strategy: fsdp2, dp_size: none, tp_size: 1, cp_size: 1}\n";
  static constexpr char kRows[] =
      "dataset: {_target_: nemo_automodel.components.datasets.llm.chat_dataset.ChatDataset, seq_length: 2000}\n"
      "dataloader: {collate_fn: {_target_: a.default_collater, pad_seq_len_divisible: 64}}\n";

  static Result<Job> read(const std::string& path, const TypedBesideJob& typed) {
    const Result<std::optional<Job>> job = read_job(path, typed);
    if (!job) return tl::unexpected(job.error());
    EXPECT_TRUE(*job) << path;
    return *job ? Result<Job>(**job) : Result<Job>(Job{});
  }
};

TEST_F(AutomodelJobs, AFileSaysItsPlan) {
  const Result<Job> job = read(file("full", std::string(kDistributed) + kRows), {.gpus = 8});
  ASSERT_TRUE(job) << all_errors(job);
  EXPECT_EQ(job->program, "NeMo Automodel 0.7.0");
  EXPECT_EQ(job->model, "Qwen/Qwen3-0.6B");
  EXPECT_EQ(said(*job, PlanChoice::Flavor), "automodel");
  EXPECT_EQ(said(*job, PlanChoice::Runtime), "fsdp2");
  EXPECT_EQ(said(*job, PlanChoice::Reshard), "keep-last:1+head");
  EXPECT_EQ(said(*job, PlanChoice::WrapEnds), "yes");
  EXPECT_EQ(said(*job, PlanChoice::Precision), "bf16");
  EXPECT_EQ(said(*job, PlanChoice::ReduceDtype), "float32");
  EXPECT_EQ(said(*job, PlanChoice::Batch), "2");
  EXPECT_EQ(said(*job, PlanChoice::Sequence), "2048") << "2000 tokens in blocks of 64";
  EXPECT_EQ(said(*job, PlanChoice::PaddingMask), "yes");
  EXPECT_EQ(said(*job, PlanChoice::Accumulate), "4") << "64 samples are 4 x 2 on each of 8 GPUs";
  EXPECT_EQ(said(*job, PlanChoice::GradientSync), "last");
  EXPECT_EQ(said(*job, PlanChoice::OptimizerName), "adam");
  EXPECT_EQ(said(*job, PlanChoice::OptimizerImpl), "for_loop");
  EXPECT_EQ(said(*job, PlanChoice::Clip), "1");
  EXPECT_EQ(said(*job, PlanChoice::Checkpoint), "none");
  EXPECT_EQ(said(*job, PlanChoice::LossName), "pytorch");
  EXPECT_NE(all_notes(*job).find("flash-attn and liger-kernel are counted as not installed"), std::string::npos);
}

TEST_F(AutomodelJobs, WhatFitsIntoAStepIsRoundedDown) {
  // 64 / (2 x 12) is 2 and two thirds.
  const Result<Job> job = read(file("floor", std::string(kDistributed) + kRows), {.gpus = 12});
  ASSERT_TRUE(job) << all_errors(job);
  EXPECT_EQ(said(*job, PlanChoice::Accumulate), "2");
  EXPECT_NE(all_notes(*job).find("A step has 48 samples, not 64"), std::string::npos) << all_notes(*job);
  EXPECT_NE(all_errors(read(file("few", std::string(kDistributed) + kRows), {.gpus = 64}))
                .find("64 samples are fewer than the 128 of one micro-batch on 64 GPUs"),
            std::string::npos);
  const Result<Job> unknown = read(file("unknown", std::string(kDistributed) + kRows), {});
  ASSERT_TRUE(unknown) << all_errors(unknown);
  EXPECT_EQ(said(*unknown, PlanChoice::GlobalBatch), "64") << "without a number of GPUs the search divides it";
}

TEST_F(AutomodelJobs, OneGpuHasNoPolicy) {
  const Result<Job> job =
      read(file("alone", std::string(kDistributed) + kRows, "  torch_dtype: float32\n"), {.gpus = 1});
  ASSERT_TRUE(job) << all_errors(job);
  EXPECT_EQ(said(*job, PlanChoice::Runtime), "ddp");
  EXPECT_EQ(said(*job, PlanChoice::Precision), "fp32");
  EXPECT_EQ(said(*job, PlanChoice::ReduceDtype), "");
  EXPECT_EQ(said(*job, PlanChoice::Wrap), "");
  EXPECT_EQ(said(*job, PlanChoice::OptimizerImpl), "foreach");
}

TEST_F(AutomodelJobs, AdaptersAreRead) {
  const std::string peft =
      "peft: {_target_: nemo_automodel.components._peft.lora.PeftConfig, target_modules: '*_proj', dim: 16, alpha: "
      "32,\n"
      "       use_triton: true}\n";
  const Result<Job> job = read(file("lora", kDistributed + peft + kRows), {.gpus = 8});
  ASSERT_TRUE(job) << all_errors(job);
  EXPECT_EQ(said(*job, PlanChoice::Lora), "r=16,alpha=32,targets=*_proj");
  EXPECT_EQ(said(*job, PlanChoice::WrapEnds), "no") << "frozen ends are in the root";
  EXPECT_EQ(said(*job, PlanChoice::Reshard), "keep-last:1");
  const std::string other = "peft: {target_modules: ['*.q_*'], dim: 8, dropout: 0.1}\n";
  const std::string all = all_errors(read(file("other_lora", kDistributed + other + kRows), {.gpus = 8}));
  EXPECT_NE(all.find("The pattern \"*.q_*\" is not read."), std::string::npos) << all;
  EXPECT_NE(all.find("It asks for dropout on adapters, which is not predicted."), std::string::npos) << all;
  EXPECT_NE(all.find("Adapters without Automodel's kernels of Triton"), std::string::npos) << all;
}

TEST_F(AutomodelJobs, EveryProblemIsReportedAtItsPlace) {
  const std::string path =
      file("wrong",
           "distributed: {strategy: fsdp2, tp_size: 2, cp_size: 2, pp_size: 4, ep_size: 8, tp_sise: 1}\n"
           "fp8: {enabled: true}\ncompile: {enabled: true}\nquantization: {load_in_4bit: true}\n"
           "packed_sequence: {packed_sequence_size: 4096}\n"
           "dataset: {_target_: a.make_squad_dataset}\n",
           "  attn_implementation: ${ATTENTION}\n"
           "  backend: {attn: te, linear: te, dispatcher: deepep}\n");
  const std::string all = all_errors(read(path, {.gpus = 8}));
  for (const std::string what :
       {"tensor parallelism", "context parallelism", "pipeline parallelism", "expert parallelism", "fp8",
        "torch.compile", "a quantized base", "packed rows", "TransformerEngine's", "DeepEP"}) {
    EXPECT_NE(all.find(what), std::string::npos) << what << "\n" << all;
  }
  EXPECT_NE(
      all.find(path + ":10:80: /distributed/tp_sise: Unknown key \"distributed.tp_sise\". Did you mean \"tp_size\"?"),
      std::string::npos)
      << all;
  EXPECT_NE(all.find("\"${ATTENTION}\" is a value of the environment"), std::string::npos) << all;
  EXPECT_NE(all.find("Write --seq N, the tokens of the longest row."), std::string::npos) << all;
  EXPECT_EQ(all_errors(read(path, {.gpus = 8, .has_sequence = true})).find("--seq N"), std::string::npos);
}

TEST_F(AutomodelJobs, OtherRecipesAreRefusedInOneSentence) {
  const auto error_of = [](const std::string& name, const std::string& text) {
    const std::string path = testing::TempDir() + "automodel_" + name + ".yaml";
    std::ofstream(path) << text;
    const Result<Job> job = read(path, {.gpus = 8});
    EXPECT_EQ(job ? 0U : job.error().size(), 1U);
    return all_errors(job);
  };
  EXPECT_NE(
      error_of("vlm", "recipe: FinetuneRecipeForVLM\nfreeze_config: {a: 1}\n").find("a model with images or sound"),
      std::string::npos);
  EXPECT_NE(error_of("kd", "recipe:\n  _target_: a.KnowledgeDistillationRecipeForNextTokenPrediction\n")
                .find("knowledge distillation"),
            std::string::npos);
  EXPECT_NE(error_of("none", "model: {_target_: nemo_automodel.NeMoAutoDiffusionPipeline.from_pretrained}\n")
                .find("names no recipe"),
            std::string::npos);
}

}  // namespace
}  // namespace fsdp::planner
