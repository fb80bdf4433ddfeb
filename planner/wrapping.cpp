#include "planner/wrapping.h"

#include <fmt/core.h>

#include <algorithm>

#include "core/base/name_pattern.h"
#include "core/base/name_ranges.h"
#include "core/base/nearest.h"
#include "core/model/model_index.h"

namespace fsdp::planner {

namespace {

constexpr std::int64_t kSmallestEnd = 1'000'000;

const Module& at(const Model& model, int module) {
  return model.modules[module];
}

/// What lies in the subtree of each module.
struct Subtree {
  std::int64_t parameters = 0;
  std::int64_t trained = 0;  ///< Of these, elements that receive a gradient.
  bool holds_whole_ties = true;
  bool is_block = false;   ///< Of a stack.
  bool has_block = false;  ///< Is or contains one.
};

bool is_inside(std::string_view name, std::string_view module) {
  return module.empty() || (name.starts_with(module) && name.size() > module.size() && name[module.size()] == '.');
}

std::vector<Subtree> subtrees_of(const Model& model) {
  std::vector<Subtree> subtrees(model.modules.size());
  for (const Parameter& parameter : model.parameters) {
    const std::int64_t elements = num_elements(parameter.shape);
    for (int module = parameter.module; module >= 0; module = at(model, module).parent) {
      Subtree& subtree = subtrees[module];
      subtree.parameters += elements;
      if (parameter.receives_gradient) subtree.trained += elements;
    }
    if (parameter.tied_names.empty()) continue;
    for (std::size_t i = 0; i < model.modules.size(); ++i) {
      const std::string& module = model.modules[i].name;
      std::size_t inside = is_inside(parameter.name, module) ? 1 : 0;
      for (const std::string& alias : parameter.tied_names) inside += is_inside(alias, module) ? 1 : 0;
      if (inside > 0 && inside < parameter.tied_names.size() + 1) subtrees[i].holds_whole_ties = false;
    }
  }
  for (const Stack& stack : model.stacks) {
    for (const int call : stack.calls) {
      const int block = model.calls[call].module;
      subtrees[block].is_block = true;
      for (int module = block; module >= 0; module = at(model, module).parent) {
        subtrees[module].has_block = true;
      }
    }
  }
  return subtrees;
}

bool can_be_unit(const Model& model, const std::vector<Subtree>& subtrees, int module) {
  const Subtree& subtree = subtrees[module];
  return module > 0 && at(model, module).called && subtree.parameters > 0 && subtree.holds_whole_ties;
}

/// Adds the topmost modules outside of the stacks that can be units.
void add_outsiders(const Model& model, const std::vector<Subtree>& subtrees, int module, Wrappables& wrappables) {
  for (const int child : at(model, module).children) {
    const Subtree& subtree = subtrees[child];
    if (subtree.is_block) continue;
    if (subtree.has_block || !can_be_unit(model, subtrees, child)) {
      add_outsiders(model, subtrees, child, wrappables);
    } else if (subtree.trained == 0) {
      wrappables.frozen.push_back(child);
    } else if (subtree.parameters >= kSmallestEnd) {
      wrappables.ends.push_back(child);
    }
  }
}

}  // namespace

std::int64_t Wrapping::longest() const {
  std::size_t longest = others.empty() ? 0 : 1;
  for (const auto& stack : stacks) longest = std::max(longest, stack.size());
  return static_cast<std::int64_t>(longest);
}

Wrappables wrappables_of(const Model& model) {
  const std::vector<Subtree> subtrees = subtrees_of(model);
  Wrappables wrappables;
  for (const Stack& stack : model.stacks) {
    std::vector<int> blocks;
    for (const int call : stack.calls) {
      const int module = model.calls[call].module;
      const bool is_new = std::find(blocks.begin(), blocks.end(), module) == blocks.end();
      if (is_new && can_be_unit(model, subtrees, module)) blocks.push_back(module);
    }
    if (!blocks.empty()) wrappables.stacks.push_back(std::move(blocks));
  }
  add_outsiders(model, subtrees, 0, wrappables);
  return wrappables;
}

Wrapping wrapping_of(const Model& model, const Wrappables& wrappables, std::int64_t blocks_per_unit, bool ends,
                     bool frozen) {
  Wrapping wrapping;
  if (blocks_per_unit > 0) {
    for (const std::vector<int>& blocks : wrappables.stacks) {
      std::vector<UnitModules> units;
      for (std::size_t i = 0; i < blocks.size(); ++i) {
        if (i % static_cast<std::size_t>(blocks_per_unit) == 0) units.emplace_back();
        units.back().push_back(at(model, blocks[i]).name);
      }
      wrapping.stacks.push_back(std::move(units));
    }
  }
  if (ends) {
    for (const int module : wrappables.ends) wrapping.others.push_back({at(model, module).name});
  }
  if (frozen) {
    for (const int module : wrappables.frozen) wrapping.others.push_back({at(model, module).name});
  }
  return wrapping;
}

Result<Wrapping> wrapping_of_patterns(const Model& model, const std::vector<std::string>& patterns) {
  const std::vector<Subtree> subtrees = subtrees_of(model);
  std::vector<bool> chosen(model.modules.size(), false);
  Errors errors;
  std::vector<std::string> known;
  std::vector<int> wrappable;
  for (std::size_t i = 1; i < model.modules.size(); ++i) {
    if (!can_be_unit(model, subtrees, static_cast<int>(i))) continue;
    wrappable.push_back(static_cast<int>(i));
    known.push_back(model.modules[i].name);
  }
  for (const std::string& text : patterns) {
    auto unfolded = unfold_name(text, "--wrap");
    if (!unfolded) {
      append(errors, unfolded.error());
      continue;
    }
    for (const std::string& pattern : *unfolded) {
      bool matched = false;
      for (const int module : wrappable) {
        const Module& candidate = at(model, module);
        // A class name means all of its modules, as in FSDP1's transformer_auto_wrap_policy.
        if (!matches_module(pattern, candidate.name) && pattern != candidate.class_name) continue;
        chosen[module] = true;
        matched = true;
      }
      if (matched) continue;
      errors.push_back({"--wrap", fmt::format("\"{}\" matches no module that can be a unit.", pattern),
                        suggest_name(pattern, known)});
    }
  }
  if (!errors.empty()) return tl::unexpected(std::move(errors));
  Wrapping wrapping;
  // Modules are in pre-order; a module is written down when its subtree ends, so that children come first.
  std::vector<int> open;
  const auto close_until = [&](int parent) {
    while (!open.empty() && open.back() != parent) {
      const int module = open.back();
      open.pop_back();
      if (chosen[module]) wrapping.others.push_back({at(model, module).name});
    }
  };
  for (int module = 0; module < static_cast<int>(model.modules.size()); ++module) {
    close_until(at(model, module).parent);
    open.push_back(module);
  }
  close_until(-1);
  return wrapping;
}

}  // namespace fsdp::planner
