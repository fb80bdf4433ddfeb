// Sources: torchao 0.18.0, float8/README.md ("torch.compile is recommended for competitive performance");
// torchtitan 0.2.2, docs/float8.md.

#include "core/spec/float8_layers.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace fsdp {

namespace {

constexpr std::string_view kFloat8Option = "--fp8";

/// Calls `visit(call, op)` for each converted layer.
template <class Visit>
void for_each_converted(const Model& model, Visit visit) {
  for (const Call& call : model.calls) {
    for (const Op& op : model.blocks[static_cast<std::size_t>(call.block)].ops) {
      if (op.attributes.float8) visit(call, op);
    }
  }
}

}  // namespace

std::vector<std::string> names_of_runs(const SpecModule& module) {
  if (!module.repeated) return {module.name};
  std::vector<std::string> names;
  for (std::int64_t i = module.first; i <= module.last; ++i) names.push_back(fmt::format("{}{}", module.name, i));
  return names;
}

void Float8Layers::note(const BlockBuilder& builder) {
  converted_ += builder.num_converted();
  const std::vector<bool>& found = builder.found_skipped();
  found_.resize(std::max(found_.size(), found.size()), false);
  for (std::size_t s = 0; s < found.size(); ++s) found_[s] = found_[s] || found[s];
}

Errors Float8Layers::check(const Float8Training& float8, const std::string& model) const {
  Errors errors;
  for (std::size_t s = 0; s < float8.skip.size(); ++s) {
    if (s < found_.size() && found_[s]) continue;
    errors.push_back({std::string(kFloat8Option),
                      fmt::format("No linear layer of {} has \"{}\" in its name.", model, float8.skip[s]),
                      "Leave it out of skip=, or write a part of a name that fsdp-plan models --expanded prints."});
  }
  if (errors.empty() && converted_ == 0) {
    errors.push_back({std::string(kFloat8Option), fmt::format("{} has no linear layer that is converted.", model),
                      "Sizes must be multiples of 16, and the output head stays as it is without skip=none."});
  }
  return errors;
}

std::string note_of_float8(const Float8Training& float8, const Model& model) {
  std::int64_t layers = 0;
  for_each_converted(model, [&](const Call&, const Op&) { ++layers; });
  return fmt::format(
      "{} linear layers are Float8Linear of torchao {} ({}). Without torch.compile, for which torchao and torchtitan "
      "made them, each cast passes its tensor eight times through memory and takes up to 9 bytes for each number while "
      "it runs: a step is longer than torchao's published ones, and can be longer than one in bf16.",
      layers, kTorchaoVersion, name_of(float8.recipe));
}

}  // namespace fsdp
