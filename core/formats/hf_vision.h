#pragma once

// Models with a tower for images beside a decoder. For the files that translate config.json of such models.

#include <string>
#include <string_view>

#include "core/formats/hf_config_reader.h"
#include "core/formats/hf_decoder.h"
#include "core/formats/hf_models.h"

namespace fsdp::hf_models {

/// A tower as it lies in the model while its forward does not run, beside the decoder `text`. Each reads the keys
/// of "vision_config" from `vision`, and those of the projector from `config`.
Around qwen2_5_vl_tower(HfConfigReader& config, HfConfigReader& vision, const Decoder& text);
Around qwen2_vl_tower(HfConfigReader& config, HfConfigReader& vision, const Decoder& text);
/// `family` is the first word of the classes: "Qwen3VL", "Qwen3VLMoe".
Around qwen3_vl_tower(HfConfigReader& config, HfConfigReader& vision, const Decoder& text, const std::string& family);
/// The same without the layers whose tokens the decoder takes.
Around qwen3_5_tower(HfConfigReader& config, HfConfigReader& vision, const Decoder& text, const std::string& family);
Around gemma3_tower(HfConfigReader& config, HfConfigReader& vision, const Decoder& text);
Around llama4_tower(HfConfigReader& config, HfConfigReader& vision, const Decoder& text);
Around mistral3_tower(HfConfigReader& config, HfConfigReader& vision, const Decoder& text);

}  // namespace fsdp::hf_models
