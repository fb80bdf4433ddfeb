#pragma once

// Decoder-only models of one shape, "decoder_layer" and "moe_layer", as facts that a family fills in. For the files
// that translate config.json of such families.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/formats/hf_models.h"
#include "core/formats/hf_spec_text.h"

namespace fsdp::hf_models {

inline constexpr std::int64_t kMostExpertsOfLayer = 4096;
inline constexpr double kWeightDecay = 0.1;

/// Defaults of a family's configuration class for absent keys.
struct Defaults {
  std::string_view family;  ///< First word of its classes.
  std::int64_t vocab_size = 32000;
  std::int64_t hidden_size = 4096;
  std::int64_t intermediate_size = 14336;
  std::int64_t layers = 32;
  std::int64_t heads = 32;
  std::optional<std::int64_t> kv_heads;  ///< Defaults to the number of query heads.
  std::optional<std::int64_t> head_dim;  ///< Defaults to the width over the heads.
  std::int64_t positions = 32768;
  double norm_eps = 1e-6;
  double rope_theta = 10000;
  bool tied = false;
  std::optional<std::int64_t> pad_token = {};
  std::optional<double> partial_rotary = {};  ///< Share of a head that is turned. `nullopt`: all, and no key for it.
  bool has_rotary_by_type = false;            ///< "rope_parameters" may have a table for each type of layer.
  std::string_view eps_key = "rms_norm_eps";  ///< The epsilon of the norms.
  double initial_std = kUsualInitialStd;
  bool has_sections = false;        ///< "mrope_section": angles of three positions.
  bool has_position_scale = false;  ///< "llama_4_scaling_beta": queries grow with their position.
};

/// A rotary table.
struct Rotary {
  double theta = 10000;
  std::string scaling;  ///< As the option "rope_scaling"; empty if there is none.
  double factor = 1;
  double low_freq_factor = 1;
  double high_freq_factor = 4;
  std::int64_t original_positions = 1;
  double beta_fast = 32, beta_slow = 1, attention_factor = 1;
  double mscale_all = 0;  ///< "mscale_all_dim"; 0 if absent.
  double alpha = 1;       ///< Hunyuan's dynamic scaling.
  bool truncate = true;
  bool has_sections = false;  ///< As in `Defaults`.
  std::vector<std::int64_t> sections = {};
  bool has_position_scale = false;  ///< As in `Defaults`.
};

/// What a model with a tower for images has around its decoder.
struct Around {
  std::string at = "model";                                       ///< The module of the decoder.
  std::string head = "lm_head";                                   ///< The module of its head.
  std::string decoder_class = {};                                 ///< Defaults to the family's.
  std::vector<std::pair<std::string, std::string>> classes = {};  ///< Modules outside the decoder, and their classes.
  std::vector<std::string> registered = {};                       ///< Modules registered before the decoder.
  /// Writes those, after the embeddings of the decoder.
  std::function<void(HfSpecText&)> write = {};
};

/// Attention with latent keys and values (DeepSeek).
struct LatentHeads {
  std::int64_t q_rank = 0, kv_rank = 1;           ///< Widths of the latents; 0 means no latent of queries.
  std::int64_t plain = 1, turned = 2, value = 1;  ///< Numbers of a head: without positions, with, of its value.
};

/// Linear attention in the place of attention, in some layers (Qwen3-Next, Qwen3.5).
struct LinearHeads {
  std::int64_t key_heads = 1, heads = 1, key_dim = 1, value_dim = 1, kernel = 1;
  bool is_fused = false;           ///< Two projections and not four.
  std::vector<bool> is_here = {};  ///< For each layer.
};

struct Decoder {
  std::string family;
  std::int64_t vocab_size = 1, hidden_size = 1, intermediate_size = 1, layers = 1, heads = 1, kv_heads = 1;
  std::int64_t head_dim = 1;
  bool states_head_dim = false;
  std::int64_t positions = 1;
  double norm_eps = 1e-6;
  double initial_std = kUsualInitialStd;
  bool tied = false;
  std::optional<std::int64_t> padding;
  double attention_dropout = 0, residual_dropout = 0;
  Rotary rotary = {};
  std::optional<Rotary> local_rotary = {};  ///< For layers with a window (Gemma 3, OLMo 3).
  bool has_rotary_by_type = false;
  std::int64_t rotary_dim = 1;  ///< Numbers of a head that are turned.
  // Settings of some families.
  bool qkv_bias = false, output_bias = false, mlp_bias = false, qk_norm = false;
  std::string activation = {};             ///< As the option of "decoder_layer"; empty means silu.
  std::vector<std::int64_t> windows = {};  ///< For each layer; 0 means all tokens. Empty means 0 for all.
  bool is_gemma = false;                   ///< Norms by 1 + weight, embeddings times the root of their width.
  std::string norms = {};                  ///< As the option of "decoder_layer"; empty means before.
  std::string norm = {};                   ///< The same; empty means rms.
  std::string mlp = {};                    ///< The same; empty means gated.
  bool is_dense_named = false;  ///< The output projection is "dense", the last norm "final_layernorm" (Phi-2).
  bool head_bias = false;
  bool turns_in_fp32 = false;  ///< Option "wide_rotary".
  bool qk_norm_last = false, scaled_queries = false;
  double layer_dropout = 0, embedding_dropout = 0;
  bool scales_logits = false;  ///< By `logit_scale` alone (Cohere).
  bool fused_qkv = false, fused_gate_up = false, qk_norm_of_all_heads = false;
  bool wide_norms = false, wide_rotary = false;             ///< In fp32: OLMo.
  bool cuts_heads = false, interleaved = false;             ///< Options "partial_rotary" and "interleaved_rotary".
  std::vector<bool> rope = {};                              ///< For each layer. Empty means true for all.
  std::string rotary_name = "rotary_emb", local_name = {};  ///< Modules of the tables.
  bool scales = false;                                      ///< Granite: these factors are applied, also those of 1.
  double embedding_scale = 1, residual_scale = 1, logit_scale = 1;
  std::optional<double> attention_softcap = {}, logit_softcap = {};
  double query_scalar = 0;
  std::int64_t num_experts = 0, experts_per_token = 0, expert_size = 0;
  bool norm_topk_prob = true;
  bool is_mixtral = false;
  bool has_gated_share = false;  ///< Qwen2-MoE: "shared_expert", times a sigmoid.
  bool stacked = false;          ///< As transformers 5 has its experts.
  std::string router = {};       ///< As the option of "moe_layer"; empty means softmax.
  std::int64_t groups = 1, topk_groups = 1, shared_size = 0;
  double routed_scale = 1;
  bool is_gpt_oss = false;  ///< Sinks, masks of numbers, tables and experts of its own.
  double swiglu_alpha = 1, swiglu_limit = 1;
  std::optional<LatentHeads> latent = {};
  std::optional<LinearHeads> linear = {};
  bool unit_offset = false;       ///< Norms by 1 + weight, without what else Gemma has.
  bool has_gated_output = false;  ///< Attention has a gate (Qwen3-Next).
  bool complex_rotary = false;    ///< DeepSeek-V2.
  bool tables_by_sample = false;  ///< Rotary tables have rows for each sample (Qwen2.5-VL).
  Around around = {};
  bool is_version5 = false;      ///< Tables as transformers 5 makes them. `spec_of_decoder` sets it.
  std::vector<bool> dense = {};  ///< For each layer: one MLP instead of experts.
  // Llama 4.
  bool is_llama4 = false;       ///< Layers of its own. `windows` are chunks.
  std::int64_t dense_size = 1;  ///< The width inside the MLP of a layer without experts.
  bool qk_l2_norm = false, temperature_tuning = false;
};

/// The common keys of all families.
Decoder read_decoder(HfConfigReader& config, const Defaults& defaults);

/// The scaling of a rotary table, from an object that is not null, with the share of a head that is turned.
void read_rope_scaling(HfConfigReader& config, const JsonValue& value, Rotary& rotary, double& partial);

/// The tables of full and of local attention: transformers 5 has one object for each type of layer, transformers 4
/// "rope_scaling" of full attention, and `local_key` (which may be empty). REQUIRES: the windows are read.
void read_rotaries_by_type(HfConfigReader& config, std::string_view local_key, double local_theta, Decoder& model);

void read_activation(HfConfigReader& config, std::string_view key, std::string_view otherwise, Decoder& model);

/// "layer_types": for each layer whether it looks back `window` tokens; `otherwise` if the key is absent.
void read_layer_types(HfConfigReader& config, std::optional<std::int64_t> window, Decoder& model,
                      bool (*otherwise)(std::int64_t layer, std::int64_t first), std::int64_t first);

void slide_everywhere(std::optional<std::int64_t> window, Decoder& model);

/// Reads the keys of experts. `count_key` is the number of them.
void read_experts(HfConfigReader& config, std::string_view count_key, std::int64_t experts, std::int64_t per_token,
                  Decoder& model);

/// Whether transformers 5 or later wrote the file.
bool is_version5(const Target& target);

/// Gemma 3's keys of its decoder.
Decoder read_gemma3(HfConfigReader& config);
/// The same of Ministral 3.
Decoder read_ministral3(HfConfigReader& config);

/// The decoders of Qwen3.5.
Decoder read_qwen3_5(HfConfigReader& config);
Decoder read_qwen3_5_moe(HfConfigReader& config);
/// Llama 4's keys of its decoder.
Decoder read_llama4(HfConfigReader& config);

/// "layer_types": for each layer whether it has `kind`, beside full attention. `nullopt` if the key is absent; empty
/// after an error.
std::optional<std::vector<bool>> read_layers_of_type(HfConfigReader& config, std::string_view kind,
                                                     std::int64_t layers);

/// Notes a file that transformers 4 wrote, of a class that is planned as of 5. `detail` ends the sentence.
void note_older_release(Target& target, std::string_view detail = {});

/// For each layer whether it has rotary positions, 1 or 0, or all but every few (SmolLM3, Llama 4).
void read_rope_layers(HfConfigReader& config, Decoder& model);

/// Qwen3's mixtures: which layers have no experts.
void read_sparse_layers(HfConfigReader& config, Decoder& model);

/// The model's spec.
std::string spec_of_decoder(Decoder model, Target& target);

}  // namespace fsdp::hf_models
