// Compares the weights beside a config.json with its model.
//
// from_pretrained builds the model of config.json and loads the tensors that it finds by name. A tensor of another
// shape is an error there, and here. It ignores one that the model lacks, and initializes one that the files lack at
// random, both with a warning, which is a note here. Names are the model's, or the model's without the prefix of its
// base ("wte.weight" of GPT-2), with "gamma" and "beta" for the norms of old BERTs.
//
// Sources: transformers 4.57.3, modeling_utils.py, _load_pretrained_model and _get_key_renaming_mapping.
//
// Not modeled: variants (model.fp16.safetensors), weights as pickles, conversions of other names.

#include "core/formats/hf_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <map>
#include <set>
#include <string_view>
#include <system_error>
#include <vector>

#include "core/formats/hf_config.h"

namespace fsdp {

namespace {

constexpr std::array<std::string_view, 2> kFiles = {"model.safetensors.index.json", "model.safetensors"};
constexpr std::array<std::string_view, 5> kPrefixes = {"model.", "transformer.", "bert.", "roberta.", "vit."};
/// Beginnings of names in files that older versions wrote of models with a tower for images, and their names now.
constexpr std::array<std::array<std::string_view, 2>, 8> kRenamed = {
    {{"visual.", "model.visual."},
     {"language_model.model.", "model.language_model."},
     {"language_model.lm_head.", "lm_head."},
     {"vision_tower.vision_model.", "model.vision_tower."},
     {"model.vision_tower.vision_model.", "model.vision_tower."},
     {"vision_tower.", "model.vision_tower."},
     {"multi_modal_projector.", "model.multi_modal_projector."},
     {"model.", "model.language_model."}}};
/// Buffers that older versions saved.
constexpr std::array<std::string_view, 6> kBuffers = {"inv_freq",     "attn.bias",      "attn.masked_bias",
                                                      "position_ids", "token_type_ids", "e_score_correction_bias"};
/// Scales of weights in fp8 and mxfp4.
constexpr std::array<std::string_view, 2> kScales = {"_scale_inv", "_scales"};
constexpr std::size_t kMostNamed = 3;

bool is_buffer(const StoredTensor& tensor) {
  if (!is_floating_point(tensor.dtype)) return true;
  const auto ends = [&](std::string_view end) { return tensor.name.ends_with(end); };
  return std::any_of(kBuffers.begin(), kBuffers.end(), ends) || std::any_of(kScales.begin(), kScales.end(), ends);
}

/// The names of a norm's weight and bias in old checkpoints.
std::string renamed(std::string name) {
  for (const auto& [old, now] : {std::pair{".gamma", ".weight"}, std::pair{".beta", ".bias"}}) {
    if (name.ends_with(old)) name.replace(name.size() - std::string_view(old).size(), std::string::npos, now);
  }
  return name;
}

/// The parameters of the model, each under all of its names.
std::map<std::string, const Parameter*> by_name(const Model& model) {
  std::map<std::string, const Parameter*> result;
  for (const Parameter& parameter : model.parameters) {
    result[parameter.name] = &parameter;
    for (const std::string& name : parameter.tied_names) result[name] = &parameter;
  }
  // One embedding under three names.
  for (const char* stack : {"encoder", "decoder"}) {
    if (result.contains("shared.weight"))
      result[fmt::format("{}.embed_tokens.weight", stack)] = result["shared.weight"];
  }
  return result;
}

const Parameter* find_named(const std::map<std::string, const Parameter*>& known, const std::string& name) {
  const auto exact = known.find(name);
  if (exact != known.end()) return exact->second;
  for (const std::string_view prefix : kPrefixes) {
    const auto found = known.find(std::string(prefix) + name);
    if (found != known.end()) return found->second;
  }
  for (const auto& [old, now] : kRenamed) {
    if (!name.starts_with(old)) continue;
    const auto found = known.find(std::string(now) + name.substr(old.size()));
    if (found != known.end()) return found->second;
  }
  return nullptr;
}

/// A tensor's place in the model.
struct StoredPlace {
  const Parameter* parameter = nullptr;  ///< nullptr: the model lacks it.
  Shape shape;                           ///< Its shape in a file; empty if it is packed.
};

/// One matrix of one expert, of a model that stacks all experts: "mlp.experts.3.gate_proj.weight".
StoredPlace find_expert(const std::map<std::string, const Parameter*>& known, std::string name) {
  constexpr std::string_view kExperts = ".experts.";
  if (const auto old = name.find(".block_sparse_moe."); old != std::string::npos) name.replace(old, 18, ".mlp.");
  const auto begin = name.find(kExperts);
  if (begin == std::string::npos) return {};
  const auto number = begin + kExperts.size();
  const auto end = name.find_first_not_of("0123456789", number);
  if (end == number || end == std::string::npos) return {};
  const std::string matrix = name.substr(end);
  const bool is_down = matrix == ".down_proj.weight" || matrix == ".w2.weight";
  const bool is_in =
      matrix == ".gate_proj.weight" || matrix == ".up_proj.weight" || matrix == ".w1.weight" || matrix == ".w3.weight";
  if (!is_down && !is_in) return {};
  const Parameter* stack = find_named(known, name.substr(0, number) + (is_down ? "down_proj" : "gate_up_proj"));
  if (stack == nullptr || stack->shape.size() != 3) return {};
  return {stack, {is_down ? stack->shape[1] : stack->shape[1] / 2, stack->shape[2]}};
}

StoredPlace find_stored(const std::map<std::string, const Parameter*>& known, const std::string& stored) {
  const std::string name = renamed(stored);
  if (const Parameter* found = find_named(known, name)) return {found, found->shape};
  constexpr std::string_view kPacked = "_blocks";  // For mxfp4.
  if (name.ends_with(kPacked)) {
    if (const Parameter* found = find_named(known, name.substr(0, name.size() - kPacked.size()))) return {found, {}};
  }
  return find_expert(known, name);
}

/// Whether a file may have a parameter of this shape so: Qwen3-VL's experts were stored as [in, out].
bool is_stored_as(const Shape& shape, const StoredTensor& tensor) {
  if (shape == tensor.shape) return true;
  const bool is_stack = shape.size() == 3 && tensor.name.find(".experts.") != std::string::npos;
  return is_stack && tensor.shape == Shape{shape[0], shape[2], shape[1]};
}

std::string first_of(const std::vector<std::string>& names) {
  std::string text;
  for (std::size_t i = 0; i < std::min(names.size(), kMostNamed); ++i) text += (i == 0 ? "" : ", ") + names[i];
  return names.size() > kMostNamed ? text + ", ..." : text;
}

std::string sizes(const Shape& shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

/// Adds notes on tensors that only one of the two has, and on other dtypes.
void compare_names(const HfWeights& weights, const std::vector<std::string>& extra,
                   const std::set<const Parameter*>& found, const Model& model, ModelSpec& spec) {
  if (!extra.empty()) {
    spec.notes.push_back(
        fmt::format("{} describes a model without {} tensors of the weights, which transformers "
                    "leaves: {}.",
                    kHfNote, extra.size(), first_of(extra)));
  }
  std::vector<std::string> missing;
  for (const Parameter& parameter : model.parameters) {
    if (!found.contains(&parameter)) missing.push_back(parameter.name);
  }
  if (!missing.empty()) {
    spec.notes.push_back(
        fmt::format("{} describes a model with {} parameters that the weights lack, which "
                    "transformers begins at random: {}.",
                    kHfNote, missing.size(), first_of(missing)));
  }
  if (weights.dtype && *weights.dtype != spec.dtype) {
    spec.notes.push_back(fmt::format("{} has {}, but the weights are {}: the plan uses {}.", kHfNote,
                                     name_of(spec.dtype), name_of(*weights.dtype), name_of(spec.dtype)));
  }
}

}  // namespace

HfWeights read_hf_weights(const std::string& folder) {
  HfWeights weights;
  for (const std::string_view name : kFiles) {
    const std::filesystem::path file = std::filesystem::path(folder) / name;
    std::error_code ignored;
    if (!std::filesystem::exists(file, ignored)) continue;
    weights.path = file.string();
    break;
  }
  if (weights.path.empty()) return weights;
  Result<StoredTensors> tensors = read_stored_tensors({weights.path});
  if (!tensors) {
    weights.unread = tensors.error().front();
    return weights;
  }
  weights.tensors = *std::move(tensors);
  for (const StoredTensor& tensor : weights.tensors.tensors) {
    if (!is_floating_point(tensor.dtype)) continue;
    weights.dtype = tensor.dtype;
    break;
  }
  return weights;
}

Errors check_hf_weights(const HfWeights& weights, ModelSpec& spec) {
  if (weights.unread) {
    spec.notes.push_back(fmt::format("{} was not compared with the weights. {}", kHfNote, to_string(*weights.unread)));
    return {};
  }
  const Result<Model> model = build_model(spec);
  if (!model) return model.error();
  const std::map<std::string, const Parameter*> known = by_name(*model);
  Errors errors;
  std::set<const Parameter*> found;
  std::vector<std::string> extra;
  for (const StoredTensor& tensor : weights.tensors.tensors) {
    const auto [parameter, shape] = find_stored(known, tensor.name);
    if (parameter == nullptr) {
      if (!is_buffer(tensor)) extra.push_back(tensor.name);
      continue;
    }
    found.insert(parameter);
    if (shape.empty() || is_stored_as(shape, tensor) || errors.size() == kMostErrors) continue;
    errors.push_back({weights.path,
                      fmt::format("\"{}\" is {}, and the model of config.json has {}.", tensor.name,
                                  sizes(tensor.shape), sizes(shape)),
                      "The weights have another configuration."});
  }
  if (found.empty()) {
    return {{weights.path,
             fmt::format("No tensor belongs to a {}, the model of config.json.", model->modules.front().class_name),
             "The weights belong to another model."}};
  }
  if (errors.empty()) compare_names(weights, extra, found, *model, spec);
  return errors;
}

}  // namespace fsdp
