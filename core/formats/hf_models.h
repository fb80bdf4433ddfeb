#pragma once

// Between the files that translate config.json; everybody else includes core/formats/hf_config.h.

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
  std::string architecture;  ///< "LlamaForCausalLM".
  Dtype dtype = Dtype::Float32;
  std::vector<std::string> notes;  ///< A translator may add some, and writes them last.
};

/// Reads the keys of one kind of model, and returns its spec. The text is of no use where there were errors.
using Translate = std::string (*)(HfConfigReader& config, Target& target);

/// One `model_type`.
struct Kind {
  std::string_view model_type;
  /// Classes that can be planned; the first is meant where the file names none, unless it has to.
  std::vector<std::string_view> architectures;
  Translate translate;
  bool needs_architecture = false;  ///< None of the classes is the usual one.
};

// Sorted by model_type.
std::span<const Kind> decoder_kinds();
std::span<const Kind> other_kinds();

/// initializer_range of every class that has one, where the file states none.
inline constexpr double kUsualInitialStd = 0.02;

/// A sequence as specs usually have it: 4096 tokens, or as many as the model has positions.
std::int64_t usual_seq(std::int64_t positions);

/// "hidden_size" in equal heads. Error: it does not divide.
void check_heads(HfConfigReader& config, std::string_view width_key, std::int64_t width, std::string_view heads_key,
                 std::int64_t heads);

}  // namespace fsdp::hf_models
