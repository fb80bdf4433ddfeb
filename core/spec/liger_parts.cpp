#include "core/spec/liger_parts.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "core/base/nearest.h"

namespace fsdp {

namespace {

constexpr std::string_view kLigerPlace = "--liger";

/// "Write --liger rope,rms_norm, or leave it out."
std::string without(const LigerKernels& kernels, LigerKernel left_out, const LigerFamily* family) {
  LigerKernels others = kernels;
  if (others.all) others = {.all = false, .rope = true, .rms_norm = true, .glu = true};
  if (family != nullptr && family->rope == LigerPatch::None) others.rope = false;
  if (family != nullptr && family->glu == LigerPatch::None) others.glu = false;
  if (left_out == LigerKernel::Rope) others.rope = false;
  if (left_out == LigerKernel::RmsNorm) others.rms_norm = false;
  if (left_out == LigerKernel::Glu) others.glu = false;
  const std::string names = to_text(others);
  return names.empty() ? "Leave it out." : fmt::format("Write --liger {}, or leave it out.", names);
}

Error unknown_family(const std::string& model) {
  std::vector<std::string_view> names;
  for (const LigerFamily& family : liger_families()) names.push_back(family.name);
  return {std::string(kLigerPlace), fmt::format("Liger's kernels are not predicted for {}.", model),
          fmt::format("They are for the models of {}. Leave it out.", join_names(names))};
}

}  // namespace

void LigerParts::note(const BlockBuilder& builder) {
  for (const LigerPart& part : builder.liger_parts()) {
    if (std::find(parts_.begin(), parts_.end(), part) == parts_.end()) parts_.push_back(part);
  }
}

Errors LigerParts::check(const LigerKernels& kernels, const std::string& model) const {
  const bool is_known = std::any_of(parts_.begin(), parts_.end(), [](const LigerPart& part) { return part.is_known; });
  if (!is_known) return {unknown_family(model)};
  Errors errors;
  for (int k = 0; k < kNumLigerKernels; ++k) {
    const auto kernel = static_cast<LigerKernel>(k);
    if (!kernels.has(kernel)) continue;
    const auto has = [&](const auto& is_such) {
      return std::any_of(parts_.begin(), parts_.end(),
                         [&](const LigerPart& p) { return p.kernel == kernel && is_such(p); });
    };
    const auto known = std::find_if(parts_.begin(), parts_.end(), [](const LigerPart& part) { return part.is_known; });
    const LigerFamily* family = liger_family(known->family);
    const auto wrong = [&](std::string what) {
      errors.push_back({std::string(kLigerPlace), std::move(what), without(kernels, kernel, family)});
    };
    if (has([](const LigerPart& part) { return part.patch == LigerPatch::Unknown; })) {
      wrong(fmt::format("Liger's kernels for experts, which \"{}\" switches on for {}, are not predicted.",
                        name_of(kernel), model));
    } else if (!has([](const LigerPart& part) { return part.patch != LigerPatch::None; }) && !kernels.all) {
      wrong(fmt::format("liger-kernel {} has no \"{}\" for {}.", kLigerVersion, name_of(kernel), model));
    }
  }
  return errors;
}

}  // namespace fsdp
