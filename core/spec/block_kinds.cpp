#include "core/spec/block_kinds.h"

#include <algorithm>
#include <cmath>

namespace fsdp {

const BlockOptions::Evaluated* BlockOptions::find(std::string_view name) const {
  const auto found =
      std::find_if(values_.begin(), values_.end(), [&](const Evaluated& value) { return value.name == name; });
  return found == values_.end() ? nullptr : &*found;
}

std::int64_t BlockOptions::integer(std::string_view name, std::int64_t otherwise) const {
  const Evaluated* option = find(name);
  return option == nullptr ? otherwise : std::llround(std::get<double>(option->value));
}

double BlockOptions::number(std::string_view name, double otherwise) const {
  const Evaluated* option = find(name);
  return option == nullptr ? otherwise : std::get<double>(option->value);
}

bool BlockOptions::flag(std::string_view name, bool otherwise) const {
  const Evaluated* option = find(name);
  return option == nullptr ? otherwise : std::get<bool>(option->value);
}

std::string BlockOptions::text(std::string_view name, std::string_view otherwise) const {
  const Evaluated* option = find(name);
  return option == nullptr ? std::string(otherwise) : std::get<std::string>(option->value);
}

std::vector<std::int64_t> BlockOptions::sizes(std::string_view name) const {
  const Evaluated* option = find(name);
  return option == nullptr ? std::vector<std::int64_t>{} : std::get<std::vector<std::int64_t>>(option->value);
}

std::span<const BlockKind> block_kinds() {
  static const std::vector<BlockKind> kinds = [] {
    std::vector<BlockKind> all;
    for (const auto& family : {common_blocks(), decoder_blocks(), moe_blocks(), bert_blocks(), vit_blocks(),
                               conv_blocks(), ecapa_tdnn_blocks(), encoder_decoder_blocks(), idle_blocks(),
                               llama4_blocks(), mamba_blocks(), qwen3_tts_blocks(), roberta_blocks()}) {
      all.insert(all.end(), family.begin(), family.end());
    }
    std::sort(all.begin(), all.end(), [](const BlockKind& a, const BlockKind& b) { return a.name < b.name; });
    return all;
  }();
  return kinds;
}

const BlockKind* find_block_kind(std::string_view name) {
  const auto kinds = block_kinds();
  const auto found = std::find_if(kinds.begin(), kinds.end(), [&](const BlockKind& kind) { return kind.name == name; });
  return found == kinds.end() ? nullptr : &*found;
}

}  // namespace fsdp
