#include "planner/space/checkpointed_blocks.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <numeric>
#include <set>
#include <string_view>
#include <utility>

#include "core/frameworks/zero/zero_partition.h"
#include "core/plan/framework_traits.h"
#include "core/plan/schedule.h"

namespace fsdp::planner {

namespace {

constexpr std::int64_t kAllBlocks = std::numeric_limits<std::int64_t>::max();
/// Each further stack adds an order, and families of plans.
constexpr std::size_t kMostStacks = 4;
/// Share of the FLOPs of all stacks. Below it, a stack has little to gain.
constexpr double kLeastShare = 0.1;

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

StackCounts alike(const std::vector<std::vector<std::string>>& stacks, std::int64_t count) {
  StackCounts counts;
  for (const std::vector<std::string>& stack : stacks) {
    counts.push_back(static_cast<std::int32_t>(std::min(static_cast<std::int64_t>(stack.size()), count)));
  }
  return counts;
}

std::optional<StackCounts> first_blocks_of(const Plan& plan, const std::vector<std::vector<std::string>>& stacks) {
  std::set<std::string_view> modules;
  for (const Checkpointing::Entry& entry : plan.checkpointing.entries) modules.insert(entry.module);
  StackCounts counts;
  std::size_t found = 0;
  for (const std::vector<std::string>& stack : stacks) {
    const auto end =
        std::find_if(stack.begin(), stack.end(), [&](const auto& block) { return !modules.contains(block); });
    counts.push_back(static_cast<std::int32_t>(end - stack.begin()));
    found += static_cast<std::size_t>(counts.back());
  }
  if (found != modules.size()) return std::nullopt;
  return counts;
}

void save_ops(Checkpointing& checkpointing, const CheckpointWay& way) {
  if (way.mode != CheckpointMode::Selective) return;
  checkpointing.selective_keep = {OpKind::Attention};
  if (way.saved != SavedOps::Attention) checkpointing.selective_keep.push_back(OpKind::Linear);
  checkpointing.every_second_linear = way.saved != SavedOps::Matmuls;
}

std::optional<CheckpointWay> way_of(const Checkpointing& checkpointing) {
  const std::vector<Checkpointing::Entry>& entries = checkpointing.entries;
  if (entries.empty()) return std::nullopt;
  const CheckpointMode mode = entries.front().mode;
  if (std::any_of(entries.begin(), entries.end(), [&](const auto& entry) { return entry.mode != mode; })) {
    return std::nullopt;
  }
  if (mode != CheckpointMode::Selective) return mode;
  for (const SavedOps saved : {SavedOps::EverySecondMatmul, SavedOps::Matmuls, SavedOps::Attention}) {
    Checkpointing named;
    save_ops(named, {mode, saved});
    const bool is_counted = saved != SavedOps::Attention;
    if (named.selective_keep != checkpointing.selective_keep) continue;
    if (!is_counted || named.every_second_linear == checkpointing.every_second_linear)
      return CheckpointWay(mode, saved);
  }
  return std::nullopt;
}

std::vector<CheckpointWay> different_ways(const std::vector<CheckpointWay>& ways, const Model& model) {
  std::vector<CheckpointWay> different;
  std::vector<std::vector<bool>> known;
  for (const CheckpointWay& way : ways) {
    if (way.mode != CheckpointMode::Selective) {
      different.push_back(way);
      continue;
    }
    Checkpointing checkpointing;
    save_ops(checkpointing, way);
    std::vector<bool> kept;
    for (const Block& block : model.blocks) {
      const std::vector<bool> of_block = kept_ops(block, checkpointing);
      kept.insert(kept.end(), of_block.begin(), of_block.end());
    }
    const bool saves = std::find(kept.begin(), kept.end(), true) != kept.end();
    const bool is_known = std::find(known.begin(), known.end(), kept) != known.end();
    const bool is_usual = way.saved == SavedOps::EverySecondMatmul;
    if (is_usual || (saves && !is_known)) different.push_back(way);
    known.push_back(std::move(kept));
  }
  return different;
}

std::vector<CheckpointWay> ways_to_search(const Space& space, const Model& model) {
  std::vector<CheckpointWay> ways = different_ways(space.checkpoint_ways, model);
  if (!traits_of(space.base).replaces_linear) return ways;
  std::erase_if(ways, [&](const CheckpointWay& way) {
    if (way.mode != CheckpointMode::Selective) return false;
    Checkpointing checkpointing;
    save_ops(checkpointing, way);
    return std::any_of(model.blocks.begin(), model.blocks.end(),
                       [&](const Block& block) { return keeps_what_zero3_changes(block, checkpointing); });
  });
  return ways;
}

bool is_alike(const StackCounts& counts, const std::vector<std::vector<std::string>>& stacks) {
  return counts.empty() || counts == alike(stacks, *std::max_element(counts.begin(), counts.end()));
}

void checkpoint_first(Plan& plan, const std::vector<std::vector<std::string>>& stacks, const StackCounts& counts,
                      const CheckpointWay& way) {
  save_ops(plan.checkpointing, way);
  plan.checkpointing.entries.clear();
  plan.checkpointing.entries.reserve(
      static_cast<std::size_t>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0})));
  for (std::size_t s = 0; s < stacks.size(); ++s) {
    const std::size_t taken = std::min(stacks[s].size(), static_cast<std::size_t>(counts[s]));
    for (std::size_t i = 0; i < taken; ++i) plan.checkpointing.entries.push_back({stacks[s][i], way.mode});
  }
}

void checkpoint_first(Plan& plan, const std::vector<std::vector<std::string>>& stacks, std::int64_t count,
                      const CheckpointWay& way) {
  checkpoint_first(plan, stacks, alike(stacks, count), way);
}

Result<StackCounts> counts_of(const CheckpointChoice& choice, const std::vector<std::vector<std::string>>& stacks) {
  if (choice.way.mode == CheckpointMode::None) return alike(stacks, 0);
  if (choice.by_stack.empty()) return alike(stacks, choice.blocks.value_or(kAllBlocks));
  if (choice.by_stack.size() != stacks.size()) {
    std::vector<std::size_t> sizes;
    for (const std::vector<std::string>& stack : stacks) sizes.push_back(stack.size());
    return failure("--activation-checkpointing",
                   fmt::format("\"{}\" has numbers for {} stacks of blocks; the model has {}.", to_text(choice),
                               choice.by_stack.size(), stacks.size()),
                   stacks.empty()
                       ? "Leave it out."
                       : fmt::format("Write a number for each stack, in forward order and at most {}, or one "
                                     "for all of them.",
                                     fmt::join(sizes, ", ")));
  }
  StackCounts counts;
  for (std::size_t s = 0; s < stacks.size(); ++s) {
    counts.push_back(
        static_cast<std::int32_t>(std::min(static_cast<std::int64_t>(stacks[s].size()), choice.by_stack[s])));
  }
  return counts;
}

namespace {

/// [stack] Elements of the blocks' parameters times the rows that they multiply. This is proportional to FLOPs, which
/// suffices to find the stacks that matter.
std::vector<double> products_of(const Model& model) {
  std::vector<double> products;
  for (const Stack& stack : model.stacks) {
    double sum = 0;
    for (const int c : stack.calls) {
      const Call& call = model.calls[static_cast<std::size_t>(c)];
      if (call.inputs.empty()) continue;
      const Shape& shape = model.values[static_cast<std::size_t>(call.inputs.front())].shape;
      const double rows =
          shape.empty() ? 1 : static_cast<double>(num_elements(shape)) / static_cast<double>(shape.back());
      for (const int parameter : call.parameters) {
        sum += rows * static_cast<double>(num_elements(model.parameters[static_cast<std::size_t>(parameter)].shape));
      }
    }
    products.push_back(sum);
  }
  return products;
}

/// The whole of stack `first`, then the other stacks in turn.
CheckpointOrder order_from(std::size_t first, const std::vector<std::vector<std::string>>& stacks) {
  CheckpointOrder order{{StackCounts(stacks.size(), 0)}};
  const auto take_all_of = [&](std::size_t stack) {
    for (std::size_t i = 0; i < stacks[stack].size(); ++i) {
      order.counts.push_back(order.counts.back());
      ++order.counts.back()[stack];
    }
  };
  take_all_of(first);
  for (std::size_t s = 0; s < stacks.size(); ++s) {
    if (s != first) take_all_of(s);
  }
  return order;
}

}  // namespace

std::vector<CheckpointOrder> orders_of(const Model& model) {
  const std::vector<std::vector<std::string>> stacks = blocks_of(model);
  std::size_t longest = 0;
  for (const std::vector<std::string>& stack : stacks) longest = std::max(longest, stack.size());
  std::vector<CheckpointOrder> orders(1);
  for (std::size_t k = 0; k <= longest; ++k) {
    orders.front().counts.push_back(alike(stacks, static_cast<std::int64_t>(k)));
  }
  if (stacks.size() < 2 || stacks.size() > kMostStacks) return orders;
  const std::vector<double> products = products_of(model);
  const double least = kLeastShare * std::accumulate(products.begin(), products.end(), 0.0);
  const auto counts = [&](double of_stack) { return of_stack > 0 && of_stack >= least; };
  if (std::count_if(products.begin(), products.end(), counts) < 2) return orders;
  for (std::size_t s = 0; s < stacks.size(); ++s) {
    if (counts(products[s])) orders.push_back(order_from(s, stacks));
  }
  return orders;
}

Result<void> checkpoint(Plan& plan, const Model& model, const CheckpointChoice& choice) {
  const auto stacks = blocks_of(model);
  FSDP_TRY(const StackCounts counts, counts_of(choice, stacks));
  checkpoint_first(plan, stacks, counts, choice.way);
  return {};
}

}  // namespace fsdp::planner
