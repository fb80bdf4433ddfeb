// The other jobs that a configuration can ask for. tests/command/cli_use_test.py writes them.

#include "planner/jobs/job_changes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "planner/jobs/job_source.h"
#include "tests/support/job_words.h"

namespace fsdp::planner {
namespace {

class JobChanges : public testing::Test {
 protected:
  static JobSource source(const std::string& name, const std::string& text, const std::string& kind = ".yaml") {
    const std::string path = testing::TempDir() + "changes_of_" + name + kind;
    std::ofstream(path) << text;
    const auto found = find_job(path, read_config_file);
    EXPECT_TRUE(found && *found) << name;
    return found && *found ? **found : JobSource{};
  }

  static JobSource axolotl(const std::string& name, const std::string& more) {
    return source(name,
                  "base_model: Qwen/Qwen3-8B\nfsdp_version: 2\nfsdp_config:\n"
                  "  transformer_layer_cls_to_wrap: Qwen3DecoderLayer\n" +
                      more);
  }

  static std::vector<JobVariant> variants(const JobSource& source, const VariantLimits& limits = {}) {
    Result<std::vector<JobVariant>> all = variants_of(source, limits);
    EXPECT_TRUE(all) << (all ? "" : to_string(all.error().front()));
    return all ? *std::move(all) : std::vector<JobVariant>{};
  }

  static std::set<std::string> all_said(const std::vector<JobVariant>& variants, PlanChoice choice) {
    std::set<std::string> texts;
    for (const JobVariant& each : variants) texts.insert(said(each.job, choice));
    return texts;
  }
};

TEST_F(JobChanges, KeepTheSamplesOfAStep) {
  const auto all = variants(axolotl("batch", "micro_batch_size: 2\ngradient_accumulation_steps: 6\n"));
  EXPECT_EQ(all_said(all, PlanChoice::Batch), (std::set<std::string>{"1", "2", "3", "4", "6", "12"}));
  for (const JobVariant& each : all) {
    EXPECT_EQ(std::stoi(said(each.job, PlanChoice::Batch)) * std::stoi(said(each.job, PlanChoice::Accumulate)), 12);
  }
  EXPECT_EQ(all_said(all, PlanChoice::Reshard), (std::set<std::string>{"all", "false"}));
  EXPECT_EQ(all_said(all, PlanChoice::Checkpoint), (std::set<std::string>{"none", "full", "reentrant"}));
  EXPECT_TRUE(all.front().settings.empty()) << "the given job";
}

TEST_F(JobChanges, EachIsThereOnceWithTheFewestKeys) {
  const auto all = variants(axolotl("once", "gradient_checkpointing: true\n"));
  std::set<std::string> meanings;
  for (const JobVariant& each : all) {
    std::string meaning;
    for (const JobWord& word : each.job.words) meaning += word.text + "\n";
    EXPECT_TRUE(meanings.insert(meaning).second) << meaning;
    const bool is_full = said(each.job, PlanChoice::Checkpoint) == "full";
    for (const KeySetting& setting : each.settings) {
      EXPECT_TRUE(setting.key != "gradient_checkpointing_kwargs.use_reentrant" || is_full) << "the default";
    }
  }
}

// A value that makes another optimizer is no implementation of this one.
TEST_F(JobChanges, TrainTheSame) {
  const auto all = variants(axolotl("adafactor", "optimizer: adafactor\nmax_grad_norm: 0\n"));
  EXPECT_EQ(all_said(all, PlanChoice::OptimizerName), std::set<std::string>{"adafactor"});
  EXPECT_EQ(all_said(all, PlanChoice::Clip), std::set<std::string>{"none"});
  const auto adam = variants(axolotl("adam", "optimizer: adamw_torch\n"));
  EXPECT_EQ(all_said(adam, PlanChoice::OptimizerImpl), (std::set<std::string>{"foreach", "fused"}));
}

TEST_F(JobChanges, TriesMeshesOfAllGpus) {
  const std::string launch = testing::TempDir() + "changes_launch.yaml";
  std::ofstream(launch) << "distributed_type: FSDP\nfsdp_config:\n  fsdp_version: 2\n"
                           "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n";
  const auto found = find_job_line(std::vector<std::string>{"accelerate", "launch", "--config_file", launch, "sft.py",
                                                            "--model_name_or_path", "Qwen/Qwen3-8B"},
                                   read_config_file);
  ASSERT_TRUE(found);
  EXPECT_EQ(all_said(variants(*found, {.num_gpus = 8, .batch = {}, .accumulation = {}}), PlanChoice::Replicate),
            (std::set<std::string>{"", "2", "4"}));
}

TEST_F(JobChanges, OfLlamaFactoryAreThoseOfItsFile) {
  const auto all = variants(source("llamafactory",
                                   "model_name_or_path: a/b\nstage: sft\nfinetuning_type: full\npure_bf16: true\n"
                                   "per_device_train_batch_size: 2\ngradient_accumulation_steps: 2\n"));
  EXPECT_EQ(all_said(all, PlanChoice::Batch), (std::set<std::string>{"1", "2", "4"}));
  EXPECT_EQ(all_said(all, PlanChoice::Checkpoint), (std::set<std::string>{"none", "reentrant"}));
  EXPECT_EQ(all_said(all, PlanChoice::Runtime), std::set<std::string>{"ddp"});
}

TEST_F(JobChanges, OfAutomodelKeepItsGlobalBatch) {
  JobSource given = source("automodel",
                           "recipe: TrainFinetuneRecipeForNextTokenPrediction\nmodel:\n"
                           "  _target_: nemo_automodel.NeMoAutoModelForCausalLM.from_pretrained\n"
                           "  pretrained_model_name_or_path: a/b\nstep_scheduler:\n  global_batch_size: 34\n"
                           "  local_batch_size: 4\ndistributed:\n  strategy: fsdp2\ndataset:\n  seq_length: 512\n"
                           "loss_fn:\n  _target_: nemo_automodel.components.loss.masked_ce.MaskedCrossEntropy\n"
                           "optimizer:\n  _target_: torch.optim.AdamW\n");
  given.launch.typed = {.gpus = 2, .has_sequence = false};
  const auto all = variants(given, {.num_gpus = 2, .batch = {}, .accumulation = {}});
  // 34 samples are four micro-batches of 4 on each of 2 GPUs. One row at a time would make 17 of them, and 1 more
  // sample.
  EXPECT_EQ(all_said(all, PlanChoice::Batch), (std::set<std::string>{"2", "4", "8", "16"}));
  EXPECT_EQ(all_said(all, PlanChoice::Reshard), (std::set<std::string>{"keep-last:1+head", "true+head", "false"}));
  EXPECT_EQ(all_said(all, PlanChoice::OptimizerImpl), (std::set<std::string>{"for_loop", "fused"}));
  const Result<EditedJob> written = edited(given, all.back());
  ASSERT_TRUE(written) << to_string(written.error().front());
}

TEST_F(JobChanges, OfTorchtitanAreWrittenIntoItsToml) {
  const JobSource given =
      source("titan",
             "[model]\nname = \"llama3\"\nflavor = \"8B\"\n\n[training]\nlocal_batch_size = 2  # rows\n"
             "seq_len = 4096\n\n[activation_checkpoint]\nmode = \"full\"\n",
             ".toml");
  const auto all = variants(given, {.num_gpus = 4, .batch = {}, .accumulation = {}});
  EXPECT_EQ(all_said(all, PlanChoice::Checkpoint), (std::set<std::string>{"none", "full", "selective"}));
  EXPECT_EQ(all_said(all, PlanChoice::Batch), (std::set<std::string>{"1", "2"}));
  EXPECT_EQ(all_said(all, PlanChoice::GlobalBatch), (std::set<std::string>{"", "8"}));
  const auto one_row = std::find_if(all.begin(), all.end(), [](const JobVariant& each) {
    return said(each.job, PlanChoice::Batch) == "1" && each.settings.size() == 2;
  });
  ASSERT_NE(one_row, all.end());
  const Result<EditedJob> written = edited(given, *one_row);
  ASSERT_TRUE(written) << to_string(written.error().front());
  EXPECT_NE(written->files.front().after.find("local_batch_size = 1  # rows\nglobal_batch_size = 8\nseq_len"),
            std::string::npos)
      << written->files.front().after;
}

TEST_F(JobChanges, OfTorchtitansRegistryGoToTheLine) {
  const auto given = find_job_line(std::vector<std::string>{"torchrun", "--nproc_per_node=8", "-m", "torchtitan.train",
                                                            "--module", "llama3", "--config", "llama3_8b"},
                                   read_config_file);
  ASSERT_TRUE(given) << to_string(given.error().front());
  const auto all = variants(*given, {.num_gpus = 8, .batch = {}, .accumulation = {}});
  const auto kept = std::find_if(all.begin(), all.end(), [](const JobVariant& each) {
    return said(each.job, PlanChoice::Reshard) == "false" && each.settings.size() == 1;
  });
  ASSERT_NE(kept, all.end());
  const Result<EditedJob> written = edited(*given, *kept);
  ASSERT_TRUE(written) << to_string(written.error().front());
  EXPECT_EQ(written->words.back(), "never");
  EXPECT_EQ(*(written->words.end() - 2), "--parallelism.fsdp_reshard_after_forward");
}

TEST_F(JobChanges, WriteAChangeWhereItsKeyIs) {
  const JobSource given = axolotl("write", "micro_batch_size: 1 # rows\ngradient_accumulation_steps: 2\n");
  for (const JobVariant& each : variants(given)) {
    const Result<EditedJob> written = edited(given, each);
    ASSERT_TRUE(written) << to_string(written.error().front());
    EXPECT_EQ(written->edits.size(), each.settings.size());
    EXPECT_EQ(written->files.size(), each.settings.empty() ? 0U : 1U);
    EXPECT_TRUE(written->words.empty());
  }
}

}  // namespace
}  // namespace fsdp::planner
