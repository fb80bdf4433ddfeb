#pragma once

// What the lowering of FSDP2 (lower_fsdp2.cpp) knows of units and roots while it walks over a step.

#include <algorithm>
#include <cstdint>
#include <deque>
#include <vector>

#include "core/model/model_index.h"
#include "core/plan/sharding.h"

namespace fsdp {

/// Where a unit is in a micro-batch.
struct Fsdp2Unit {
  std::uint8_t slot = 0;   // Where the output of its last gather is.
  bool gathering = false;  // An all-gather is under way or done, its copy-out is not.
  bool unsharded = false;
  bool smaller = false;        // Sharded over the smaller world that an integer reshard_after_forward asks for.
  bool pre_backward = false;   // The last of this backward's hooks was pre_backward, or
  bool post_backward = false;  // post_backward.
  bool reduced = false;        // This micro-batch's gradients are reduced or kept.
  bool accumulated = false;    // Gradients of earlier micro-batches are kept.
  int last_left = -1;          // In Fsdp2Tree::post_forward_order: where it was left last; -1: nowhere.

  void forget_backward() {
    last_left = -1;
    pre_backward = post_backward = reduced = false;
  }
};

/// A reduction whose buffer lives.
struct Fsdp2Reduction {
  int unit = -1;
  std::uint8_t slot = 0;
};

/// A root with the units below it: what they share.
struct Fsdp2Tree {
  int root = -1;
  std::vector<int> post_forward_order;
  std::vector<int> left_before;  // [post_forward_order] Where the same unit was left before that; -1: nowhere.
  int held_gather = -1;          // The unit whose gather's output the forward keeps, and
  std::uint8_t held_slot = 0;
  std::deque<Fsdp2Reduction> reduce_inputs;  // the reductions whose inputs live, the oldest first.
  std::vector<Fsdp2Reduction> all_reduced;   // Those whose all-reduced gradients are kept.

  void forget_forward() {
    post_forward_order.clear();
    left_before.clear();
  }
};

/// [units] In roots_of; -1: the module that holds the models of a step of passes, which is no unit of FSDP2.
inline std::vector<int> trees_of_units(const ModelIndex& index, const Layout& layout) {
  std::vector<int> trees;
  for (const ShardedUnit& unit : layout.units) trees.push_back(root_number(*index.model, unit.modules.front()));
  return trees;
}

/// [roots_of] Each with its root.
inline std::vector<Fsdp2Tree> make_trees(const ModelIndex& index, const Layout& layout,
                                         const std::vector<int>& tree_of_unit) {
  const std::vector<int> roots = roots_of(*index.model);
  std::vector<Fsdp2Tree> trees(roots.size());
  for (std::size_t u = 0; u < layout.units.size(); ++u) {
    if (tree_of_unit[u] < 0) continue;
    const auto tree = static_cast<std::size_t>(tree_of_unit[u]);
    const std::vector<int>& modules = layout.units[u].modules;
    if (std::find(modules.begin(), modules.end(), roots[tree]) != modules.end()) trees[tree].root = static_cast<int>(u);
  }
  return trees;
}

}  // namespace fsdp
