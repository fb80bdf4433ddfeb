// The parts of a model that Liger's kernels replace (core/plan/liger_kernels.h). A part belongs to a family by the
// first word of its class: "Llama" in "LlamaRMSNorm".

#include <algorithm>

#include "core/spec/block_builder.h"

namespace fsdp {

namespace {

constexpr std::string_view kNormClass = "RMSNorm";

std::string_view family_of_norm(std::string_view class_name) {
  return class_name.ends_with(kNormClass) ? class_name.substr(0, class_name.size() - kNormClass.size())
                                          : std::string_view{};
}

LigerPatch patch_of_norm(const LigerFamily& family, std::string_view module) {
  if (module.empty()) return family.last_norm;
  return module == "q_norm" || module == "k_norm" ? family.qk_norm : family.norm;
}

}  // namespace

LigerPatch BlockBuilder::patch_of(LigerKernel kernel, std::string_view family, std::string_view module) {
  if (liger_ == nullptr || !liger_->has(kernel)) return LigerPatch::None;
  const LigerFamily* known = liger_family(family);
  LigerPatch patch = LigerPatch::None;
  if (known != nullptr && kernel == LigerKernel::Rope) patch = known->rope;
  if (known != nullptr && kernel == LigerKernel::Glu) patch = known->glu;
  if (known != nullptr && kernel == LigerKernel::RmsNorm) patch = patch_of_norm(*known, module);
  const LigerPart part = {std::string(family), kernel, patch, known != nullptr};
  if (std::find(liger_parts_.begin(), liger_parts_.end(), part) == liger_parts_.end()) liger_parts_.push_back(part);
  return patch == LigerPatch::Unknown ? LigerPatch::None : patch;
}

LigerPatch BlockBuilder::patch_of_norm_class(std::string_view class_name, std::string_view module) {
  return patch_of(LigerKernel::RmsNorm, family_of_norm(class_name), module);
}

bool BlockBuilder::has_liger_glu(std::string_view family) {
  return patch_of(LigerKernel::Glu, family) != LigerPatch::None;
}

BlockValue BlockBuilder::liger_glu(BlockValue gate, BlockValue up, bool approximate_gelu) {
  return op({.kind = OpKind::LigerGlu, .inputs = {gate, up}, .attributes = {.approximate = approximate_gelu}})[0];
}

}  // namespace fsdp
