#pragma once

// Parts that several kinds of blocks share. Only core/spec/model_blocks_*.cpp include this.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/spec/block_kinds.h"

namespace fsdp {

/// The epsilon of a block's norms if the spec gives one, otherwise 0, which means the default of the kind of norm.
/// Error: not above 0.
double norm_eps(BlockBuilder& b, const BlockOptions& options, std::string_view name = "norm_eps");

/// The rule of the option "norm_eps".
inline constexpr std::string_view kRmsNormEpsDoc = "Epsilon of the norms. Defaults to 1e-6.";
inline constexpr std::string_view kNormEpsDoc = "Epsilon of the norms. Defaults to 1e-5.";
OptionRule norm_eps_rule(std::string_view doc);

/// The rule of the option "padding_idx" of tables of tokens.
OptionRule padding_idx_rule();

/// The rule of the option "attention_dropout" in blocks that also have a "dropout".
OptionRule attention_dropout_rule();

/// The options that `decoder_attention` reads. Blocks that use it append them to their own.
std::vector<OptionRule> decoder_attention_rules();

/// Self-attention of a Llama-like decoder below "self_attn": q, k, v, (norms of q and k,) rotary, attention, o. x
/// [batch, seq, hidden] -> the same shape. Reads the values cos and sin, and attention_mask if the model has one.
BlockValue decoder_attention(BlockBuilder& b, const BlockOptions& options, BlockValue x);

/// The same with latent keys and values, below "self_attn" too; `decoder_attention` calls it for a "kv_lora_rank".
BlockValue latent_attention(BlockBuilder& b, const BlockOptions& options, BlockValue x);
std::vector<OptionRule> latent_attention_rules();

/// What takes the place of attention in a layer with the option "linear_attention", below "linear_attn". x
/// [batch, seq, hidden] -> the same shape.
BlockValue linear_attention(BlockBuilder& b, const BlockOptions& options, BlockValue x);
std::vector<OptionRule> linear_attention_rules();
/// Registers the attention of a layer, or what takes its place.
void declare_mixer(BlockBuilder& b, const BlockOptions& options);

/// The norms of a layer: options "norm_eps", "unit_offset" and "wide_weight". REQUIRES: `class_name` outlives it.
NormOptions decoder_norm(BlockBuilder& b, const BlockOptions& options, std::string_view class_name);

/// The MLP of a layer of a Llama-like decoder below "mlp", and the options that it reads.
BlockValue decoder_mlp(BlockBuilder& b, const BlockOptions& options, BlockValue x);
std::vector<OptionRule> decoder_mlp_rules();

/// down(activation(gate(x)) * up(x)) of width `intermediate` below `module`. [..., hidden] -> the same shape.
/// `activation` is the name of the activation's module.
BlockValue gated_mlp(BlockBuilder& b, const BlockOptions& options, std::string_view module, BlockValue x,
                     std::int64_t intermediate, std::string_view activation = "act_fn");

/// The first word of the class names: "Qwen3" in "Qwen3DecoderLayer".
std::string family_of(const BlockOptions& options);

/// An additive mask or bias for attention if the model has the input "attention_mask".
BlockValue attention_mask(BlockBuilder& b);

/// Makes the mask of a packed row's documents as an output, if attention takes one.
void document_mask(BlockBuilder& b, std::int64_t seq);

/// The name of a mask of padding among the model's values.
inline constexpr std::string_view kPaddingMask = "padding_mask";

/// Outputs a mask of booleans [rows, 1, seq, seq] if the rows are padded. Source: transformers 5.24.0, masking_utils.py
/// (sdpa_mask): it is made once per forward, and only if a row has padding.
void padding_mask(BlockBuilder& b, std::int64_t rows, std::int64_t seq);
/// The same as an input of attention. `nullopt` if the rows are not padded.
std::optional<BlockValue> padding_mask_of(BlockBuilder& b);

/// Splits [batch, seq, heads * dim] into [batch, seq, heads, dim]. Error: it does not divide.
BlockValue split_heads(BlockBuilder& b, BlockValue x, std::int64_t heads);

}  // namespace fsdp
