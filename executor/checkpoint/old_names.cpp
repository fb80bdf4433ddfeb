// Changes names that the model does not have in three ways, in this order:
//   LayerNorm.gamma and LayerNorm.beta, of models that came from TensorFlow, become weight and bias;
//   if no name has the model's first word ("transformer."), as in a file of the base model alone, it is added; buffers
//   that the code computes itself, and a bias of T5 that nothing reads, are left out.
// A name that the model has is never changed, and no tensor gets the name of another one of the files: weights.h
// reports the superfluous one with all others.
//
// Sources: transformers 4.57, modeling_utils.py (_fix_state_dict_key_on_load, _get_key_renaming_mapping,
// _adjust_missing_and_unexpected_keys: rotary_emb.inv_freq, and buffers that are not persistent, of which GPT-2's masks
// and BERT's position ids are in published files); models/t5/modeling_t5.py (_keys_to_ignore_on_load_unexpected).
// Not modeled: a file of a model with a head for a plan of its base; heads of other tasks.

#include "executor/checkpoint/old_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>

namespace fsdp::executor {

namespace {

constexpr std::array<std::pair<std::string_view, std::string_view>, 2> kRenamedEnds = {
    {{"LayerNorm.gamma", "LayerNorm.weight"}, {"LayerNorm.beta", "LayerNorm.bias"}}};

constexpr std::array<std::string_view, 3> kComputedEnds = {"rotary_emb.inv_freq", "embeddings.position_ids",
                                                           "embeddings.token_type_ids"};
constexpr std::array<std::string_view, 2> kMasks = {".attn.bias", ".attn.masked_bias"};
constexpr std::string_view kUnreadBias = "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight";

/// "h.3" or "transformer.h.3": a layer of GPT-2.
bool is_layer(std::string_view name) {
  const std::size_t dot = name.rfind('.');
  if (dot == std::string_view::npos || dot + 1 == name.size()) return false;
  const std::string_view number = name.substr(dot + 1);
  const std::string_view list = name.substr(0, dot);
  return number.find_first_not_of("0123456789") == std::string_view::npos && (list == "h" || list.ends_with(".h"));
}

bool is_of_no_use(std::string_view name) {
  const auto ends = [&](std::string_view end) { return name.ends_with(end); };
  const auto is_mask = [&](std::string_view end) {
    return name.ends_with(end) && is_layer(name.substr(0, name.size() - end.size()));
  };
  return name == kUnreadBias || std::any_of(kComputedEnds.begin(), kComputedEnds.end(), ends) ||
         std::any_of(kMasks.begin(), kMasks.end(), is_mask);
}

/// The number of tensors that were changed in one way, and one of them.
struct Change {
  std::size_t count = 0;
  std::string example;

  void note(const std::string& text) {
    if (count++ == 0) example = text;
  }
};

std::set<std::string> names_of(const Model& model) {
  std::set<std::string> names;
  for (const Parameter& parameter : model.parameters) {
    names.insert(parameter.name);
    names.insert(parameter.tied_names.begin(), parameter.tied_names.end());
  }
  for (const Buffer& buffer : model.buffers) names.insert(buffer.name);
  return names;
}

std::string renamed_end(const std::string& name) {
  for (const auto& [before, now] : kRenamedEnds) {
    if (name.ends_with(before)) return name.substr(0, name.size() - before.size()) + std::string(now);
  }
  return name;
}

/// "transformer.", if the model's names have it, no stored one has it, and at least one becomes the model's by adding
/// it.
std::string missing_prefix(const StoredTensors& stored, const std::set<std::string>& known) {
  std::set<std::string> prefixes;
  for (const std::string& name : known) {
    const std::size_t dot = name.find('.');
    if (dot != std::string::npos) prefixes.insert(name.substr(0, dot + 1));
  }
  for (const std::string& prefix : prefixes) {
    const auto has_it = [&](const StoredTensor& tensor) { return tensor.name.starts_with(prefix); };
    const auto wants_it = [&](const StoredTensor& tensor) {
      return !known.contains(tensor.name) && known.contains(prefix + tensor.name);
    };
    const auto& tensors = stored.tensors;
    if (std::any_of(tensors.begin(), tensors.end(), has_it)) continue;
    if (std::any_of(tensors.begin(), tensors.end(), wants_it)) return prefix;
  }
  return {};
}

}  // namespace

std::vector<std::string> settle_old_names(StoredTensors& stored, const Model& model) {
  const std::set<std::string> known = names_of(model);
  std::set<std::string> taken;
  for (const StoredTensor& tensor : stored.tensors) taken.insert(tensor.name);
  Change ends;
  Change prefixed;
  Change left_out;
  const auto rename = [&](StoredTensor& tensor, const std::string& name, Change& change) {
    if (name == tensor.name || !taken.insert(name).second) return;
    change.note(tensor.name);
    tensor.name = name;
  };
  for (StoredTensor& tensor : stored.tensors) {
    if (!known.contains(tensor.name)) rename(tensor, renamed_end(tensor.name), ends);
  }
  const std::string prefix = missing_prefix(stored, known);
  for (StoredTensor& tensor : stored.tensors) {
    const std::string longer = prefix + tensor.name;
    if (!prefix.empty() && !known.contains(tensor.name) && known.contains(longer)) rename(tensor, longer, prefixed);
  }
  std::erase_if(stored.tensors, [&](const StoredTensor& tensor) {
    if (known.contains(tensor.name) || !is_of_no_use(tensor.name)) return false;
    left_out.note(tensor.name);
    return true;
  });
  std::sort(stored.tensors.begin(), stored.tensors.end(),
            [](const StoredTensor& a, const StoredTensor& b) { return a.name < b.name; });
  std::vector<std::string> notes;
  const auto say = [&](const Change& change, const std::string& what) {
    if (change.count > 0) notes.push_back(fmt::format("{}: {}, as {}", what, change.count, change.example));
  };
  say(ends, "names with LayerNorm.gamma or LayerNorm.beta, which are weight and bias now");
  say(prefixed, fmt::format("names that lack \"{}\" in front", prefix));
  say(left_out, "tensors that the model computes or has no use for, which are left out");
  return notes;
}

}  // namespace fsdp::executor
