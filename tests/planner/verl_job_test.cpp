// Lines of verl as our options.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/base/result.h"
#include "planner/jobs/generation_turn.h"
#include "planner/jobs/job.h"
#include "planner/jobs/job_changes.h"
#include "planner/jobs/job_source.h"
#include "tests/support/job_words.h"

namespace fsdp::planner {
namespace {

using Words = std::vector<std::string>;

/// A line of main_ppo that can be planned, with more overrides.
Words ppo(const Words& more = {}) {
  Words words = {"python3",
                 "-m",
                 "verl.trainer.main_ppo",
                 "algorithm.adv_estimator=grpo",
                 "actor_rollout_ref.model.path=Qwen/Qwen3-8B",
                 "actor_rollout_ref.rollout.name=vllm",
                 "actor_rollout_ref.rollout.n=5",
                 "actor_rollout_ref.actor.use_dynamic_bsz=True",
                 "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=24576",
                 "data.max_prompt_length=1024",
                 "data.max_response_length=2048"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Words sft(const Words& more = {}) {
  Words words = {
      "torchrun", "--standalone", "--nproc_per_node=8", "-m", "verl.trainer.sft_trainer", "model.path=Qwen/Qwen3-8B"};
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

Job job_of(const Words& words) {
  const Result<Job> job = read_job_line(words);
  EXPECT_TRUE(job) << to_string(job.error().front());
  return job.value_or(Job{});
}

std::string errors_of(const Words& words) {
  return all_errors(read_job_line(words));
}

TEST(VerlJob, AnUpdateOfTheActorIsAPackedRowUnderFsdp1) {
  ASSERT_TRUE(is_job_line(ppo()));
  const Job job = job_of(ppo());
  EXPECT_EQ(job.program, "verl 0.9.1");
  EXPECT_EQ(job.model, "Qwen/Qwen3-8B");
  EXPECT_EQ(said(job, PlanChoice::Gpus), "8");
  EXPECT_EQ(said(job, PlanChoice::Runtime), "fsdp1");
  EXPECT_EQ(said(job, PlanChoice::Reshard), "true");
  EXPECT_EQ(said(job, PlanChoice::Packing), "24576");
  EXPECT_EQ(said(job, PlanChoice::DocumentLength), "3072");
  // 256 prompts, five answers each, on eight GPUs: 160 rows of 3072 tokens.
  EXPECT_EQ(said(job, PlanChoice::Accumulate), "20");
  EXPECT_EQ(said(job, PlanChoice::GradientSync), "every");
  EXPECT_EQ(said(job, PlanChoice::Precision), "autocast");
  EXPECT_EQ(said(job, PlanChoice::ReduceDtype), "float32");
  EXPECT_EQ(said(job, PlanChoice::LossName), "verl");
  EXPECT_EQ(said(job, PlanChoice::Checkpoint), "full");
  EXPECT_EQ(said(job, PlanChoice::AllocConf), "expandable_segments:True");
  EXPECT_EQ(word_of(job, PlanChoice::ReserveMemory), nullptr) << "the engine sleeps";
}

TEST(VerlJob, Fsdp2ReshardsItsRootAndWrapsTheEnds) {
  const Job job = job_of(ppo({"actor_rollout_ref.actor.strategy=fsdp2", "trainer.nnodes=2",
                              "++actor_rollout_ref.actor.fsdp_config.forward_prefetch=True"}));
  EXPECT_EQ(said(job, PlanChoice::Runtime), "fsdp2");
  EXPECT_EQ(said(job, PlanChoice::Reshard), "all");
  EXPECT_EQ(said(job, PlanChoice::WrapEnds), "yes");
  EXPECT_EQ(said(job, PlanChoice::Prefetch), "1");
  EXPECT_EQ(said(job, PlanChoice::Accumulate), "10") << "twice the GPUs";
}

TEST(VerlJob, TheLastValueOfAKeyCounts) {
  const Job job = job_of(ppo({"actor_rollout_ref.actor.ppo_max_token_len_per_gpu=8192",
                              "actor_rollout_ref.actor.ppo_max_token_len_per_gpu=4096"}));
  EXPECT_EQ(said(job, PlanChoice::Packing), "4096");
}

TEST(VerlJob, AnEngineThatStaysAwakeIsReserved) {
  const Job job = job_of(ppo(
      {"actor_rollout_ref.rollout.free_cache_engine=False", "actor_rollout_ref.rollout.gpu_memory_utilization=0.4"}));
  EXPECT_EQ(said(job, PlanChoice::ReserveMemory), "40%");
}

TEST(VerlJob, ASleepingEngineHasATurnBesideWhatTheActorKeeps) {
  const Job job = job_of(ppo({"actor_rollout_ref.rollout.gpu_memory_utilization=0.6",
                              "actor_rollout_ref.actor.fsdp_config.optimizer_offload=True"}));
  ASSERT_TRUE(job.engine);
  EXPECT_EQ(*job.engine, (SleepingEngine{.name = "vllm", .share = 0.6, .keeps_states = false}));
  StepReport report;
  report.memory.budget = Bytes(1000);
  report.memory.peaks = {.reserved = Bytes(500), .device = Bytes(600)};
  report.memory.at_peak[static_cast<std::size_t>(MemoryCategory::ShardedParam)] = Bytes(200);
  report.memory.at_peak[static_cast<std::size_t>(MemoryCategory::OptState)] = Bytes(150);
  JobPhaseNeed turn = generation_turn(*job.engine, report);
  EXPECT_EQ(turn.device->device, Bytes(600 + 200 + 100));
  EXPECT_TRUE(turn.fits());
  SleepingEngine all = *job.engine;
  all.keeps_states = true;
  turn = generation_turn(all, report);
  EXPECT_EQ(turn.device->device, Bytes(1050));
  EXPECT_FALSE(turn.fits());
}

TEST(VerlJob, CopiesAreGroupsOfFsdpSize) {
  const Job job = job_of(ppo({"actor_rollout_ref.actor.fsdp_config.fsdp_size=4"}));
  EXPECT_EQ(said(job, PlanChoice::Replicate), "2");
  EXPECT_NE(errors_of(ppo({"actor_rollout_ref.actor.fsdp_config.fsdp_size=3"})).find("Copies of 3 GPUs among 8"),
            std::string::npos);
}

TEST(VerlJob, MicroBatchesOfRowsHaveAllTheirTokens) {
  const Job job = job_of(
      ppo({"actor_rollout_ref.actor.use_dynamic_bsz=False", "actor_rollout_ref.actor.ppo_micro_batch_size_per_gpu=4"}));
  EXPECT_EQ(said(job, PlanChoice::Packing), "12288");
  EXPECT_EQ(said(job, PlanChoice::Accumulate), "40");
}

TEST(VerlJob, FineTuningTakesTorchrunsProcesses) {
  const Job job = job_of(sft({"engine=fsdp", "engine.strategy=fsdp2", "data.train_batch_size=64"}));
  EXPECT_EQ(said(job, PlanChoice::Gpus), "8");
  EXPECT_EQ(said(job, PlanChoice::Packing), "8192");
  EXPECT_EQ(said(job, PlanChoice::Accumulate), "1");
  EXPECT_NE(errors_of({"python", "-m", "verl.trainer.sft_trainer", "model.path=a/b"}).find("count its processes"),
            std::string::npos);
}

TEST(VerlJob, AdaptersAreOnABaseInFloat32) {
  const Job job = job_of(ppo({"actor_rollout_ref.model.lora_rank=32", "actor_rollout_ref.model.lora_alpha=16",
                              "actor_rollout_ref.model.target_modules=[q_proj,v_proj]"}));
  EXPECT_EQ(said(job, PlanChoice::Lora), "r=32,alpha=16,targets=q_proj+v_proj,input_grads=yes,base=float32");
  EXPECT_EQ(said(job, PlanChoice::Wrap), "class:blocks,adapters") << "FSDP1 makes each matrix a unit";
  const Job fsdp2 = job_of(ppo({"actor_rollout_ref.model.lora_rank=32", "actor_rollout_ref.actor.strategy=fsdp2"}));
  EXPECT_EQ(said(fsdp2, PlanChoice::Wrap), "blocks");
}

TEST(VerlJob, EveryProblemIsSaidAtItsPlace) {
  const std::string errors = errors_of(ppo({"actor_rollout_ref.actor.entropy_coeff=0.01",
                                            "actor_rollout_ref.actor.fsdp_config.ulysses_sequence_parallel_size=2",
                                            "actor_rollout_ref.model.use_liger=True", "algorithm.adv_estimator=gae",
                                            "actor_rollout_ref.actor.stratgy=fsdp2", "trainer.device=npu",
                                            "actor_rollout_ref.model.override_config.rope_theta=1e6"}));
  for (const std::string_view part :
       {"An entropy beside the loss", "sequence parallelism", "kernels of Liger", "A critic beside the actor",
        "Did you mean \"strategy\"?", "another device", "changes of config.json"}) {
    EXPECT_NE(errors.find(part), std::string::npos) << part << "\n" << errors;
  }
  EXPECT_NE(errors.find("/actor_rollout_ref/model/use_liger"), std::string::npos) << errors;
}

TEST(VerlJob, ARowMustFitAMicroBatch) {
  EXPECT_NE(errors_of(ppo({"actor_rollout_ref.actor.ppo_max_token_len_per_gpu=2048"}))
                .find("A row may have 3072 tokens, more than the 2048 of a micro-batch"),
            std::string::npos);
}

TEST(VerlJob, OverridesThatAreNoValuesAreRefused) {
  const std::string errors = errors_of(ppo({"~data.shuffle", "data.seed=${oc.env:SEED}", "word"}));
  EXPECT_NE(errors.find("\"~data.shuffle\" sets no key"), std::string::npos) << errors;
  EXPECT_NE(errors.find("data.seed refers to another key"), std::string::npos) << errors;
  EXPECT_NE(errors.find("\"word\" sets no key"), std::string::npos) << errors;
}

TEST(VerlJob, AChangeIsAnOverride) {
  const auto given =
      find_job_line(ppo({"+actor_rollout_ref.actor.fsdp_config.reshard_after_forward=True"}), read_config_file);
  ASSERT_TRUE(given);
  const auto variants = variants_of(*given, {.num_gpus = 8});
  ASSERT_TRUE(variants);
  bool was_found = false;
  for (const JobVariant& variant : *variants) {
    const JobWord* reshard = word_of(variant.job, PlanChoice::Reshard);
    const JobWord* sync = word_of(variant.job, PlanChoice::GradientSync);
    if (variant.settings.size() != 2 || reshard == nullptr || reshard->text != "false" || sync->text != "last")
      continue;
    was_found = true;
    const auto job = edited(*given, variant);
    ASSERT_TRUE(job) << to_string(job.error().front());
    EXPECT_EQ(job->words[job->words.size() - 2], "+actor_rollout_ref.actor.fsdp_config.reshard_after_forward=false");
    EXPECT_EQ(job->words.back(), "actor_rollout_ref.actor.fsdp_config.use_no_sync_for_gradient_accumulation=true");
  }
  EXPECT_TRUE(was_found);
}

}  // namespace
}  // namespace fsdp::planner
