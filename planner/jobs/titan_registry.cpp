// The configurations of torchtitan's own registries of the models that we predict, as read_config prints them:
// tests/rehearsal/titan_job_test.py compares each with the library. Data, logs, learning rates and checkpoints are left
// out.
//
// Sources: torchtitan 0.3.0, models/*/config_registry.py, and models/__init__.py (_supported_models).

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "core/base/nearest.h"
#include "planner/jobs/titan_job.h"

namespace fsdp::planner {

namespace {

struct TitanConfig {
  std::string_view module;
  std::string_view name;
  std::string_view json;
};

constexpr TitanConfig kTitanConfigs[] = {
    // clang-format off
    {"llama3", "llama3_405b",
     R"({"model_spec": {"name": "llama3", "flavor": "405B", "changed": ["Float8Linear"]}, "training": {"local_batch_size": 2, "seq_len": 8192}, "parallelism": {"tensor_parallel_degree": 8}, "activation_checkpoint": {"class": "full"}, "compile": {"enable": true}})"},
    {"llama3", "llama3_70b",
     R"({"model_spec": {"name": "llama3", "flavor": "70B", "attention": "flex"}, "training": {"seq_len": 8192}, "parallelism": {"tensor_parallel_degree": 8}, "activation_checkpoint": {"class": "full"}})"},
    {"llama3", "llama3_8b",
     R"({"model_spec": {"name": "llama3", "flavor": "8B", "attention": "flex"}, "training": {"local_batch_size": 1, "seq_len": 8192}})"},
    {"llama3", "llama3_8b_first_85_pct_layers_nvfp4",
     R"({"model_spec": {"name": "llama3", "flavor": "8B", "changed": ["NVFP4Linear"]}, "training": {"local_batch_size": 1, "seq_len": 8192}, "compile": {"enable": true, "components": ["model"]}})"},
    {"llama3", "llama3_8b_mxfp8",
     R"({"model_spec": {"name": "llama3", "flavor": "8B", "changed": ["MXFP8Linear"]}, "training": {"local_batch_size": 1, "seq_len": 8192}, "compile": {"enable": true, "components": ["model"]}})"},
    {"llama3", "llama3_debugmodel",
     R"({"model_spec": {"name": "llama3", "flavor": "debugmodel", "attention": "flex"}})"},
    {"llama3", "llama3_debugmodel_ce_loss",
     R"({"model_spec": {"name": "llama3", "flavor": "debugmodel", "attention": "flex"}, "loss": {"class": "CrossEntropyLoss"}})"},
    {"llama3", "llama3_debugmodel_dist_gemm",
     R"({"model_spec": {"name": "llama3", "flavor": "debugmodel", "changed": ["AllGatherFusedFeedForward", "AllGatherFusedQKVLinear", "RowParallelLinear"]}})"},
    {"llama3", "llama3_debugmodel_first_85_pct_layers_nvfp4",
     R"({"model_spec": {"name": "llama3", "flavor": "debugmodel", "changed": ["NVFP4Linear"]}})"},
    {"llama3", "llama3_debugmodel_float8",
     R"({"model_spec": {"name": "llama3", "flavor": "debugmodel", "changed": ["Float8Linear"]}})"},
    {"llama3", "llama3_debugmodel_float8_emulate_lora",
     R"({"model_spec": {"name": "llama3", "flavor": "debugmodel", "changed": ["FrozenComplexRoPE", "FrozenEmbedding", "FrozenFeedForward", "FrozenFlexAttention", "FrozenFloat8Linear", "FrozenFusedQKVLinear", "FrozenGQAttention", "FrozenLlama3Model", "FrozenLlama3TransformerBlock", "FrozenRMSNorm", "LoRALinear"]}})"},
    {"llama3", "llama3_debugmodel_nvfp4",
     R"({"model_spec": {"name": "llama3", "flavor": "debugmodel", "changed": ["NVFP4Linear"]}})"},
    {"llama3", "llama3_debugmodel_varlen_attn",
     R"({"model_spec": {"name": "llama3", "flavor": "debugmodel", "attention": "varlen"}, "training": {"disable_cuda_graphs": true}})"},
    {"llama3", "sft_debugmodel",
     R"({"model_spec": {"name": "llama3", "flavor": "debugmodel", "attention": "flex"}, "dataloader": {"class": "ChatDataLoader"}})"},
    {"qwen3", "qwen3_0_6b",
     R"({"model_spec": {"name": "qwen3", "flavor": "0.6B", "attention": "flex"}, "training": {"local_batch_size": 4, "seq_len": 4096}})"},
    {"qwen3", "qwen3_14b",
     R"({"model_spec": {"name": "qwen3", "flavor": "14B", "attention": "flex"}, "training": {"local_batch_size": 4, "seq_len": 4096}, "activation_checkpoint": {"class": "full"}})"},
    {"qwen3", "qwen3_1_7b",
     R"({"model_spec": {"name": "qwen3", "flavor": "1.7B", "attention": "flex"}, "training": {"local_batch_size": 4, "seq_len": 4096}})"},
    {"qwen3", "qwen3_30b_a3b",
     R"({"model_spec": {"name": "qwen3", "flavor": "30B-A3B", "attention": "flex"}, "training": {"local_batch_size": 2, "seq_len": 4096}, "activation_checkpoint": {"class": "full"}})"},
    {"qwen3", "qwen3_32b",
     R"({"model_spec": {"name": "qwen3", "flavor": "32B", "attention": "flex"}, "training": {"local_batch_size": 2, "seq_len": 4096}, "activation_checkpoint": {"class": "full"}})"},
    {"qwen3", "qwen3_8b_first_85_pct_layers_nvfp4",
     R"({"model_spec": {"name": "qwen3", "flavor": "8B", "changed": ["NVFP4Linear"]}, "dataloader": {"class": "ChatDataLoader"}, "training": {"local_batch_size": 1}, "checkpoint": {"enable": true}, "compile": {"enable": true, "components": ["model"]}})"},
    {"qwen3", "qwen3_debugmodel",
     R"({"model_spec": {"name": "qwen3", "flavor": "debugmodel", "attention": "flex"}})"},
    {"qwen3", "qwen3_debugmodel_first_85_pct_layers_nvfp4",
     R"({"model_spec": {"name": "qwen3", "flavor": "debugmodel", "changed": ["NVFP4Linear"]}})"},
    {"qwen3", "qwen3_debugmodel_flex_flash",
     R"({"model_spec": {"name": "qwen3", "flavor": "debugmodel", "attention": "flex_flash"}})"},
    {"qwen3", "qwen3_debugmodel_moe_param_groups",
     R"({"model_spec": {"name": "qwen3", "flavor": "debugmodel_moe", "attention": "flex"}, "optimizer": {"param_groups": ["AdamW", "Adam", "AdamW"]}, "training": {"local_batch_size": 4, "seq_len": 4096}})"},
    {"qwen3", "qwen3_debugmodel_non_fused_qkv",
     R"({"model_spec": {"name": "qwen3", "flavor": "debugmodel_non_fused_qkv", "attention": "flex"}})"},
    {"qwen3", "qwen3_debugmodel_nvfp4",
     R"({"model_spec": {"name": "qwen3", "flavor": "debugmodel", "changed": ["NVFP4Linear"]}})"},
    {"qwen3", "qwen3_moe_debug",
     R"({"model_spec": {"name": "qwen3", "flavor": "debugmodel_moe", "attention": "flex"}, "training": {"local_batch_size": 4, "seq_len": 4096}})"},
    {"qwen3", "qwen3_moe_deepep",
     R"({"model_spec": {"name": "qwen3", "flavor": "debugmodel_moe", "changed": ["DeepEPTokenDispatcher"]}, "training": {"local_batch_size": 2, "seq_len": 512, "disable_cuda_graphs": true}, "parallelism": {"expert_parallel_degree": 4}})"},
    {"qwen3", "sft_qwen3_8b_math",
     R"({"model_spec": {"name": "qwen3", "flavor": "8B", "attention": "varlen"}, "dataloader": {"class": "ChatDataLoader"}, "training": {"local_batch_size": 1}, "checkpoint": {"enable": true}})"},
    // clang-format on
};

/// Registries of models that are not predicted, and why.
constexpr std::pair<std::string_view, std::string_view> kOtherModules[] = {
    {"deepseek_v3", "torchtitan's mixtures of experts"}, {"gpt_oss", "torchtitan's mixtures of experts"},
    {"kimi_k2_7", "torchtitan's mixtures of experts"},   {"muse_glimmer", "windows of attention and a vision part"},
    {"qwen3_5", "linear attention and a vision part"},   {"flux", "a model of images"},
};

std::string_view without_package(std::string_view module) {
  constexpr std::string_view kPackage = "torchtitan.models.";
  if (module.starts_with(kPackage)) module.remove_prefix(kPackage.size());
  return module;
}

}  // namespace

bool is_shipped_titan_module(std::string_view module) {
  const auto is_it = [name = without_package(module)](const auto& each) { return each == name; };
  return std::any_of(std::begin(kOtherModules), std::end(kOtherModules),
                     [&](const auto& each) { return is_it(each.first); }) ||
         std::any_of(std::begin(kTitanConfigs), std::end(kTitanConfigs),
                     [&](const TitanConfig& each) { return is_it(each.module); });
}

Result<std::optional<JsonDocument>> shipped_titan_config(std::string_view module, std::string_view config,
                                                         const std::string& where) {
  module = without_package(module);
  for (const auto& [name, what] : kOtherModules) {
    if (module != name) continue;
    return failure(where, fmt::format("{} has {}, which is not predicted.", module, what),
                   "A rehearsal runs it: fsdp-plan rehearse -- and the line that starts the training.");
  }
  std::vector<std::string_view> names;
  for (const TitanConfig& each : kTitanConfigs) {
    if (each.module != module) continue;
    if (each.name == config) {
      FSDP_TRY(JsonDocument document, parse_json(std::string(each.json), fmt::format("{} of torchtitan", config)));
      document.is_translated = true;
      return document;
    }
    names.push_back(each.name);
  }
  if (names.empty()) return std::nullopt;
  return failure(where, fmt::format("torchtitan's {} has no configuration \"{}\".", module, config),
                 suggest_name(config, names));
}

}  // namespace fsdp::planner
