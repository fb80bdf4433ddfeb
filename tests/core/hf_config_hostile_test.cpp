// Configurations of Hugging Face: what is read, what is refused with which sentence, and what broken ones come to.
// tests/command/hf_models_test.py holds the models against those of transformers.

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "core/base/json_document.h"
#include "core/formats/hf_config.h"

namespace fsdp {
namespace {

/// Members of a config.json of that type, as small as it gets, with `more` after them.
std::string config(const std::string& model_type, const std::string& more) {
  return R"({"model_type": ")" + model_type + R"(", "num_hidden_layers": 2, "vocab_size": 128)" +
         (more.empty() ? "" : ", " + more) + "}";
}

Result<ModelSpec> read(const std::string& text, std::optional<Dtype> weights = {}) {
  const Result<JsonDocument> document = parse_json(text, "m/config.json");
  if (!document) return tl::unexpected(document.error());
  EXPECT_TRUE(is_hf_config(*document)) << text;
  return read_hf_config(*document, weights);
}

/// All that is wrong, without places.
std::vector<std::string> refused(const std::string& text) {
  std::vector<std::string> result;
  const Result<ModelSpec> spec = read(text);
  if (spec) return result;
  for (const Error& error : spec.error()) {
    EXPECT_TRUE(error.where.starts_with("m/config.json")) << error.where;
    EXPECT_NE(error.hint, "") << error.what;
    result.push_back(error.what);
  }
  return result;
}

using Sentences = std::vector<std::string>;

TEST(HfConfig, ASmallLlamaIsAModel) {
  const Result<ModelSpec> spec = read(config("llama", R"("hidden_size": 64, "num_attention_heads": 4)"));
  ASSERT_TRUE(spec.has_value());
  EXPECT_EQ(spec->name, "m");
  EXPECT_EQ(spec->source, "m/config.json");
  EXPECT_EQ(spec->dtype, Dtype::Float32);
  EXPECT_EQ(spec->notes, Sentences{});
  const Result<Model> model = build_model(*spec);
  ASSERT_TRUE(model.has_value());
  // 2 tables of 128 x 64; of 2 layers 4 products of 64 x 64, 3 of 64 x 11008 and 2 norms; a norm.
  EXPECT_EQ(num_parameters(*model), 2 * 128 * 64 + 2 * (4 * 64 * 64 + 3 * 64 * 11008 + 2 * 64) + 64);
}

TEST(HfConfig, UnsupportedKeysAreRefusedByName) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {config("llama", R"("hidden_act": "relu")"), R"("hidden_act" is the string "relu".)"},
      {config("llama", R"("rope_scaling": {"rope_type": "yarn", "factor": 4})"),
       R"(A "yarn" scaling without "original_max_position_embeddings".)"},
      {config("llama", R"("rope_scaling": {"type": "longrope", "factor": 4})"),
       R"("rope_type" is the string "longrope".)"},
      {config("llama", R"("rope_scaling": {"type": "linear", "factor": 4, "beta_fast": 32})"),
       R"("beta_fast" belongs to no scaling that is read.)"},
      {config("llama", R"("rope_parameters": {"full_attention": {"rope_type": "default"}})"),
       R"("rope_parameters" has a table for each type of layer.)"},
      {config("llama", R"("rope_scaling": {"rope_type": "default", "mscale": 1})"),
       R"("mscale" belongs to no scaling that is read.)"},
      {config("llama", R"("rope_scaling": {}, "rope_parameters": {})"),
       R"("rope_scaling" and "rope_parameters" both set the scaling of the rotary table.)"},
      {config("llama", R"("partial_rotary_factor": 0.5)"), R"("partial_rotary_factor" is the number 0.5.)"},
      {config("llama", R"("quantization_config": {"bits": 4})"), R"("quantization_config" is an object.)"},
      {config("llama", R"("attn_implementation": "eager")"), R"("attn_implementation" is the string "eager".)"},
      {config("llama", R"("gradient_checkpointing": true)"), R"("gradient_checkpointing" is true.)"},
      {config("llama", R"("output_attentions": true)"), R"("output_attentions" is true.)"},
      {config("llama", R"("torchscript": true)"), R"("torchscript" is true.)"},
      {config("llama", R"("pruned_heads": {"0": [1]})"), R"("pruned_heads" is an object.)"},
      {config("llama", R"("dtype": "float8_e4m3fn")"), R"("dtype" is the string "float8_e4m3fn".)"},
      {config("llama", R"("attention_dropout": 1)"), R"("attention_dropout" is the number 1.)"},
      {config("llama", R"("num_hidden_layers_": 1, "hidden_size": 0)"), R"("hidden_size" is the number 0.)"},
      {config("llama", R"("hidden_size": 4096.5)"), R"("hidden_size" is the number 4096.5.)"},
      {config("llama", R"("head_dim": 5)"), "Heads are 5 wide, and rotary positions turn pairs."},
      {config("llama", R"("num_attention_heads": 7)"), "The number of heads, 7, does not divide the width 4096."},
      {config("llama", R"("num_key_value_heads": 5)"), "32 heads do not divide into 5 of keys and values."},
      {config("llama", R"("pad_token_id": 128)"), R"("pad_token_id" is the number 128.)"},
      {config("qwen3", R"("layer_types": ["full_attention"])"),
       R"("layer_types" has 1 entries, and there are 2 layers.)"},
      {config("qwen3", R"("layer_types": ["full_attention", "sliding_attention"])"),
       "Layers have sliding attention, and there is no window."},
      {config("qwen3", R"("layer_types": ["full_attention", "linear_attention"])"),
       R"(The attention of a layer is the string "linear_attention".)"},
      {config("qwen3_moe", R"("num_experts_per_tok": 129)"), "A token is sent to 129 of 128 experts."},
      {config("qwen3_moe", R"("output_router_logits": true)"), R"("output_router_logits" is true.)"},
      {config("mixtral", R"("router_jitter_noise": 0.1)"), R"("router_jitter_noise" is the number 0.1.)"},
      {config("mixtral", R"("hidden_act": "gelu_pytorch_tanh")"), R"("hidden_act" is the string "gelu_pytorch_tanh".)"},
      {config("gemma2", R"("hidden_activation": "quick_gelu")"), R"("hidden_activation" is the string "quick_gelu".)"},
      {config("gemma3_text", R"("use_bidirectional_attention": true)"), R"("use_bidirectional_attention" is true.)"},
      {config("phi3", R"("pad_token_id": null, "resid_pdrop": 0.1)"), R"("resid_pdrop" is the number 0.1.)"},
      {config("phi3", R"("pad_token_id": null, "partial_rotary_factor": 0.01)"),
       "0 of the 96 numbers of a head would be turned."},
      {config("smollm3", R"("pad_token_id": null, "no_rope_layers": [1])"),
       R"("no_rope_layers" has 1 entries, and there are 2 layers.)"},
      {config("glm4_moe", R"("head_dim": 128, "num_experts_per_tok": 129)"), "A token is sent to 129 of 128 experts."},
      {config("gpt2", R"("activation_function": "gelu")"), R"("activation_function" is the string "gelu".)"},
      {config("gpt2", R"("add_cross_attention": true)"), R"("add_cross_attention" is true.)"},
      {config("gpt2", R"("scale_attn_weights": false)"), R"("scale_attn_weights" is false.)"},
      {config("gpt2", R"("n_layer": 3)"),
       R"("n_layer" and "num_hidden_layers" are two names of one size, and differ.)"},
      {config("t5", R"("feed_forward_proj": "gated-silu")"), R"("feed_forward_proj" is the string "gated-silu".)"},
      {config("t5", R"("torch_dtype": "float16")"), "In a float16 T5, transformers keeps a part in float32."},
      {config("vit", R"("qkv_bias": false)"), R"("qkv_bias" is false.)"},
      {config("vit", R"("id2label": {"0": "cat"})"), "There is one class, of which transformers makes a regression."},
      {config("vit", R"("image_size": [224, 224])"), R"("image_size" is a list.)"},
      {config("bert", R"("architectures": ["BertForMaskedLM"], "position_embedding_type": "relative_key")"),
       R"("position_embedding_type" is the string "relative_key".)"},
      {config("bert", R"("architectures": ["BertForMaskedLM"], "is_decoder": true)"), R"("is_decoder" is true.)"},
      {config("whisper", R"("pad_token_id": null, "apply_spec_augment": true)"), R"("apply_spec_augment" is true.)"},
      {config("whisper", R"("pad_token_id": null, "dropout": 0.1)"), R"("dropout" is the number 0.1.)"},
      {config("whisper", ""), R"("pad_token_id" is absent, so that it is 50256, and there are 128 tokens.)"},
  };
  for (const auto& [text, sentence] : cases) EXPECT_EQ(refused(text), Sentences{sentence}) << text;
}

TEST(HfConfig, ReportsEveryError) {
  EXPECT_EQ(refused(config("llama", R"("hidden_act": "relu", "rms_norm_eps": 0, "tie_word_embeddings": 1)")).size(),
            3u);
  const Result<ModelSpec> spec = read("{\"model_type\": \"llama\",\n  \"hidden_act\": \"relu\"}");
  ASSERT_FALSE(spec.has_value());
  EXPECT_EQ(spec.error()[0].where, "m/config.json:2:17: /hidden_act");
}

TEST(HfConfig, UnknownArchitectureIsOneError) {
  EXPECT_EQ(refused(R"({"architectures": ["FalconH1ForCausalLM"], "model_type": "falcon_h1", "hidden_size": "x"})"),
            Sentences{"This is the configuration of a FalconH1ForCausalLM (falcon_h1), whose blocks are not "
                      "built in."});
  EXPECT_EQ(refused(R"({"architectures": ["MambaForCausalLM"]})"),
            Sentences{"This is the configuration of a MambaForCausalLM, whose blocks are not built in."});
  EXPECT_EQ(refused(config("llama", R"("architectures": ["LlamaForSequenceClassification"])")),
            Sentences{"There are no blocks for LlamaForSequenceClassification."});
  EXPECT_EQ(refused(config("bert", "")), Sentences{"A bert without a class in \"architectures\"."});
  const auto error = read(R"({"model_type": "resnet"})").error().front();
  EXPECT_EQ(error.hint,
            "There are some for arcee, bert, cohere, cohere2, deepseek_v2, deepseek_v3, ernie4_5, exaone4, gemma,"
            " gemma2, gemma3, gemma3_text, glm, glm4, glm4_moe, glm4_moe_lite, gpt2, gpt_oss, granite, "
            "hunyuan_v1_dense, kimi_k2, llama, llama4, llama4_text, minimax_m2, ministral, ministral3, mistral, "
            "mistral3, mixtral, nemotron, nemotron_h, olmo2, olmo3, phi, phi3, qwen2, qwen2_5_vl, qwen2_moe, "
            "qwen2_vl, qwen3, qwen3_5, qwen3_5_moe, qwen3_5_moe_text, qwen3_5_text, qwen3_moe, qwen3_next, "
            "qwen3_vl, qwen3_vl_moe, roberta, seed_oss, smollm3, stablelm, starcoder2, t5, vit, whisper, xlm-"
            "roberta; for another, "
            "capture the script that trains it: fsdp-plan capture -o my.model.json -- python train.py.");
}

TEST(HfConfig, TowersAreNamedAndTheTextPartIsOffered) {
  const auto error = [](const std::string& text) {
    return read(
               R"({"model_type": "paligemma", "vision_config": {"model_type": "siglip_vision_model"}, "text_config": )" +
               text + "}")
        .error()
        .front();
  };
  const std::string capture =
      "capture the script that trains it: fsdp-plan capture -o my.model.json -- python train.py.";
  const Error known = error(R"({"model_type": "gemma3_text"})");
  EXPECT_EQ(known.what,
            "This is the configuration of a paligemma, whose \"vision_config\" is a tower without blocks here.");
  EXPECT_EQ(
      known.hint,
      "Its text part is a gemma3_text: write \"text_config\" into a config.json of its own to plan that alone, and "
      "keep the memory of \"vision_config\" free with --reserve; for all of it, " +
          capture);
  EXPECT_EQ(error(R"({"model_type": "qwen9"})").hint, "To plan it, " + capture);
}

TEST(HfConfig, CodeOfTheModelIsNoted) {
  const auto notes = read(config("llama", R"("auto_map": {"AutoModel": "m.M"})"))->notes;
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_TRUE(
      notes[0].starts_with("config.json names code of the model's own (auto_map), which runs only with "
                           "trust_remote_code=True; transformers' "
                           "own class is planned."));
  EXPECT_EQ(read(config("llama", R"("auto_map": {})"))->notes, Sentences{});
}

TEST(HfConfig, KeysThatTheClassIgnoresAreNoted) {
  EXPECT_EQ(read(config("llama", R"("bos_token_id": 1, "temperature": 0.6, "pretraining_tp": 2)"))->notes, Sentences{});
  EXPECT_EQ(read(config("mistral", R"("attention_bias": true, "mlp_bias": false, "foo": 0)"))->notes,
            Sentences{"config.json has keys that the mistral of transformers 4.57 does not read; they are taken to "
                      "change nothing: attention_bias, foo."});
  EXPECT_EQ(read(config("llama", R"("transformers_version": "5.0.0")"))->notes,
            Sentences{"config.json was written by transformers 5.0.0; the model is planned as transformers 4.57 builds "
                      "it."});
}

TEST(HfConfig, DtypeDefaultsToThatOfTheWeights) {
  EXPECT_EQ(read(config("llama", R"("torch_dtype": "bfloat16")"))->dtype, Dtype::BFloat16);
  EXPECT_EQ(read(config("llama", R"("torch_dtype": "bfloat16", "dtype": "float16")"))->dtype, Dtype::Float16);
  EXPECT_EQ(read(config("llama", R"("torch_dtype": null)"), Dtype::BFloat16)->dtype, Dtype::BFloat16);
  EXPECT_EQ(read(config("llama", R"("dtype": "float32")"), Dtype::BFloat16)->dtype, Dtype::Float32);
}

TEST(HfConfig, NameComesFromTheFolderOrTheHub) {
  const auto name_at = [](const std::string& path, const std::string& more) {
    return read_hf_config(*parse_json(config("llama", more), path))->name;
  };
  EXPECT_EQ(name_at("/x/models--Qwen--Qwen3-8B/snapshots/9c925d64/config.json", ""), "Qwen3-8B");
  EXPECT_EQ(name_at("models/mine/config.json", R"("_name_or_path": "a/b")"), "mine");
  EXPECT_EQ(name_at("config.json", R"("_name_or_path": "a/b/")"), "b");
  EXPECT_EQ(name_at("./config.json", ""), "LlamaForCausalLM");
  EXPECT_EQ(name_at("standard input", ""), "LlamaForCausalLM");
}

/// Whether the tables of rotary positions are made without a matrix product.
bool has_elementwise_tables(const std::string& text) {
  const Result<Model> model = build_model(read(text).value());
  for (const Block& block : model->blocks) {
    for (const Op& op : block.ops) {
      if (op.kind == OpKind::RotaryTable) return op.attributes.written_out;
    }
  }
  return false;
}

TEST(HfConfig, RotaryTablesFollowTheVersionThatWroteTheFile) {
  const std::string sizes = R"("hidden_size": 64, "num_attention_heads": 4, "transformers_version": )";
  EXPECT_FALSE(has_elementwise_tables(config("llama", sizes + R"("4.57.3")")));
  EXPECT_TRUE(has_elementwise_tables(config("llama", sizes + R"("5.0.0")")));
  EXPECT_TRUE(has_elementwise_tables(config("glm4_moe", sizes + R"("4.54.0", "num_key_value_heads": 4)")));
}

TEST(HfConfig, LatentAttentionTakesTheMaskOfPadding) {
  Workload workload;
  workload.padding_mask = true;
  const Result<Model> model = build_model(read(config("deepseek_v3", "")).value(), workload);
  ASSERT_TRUE(model.has_value());
  int found = 0;
  for (const Block& block : model->blocks) {
    for (const Op& op : block.ops) {
      if (op.kind != OpKind::Attention) continue;
      EXPECT_EQ(op.inputs.size(), 4u);
      ++found;
    }
  }
  EXPECT_GT(found, 0);
}

TEST(HfConfig, PublishedWeightsInFewBitsAreNoted) {
  const std::string mxfp4 = R"("quantization_config": {"quant_method": "mxfp4"})";
  const Result<ModelSpec> spec = read(config("gpt_oss", mxfp4));
  ASSERT_TRUE(spec.has_value());
  EXPECT_EQ(spec->dtype, Dtype::BFloat16);
  ASSERT_EQ(spec->notes.size(), 1u);
  EXPECT_EQ(
      spec->notes[0],
      "config.json has weights in mxfp4; the plan trains them in floating point, as from_pretrained loads them with "
      "quantization_config=Mxfp4Config(dequantize=True).");
  EXPECT_EQ(refused(config("llama", mxfp4)).size(), 1u);
}

TEST(HfConfig, OtherJsonFilesAreNotConfigurations) {
  for (const char* text :
       {R"({"format_version": "1.0", "model_type": "llama"})", R"({"modules": [], "architectures": []})",
        R"({"transformers_version": "4.57.3"})", R"([])", R"({"model_type": 3})"}) {
    EXPECT_FALSE(is_hf_config(*parse_json(text, "x"))) << text;
  }
}

/// Any value in the place of any key: a model or errors, and never anything else.
RC_GTEST_PROP(HfConfigHostile, AnyValueOfAKeyIsReadOrRefused, ()) {
  const std::vector<std::string> types = hf_model_types();
  const std::string type = *rc::gen::elementOf(types);
  const std::vector<std::string> keys = {"hidden_size",
                                         "num_attention_heads",
                                         "num_key_value_heads",
                                         "head_dim",
                                         "intermediate_size",
                                         "vocab_size",
                                         "rope_theta",
                                         "rope_scaling",
                                         "layer_types",
                                         "sliding_window",
                                         "num_experts",
                                         "n_embd",
                                         "n_inner",
                                         "d_model",
                                         "num_layers",
                                         "pad_token_id",
                                         "mlp_only_layers",
                                         "id2label",
                                         "image_size",
                                         "patch_size",
                                         "torch_dtype",
                                         "architectures",
                                         "num_mel_bins",
                                         "d_kv",
                                         "relative_attention_num_buckets",
                                         "num_hidden_layers",
                                         "attn_pdrop",
                                         "decoder_sparse_step"};
  const std::vector<std::string> values = {"null",
                                           "true",
                                           "0",
                                           "1",
                                           "-1",
                                           "3",
                                           "8",
                                           "1.5",
                                           "1e300",
                                           "2147483647",
                                           "9223372036854775807",
                                           "\"\"",
                                           "\"gelu\"",
                                           "[]",
                                           "{}",
                                           "[0, 1]",
                                           "[\"full_attention\", 3]",
                                           "{\"rope_type\": \"llama3\", \"factor\": 1e-9}"};
  std::string text = R"({"model_type": ")" + type + "\"";
  std::vector<std::string> taken;
  for (int i = *rc::gen::inRange(0, 6); i > 0; --i) {
    const std::string key = *rc::gen::elementOf(keys);
    if (std::find(taken.begin(), taken.end(), key) != taken.end()) continue;
    taken.push_back(key);
    text += ", \"" + key + "\": " + *rc::gen::elementOf(values);
  }
  const Result<JsonDocument> document = parse_json(text + "}", "config.json");
  RC_ASSERT(document.has_value());
  const Result<ModelSpec> spec = read_hf_config(*document);
  if (!spec) {
    for (const Error& error : spec.error()) RC_ASSERT(!error.what.empty() && error.where.starts_with("config.json"));
    return;
  }
  const Result<Model> model = build_model(*spec);
  if (model) RC_ASSERT(num_parameters(*model) > 0);
}

}  // namespace
}  // namespace fsdp
