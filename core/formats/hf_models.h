#pragma once

// For the files that translate config.json; all others include core/formats/hf_config.h.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/dtype.h"
#include "core/formats/hf_config_reader.h"

namespace fsdp::hf_models {

/// The header of a spec.
struct Target {
  std::string name;
  std::string source;
  std::string architecture;          ///< "LlamaForCausalLM".
  Dtype dtype = Dtype::Float32;      ///< transformers' default.
  std::string transformers_version;  ///< That wrote the file; empty if it names none.
  std::vector<std::string> notes;    ///< A translator may add notes, and writes them last.
  std::vector<std::string> unread;   ///< Keys of objects in the file that its class does not read: "text_config/x".
};

/// Reads the keys of one kind of model, and returns its spec. The text is meaningless after errors.
using Translate = std::string (*)(HfConfigReader& config, Target& target);

/// One `model_type`.
struct Kind {
  std::string_view model_type;
  /// Supported classes. The first is the default if the file names none, unless `needs_architecture`.
  std::vector<std::string_view> architectures;
  Translate translate;
  bool needs_architecture = false;  ///< No class is the usual one, so the file must name one.
  bool follows_version = false;     ///< Planned as the version that wrote the file builds it.
  /// The "quant_method" of published weights that transformers can turn into floating point while it loads them.
  std::string_view published_as = {};
};

// Sorted by model_type.
std::span<const Kind> decoder_kinds();
std::span<const Kind> newer_decoder_kinds();
std::span<const Kind> layer_norm_decoder_kinds();
std::span<const Kind> mixture_kinds();
std::span<const Kind> hybrid_kinds();
std::span<const Kind> mamba_kinds();
std::span<const Kind> other_kinds();
std::span<const Kind> vision_kinds();
std::span<const Kind> encoder_kinds();

/// Keys of every configuration that do not affect a training step.
void pass_over_common_keys(HfConfigReader& config);

/// The default initializer_range of every class that has one.
inline constexpr double kUsualInitialStd = 0.02;

/// The usual sequence of specs: 4096 tokens, or the model's number of positions if that is smaller.
std::int64_t usual_seq(std::int64_t positions);

/// Checks that "hidden_size" divides into equal heads. Error: it does not.
void check_heads(HfConfigReader& config, std::string_view width_key, std::int64_t width, std::string_view heads_key,
                 std::int64_t heads);

}  // namespace fsdp::hf_models
