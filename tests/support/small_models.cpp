#include "tests/support/small_models.h"

#include <fmt/core.h>

#include <cstdio>
#include <cstdlib>
#include <utility>

#include "core/cluster/cluster_library.h"

namespace fsdp::planner {

namespace {

template <class T>
T value_or_exit(Result<T> result) {
  if (result) return *std::move(result);
  for (const Error& error : result.error()) std::fprintf(stderr, "%s\n", to_string(error).c_str());
  std::exit(1);
}

}  // namespace

ModelSpec small_transformer(const SmallTransformer& sizes) {
  const std::string precision =
      sizes.mixed_precision
          ? R"("parameter_dtype": "float32", "mixed_precision": {"param_dtype": "bfloat16", "reduce_dtype": "float32"},)"
          : "";
  const std::string tied = sizes.tied ? R"("tied": {"lm_head.weight": "model.embed_tokens.weight"},)" : "";
  const std::string dense = fmt::format(R"("intermediate_size": {})", 3 * sizes.hidden);
  const std::string mixture = fmt::format(
      R"("head_dim": {}, "num_experts": {}, "num_experts_per_tok": 2, "moe_intermediate_size": {}{})",
      sizes.hidden / sizes.heads, sizes.experts, 2 * sizes.hidden, sizes.stacked ? R"(, "stacked": true)" : "");
  const std::string cached =
      fmt::format(R"("block": "qwen3_tts_layer", "head_dim": {}, {})", sizes.hidden / sizes.heads, dense);
  const std::string layer = sizes.cached        ? cached
                            : sizes.experts > 0 ? R"("block": "moe_layer", )" + mixture
                                                : R"("block": "decoder_layer", )" + dense;
  const std::string text = fmt::format(
      R"({{"format_version": "1.0", "name": "small", "source": "a test", "dtype": "bfloat16",
  "dimensions": {{"batch": {batch}, "seq": {seq}}},
  "inputs": {{"input_ids": {{"shape": ["batch", "seq"], "dtype": "int64"}},
             "labels": {{"shape": ["batch", "seq"], "dtype": "int64"}}}},
  "modules": [
    {{"name": "model.embed_tokens", "block": "token_embedding", "vocab_size": {vocab}, "hidden_size": {hidden}}},
    {{"name": "model.rotary_emb", "block": "rotary_table", "head_dim": {head_dim}}},
    {{"name": "model.layers.{{0..{last}}}", {layer}, "num_attention_heads": {heads},
     "num_key_value_heads": {heads}}},
    {{"name": "model.norm", "block": "rms_norm"}},
    {{"name": "lm_head", "block": "lm_head", "vocab_size": {vocab}}},
    {{"name": "", "block": "cross_entropy", "shift": true}}],
  {tied}
  "recipes": {{"train": {{"description": "All of it.", {precision} "optimizer": {{"kind": "adamw"}}}}}}}})",
      fmt::arg("batch", sizes.batch), fmt::arg("seq", sizes.sequence), fmt::arg("vocab", sizes.vocabulary),
      fmt::arg("hidden", sizes.hidden), fmt::arg("head_dim", sizes.hidden / sizes.heads),
      fmt::arg("last", sizes.layers - 1), fmt::arg("heads", sizes.heads), fmt::arg("layer", layer),
      fmt::arg("tied", tied), fmt::arg("precision", precision));
  return value_or_exit(parse_model_spec(text, "small.json"));
}

ModelSpec small_encoder_decoder(const SmallTransformer& sizes) {
  const auto stack = [&](std::string_view name, std::string_view more) {
    std::string buckets = "32";
    for (int layer = 1; layer < sizes.layers; ++layer) buckets += ", 0";
    return fmt::format(R"({{"name": "{}.block.{{0..{}}}", "block": "t5_block", "num_attention_heads": {},
     "head_dim": {}, "intermediate_size": {}, "relative_attention_max_distance": 128, {}
     "per_layer": {{"relative_attention_buckets": [{}]}}}})",
                       name, sizes.layers - 1, sizes.heads, sizes.hidden / sizes.heads, 4 * sizes.hidden, more,
                       buckets);
  };
  const std::string text = fmt::format(
      R"({{"format_version": "1.0", "name": "small", "source": "a test", "dtype": "float32",
  "dimensions": {{"batch": {batch}, "seq": {seq}}},
  "inputs": {{"input_ids": {{"shape": ["batch", "seq"], "dtype": "int64"}},
             "decoder_input_ids": {{"shape": ["batch", "seq"], "dtype": "int64"}},
             "labels": {{"shape": ["batch", "seq"], "dtype": "int64"}}}},
  "modules": [
    {{"name": "shared", "block": "token_embedding", "vocab_size": {vocab}, "hidden_size": {hidden}}},
    {encoder},
    {{"name": "encoder.final_layer_norm", "class": "T5LayerNorm", "block": "rms_norm"}},
    {{"name": "encoder.dropout", "class": "Dropout",
     "ops": [{{"op": "dropout", "inputs": ["hidden"], "probability": 0.1, "outputs": ["encoder_hidden"]}}]}},
    {{"name": "shared", "block": "token_embedding", "vocab_size": {vocab}, "hidden_size": {hidden},
     "inputs": {{"input_ids": "decoder_input_ids"}}}},
    {decoder},
    {{"name": "decoder.final_layer_norm", "class": "T5LayerNorm", "block": "rms_norm"}},
    {{"name": "lm_head", "block": "lm_head", "vocab_size": {vocab}}},
    {{"name": "", "block": "cross_entropy"}}],
  "tied": {{"lm_head.weight": "shared.weight"}},
  "recipes": {{"train": {{"description": "All of it.", "optimizer": {{"kind": "adamw"}}}}}}}})",
      fmt::arg("batch", sizes.batch), fmt::arg("seq", sizes.sequence), fmt::arg("vocab", sizes.vocabulary),
      fmt::arg("hidden", sizes.hidden), fmt::arg("encoder", stack("encoder", "")),
      fmt::arg("decoder", stack("decoder", R"("decoder": true,)")));
  return value_or_exit(parse_model_spec(text, "small.json"));
}

ModelSpec tiny_tts() {
  return value_or_exit(read_model_spec("docs/examples/qwen3_tts_tiny.json"));
}

Cluster small_cluster(int gpus_per_node, int nodes, Bytes usable_memory) {
  static const ClusterLibrary library = value_or_exit(read_cluster_library("model_specs/clusters"));
  Cluster cluster =
      value_or_exit(make_cluster(value_or_exit(find_gpu("T4", library.gpus, "test")), gpus_per_node, nodes));
  cluster.gpu.usable_memory.value = usable_memory;
  return cluster;
}

}  // namespace fsdp::planner
