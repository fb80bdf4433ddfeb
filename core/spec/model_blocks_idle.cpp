// Modules whose forward does not run, such as a vision tower's on batches of text, as a list of their layers.
//
//   "norm1 LayerNorm 1152 bias; attn VisionAttention; attn.qkv Linear 3456 1152 bias; probe Parameter 1 1 1152"
//
// Each layer has a name, a class, the shape of its weight as PyTorch stores it, and "bias" if it has one. A class alone
// is a module that holds others; "Parameter" is a parameter of the entry's own module, and "Buffer" one that is not
// saved, in fp32. PEFT adapts the layers of class Linear, and bitsandbytes packs them, whether they run or not.
//
// Not modeled: adapters of other layers.

#include <fmt/format.h>

#include <charconv>

#include "core/base/split.h"
#include "core/spec/model_blocks_parts.h"

namespace fsdp {
namespace {

struct IdleLayer {
  std::string name, class_name;
  Shape weight;
  bool bias = false;
};

/// Error: a word that is neither a size nor "bias".
IdleLayer read_idle_layer(BlockBuilder& b, std::string_view text) {
  IdleLayer layer;
  for (const std::string_view word : split(text, ' ')) {
    std::int64_t size = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), size);
    const bool is_size = error == std::errc() && end == word.data() + word.size() && size > 0;
    if (word.empty()) continue;
    if (layer.name.empty()) {
      layer.name = word;
    } else if (layer.class_name.empty()) {
      layer.class_name = word;
    } else if (is_size && !layer.bias) {
      layer.weight.push_back(size);
    } else if (word == "bias" && !layer.weight.empty()) {
      layer.bias = true;
    } else {
      b.fail(fmt::format("\"{}\" in the layer \"{}\".", word, text), "Write a name, a class, sizes, and \"bias\".");
    }
  }
  if (layer.class_name.empty()) {
    b.fail(fmt::format("The layer \"{}\" has no class.", text), "Write a name, a class, sizes, and \"bias\".");
  }
  return layer;
}

/// A parameter or a buffer, of the module before the last dot of its name.
void add_idle_tensor(BlockBuilder& b, const IdleLayer& layer, const std::string& name) {
  if (const std::size_t dot = name.rfind('.'); dot != std::string::npos) {
    const std::string module = name.substr(0, dot);
    const auto scope = b.enter(module, b.class_of(module));
    return add_idle_tensor(b, layer, name.substr(dot + 1));
  }
  if (layer.class_name == "Buffer") return b.buffer(name, layer.weight, Dtype::Float32, false);
  b.unused_parameter(name, layer.weight);
}

void add_idle_layer(BlockBuilder& b, const IdleLayer& layer) {
  if (layer.class_name == "Parameter" || layer.class_name == "Buffer") {
    add_idle_tensor(b, layer, layer.name);
  } else if (layer.class_name == "Linear" && layer.weight.size() == 2) {
    b.linear(layer.name, b.constant({1, layer.weight[1]}), layer.weight[0], {.bias = layer.bias});
  } else {
    b.refuse_adapters(layer.name, fmt::format("a {}", layer.class_name));
    const auto scope = b.enter(layer.name, layer.class_name);
    if (!layer.weight.empty()) b.unused_parameter("weight", layer.weight);
    if (layer.bias) b.unused_parameter("bias", {layer.weight.front()});
  }
}

void idle(BlockBuilder& b, const BlockOptions& options) {
  const std::string layers = options.text("layers", "");
  for (const std::string_view text : split(layers, ';')) {
    const IdleLayer layer = read_idle_layer(b, text);
    if (!layer.class_name.empty()) add_idle_layer(b, layer);
  }
}

}  // namespace

std::vector<BlockKind> idle_blocks() {
  return {{.name = "idle",
           .doc = "Modules whose forward does not run. For entries with \"called\": false.",
           .options = {{"layers", OptionType::Text, true,
                        "Each layer's name, class, the sizes of its weight, and \"bias\" if it has one; then a "
                        "semicolon: \"norm LayerNorm 1152 bias; fc Linear 4608 1152\"."}},
           .build = idle}};
}

}  // namespace fsdp
