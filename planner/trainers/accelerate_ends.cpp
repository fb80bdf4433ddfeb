// accelerate (1.14 and later) makes units of a model's ends, regardless of the policy: the input embedding; and final
// norm and head as one, which is not resharded after forward. If head and embedding are one parameter, all three are
// one unit.
//
// The norm is the last direct child of the base model whose class has "Norm" in its name (_find_final_norm). The base
// model is the attribute that a class of transformers names in base_model_prefix, "model" for LlamaForCausalLM; it is
// the model itself if the class has no such name, as in other libraries. If a class of transformers has the prefix
// without such an attribute (T5, or LlamaModel by itself), accelerate finds no norm.
//
// PEFT puts a model with adapters into two others, and forwards attributes to it. The inner one of them calls the whole
// model "model", so that for base_model_prefix "model" accelerate searches its children, and finds no norm; for
// "transformer" (GPT-2) it finds the base model.
//
// get_input_embeddings and get_output_embeddings, which only classes of transformers have, return the embedding and the
// head.
//
// Sources: accelerate 1.15.0, utils/fsdp_utils.py (_find_final_norm, fsdp2_prepare_model); transformers 5.24.0,
// modeling_utils.py (EmbeddingAccessMixin), models/*/modeling_*.py (base_model_prefix, _input_embed_layer); PEFT
// 0.21.2, peft_model.py and tuners/tuners_utils.py (__getattr__).

#include "planner/trainers/accelerate_ends.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "core/spec/adapters.h"

namespace fsdp::planner {

namespace {

constexpr std::array<std::string_view, 4> kEmbeddings = {"embed_tokens", "wte", "word_embeddings", "shared"};
constexpr std::array<std::string_view, 3> kHeads = {"lm_head", "proj_out", "cls.predictions.decoder"};

/// The place of a model that a captured script has given adapters.
constexpr std::string_view kInPeft = "base_model.model.";

std::string_view last_part(std::string_view name) {
  return name.substr(name.rfind('.') + 1);  // npos + 1 is 0.
}

/// "LlamaForCausalLM", "GPT2LMHeadModel", "LlamaModel"
bool is_of_transformers(std::string_view class_name) {
  const std::size_t at = class_name.find("For");
  const bool is_for_something = at != std::string_view::npos && at > 0 && at + 3 < class_name.size();
  return is_for_something || (class_name.ends_with("Model") && class_name.size() > 5);
}

bool has_adapters(const Model& model) {
  return std::any_of(model.parameters.begin(), model.parameters.end(),
                     [](const Parameter& parameter) { return is_of_adapter(parameter.name); });
}

const Module* base_model_of(const Model& model) {
  const Module& root = model.modules.front();
  if (!is_of_transformers(root.class_name)) return &root;
  for (const int child : root.children) {
    if (model.modules[child].class_name.ends_with("Model")) return &model.modules[child];
  }
  return nullptr;
}

std::string final_norm_of(const Model& model) {
  const Module* base = base_model_of(model);
  std::string norm;
  if (base == nullptr || (base->name == "model" && has_adapters(model))) return norm;
  for (const int child : base->children) {
    const Module& module = model.modules[child];
    if (module.class_name.find("Norm") != std::string::npos) norm = module.name;
  }
  return norm;
}

/// The topmost module with such a name.
std::string embedding_of(const Model& model) {
  const Module* found = nullptr;
  const auto depth = [](const std::string& name) { return std::count(name.begin(), name.end(), '.'); };
  for (const Module& module : model.modules) {
    if (std::find(kEmbeddings.begin(), kEmbeddings.end(), last_part(module.name)) == kEmbeddings.end()) continue;
    if (found == nullptr || depth(module.name) < depth(found->name)) found = &module;
  }
  return found == nullptr ? std::string() : found->name;
}

std::string head_of(const Model& model) {
  for (const Module& module : model.modules) {
    std::string_view name = module.name;
    if (name.starts_with(kInPeft)) name.remove_prefix(kInPeft.size());
    if (std::find(kHeads.begin(), kHeads.end(), name) != kHeads.end()) return module.name;
  }
  return {};
}

bool are_tied(const Model& model, const std::string& embedding, const std::string& head) {
  const std::string first = embedding + ".weight";
  const std::string second = head + ".weight";
  return std::any_of(model.parameters.begin(), model.parameters.end(), [&](const Parameter& parameter) {
    const auto is_named = [&](const std::string& name) {
      return parameter.name == name ||
             std::find(parameter.tied_names.begin(), parameter.tied_names.end(), name) != parameter.tied_names.end();
    };
    return is_named(first) && is_named(second);
  });
}

}  // namespace

AccelerateEnds accelerate_ends_of(const Model& model) {
  AccelerateEnds ends;
  const std::string norm = final_norm_of(model);
  if (!norm.empty()) ends.tail.push_back(norm);
  if (!is_of_transformers(model.modules.front().class_name)) return ends;
  const std::string embedding = embedding_of(model);
  const std::string head = head_of(model);
  if (!embedding.empty() && are_tied(model, embedding, head)) {
    ends.tail.push_back(embedding);
  } else {
    ends.embedding = embedding;
  }
  if (!head.empty()) ends.tail.push_back(head);
  return ends;
}

}  // namespace fsdp::planner
