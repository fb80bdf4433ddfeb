// Configurations of other programs as our options.

#include <gtest/gtest.h>

#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "planner/jobs/job.h"
#include "planner/space/plan_choices.h"
#include "tests/support/job_words.h"

namespace fsdp::planner {
namespace {

class Jobs : public testing::Test {
 protected:
  static std::string file(const std::string& name, const std::string& text) {
    std::string path = testing::TempDir() + "jobs_of_" + name;
    std::ofstream(path) << text;
    return path;
  }

  static std::string first_error(const Result<Job>& job) { return job ? "" : to_string(job.error().front()); }

  /// The job of a file that is one.
  static Result<Job> read(const std::string& path) {
    const Result<std::optional<Job>> job = read_job(path);
    if (!job) return tl::unexpected(job.error());
    EXPECT_TRUE(*job) << path;
    return *job ? Result<Job>(**job) : Result<Job>(Job{});
  }

  /// A configuration of axolotl under FSDP2, with more keys.
  static std::string axolotl(const std::string& name, const std::string& more) {
    return file(name + ".yaml",
                "base_model: Qwen/Qwen3-8B\nfsdp_version: 2\nfsdp_config:\n"
                "  transformer_layer_cls_to_wrap: Qwen3DecoderLayer\n" +
                    more);
  }
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
  const Result<Job> job = read(file("sft.yaml", "model_name_or_path: Qwen/Qwen3-8B\naccelerate_config: fsdp2\n"));
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
  const Result<Job> job = read(path);
  ASSERT_FALSE(job);
  const std::string all = all_errors(job);
  EXPECT_NE(all.find(path + ":2:1: /max_lenght: Unknown key \"max_lenght\". Did you mean \"max_length\"?"),
            std::string::npos)
      << all;
  EXPECT_NE(all.find(path + ":4:16: /torch_compile: It asks for torch.compile, which is not predicted."),
            std::string::npos)
      << all;
  EXPECT_NE(all.find("The optimizer \"galore_adamw\" is not predicted."), std::string::npos) << all;
  EXPECT_NE(all.find("Expected a number, found the string \"many\"."), std::string::npos) << all;
}

TEST_F(Jobs, ABaseOfTrlIsInFloat32UnlessItsDtypeIsGiven) {
  const auto adapters = [&](const std::string& more) {
    const Result<Job> job = read(file("base.yaml", "model_name_or_path: a/b\nuse_peft: true\n" + more));
    return job ? said(*job, PlanChoice::Lora) : all_errors(job);
  };
  EXPECT_TRUE(adapters("").ends_with(",base=float32")) << adapters("");
  EXPECT_FALSE(adapters("dtype: bfloat16\n").ends_with(",base=float32")) << adapters("dtype: bfloat16\n");
}

TEST_F(Jobs, OtherScriptsAndFilesAreNotRead) {
  EXPECT_FALSE(is_job_line(std::vector<std::string>{"accelerate", "launch", "train.py", "--max_length", "2"}));
  EXPECT_FALSE(is_job_line(std::vector<std::string>{"python", "sft.py"}));
  const Result<std::optional<Job>> other = read_job(file("other.yaml", "compute_environment: LOCAL_MACHINE\n"));
  ASSERT_TRUE(other);
  EXPECT_FALSE(*other);
}

TEST_F(Jobs, AFileOfLlamaFactorySaysItsPlan) {
  const Result<std::optional<Job>> read =
      read_job(file("lf.yaml",
                    "model_name_or_path: a/b\nstage: sft\nlora_rank: 16\ncutoff_len: 1000\nbf16: true\n"
                    "per_device_train_batch_size: 2\nlora_target: q_proj,v_proj\n"));
  ASSERT_TRUE(read) << read.error().front().what;
  ASSERT_TRUE(*read);
  const Job& job = **read;
  EXPECT_EQ(job.model, "a/b");
  EXPECT_EQ(said(job, PlanChoice::Lora), "r=16,alpha=32,dropout=0,targets=q_proj+v_proj,input_grads=yes");
  EXPECT_EQ(said(job, PlanChoice::Sequence), "1000");
  EXPECT_EQ(said(job, PlanChoice::PaddingMask), "yes");
  EXPECT_EQ(said(job, PlanChoice::Precision), "accelerate");
  EXPECT_EQ(said(job, PlanChoice::Ddp), "defaults");
}

TEST_F(Jobs, ABaseOfLlamaFactoryInFourBitsIsQuantizedTwice) {
  const auto job_of = [](const std::string& name, const std::string& more) {
    return read(file(name, "model_name_or_path: a/b\nstage: sft\nbf16: true\nquantization_bit: " + more + "\n"));
  };
  const Result<Job> job = job_of("lf_four.yaml", "4");
  ASSERT_TRUE(job) << all_errors(job);
  EXPECT_EQ(said(*job, PlanChoice::Quantize), "nf4,double");
  EXPECT_EQ(
      said(*job_of("lf_once.yaml", "4\ndouble_quantization: false\nquantization_type: fp4"), PlanChoice::Quantize),
      "fp4");
  EXPECT_NE(all_errors(job_of("lf_eight.yaml", "8")).find("A base in 8 bits is not predicted."), std::string::npos);
  EXPECT_NE(all_errors(job_of("lf_full.yaml", "4\nfinetuning_type: full")).find("without adapters"), std::string::npos);
}

TEST_F(Jobs, APairOfDpoIsTwoRowsBesideItsReference) {
  const Result<std::optional<Job>> read =
      read_job(file("dpo.yaml", "model_name_or_path: a/b\nbeta: 0.2\nper_device_train_batch_size: 3\n"));
  ASSERT_TRUE(read) << read.error().front().what;
  ASSERT_TRUE(*read);
  EXPECT_EQ(said(**read, PlanChoice::Batch), "6");
  EXPECT_EQ(said(**read, PlanChoice::Also), "a/b,dtype=fp32");
  EXPECT_EQ(said(**read, PlanChoice::Runtime), "ddp");
}

TEST_F(Jobs, AReferenceThatEveryRankLoadsIsRefusedUnderFsdp2) {
  const auto line = [](const std::string& loading) {
    const std::string launch = file("dpo_fsdp.yaml",
                                    "distributed_type: FSDP\nnum_processes: 4\nfsdp_config:\n  fsdp_version: 2\n"
                                    "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"
                                    "  fsdp_cpu_ram_efficient_loading: " +
                                        loading + "\n");
    return read_job_line(std::vector<std::string>{"accelerate", "launch", "--config_file", launch, "dpo.py",
                                                  "--model_name_or_path", "a/b"});
  };
  const Result<Job> spread = line("false");
  ASSERT_FALSE(spread);
  EXPECT_NE(all_errors(spread).find("spreads the reference model over all visible GPUs"), std::string::npos)
      << all_errors(spread);
  const Result<Job> job = line("true");
  ASSERT_TRUE(job) << all_errors(job);
  EXPECT_EQ(said(*job, PlanChoice::Also), "a/b,dtype=fp32");
}

TEST_F(Jobs, AFileOfAxolotlSaysItsPlan) {
  const Result<Job> job = read(axolotl("packed",
                                       "  reshard_after_forward: true\n  cpu_ram_efficient_loading: true\n"
                                       "sequence_len: 4096\nmicro_batch_size: 2\ngradient_accumulation_steps: 4\n"
                                       "sample_packing: true\nflash_attention: true\nbf16: true\n"
                                       "gradient_checkpointing: true\noptimizer: adamw_torch_fused\n"
                                       "datasets: [{path: a, type: alpaca}]\n"));
  ASSERT_TRUE(job) << all_errors(job);
  EXPECT_EQ(job->program, "axolotl 0.19.0");
  EXPECT_EQ(job->model, "Qwen/Qwen3-8B");
  EXPECT_EQ(job->trainer, "");
  EXPECT_EQ(said(*job, PlanChoice::Runtime), "fsdp2");
  EXPECT_EQ(said(*job, PlanChoice::Reshard), "all") << "the root is told to reshard, too";
  EXPECT_EQ(said(*job, PlanChoice::Replicate), "1");
  EXPECT_EQ(said(*job, PlanChoice::Wrap), "class:Qwen3DecoderLayer");
  EXPECT_EQ(said(*job, PlanChoice::Initialization), "meta");
  EXPECT_EQ(said(*job, PlanChoice::Precision), "bf16") << "axolotl converts nothing to float32";
  EXPECT_EQ(said(*job, PlanChoice::Packing), "8192") << "2 x 4096 tokens in one row";
  EXPECT_EQ(said(*job, PlanChoice::PackedAttentionName), "flash_attn");
  EXPECT_EQ(said(*job, PlanChoice::Accumulate), "4");
  EXPECT_EQ(said(*job, PlanChoice::GradientSync), "last");
  EXPECT_EQ(said(*job, PlanChoice::Checkpoint), "reentrant");
  EXPECT_EQ(said(*job, PlanChoice::Clip), "1");
  EXPECT_EQ(said(*job, PlanChoice::LossName), "pytorch");
}

TEST_F(Jobs, RowsOfAxolotlArePaddedToWholeBlocks) {
  // 8096 is 126.5 blocks of 64 tokens, and 127 blocks are 8128.
  const std::string length = "sequence_len: 8096\nmicro_batch_size: 2\n";
  const std::string packs = length + "sample_packing: true\nattn_implementation: flash_attention_2\n";
  const auto tokens = [&](const std::string& name, const std::string& more, PlanChoice choice) {
    const Result<Job> job = read(axolotl(name, more));
    EXPECT_TRUE(job) << all_errors(job);
    return job ? said(*job, choice) : "";
  };
  EXPECT_EQ(tokens("packs", packs, PlanChoice::Packing), "16256") << "2 x 8128 hold 2 x 8096";
  EXPECT_EQ(tokens("short", packs + "pad_to_sequence_len: false\n", PlanChoice::Packing), "16192");
  EXPECT_EQ(tokens("stream", packs + "pretraining_dataset: [{path: c4, type: pretrain}]\n", PlanChoice::Packing),
            "16192")
      << "a stream pads to sequence_len itself";
  EXPECT_EQ(tokens("rows", length, PlanChoice::Sequence), "8128");
  EXPECT_EQ(tokens("rows", length, PlanChoice::PaddingMask), "yes");
  EXPECT_EQ(tokens("longest", length + "pad_to_sequence_len: false\n", PlanChoice::Sequence), "8096");
  EXPECT_EQ(tokens("usual", "", PlanChoice::Sequence), "512");
}

TEST_F(Jobs, KeysOfFsdpMayHaveAPrefix) {
  const Result<Job> job =
      read(file("prefix.yaml",
                "base_model: a/b\nfsdp_config:\n  version: 2\n  fsdp_reshard_after_forward: false\n"
                "  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer\n  fsdp_limit_all_gathers: true\n"));
  ASSERT_TRUE(job) << all_errors(job);
  EXPECT_EQ(said(*job, PlanChoice::Reshard), "false");
  EXPECT_EQ(said(*job, PlanChoice::Wrap), "class:LlamaDecoderLayer");
  EXPECT_NE(all_notes(*job).find("limit_all_gathers is ignored"), std::string::npos) << all_notes(*job);
}

TEST_F(Jobs, CheckpointsOfFsdpAreNestedInAxolotl) {
  const Result<Job> nested = read(axolotl("nested", "  activation_checkpointing: true\neta_min: 1e-6\n"));
  ASSERT_TRUE(nested) << all_errors(nested);
  EXPECT_EQ(said(*nested, PlanChoice::Checkpoint), "nested") << "accelerate's are inside of axolotl's";
  EXPECT_NE(all_notes(*nested).find("eta_min is ignored"), std::string::npos) << all_notes(*nested);
}

TEST_F(Jobs, AdaptersOfAxolotlAreUnits) {
  const std::string adapters =
      "adapter: qlora\nload_in_4bit: true\nlora_r: 8\nlora_alpha: 16\nlora_target_modules: [q_proj, v_proj]\n";
  const Result<Job> job = read(axolotl("adapters", adapters + "lora_mlp_kernel: false\n"));
  ASSERT_TRUE(job) << all_errors(job);
  EXPECT_EQ(said(*job, PlanChoice::Lora), "r=8,alpha=16,dropout=0,targets=q_proj+v_proj,input_grads=yes");
  EXPECT_EQ(said(*job, PlanChoice::Quantize), "nf4,double");
  EXPECT_EQ(said(*job, PlanChoice::Precision), "mixed") << "PEFT keeps adapters in float32";
  EXPECT_EQ(said(*job, PlanChoice::ReduceDtype), "bfloat16");
  EXPECT_EQ(said(*job, PlanChoice::Wrap), "class:Qwen3DecoderLayer,adapters");
  const Result<Job> first =
      read(file("one.yaml", adapters + "base_model: a/b\nfsdp: [full_shard, auto_wrap]\nfsdp_config:\n"
                                       "  fsdp_offload_params: true\n  fsdp_use_orig_params: false\n"
                                       "  fsdp_transformer_layer_cls_to_wrap: LlamaDecoderLayer\n"));
  ASSERT_TRUE(first) << all_errors(first);
  EXPECT_EQ(said(*first, PlanChoice::Runtime), "fsdp1") << "the default; its runs have no fused kernels";
  EXPECT_EQ(said(*first, PlanChoice::Precision), "accelerate");
  EXPECT_EQ(said(*first, PlanChoice::BackwardPrefetch), "0");
  EXPECT_EQ(said(*first, PlanChoice::Offload), "yes");
}

TEST_F(Jobs, PluginsOfAxolotlSayKernelsAndLoss) {
  const std::string keys = "liger_rope: true\nliger_swiglu: true\n";
  const Result<Job> with = read(axolotl("liger", "plugins: [axolotl.integrations.liger.LigerPlugin]\n" + keys));
  ASSERT_TRUE(with) << all_errors(with);
  EXPECT_EQ(said(*with, PlanChoice::Liger), "rope,glu");
  EXPECT_EQ(said(*with, PlanChoice::LossName), "pytorch");
  const Result<Job> fused = read(
      axolotl("fused", "plugins: [axolotl.integrations.liger.LigerPlugin]\nliger_fused_linear_cross_entropy: true\n"));
  ASSERT_TRUE(fused) << all_errors(fused);
  EXPECT_EQ(said(*fused, PlanChoice::LossName), "liger-0.8.1") << "the release that axolotl pins";
  const Result<Job> without = read(axolotl("liger", keys));
  ASSERT_TRUE(without) << all_errors(without);
  EXPECT_EQ(said(*without, PlanChoice::Liger), "");
  EXPECT_NE(all_notes(*without).find("Keys of Liger are ignored"), std::string::npos);
  const Result<Job> cut =
      read(axolotl("cut", "plugins:\n  - axolotl.integrations.cut_cross_entropy.CutCrossEntropyPlugin\n"));
  ASSERT_TRUE(cut) << all_errors(cut);
  EXPECT_EQ(said(*cut, PlanChoice::LossName), "cut_cross_entropy") << "the plugin switches itself on";
}

TEST_F(Jobs, AxolotlsOtherRunsAreRefusedByName) {
  const auto errors = [&](const std::string& name, const std::string& text) {
    return all_errors(read(file(name, text)));
  };
  const auto errors_of = [&](const std::string& more) { return all_errors(read(axolotl("refused", more))); };
  EXPECT_NE(errors("none.yaml", "base_model: a/b\n").find("Without FSDP axolotl trains"), std::string::npos);
  EXPECT_NE(errors("one.yaml",
                   "base_model: a/b\nfsdp: [full_shard, auto_wrap, offload]\nfsdp_config:\n"
                   "  reshard_after_forward: true\n")
                .find("Under version 1 accelerate 1.13 takes a strategy's name"),
            std::string::npos);
  const std::string zero = errors("zero.yaml", "base_model: a/b\ndeepspeed: zero3.json\n");
  EXPECT_NE(zero.find("It asks for DeepSpeed"), std::string::npos) << zero;
  EXPECT_EQ(zero.find("Without FSDP"), std::string::npos) << "one reason is enough: " << zero;
  EXPECT_NE(errors_of("adapter: lora\nlora_r: 8\nlora_alpha: 8\nlora_target_linear: true\n")
                .find("axolotl switches on fused kernels of its own"),
            std::string::npos);
  EXPECT_NE(errors_of("load_in_4bit: true\n").find("has no adapters to train"), std::string::npos);
  EXPECT_NE(errors_of("qat: {weight_dtype: int4}\n").find("aware of quantization"), std::string::npos) << "an object";
  EXPECT_NE(errors_of("pretraining_dataset: [{path: c4}]\n").find("if they are packed"), std::string::npos);
  EXPECT_NE(errors_of("model_type: AutoModelForSequenceClassification\n").find("no language model"), std::string::npos);
  EXPECT_NE(errors_of("rl: dpo\n").find("It asks for reinforcement learning"), std::string::npos);
  EXPECT_NE(errors_of("  activation_checkpointing: true\ngradient_checkpointing: true\n")
                .find("The Trainer refuses it beside gradient_checkpointing"),
            std::string::npos);
  EXPECT_NE(errors_of("  offload_params: true\n").find("Offloaded parameters of version 2"), std::string::npos);
  EXPECT_NE(errors_of("sample_packing: true\n").find("packed documents attend to each other"), std::string::npos);
  EXPECT_NE(
      errors_of("sample_packing: true\nsdp_attention: true\n").find("The first step of rows that are packed for sdpa"),
      std::string::npos);
  EXPECT_NE(errors_of("flash_attention: true\nmicro_batch_size: 2\n").find("cuts padding away"), std::string::npos);
  EXPECT_NE(errors_of("plugins: [my.Plugin]\n").find("The plugin \"my.Plugin\" is not predicted"), std::string::npos);
  EXPECT_NE(errors_of("optimizer: adamw_bnb_8bit\n").find("axolotl refuses adamw_bnb_8bit"), std::string::npos);
  EXPECT_NE(
      errors_of("plugins:\n  - axolotl.integrations.liger.LigerPlugin\n  - axolotl.integrations.cut_cross_entropy."
                "CutCrossEntropyPlugin\nliger_fused_linear_cross_entropy: true\n")
          .find("Both plugins replace the loss"),
      std::string::npos);
  EXPECT_NE(errors_of("micro_batch_sise: 2\n").find("Did you mean \"micro_batch_size\"?"), std::string::npos);
}

// 8096 is no multiple of 64, to which axolotl pads.
TEST_F(Jobs, ABatchOfOneHasNoPaddingForFlashAttn) {
  const Result<Job> job = read(axolotl("flash", "flash_attention: true\nsequence_len: 8192\n"));
  ASSERT_TRUE(job) << first_error(job);
  EXPECT_EQ(said(*job, PlanChoice::AttentionName), "flash_attn");
  EXPECT_EQ(said(*job, PlanChoice::PaddingMask), "");
  EXPECT_NE(first_error(read(axolotl("odd", "flash_attention: true\nsequence_len: 8096\n"))).find("cuts padding away"),
            std::string::npos);
}

TEST_F(Jobs, CheckpointsOfTrlAreReentrantWhereTheyCanRun) {
  const auto job = [&](const std::string& adapters, const std::string& processes) {
    const std::string path =
        file("reentrant.yaml", "model_name_or_path: Qwen/Qwen3-8B\nmax_length: 1024\ndtype: bfloat16\n" + adapters +
                                   "gradient_checkpointing_kwargs: {use_reentrant: true}\n");
    return read_job_line(std::vector<std::string>{"accelerate", "launch", "--num_processes", processes,
                                                  "trl/scripts/sft.py", "--config", path});
  };
  const Result<Job> alone = job("use_peft: true\n", "1");
  ASSERT_TRUE(alone) << first_error(alone);
  EXPECT_EQ(said(*alone, PlanChoice::Checkpoint), "reentrant");
  EXPECT_TRUE(said(*alone, PlanChoice::Lora).ends_with("input_grads=yes"));
  EXPECT_NE(first_error(job("use_peft: true\n", "2")).find("looks for unused parameters"), std::string::npos);
}

TEST_F(Jobs, CheckpointsOfAxolotlAreReentrantUnlessTheyAreNot) {
  const auto checkpoints = [&](const std::string& keys) {
    const Result<Job> job = read(axolotl("reentrant", keys));
    return job ? said(*job, PlanChoice::Checkpoint) : first_error(job);
  };
  EXPECT_EQ(checkpoints("gradient_checkpointing: true\n"), "reentrant");
  EXPECT_EQ(checkpoints("gradient_checkpointing: true\ngradient_checkpointing_kwargs: {use_reentrant: false}\n"),
            "full");
  EXPECT_EQ(checkpoints("gradient_checkpointing: false\n"), "none");
}

TEST_F(Jobs, LinesOfAxolotlCountBeforeTheFile) {
  const std::string path = axolotl("line", "micro_batch_size: 1\n");
  const std::vector<std::string> words = {"axolotl",         "train",      path, "--micro-batch-size", "4",
                                          "--launcher",      "accelerate", "--", "--num_processes",    "16",
                                          "--num_machines=2"};
  ASSERT_TRUE(is_job_line(words));
  const Result<Job> job = read_job_line(words);
  ASSERT_TRUE(job) << all_errors(job);
  EXPECT_EQ(said(*job, PlanChoice::Batch), "4");
  EXPECT_EQ(said(*job, PlanChoice::Gpus), "8");
  EXPECT_EQ(said(*job, PlanChoice::Nodes), "2");
  const Result<Job> module = read_job_line(std::vector<std::string>{
      "accelerate", "launch", "--num_processes", "4", "-m", "axolotl.cli.train", path, "--sequence_len=1024"});
  ASSERT_TRUE(module) << all_errors(module);
  EXPECT_EQ(said(*module, PlanChoice::Gpus), "4");
  EXPECT_EQ(said(*module, PlanChoice::Sequence), "1024");
  const Result<Job> alone = read_job_line(std::vector<std::string>{"axolotl", "train", path});
  ASSERT_TRUE(alone) << all_errors(alone);
  EXPECT_EQ(said(*alone, PlanChoice::Batch), "1");
  EXPECT_NE(first_error(read_job_line(std::vector<std::string>{"axolotl", "train"})).find("names no configuration"),
            std::string::npos);
}

/// A configuration of torchtitan 0.2.2, with more tables.
std::string titan(const std::string& more) {
  return "[model]\nname = \"llama3\"\nflavor = \"8B\"\n[activation_checkpoint]\nselective_ac_option = \"op\"\n" + more;
}

TEST_F(Jobs, TheTomlOfTorchtitanSaysItsPlan) {
  const Result<Job> job =
      read(file("train.toml", titan("[training]\nlocal_batch_size = 2\nseq_len = 8192\nglobal_batch_size = 64\n"
                                    "[parallelism]\ndata_parallel_replicate_degree = 2\n"
                                    "fsdp_reshard_after_forward = \"always\"\n[optimizer]\nname = \"Adam\"\n"
                                    "implementation = \"for-loop\"\n[validation]\nenable = true\n")));
  ASSERT_TRUE(job) << first_error(job);
  EXPECT_EQ(job->program, "torchtitan 0.2.2");
  EXPECT_EQ(job->model, "llama3_1_8b");
  EXPECT_EQ(job->trainer, "torchtitan");
  EXPECT_EQ(job->trainer_version, "0.2.2");
  EXPECT_EQ(said(*job, PlanChoice::Flavor), "torchtitan");
  EXPECT_EQ(said(*job, PlanChoice::Batch), "2");
  EXPECT_EQ(said(*job, PlanChoice::Sequence), "8192");
  EXPECT_EQ(said(*job, PlanChoice::GlobalBatch), "64");
  EXPECT_EQ(said(*job, PlanChoice::Replicate), "2");
  EXPECT_EQ(said(*job, PlanChoice::Reshard), "all");
  EXPECT_EQ(said(*job, PlanChoice::Checkpoint), "selective");
  EXPECT_EQ(said(*job, PlanChoice::Precision), "mixed");
  EXPECT_EQ(said(*job, PlanChoice::ReduceDtype), "float32");
  EXPECT_EQ(said(*job, PlanChoice::OptimizerName), "adam");
  EXPECT_EQ(said(*job, PlanChoice::OptimizerImpl), "for_loop");
  EXPECT_NE(all_notes(*job).find("--eval-batch 8"), std::string::npos);
}

TEST_F(Jobs, Float8LayersOfTorchtitanHaveTheNamesOfTransformers) {
  const auto layers = [&](const std::string& table) {
    const Result<Job> job = read(file("float8.toml",
                                      "[model]\nname = \"llama3\"\nflavor = \"8B\"\nconverters = "
                                      "[\"quantize.linear.float8\"]\n[activation_checkpoint]\nselective_ac_option = "
                                      "\"op\"\n[quantize.linear.float8]\n" +
                                          table));
    return job ? said(*job, PlanChoice::Float8) : first_error(job);
  };
  EXPECT_EQ(layers(""), "tensorwise,skip=none") << "without a filter the head is converted, too";
  EXPECT_EQ(layers("enable_fsdp_float8_all_gather = true\nprecompute_float8_dynamic_scale_for_fsdp = true\n"
                   "filter_fqns = [\"attention.wk\", \"output\"]\n"),
            "tensorwise,all_gather,precompute,skip=self_attn.k_proj+lm_head");
  EXPECT_EQ(layers("recipe_name = \"rowwise\"\nprecompute_float8_dynamic_scale_for_fsdp = true\n"
                   "filter_fqns = [\"auto_filter_small_kn\"]\n"),
            "rowwise,skip=none+auto_filter_small_kn");
  EXPECT_NE(layers("recipe_name = \"rowwise\"\nenable_fsdp_float8_all_gather = true\n").find("torchtitan refuses it"),
            std::string::npos);
  EXPECT_NE(layers("filter_fqns = [\"layers.3\"]\n").find("are known by \"layers.3\""), std::string::npos);
  EXPECT_NE(layers("emulate = true\n").find("Emulated products"), std::string::npos);
}

TEST_F(Jobs, AConfigurationOfTorchtitanIsNamedOnItsLine) {
  const std::vector<std::string> words = {"torchrun",
                                          "--nnodes=2",
                                          "--nproc-per-node",
                                          "8",
                                          "-m",
                                          "torchtitan.train",
                                          "--module",
                                          "llama3",
                                          "--config",
                                          "llama3_8b",
                                          "--training.seq-len",
                                          "4096",
                                          "--training.disable_cuda_graphs",
                                          "activation-checkpoint:full"};
  ASSERT_TRUE(is_job_line(words));
  const Result<Job> job = read_job_line(words);
  ASSERT_TRUE(job) << all_errors(job);
  EXPECT_EQ(job->program, "torchtitan 0.3.0");
  EXPECT_EQ(job->model, "llama3_1_8b");
  EXPECT_EQ(said(*job, PlanChoice::Gpus), "8");
  EXPECT_EQ(said(*job, PlanChoice::Nodes), "2");
  EXPECT_EQ(said(*job, PlanChoice::Packing), "4096");
  EXPECT_EQ(said(*job, PlanChoice::Batch), "1");
  EXPECT_EQ(said(*job, PlanChoice::Checkpoint), "full");
  EXPECT_EQ(said(*job, PlanChoice::CudaGraphs), "no");
  EXPECT_EQ(said(*job, PlanChoice::LossName), "torchtitan_chunked,chunks=8");
}

TEST_F(Jobs, EverythingOfTorchtitanThatIsNotPredictedIsRefusedAtOnce) {
  const std::string errors = all_errors(
      read(file("refused.toml",
                "[model]\nname = \"llama3\"\nflavor = \"8B\"\nconverters = [\"quantize.linear.mx\"]\n[training]\n"
                "batch_size = 1\nenable_cpu_offload = true\n[parallelism]\ntensor_parallel_degree = 8\n"
                "[compile]\nenable = true\ncomponents = [\"model\"]\n")));
  for (const char* part : {"/training/batch_size: Unknown key \"training.batch_size\".",
                           "/parallelism/tensor_parallel_degree: It asks for tensor parallelism",
                           "Products in narrow formats (quantize.linear.mx)", "torch.compile of model",
                           "Offloaded runs", "Every second block checkpointed whole"}) {
    EXPECT_NE(errors.find(part), std::string::npos) << part << "\n" << errors;
  }
}

TEST_F(Jobs, RegistriesOfTorchtitanSuggestTheNearestName) {
  const auto error_of = [](const std::string& module, const std::string& config) {
    return all_errors(read_job_line(
        std::vector<std::string>{"torchrun", "-m", "torchtitan.train", "--module", module, "--config", config}));
  };
  EXPECT_NE(error_of("llama3", "llama3_8B").find("Did you mean \"llama3_8b\"?"), std::string::npos);
  EXPECT_NE(error_of("deepseek_v3", "deepseek_v3_16b").find("mixtures of experts"), std::string::npos);
  EXPECT_NE(error_of("llama3", "llama3_405b").find("Float8Linear"), std::string::npos);
  const std::vector<std::string> own = {"python", "-m", "torchtitan.train", "--module", "mine", "--config", "planned"};
  EXPECT_EQ(own_titan_config(own), (std::vector<std::string>{"--module", "mine", "--config", "planned"}));
  const auto config = [](const std::string& more) {
    return *parse_json(R"({"model_spec": {"name": "qwen3", "flavor": "0.6B", "attention": "flex"})" + more + "}", "c");
  };
  EXPECT_NE(all_errors(read_job_line(own, config(""))).find("gathers their weight twice"), std::string::npos);
  const Result<Job> job = read_job_line(own, config(R"(, "parallelism": {"spmd_backend": "partial_dtensor"})"));
  ASSERT_TRUE(job) << all_errors(job);
  EXPECT_EQ(job->model, "qwen3_0_6b");
}

}  // namespace
}  // namespace fsdp::planner
