#include "planner/checkpointed_blocks.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace fsdp::planner {

namespace {

constexpr std::int64_t kAllBlocks = std::numeric_limits<std::int64_t>::max();

}  // namespace

std::vector<std::vector<std::string>> blocks_of(const Model& model) {
  std::vector<std::vector<std::string>> stacks;
  for (const Stack& stack : model.stacks) {
    std::vector<std::string> blocks;
    for (const int call : stack.calls) {
      const std::string& name = model.modules[model.calls[call].module].name;
      if (std::find(blocks.begin(), blocks.end(), name) == blocks.end()) blocks.push_back(name);
    }
    stacks.push_back(std::move(blocks));
  }
  return stacks;
}

void checkpoint_first(Plan& plan, const std::vector<std::vector<std::string>>& stacks, std::int64_t count,
                      CheckpointMode mode) {
  std::size_t num_entries = 0;
  for (const std::vector<std::string>& stack : stacks) {
    num_entries += std::min(stack.size(), static_cast<std::size_t>(count));
  }
  plan.checkpointing.entries.clear();
  plan.checkpointing.entries.reserve(num_entries);
  for (const std::vector<std::string>& stack : stacks) {
    const std::size_t taken = std::min(stack.size(), static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < taken; ++i) plan.checkpointing.entries.push_back({stack[i], mode});
  }
}

void checkpoint(Plan& plan, const Model& model, const CheckpointChoice& choice) {
  const bool is_on = choice.mode != CheckpointMode::None;
  checkpoint_first(plan, blocks_of(model), is_on ? choice.blocks.value_or(kAllBlocks) : 0, choice.mode);
}

}  // namespace fsdp::planner
