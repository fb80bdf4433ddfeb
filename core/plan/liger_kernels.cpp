#include "core/plan/liger_kernels.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <vector>

#include "core/base/nearest.h"
#include "core/base/split.h"

namespace fsdp {

namespace {

constexpr std::array<std::string_view, kNumLigerKernels> kLigerNames = {"rope", "rms_norm", "glu"};

// Other words for the same, as in the library's and axolotl's keys.
struct OtherLigerName {
  std::string_view word;
  LigerKernel kernel;
};
constexpr OtherLigerName kOtherLigerNames[] = {{"swiglu", LigerKernel::Glu},
                                               {"geglu", LigerKernel::Glu},
                                               {"glu_activation", LigerKernel::Glu},
                                               {"rmsnorm", LigerKernel::RmsNorm}};

bool& flag_of(LigerKernels& kernels, LigerKernel kernel) {
  if (kernel == LigerKernel::Rope) return kernels.rope;
  return kernel == LigerKernel::RmsNorm ? kernels.rms_norm : kernels.glu;
}

std::optional<LigerKernel> kernel_of(std::string_view word) {
  const auto named = std::find(kLigerNames.begin(), kLigerNames.end(), word);
  if (named != kLigerNames.end()) return static_cast<LigerKernel>(named - kLigerNames.begin());
  for (const OtherLigerName& other : kOtherLigerNames) {
    if (other.word == word) return other.kernel;
  }
  return std::nullopt;
}

Error unknown_word(std::string_view word, std::string_view where) {
  const auto refuse = [&](std::string_view what, std::string_view hint) {
    return Error{std::string(where), std::string(what), std::string(hint)};
  };
  if (word == "layer_norm") {
    return refuse("The language models that are predicted have no LayerNorm that Liger replaces.", "Leave it out.");
  }
  if (word == "fused_linear_cross_entropy") {
    return refuse("Liger's fused linear cross entropy is a loss.", "Leave it out, and write --loss liger.");
  }
  if (word == "cross_entropy") {
    return refuse("Liger's cross entropy of existing logits is not predicted.", "Leave it out, or write --loss liger.");
  }
  std::vector<std::string_view> known(kLigerNames.begin(), kLigerNames.end());
  known.emplace_back("all");
  return {std::string(where), fmt::format("Unknown kernel \"{}\".", word), suggest_name(word, known)};
}

std::vector<std::string_view> names_in(const LigerKernels& kernels) {
  std::vector<std::string_view> names;
  for (int k = 0; k < kNumLigerKernels; ++k) {
    if (kernels.has(static_cast<LigerKernel>(k))) names.push_back(kLigerNames[static_cast<std::size_t>(k)]);
  }
  return names;
}

using enum LigerPatch;

constexpr LigerFamily kFamilies[] = {
    {.name = "Llama"},
    {.name = "Mistral"},
    {.name = "Qwen2"},
    {.name = "Qwen3"},
    {.name = "Gemma"},
    {.name = "Gemma2", .norm = Fresh, .qk_norm = Fresh, .last_norm = Fresh},
    {.name = "Gemma3", .norm = Fresh, .qk_norm = Fresh, .last_norm = Fresh},
    {.name = "Exaone4", .norm = Fresh, .qk_norm = Fresh, .last_norm = Fresh},
    {.name = "Mixtral", .glu = Unknown},
    {.name = "Qwen3Moe", .glu = Unknown},
};

}  // namespace

bool LigerKernels::has(LigerKernel kernel) const {
  LigerKernels copy = *this;
  return all || flag_of(copy, kernel);
}

std::string_view name_of(LigerKernel kernel) {
  return kLigerNames[static_cast<std::size_t>(kernel)];
}

Result<LigerKernels> parse_liger(std::string_view text, std::string_view where) {
  if (text == "all") return LigerKernels{};
  LigerKernels kernels{.all = false};
  Errors errors;
  for (const std::string_view word : split(text, ',')) {
    const std::optional<LigerKernel> kernel = kernel_of(word);
    if (kernel) {
      flag_of(kernels, *kernel) = true;
    } else if (word == "all") {
      errors.push_back({std::string(where), "\"all\" stands alone.", "Write all, or the names of kernels."});
    } else {
      errors.push_back(unknown_word(word, where));
    }
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  return kernels;
}

std::string to_text(const LigerKernels& kernels) {
  if (kernels.all) return "all";
  return fmt::format("{}", fmt::join(names_in(kernels), ","));
}

std::string sentence_of(const LigerKernels& kernels) {
  if (kernels.all) return "Liger's kernels";
  return "Liger's " + join_names(names_in(kernels));
}

std::span<const LigerFamily> liger_families() {
  return kFamilies;
}

const LigerFamily* liger_family(std::string_view name) {
  const auto* const found = std::find_if(std::begin(kFamilies), std::end(kFamilies),
                                         [&](const LigerFamily& family) { return family.name == name; });
  return found == std::end(kFamilies) ? nullptr : found;
}

}  // namespace fsdp
