#pragma once

// The kinds of blocks of model specs, with their options.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/option_rule.h"
#include "core/spec/block_builder.h"
#include "core/spec/model_spec.h"

namespace fsdp {

/// The options of one call, checked against the kind's rules and evaluated.
class BlockOptions {
 public:
  struct Evaluated {
    std::string name;
    std::variant<bool, std::string, double, std::vector<std::int64_t>> value;
    bool operator==(const Evaluated&) const = default;
  };
  explicit BlockOptions(std::vector<Evaluated> values) : values_(std::move(values)) {}

  bool has(std::string_view name) const { return find(name) != nullptr; }
  /// Each returns `otherwise` if the option is not given.
  std::int64_t integer(std::string_view name, std::int64_t otherwise = 0) const;
  double number(std::string_view name, double otherwise = 0) const;
  bool flag(std::string_view name, bool otherwise = false) const;
  std::string text(std::string_view name, std::string_view otherwise = {}) const;
  std::vector<std::int64_t> sizes(std::string_view name) const;

 private:
  const Evaluated* find(std::string_view name) const;
  std::vector<Evaluated> values_;
};

/// A kind of block. `build` writes the ops. The class name of the calling module comes from the spec, or from
/// `class_name` and the options.
struct BlockKind {
  std::string_view name;
  std::string_view doc;  ///< One sentence: inputs, outputs and published counterpart.
  std::vector<OptionRule> options;
  void (*build)(BlockBuilder& builder, const BlockOptions& options) = nullptr;
  std::string (*class_name)(const BlockOptions& options) = nullptr;
};

/// All kinds, in alphabetical order.
std::span<const BlockKind> block_kinds();
/// `nullptr` if there is none with this name.
const BlockKind* find_block_kind(std::string_view name);

// Each file core/spec/model_blocks_*.cpp has the kinds of one family; core/spec/block_kinds.cpp joins them.
std::vector<BlockKind> common_blocks();   ///< Embeddings, rotary table, norms, heads, losses.
std::vector<BlockKind> decoder_blocks();  ///< Decoder-only layers: Llama, Mistral, Qwen, Gemma, GPT-2.
std::vector<BlockKind> moe_blocks();      ///< Decoder layers with experts: Mixtral, Qwen3-MoE.
std::vector<BlockKind> bert_blocks();
std::vector<BlockKind> conv_blocks();             ///< ResNet.
std::vector<BlockKind> ecapa_tdnn_blocks();       ///< A speaker encoder.
std::vector<BlockKind> encoder_decoder_blocks();  ///< T5, Whisper.
std::vector<BlockKind> idle_blocks();             ///< Modules whose forward does not run.
std::vector<BlockKind> llama4_blocks();           ///< Llama 4.
std::vector<BlockKind> mamba_blocks();            ///< Hybrids with state spaces.
std::vector<BlockKind> roberta_blocks();
std::vector<BlockKind> qwen3_tts_blocks();
std::vector<BlockKind> vit_blocks();

/// Kinds that make a mask of padding (BlockBuilder::pads_rows) for the layers after them.
inline constexpr std::string_view kPaddingMaskKinds[] = {"rotary_table", "gpt2_embeddings"};

}  // namespace fsdp
