// ds_config.json: what is taken over, what says nothing, and what is refused. The real DeepSpeed is asked in
// tests/rehearsal/import_deepspeed_test.py.

#include "core/formats/deepspeed_config.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "core/formats/deepspeed_keys.h"

namespace fsdp {
namespace {

Result<DeepSpeedConfig> read_ds(const std::string& text) {
  return read_deepspeed_config(*parse_json(text, "ds.json"));
}

/// A file with stage 2 and these members beside it.
std::string stage2(const std::string& members, const std::string& zero = "") {
  return R"({"zero_optimization": {"stage": 2)" + (zero.empty() ? "" : ", " + zero) + "}" +
         (members.empty() ? "" : ", " + members) + "}";
}

std::vector<std::string> refusals_of(const std::string& text) {
  std::vector<std::string> lines;
  const auto config = read_ds(text);
  if (config) return lines;
  for (const Error& error : config.error()) lines.push_back(error.what);
  return lines;
}

TEST(DeepSpeedConfig, MissingKeysTakeDeepSpeedsDefaults) {
  const DeepSpeedConfig config = *read_ds(stage2(""));
  EXPECT_EQ(config.framework, Framework::Zero2);
  EXPECT_EQ(config.zero, default_zero_options(Framework::Zero2));
  EXPECT_EQ(config.clip_grad_norm, 1.0);
  EXPECT_EQ(config.precision, DeepSpeedPrecision::Float32);
  EXPECT_EQ(config.optimizer, std::nullopt);
  EXPECT_EQ(config.micro_batch, std::nullopt);
  EXPECT_TRUE(read_ds(R"({"zero_optimization": {"stage": 3}})")->zero.overlap_comm);
}

TEST(DeepSpeedConfig, NvmeOffloadIsRead) {
  const std::string optimizer = R"("offload_optimizer": {"device": "nvme", "nvme_path": "/nvme", "buffer_count": 9,
      "pipeline_read": true, "pipeline_write": true, "fast_init": FAST})";
  const std::string param = R"("offload_param": {"device": "nvme", "nvme_path": "/nvme", "buffer_count": 7,
      "buffer_size": 1e7, "max_in_cpu": 1e6})";
  const auto stage3 = [&](std::string zero, const std::string& fast = "false") {
    if (const auto at = zero.find("FAST"); at != std::string::npos) zero.replace(at, 4, fast);
    return R"({"zero_optimization": {"stage": 3, )" + zero +
           R"(}, "aio": {"block_size": 2097152, "queue_depth": 32, "intra_op_parallelism": 2}})";
  };
  const DeepSpeedConfig config = *read_ds(stage3(optimizer + ", " + param));
  EXPECT_TRUE(config.offload && config.zero.offload_param);
  EXPECT_EQ(config.zero.nvme, (NvmeOptions{.path = "/nvme",
                                           .optimizer = true,
                                           .buffer_count = 9,
                                           .pipeline_read = true,
                                           .pipeline_write = true,
                                           .parameters = true,
                                           .param_buffer_count = 7,
                                           .param_buffer_size = 10'000'000,
                                           .max_in_cpu = 1'000'000,
                                           .block_size = 2 << 20,
                                           .intra_op_parallelism = 2}));
  EXPECT_TRUE(refusals_of(stage3(optimizer, "true")).empty());
  EXPECT_EQ(refusals_of(stage3(optimizer + ", " + param, "true")).size(), 1U);
  EXPECT_EQ(refusals_of(stage3(R"("offload_optimizer": {"device": "nvme"})")).size(), 1U);
  const std::string elsewhere = R"("offload_param": {"device": "nvme", "nvme_path": "/other"})";
  EXPECT_EQ(refusals_of(stage3(optimizer + ", " + elsewhere)).size(), 1U);
  EXPECT_EQ(refusals_of(R"({"zero_optimization": {"stage": 3}, "aio": {"use_gds": true}})").size(), 1U);
}

TEST(DeepSpeedConfig, EverySizeOfStage3IsRead) {
  const std::string sizes = R"("reduce_bucket_size": 5e6, "stage3_prefetch_bucket_size": 2, "overlap_comm": false,
      "stage3_param_persistence_threshold": 3, "stage3_max_live_parameters": 4, "max_reuse_distance": 5, "sub_group_size": 1e7,
      "zero_hpz_partition_size": 8, "zero_quantized_weights": true, "zero_quantized_gradients": true)";
  const DeepSpeedConfig config = *read_ds(R"({"zero_optimization": {"stage": 3, )" + sizes + "}}");
  EXPECT_EQ(config.framework, Framework::Zero3);
  EXPECT_EQ(config.zero, (ZeroOptions{.reduce_bucket_size = 5'000'000,
                                      .overlap_comm = false,
                                      .prefetch_bucket_size = 2,
                                      .param_persistence_threshold = 3,
                                      .max_live_parameters = 4,
                                      .max_reuse_distance = 5,
                                      .sub_group_size = 10'000'000,
                                      .hpz_partition_size = 8,
                                      .quantized_weights = true,
                                      .quantized_gradients = true}));
  // Stages 1 and 2 have no use for those of stage 3.
  EXPECT_EQ(
      read_ds(stage2("", R"("sub_group_size": 7, "zero_hpz_partition_size": 8, "zero_quantized_weights": true)"))->zero,
      default_zero_options(Framework::Zero2));
}

TEST(DeepSpeedConfig, AutoValuesStayUnset) {
  const DeepSpeedConfig config = *read_ds(stage2(
      R"("bf16": {"enabled": "auto"}, "fp16": {"enabled": "auto"}, "gradient_clipping": "auto", "train_batch_size": "auto",
         "train_micro_batch_size_per_gpu": "auto", "gradient_accumulation_steps": "auto",
         "optimizer": {"type": "AdamW", "params": {"lr": "auto", "betas": "auto", "eps": "auto", "weight_decay": "auto"}})"));
  EXPECT_EQ(config.precision, std::nullopt);
  EXPECT_EQ(config.clip_grad_norm, std::nullopt);
  EXPECT_EQ(config.train_batch, std::nullopt);
  EXPECT_EQ(config.micro_batch, std::nullopt);
  EXPECT_EQ(config.accumulation, std::nullopt);
}

TEST(DeepSpeedConfig, AutoSizesAreFilledAsTransformersDoes) {
  const auto filled = [](const std::string& zero) {
    const DeepSpeedConfig config = *read_ds("{\"zero_optimization\": " + zero + "}");
    ZeroOptions options = config.zero;
    fill_in(config.auto_sizes, 4096, options);
    return options;
  };
  // 4096^2, nine tenths of it, and ten times the width.
  const std::string sizes = R"("reduce_bucket_size": "auto", "stage3_prefetch_bucket_size": "auto",
                               "stage3_param_persistence_threshold": "auto"})";
  const ZeroOptions of_stage3 = filled(R"({"stage": 3, )" + sizes);
  EXPECT_EQ(of_stage3.reduce_bucket_size, 16'777'216);
  EXPECT_EQ(of_stage3.prefetch_bucket_size, 15'099'494);
  EXPECT_EQ(of_stage3.param_persistence_threshold, 40'960);
  // Stages 1 and 2 have the first alone; and only under these names, so that another name is DeepSpeed's default.
  ZeroOptions of_stage2 = default_zero_options(Framework::Zero2);
  of_stage2.reduce_bucket_size = 16'777'216;
  EXPECT_EQ(filled(R"({"stage": 2, )" + sizes), of_stage2);
  EXPECT_EQ(filled(R"({"stage": 3, "prefetch_bucket_size": "auto"})"), default_zero_options(Framework::Zero3));
}

TEST(DeepSpeedConfig, KeysThatDeepSpeedIgnoresAreListed) {
  const auto config = read_ds(
      R"({"zero_optimization": {"stage": 2}, "comms_config": {"comms_logger": null}, "monitor_config": {}, "xyzzy": 1})");
  ASSERT_TRUE(config.has_value()) << to_string(config.error()[0]);
  EXPECT_EQ(config->ignored, (std::vector<std::string>{"comms_config", "monitor_config", "xyzzy"}));
}

TEST(DeepSpeedConfig, OptimizerIsDeepSpeedsUnlessTorchAdamIsSet) {
  const auto optimizer = [](const std::string& text) { return *read_ds(stage2("\"optimizer\": " + text)); };
  EXPECT_EQ(optimizer(R"({"type": "Adam"})").optimizer, OptimizerKind::AdamW);
  EXPECT_EQ(optimizer(R"({"type": "Adam", "params": {"adam_w_mode": false}})").optimizer, OptimizerKind::Adam);
  EXPECT_TRUE(optimizer(R"({"type": "AdamW"})").has_fused_adam);
  EXPECT_EQ(optimizer(R"({"type": "AdamW"})").implementation, OptimizerImplementation::Fused);
  const DeepSpeedConfig torch = optimizer(R"({"type": "AdamW", "params": {"torch_adam": true}})");
  EXPECT_FALSE(torch.has_fused_adam);
  EXPECT_EQ(torch.implementation, OptimizerImplementation::Foreach);
  EXPECT_EQ(optimizer(R"({"type": "SGD", "params": {"lr": 0.1}})").optimizer, OptimizerKind::Sgd);
  EXPECT_EQ(refusals_of(stage2(R"("optimizer": {"type": "SGD", "params": {"momentum": 0.9}})")).size(), 1U);
  EXPECT_EQ(refusals_of(stage2(R"("optimizer": {"type": "OneBitAdam"})")),
            (std::vector<std::string>{"The optimizer the string \"OneBitAdam\" is not predicted."}));
}

TEST(DeepSpeedConfig, MisspelledKeysAreReported) {
  const auto config = read_ds(R"({"zero_optimization": {"stage": 2, "overlapcomm": true}, "step_per_print": 1})");
  ASSERT_FALSE(config.has_value());
  EXPECT_EQ(to_string(config.error()[0]),
            "ds.json:1:36: /zero_optimization/overlapcomm: DeepSpeed has no key \"overlapcomm\" in "
            "\"zero_optimization\". Did you mean \"overlap_comm\"?");
  EXPECT_EQ(
      to_string(config.error()[1]),
      "ds.json:1:58: /step_per_print: DeepSpeed has no key \"step_per_print\". Did you mean \"steps_per_print\"?");
}

TEST(DeepSpeedConfig, UnpredictedFeaturesAreRefused) {
  for (const char* members :
       {R"("fp16": {"enabled": true, "fp16_master_weights_and_grads": true})", R"("torch_autocast": {"enabled": true})",
        R"("tensor_parallel": {"autotp_size": 2})", R"("compile": {"deepcompile": true})",
        R"("communication_data_type": "fp32")", R"("gradient_allreduce_op": "sum")",
        R"("data_types": {"grad_accum_dtype": "fp32"})",
        R"("bf16": {"enabled": true, "bf16_master_weights_and_grads": true})",
        R"("bf16": {"enabled": true, "bf16_optimizer_states": true})",
        R"("bf16": {"enabled": true}, "fp16": {"enabled": true})",
        R"("activation_checkpointing": {"cpu_checkpointing": true})", R"("elasticity": {"enabled": false})",
        R"("prescale_gradients": true)", R"("sequence_parallel_size": 2)"}) {
    EXPECT_EQ(refusals_of(stage2(members)).size(), 1U) << members;
  }
  for (const char* zero :
       {R"("offload_optimizer": {"device": "nvme"})", R"("offload_optimizer": {"device": "gpu"})",
        R"("offload_optimizer": true)",
        R"("offload_optimizer": {"device": "cpu", "ratio": 0.5})",  // DeepSpeed: of stage 3 alone.
        R"("offload_optimizer": {"device": "cpu", "super_offload": true})",
        R"("offload_optimizer": {"device": "cpu", "pinmemory": true})", R"("offload_param": {"device": "cpu"})",
        R"("offload_param": {"device": "nvme", "nvme_path": "/x"})", R"("cpu_offload": true)",
        R"("zero_quantized_nontrainable_weights": true)", R"("round_robin_gradients": true)",
        R"("contiguous_gradients": false)", R"("reduce_scatter": false)", R"("leaf_module": {"classes": ["Moe"]})",
        R"("stage3_model_persistence_threshold": 1000)", R"("mics_shard_size": 8)", R"("reduce_bucket_size": 0)",
        R"("reduce_bucket_size": 1.5)", R"("reduce_bucket_size": 9e15)"}) {
    EXPECT_EQ(refusals_of(stage2("", zero)).size(), 1U) << zero;
  }
  for (const char* text : {R"({"train_batch_size": 8})", R"({"zero_optimization": {"stage": 0}})",
                           R"({"zero_optimization": {"stage": 4}})", R"({"zero_optimization": {}})",
                           R"({"zero_optimization": true})", "[]"}) {
    EXPECT_EQ(refusals_of(text).size(), 1U) << text;
  }
}

TEST(DeepSpeedConfig, DisabledFeaturesAreAccepted) {
  EXPECT_EQ(refusals_of(stage2(
                R"("fp16": {"enabled": false, "loss_scale": 0}, "torch_autocast": {}, "communication_data_type": null,
                             "gradient_predivide_factor": 1.0, "wandb": {"enabled": true}, "scheduler": {"type": "WarmupLR"},
                             "data_types": {"grad_accum_dtype": null}, "compile": {}, "tensor_parallel": {})",
                R"("offload_optimizer": {"device": "none"}, "offload_param": null, "allgather_bucket_size": 2e8,
                              "zero_hpz_partition_size": 1, "stage3_model_persistence_threshold": 9223372036854775807)")),
            std::vector<std::string>{});
}

TEST(DeepSpeedConfig, CpuOffloadIsRead) {
  const DeepSpeedConfig plain = *read_ds(stage2("", R"("offload_optimizer": {"device": "cpu"})"));
  EXPECT_TRUE(plain.offload);
  EXPECT_TRUE(plain.zero.pin_memory);
  EXPECT_FALSE(read_ds(stage2("", R"("offload_optimizer": {"device": "cpu", "pin_memory": false})"))->zero.pin_memory);
  const std::string both =
      R"({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"}, "offload_param": )";
  EXPECT_TRUE(read_ds(both + R"({"device": "cpu"}}})")->zero.offload_param);
  const std::string part = R"({"zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu", "ratio": )";
  EXPECT_EQ(read_ds(part + "0.5}}}")->zero.offload_ratio, 0.5);
  EXPECT_EQ(refusals_of(part + "1.5}}}").size(), 1U);
  EXPECT_FALSE(read_ds(both + R"({"device": "none"}}})")->zero.offload_param);
  EXPECT_EQ(refusals_of(both + R"({"device": "cpu", "pin_memory": false}}})").size(), 1U);
  EXPECT_EQ(refusals_of(R"({"zero_optimization": {"stage": 3, "offload_param": {"device": "cpu"}}})").size(), 1U);
  // Adam there is DeepSpeed's own.
  const std::string on_host = R"("offload_optimizer": {"device": "cpu"})";
  EXPECT_EQ(refusals_of(stage2(R"("optimizer": {"type": "AdamW"})", on_host)), std::vector<std::string>{});
  EXPECT_EQ(refusals_of(stage2(R"("optimizer": {"type": "AdamW", "params": {"torch_adam": true}})", on_host)).size(),
            1U);
  EXPECT_EQ(refusals_of(stage2(R"("zero_force_ds_cpu_optimizer": false)", on_host)).size(), 1U);
  EXPECT_EQ(refusals_of(stage2(R"("zero_force_ds_cpu_optimizer": false)", "")), std::vector<std::string>{});
}

TEST(DeepSpeedConfig, PrecisionIsTheEnabledOne) {
  const auto precision = [](const std::string& members) { return read_ds(stage2(members))->precision; };
  EXPECT_EQ(precision(R"("bf16": {"enabled": true})"), DeepSpeedPrecision::BFloat16);
  EXPECT_EQ(precision(R"("bf16": {"enabled": true, "bf16_master_weights_and_grads": true,
                                  "bf16_optimizer_states": true})"),
            DeepSpeedPrecision::PureBFloat16);
  EXPECT_EQ(precision(R"("fp16": {"enabled": true}, "bf16": {"enabled": "auto"})"), DeepSpeedPrecision::Float16);
  EXPECT_EQ(precision(R"("fp16": {"enabled": false}, "bf16": {"enabled": "auto"})"), std::nullopt);
  const DeepSpeedConfig scaled = *read_ds(stage2(
      R"("fp16": {"enabled": true, "auto_cast": true, "initial_scale_power": 8, "loss_scale_window": 3,
                  "hysteresis": 4, "consecutive_hysteresis": true, "min_loss_scale": 5})"));
  EXPECT_EQ(scaled.zero.fp16, (Fp16Options{.auto_cast = true,
                                           .initial_scale_power = 8,
                                           .loss_scale_window = 3,
                                           .hysteresis = 4,
                                           .consecutive_hysteresis = true,
                                           .min_loss_scale = 5}));
  // For a fixed scale the others say nothing.
  EXPECT_EQ(read_ds(stage2(R"("fp16": {"enabled": true, "loss_scale": 64, "loss_scale_window": 0})"))->zero.fp16,
            Fp16Options{.loss_scale = 64});
  // Nothing is taken over from a part that is off.
  EXPECT_EQ(read_ds(stage2(R"("fp16": {"enabled": false, "loss_scale": 64})"))->zero.fp16, Fp16Options{});
}

TEST(DeepSpeedConfig, TheBatchFollowsDeepSpeedsRule) {
  using Count = std::optional<std::int64_t>;
  const auto batch = [](Count train, Count micro, Count accumulation, std::int64_t world) {
    DeepSpeedConfig config;
    config.train_batch = train;
    config.micro_batch = micro;
    config.accumulation = accumulation;
    return batch_of(config, world, "ds.json");
  };
  const Count none;
  EXPECT_EQ(batch(64, none, none, 8), (DeepSpeedBatch{8, 1}));
  EXPECT_EQ(batch(64, 2, none, 8), (DeepSpeedBatch{2, 4}));
  EXPECT_EQ(batch(64, none, 4, 8), (DeepSpeedBatch{2, 4}));
  EXPECT_EQ(batch(none, 2, none, 8), (DeepSpeedBatch{2, 1}));
  EXPECT_EQ(batch(none, none, 4, 8), (DeepSpeedBatch{none, 4}));
  EXPECT_EQ(batch(64, 2, 4, 8), (DeepSpeedBatch{2, 4}));
  EXPECT_FALSE(batch(64, 2, 4, 4).has_value());
  EXPECT_FALSE(batch(64, none, none, 6).has_value());
  EXPECT_FALSE(batch(8, 16, none, 1).has_value());
  EXPECT_FALSE(batch(4, none, none, 8).has_value());
  const std::int64_t most = std::int64_t{1} << 31;
  EXPECT_FALSE(batch(most, most, most, most).has_value());
}

TEST(DeepSpeedConfig, TablesHaveNoDuplicateKey) {
  for (const auto keys : {deepspeed_keys(), deepspeed_zero_keys(), deepspeed_bf16_keys(), deepspeed_fp16_keys(),
                          deepspeed_dtype_keys(), deepspeed_checkpointing_keys()}) {
    std::vector<std::string_view> names;
    for (const DeepSpeedKey& key : keys) names.push_back(key.name);
    std::sort(names.begin(), names.end());
    EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
  }
}

}  // namespace
}  // namespace fsdp
