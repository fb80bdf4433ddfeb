#include "render/python_words.h"

#include <fmt/format.h>

#include "core/plan/optimizer_table.h"
#include "core/plan/torch_version.h"
#include "text/shell_text.h"

namespace fsdp::render {

std::string environment_of(const Plan& plan) {
  return text::assignment_text(allocator_environment(plan.runtime));
}

std::string python_optimizer(const Optimizer& optimizer) {
  return std::string(optimizer_row(optimizer).sentence);
}

std::string python_optimizer_options(const Optimizer& optimizer) {
  std::string options = fmt::format("lr=..., weight_decay={}", optimizer.weight_decay);
  if (optimizer_row(optimizer).moments_need_momentum && optimizer.momentum != 0)
    options += fmt::format(", momentum={}", optimizer.momentum);
  options += optimizer_row(optimizer).options;
  if (optimizer.implementation == OptimizerImplementation::Fused) options += ", fused=True";
  if (optimizer.implementation == OptimizerImplementation::ForLoop) options += ", foreach=False";
  return options;
}

std::string sizes_of(const std::vector<Dimension>& dimensions) {
  std::string sizes;
  for (const Dimension& size : dimensions) {
    sizes += fmt::format("{}{} {}", sizes.empty() ? "" : ", ", size.name, size.value);
  }
  return sizes;
}

}  // namespace fsdp::render
