// The linear layers that PEFT wraps for LoRA:
//
//   q_proj                       lora.Linear, with the name of the layer that it wraps
//   q_proj.base_layer            the layer itself, frozen
//   q_proj.lora_dropout.default  Dropout, or Identity without dropout
//   q_proj.lora_A.default        Linear [r, in], without a bias
//   q_proj.lora_B.default        Linear [out, r], without a bias
//
// and its forward is, in this order of calls (on a base in four bits the result of base_layer is copied):
//
//   result = base_layer(x)
//   x = x.to(lora_A.weight.dtype)
//   result = result + lora_B(lora_A(dropout(x))) * scaling
//   return result.to(its dtype before)
//
// A module of modules_to_save is a ModulesToSaveWrapper: original_module, frozen, which never runs, and its trained
// copy, modules_to_save.default.
//
// Both casts return their input if param_dtype or the plan's parameter_dtype gives all weights one dtype. Under
// autocast the adapters are in fp32 beside a base in 16 bits, so that the first one copies x, but on a base in four
// bits, where PEFT leaves both casts out (tuners/lora/bnb.py); the result has autocast's dtype, as base_layer's had. So
// it is if lora_A is a unit of FSDP2, whose weight is in fp32 outside of its forward. On the way in FSDP2 casts the
// copy to param_dtype again: a second copy, which the product saves.
//
// Sources: peft/utils/other.py (ModulesToSaveWrapper), peft/tuners/lora/layer.py (LoraLayer.__init__ and update_layer:
// the order of registration; Linear.forward), peft/tuners/tuners_utils.py (check_target_module_exists,
// _maybe_include_all_linear_layers), PEFT 0.21.2. Not modeled: adapters of embeddings, convolutions, experts and
// torch.nn.MultiheadAttention, several adapters, DoRA, rsLoRA's other scaling (its memory is the same),
// layers_to_transform.

#include <fmt/format.h>

#include <algorithm>

#include "core/spec/block_builder.h"

namespace fsdp {

namespace {

/// Whether some of these names mean the module. Notes those as found.
bool note_named(std::string_view module, const std::vector<std::string>& names, std::vector<bool>& found) {
  bool is_any = false;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (!is_named(module, names[i])) continue;
    found[i] = true;
    is_any = true;
  }
  return is_any;
}

}  // namespace

void BlockBuilder::adapt(const LoraOptions& lora, std::string block_name) {
  lora_ = &lora;
  block_name_ = std::move(block_name);
  found_targets_.assign(lora.targets.size(), false);
  found_saved_.assign(lora.modules_to_save.size(), false);
}

std::string BlockBuilder::adapted_name(std::string_view module) const {
  const std::string below = full_name(module);
  return below.empty() || block_name_.empty() ? block_name_ + below : block_name_ + "." + below;
}

bool BlockBuilder::is_saved(std::string_view module) {
  return lora_ != nullptr && note_named(adapted_name(module), lora_->modules_to_save, found_saved_);
}

void BlockBuilder::declare_saved(std::string_view class_name) {
  declare("original_module", class_name, false);
  declare("modules_to_save", "ModuleDict");
}

bool BlockBuilder::is_adapted(std::string_view module, bool is_output_head) {
  if (lora_ == nullptr) return false;
  const std::string name = adapted_name(module);
  if (std::find(linear_names_.begin(), linear_names_.end(), name) == linear_names_.end()) linear_names_.push_back(name);
  if (targets_all(*lora_)) {
    if (!is_output_head) found_targets_.front() = true;
    return !is_output_head;
  }
  return note_named(name, lora_->targets, found_targets_);
}

void BlockBuilder::refuse_adapters(std::string_view module, std::string_view layer) {
  if (lora_ == nullptr || targets_all(*lora_)) return;
  const std::size_t known = linear_names_.size();
  const bool is_target = is_adapted(module);
  linear_names_.resize(std::min(known, linear_names_.size()));
  if (!is_target) return;
  fail(fmt::format("\"{}\" is {}, whose adapters are not predicted.", full_name(module), layer),
       "Adapt linear layers, or capture the script: fsdp-plan capture.");
}

// nemo-automodel 0.7.0, components/_peft/lora.py (TritonLinearLoRA): the layer keeps its name and weight, and gets two
// layers inside whose weights one function reads.
BlockValue BlockBuilder::linear_in_one_op(std::string_view module, BlockValue x, std::int64_t out_features,
                                          const LinearOptions& options) {
  if (lora_->dropout > 0 || is_quantized()) {
    fail("NeMo Automodel's adapters are predicted without dropout, on a base that is not quantized.",
         "Leave both out.");
  }
  const auto scope = enter(module, options.class_name);
  const BlockValue result = plain_linear("", x, out_features, options);
  declare("lora_A", "Linear", false);
  declare("lora_B", "Linear", false);
  const int a = parameter_of("lora_A", "weight", {lora_->r, size(x, -1)});
  const int b = parameter_of("lora_B", "weight", {out_features, lora_->r});
  return op({.kind = OpKind::LowRank,
             .inputs = {result, x},
             .parameters = {a, b},
             .attributes = {.scale = lora_->alpha / static_cast<double>(lora_->r)}})[0];
}

BlockValue BlockBuilder::adapted_linear(std::string_view module, BlockValue x, std::int64_t out_features,
                                        const LinearOptions& options) {
  if (adapts_in_one_op_) return linear_in_one_op(module, x, out_features, options);
  const auto has_star = [](const std::string& target) { return target.starts_with('*'); };
  if (std::any_of(lora_->targets.begin(), lora_->targets.end(), has_star)) {
    fail("PEFT's targets are names, or their last parts, without \"*\".", "Write q_proj+k_proj, or leave them out.");
  }
  if (options.weight_name != "weight") {
    fail("PEFT adapts torch.nn.MultiheadAttention in its own way, which is not predicted.", "Name other targets.");
  }
  const auto scope = enter(module, "Linear");
  const BlockValue base = is_packed(options) ? packed_linear("base_layer", x, out_features, options, true)
                                             : plain_linear("base_layer", x, out_features, options);
  const BlockValue result = local("result", base);
  declare("lora_dropout", "ModuleDict");
  declare("lora_A", "ModuleDict");
  declare("lora_B", "ModuleDict");
  x = local("x", cast_as_trained(x, is_packed(options)));
  BlockValue low = x;
  if (lora_->dropout > 0) {
    low = dropout("lora_dropout.default", x, lora_->dropout);
  } else {
    declare("lora_dropout.default", "Identity");
  }
  low = op({.kind = OpKind::Cast, .inputs = {low}}).front();
  low = plain_linear("lora_A.default", low, lora_->r, {});
  const BlockValue high = plain_linear("lora_B.default", low, out_features, {});
  const double scaling = lora_->alpha / static_cast<double>(lora_->r);
  return local("result", add(result, scale(high, scaling)));
}

}  // namespace fsdp
