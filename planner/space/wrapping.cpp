// Divides a block into units. This code knows no names of any model; the tree of modules and the sizes decide.
//
// A part is a module inside the block that can be a unit and holds at least 1/64 of the block's parameters. Smaller
// modules (norms, a router) stay in the unit around them, which saves a collective each.
//
//   sublayers    The topmost parts: attention and MLP of a transformer, the convolutions of a residual block. If a part
//                holds the whole block, as a wrapper does, we look for parts inside it.
//   projections  A unit need not be smaller than the largest piece that cannot be cut, because that one is gathered
//                whole in any case. So with L elements in that piece (a projection of the MLP, all experts of a
//                mixture) the units are the topmost parts of at most L elements: the fewest units, none above L.
//
//   Llama-3.1-405B     self_attn 570 M   gate_proj, up_proj, down_proj 872 M each       L = 872 M
//     sublayers        self_attn | mlp
//     projections      self_attn | mlp.gate_proj | mlp.up_proj | mlp.down_proj
//
// The rest of the block is a unit of its own, gathered while the block runs, if it holds at least 1/1024 of the block's
// parameters. A smaller rest (norms) stays in the root: the norms of 126 blocks of 405 B take 8 MiB there, and as units
// of their own 1.4 s a step on 512 GPUs.
//
// FSDP would not gather a parameter that an op outside its module's forward reads. So these modules are no units: an
// output projection that a fused attention takes as a weight; a single expert, which a mixture runs or skips depending
// on the tokens, differently on each rank.

#include "planner/space/wrapping.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "core/base/name_pattern.h"
#include "core/base/name_ranges.h"
#include "core/base/nearest.h"
#include "core/model/experts.h"
#include "core/model/model_index.h"

namespace fsdp::planner {

namespace {

constexpr std::int64_t kSmallestEnd = 1'000'000;
/// A part holds at least 1/64 of a block's elements.
constexpr std::int64_t kPartsOfBlock = 64;
/// The rest of a block is a unit if it holds at least 1/1024 of its elements.
constexpr std::int64_t kRestOfBlock = 1024;

const Module& at(const Model& model, int module) {
  return model.modules[module];
}

/// Facts of the subtree below each module.
struct Subtree {
  std::int64_t parameters = 0;
  std::int64_t trained = 0;  ///< The trained ones among these elements.
  bool holds_whole_ties = true;
  bool is_read_outside = false;  ///< True if an op outside its forward reads a parameter of it.
  bool is_block = false;         ///< True for a block of a stack.
  bool is_idle = false;          ///< True for a block whose forward does not run.
  bool has_block = false;        ///< True if it is or contains a block.
  bool runs = false;             ///< True if a call runs it or a module below it.
};

/// True if a module is another one or lies below it. A reader of -1 runs after the root's forward has returned.
bool lies_in(const Model& model, int module, int above) {
  while (module >= 0 && module != above) module = at(model, module).parent;
  return module >= 0;
}

void mark_reads_outside(const Model& model, std::vector<Subtree>& subtrees) {
  for (const Call& call : model.calls) {
    for (const Op& op : model.blocks[call.block].ops) {
      const int reader = call.modules[op.module];
      for (const int index : op.parameters) {
        int module = model.parameters[call.parameters[index]].module;
        for (; module > 0 && !lies_in(model, reader, module); module = at(model, module).parent) {
          subtrees[module].is_read_outside = true;
        }
      }
    }
  }
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
  mark_reads_outside(model, subtrees);
  const auto mark = [&](int block) {
    subtrees[block].is_block = true;
    for (int module = block; module >= 0; module = at(model, module).parent) subtrees[module].has_block = true;
  };
  for (const Stack& stack : model.stacks) {
    for (const int call : stack.calls) mark(model.calls[call].module);
  }
  for (const Call& call : model.calls) {
    for (int module : call.modules) {
      for (; module >= 0 && !subtrees[module].runs; module = at(model, module).parent) subtrees[module].runs = true;
    }
  }
  for (std::size_t i = 1; i < subtrees.size(); ++i) {
    const Module& module = model.modules[i];
    if (!module.called || subtrees[i].runs || at(model, module.parent).class_name != "ModuleList") continue;
    mark(static_cast<int>(i));
    subtrees[i].is_idle = true;
  }
  return subtrees;
}

Obstacle obstacle_of(const Module& module, const Subtree& subtree) {
  if (!subtree.holds_whole_ties) return Obstacle::Shared;
  if (subtree.parameters == 0) return Obstacle::NoParameters;
  if (!module.called) return Obstacle::NotCalled;
  return subtree.is_read_outside ? Obstacle::ReadOutside : Obstacle::None;
}

bool can_be_unit(const Model& model, const std::vector<Subtree>& subtrees, int module) {
  return module > 0 && obstacle_of(at(model, module), subtrees[module]) == Obstacle::None;
}

/// Cuts one block into units.
class BlockCutter {
 public:
  BlockCutter(const Model& model, const std::vector<Subtree>& subtrees, int block)
      : model_(model),
        subtrees_(subtrees),
        block_(block),
        smallest_(std::max<std::int64_t>(1, subtrees[block].parameters / kPartsOfBlock)) {}

  /// Modules, children first and the rest of the block last. Empty if the block cannot be cut.
  std::vector<int> sublayers() const {
    std::int64_t limit = std::numeric_limits<std::int64_t>::max();
    std::vector<Part> parts = cut(limit);
    while (parts.size() == 1 && subtrees_[block_].parameters - parts.front().elements < smallest_) {
      if (parts.front().elements > limit) return {};
      limit = parts.front().elements - 1;
      parts = cut(limit);
    }
    return with_rest(parts);
  }

  std::vector<int> projections() const {
    const std::vector<Part> pieces = cut(0);
    std::int64_t largest = rest_of(pieces);
    for (const Part& piece : pieces) largest = std::max(largest, piece.elements);
    const std::vector<Part> parts = cut(largest);
    const bool is_whole = parts.size() == 1 && rest_of(parts) < smallest_;
    return is_whole ? std::vector<int>{} : with_rest(parts);
  }

 private:
  struct Part {
    int module = 0;
    std::int64_t elements = 0;  ///< Elements of its own, without those of the parts inside it.
  };

  /// Parts of at most `limit` elements, and larger ones that cannot be cut.
  std::vector<Part> cut(std::int64_t limit) const {
    std::vector<Part> parts;
    cut_below(block_, limit, parts);
    return parts;
  }

  /// Returns the elements of the parts that it adds.
  std::int64_t cut_below(int module, std::int64_t limit, std::vector<Part>& parts) const {
    std::int64_t held = 0;
    for (const int child : at(model_, module).children) {
      const std::int64_t elements = subtrees_[child].parameters;
      if (elements < smallest_) continue;
      const bool is_part = can_be_unit(model_, subtrees_, child);
      const std::int64_t inside = is_part && elements <= limit ? 0 : cut_below(child, limit, parts);
      held += inside;
      if (!is_part || elements - inside < smallest_) continue;
      parts.push_back({child, elements - inside});
      held += elements - inside;
    }
    return held;
  }

  std::int64_t rest_of(const std::vector<Part>& parts) const {
    std::int64_t rest = subtrees_[block_].parameters;
    for (const Part& part : parts) rest -= part.elements;
    return rest;
  }

  std::vector<int> with_rest(const std::vector<Part>& parts) const {
    std::vector<int> modules;
    for (const Part& part : parts) modules.push_back(part.module);
    const bool has_rest = rest_of(parts) * kRestOfBlock >= subtrees_[block_].parameters && rest_of(parts) > 0;
    if (!parts.empty() && has_rest && can_be_unit(model_, subtrees_, block_)) modules.push_back(block_);
    return modules;
  }

  const Model& model_;
  const std::vector<Subtree>& subtrees_;
  int block_;
  std::int64_t smallest_;
};

/// Adds the topmost modules outside the stacks that can be units.
void add_outsiders(const Model& model, const std::vector<Subtree>& subtrees, int module, Wrappables& wrappables) {
  for (const int child : at(model, module).children) {
    const Subtree& subtree = subtrees[child];
    if (subtree.is_block) continue;
    if (is_model_of_passes(model, child) || subtree.has_block || !can_be_unit(model, subtrees, child)) {
      add_outsiders(model, subtrees, child, wrappables);
    } else if (subtree.trained == 0) {
      wrappables.frozen.push_back(child);
    } else if (subtree.parameters >= kSmallestEnd) {
      wrappables.ends.push_back(child);
    }
  }
}

/// The blocks of each stack, each once even if forward calls it several times.
std::vector<std::vector<int>> stacks_of(const Model& model) {
  std::vector<std::vector<int>> stacks;
  for (const Stack& stack : model.stacks) {
    std::vector<int> blocks;
    for (const int call : stack.calls) {
      const int module = model.calls[call].module;
      if (std::find(blocks.begin(), blocks.end(), module) == blocks.end()) blocks.push_back(module);
    }
    stacks.push_back(std::move(blocks));
  }
  return stacks;
}

/// Units inside the blocks of each stack. Empty if no block can be cut.
template <class Cut>
std::vector<std::vector<std::vector<int>>> inside_of(const Model& model, const std::vector<Subtree>& subtrees,
                                                     Cut cut) {
  std::vector<std::vector<std::vector<int>>> stacks;
  bool is_cut = false;
  for (const std::vector<int>& blocks : stacks_of(model)) {
    std::vector<std::vector<int>> groups;
    for (const int block : blocks) {
      std::vector<int> units = cut(BlockCutter(model, subtrees, block));
      is_cut = is_cut || !units.empty();
      if (units.empty() && can_be_unit(model, subtrees, block)) units = {block};
      if (!units.empty()) groups.push_back(std::move(units));
    }
    if (!groups.empty()) stacks.push_back(std::move(groups));
  }
  if (!is_cut) stacks.clear();
  return stacks;
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
  for (std::vector<int>& blocks : stacks_of(model)) {
    std::erase_if(blocks, [&](int block) { return !can_be_unit(model, subtrees, block); });
    if (!blocks.empty()) wrappables.stacks.push_back(std::move(blocks));
  }
  wrappables.sublayers = inside_of(model, subtrees, [](const BlockCutter& block) { return block.sublayers(); });
  wrappables.projections = inside_of(model, subtrees, [](const BlockCutter& block) { return block.projections(); });
  for (int i = 1; i < static_cast<int>(subtrees.size()); ++i) {
    if (subtrees[i].is_idle && can_be_unit(model, subtrees, i)) wrappables.idle.push_back(i);
  }
  add_outsiders(model, subtrees, 0, wrappables);
  for (const auto& blocks : stacks_of(model)) {
    for (const int block : blocks) {
      wrappables.largest_block = std::max(wrappables.largest_block, subtrees[block].parameters);
    }
  }
  return wrappables;
}

namespace {

std::vector<std::vector<UnitGroup>> units_of_parts(const Model& model,
                                                   const std::vector<std::vector<std::vector<int>>>& stacks) {
  std::vector<std::vector<UnitGroup>> groups_of_stacks;
  for (const auto& blocks : stacks) {
    std::vector<UnitGroup> groups;
    for (const std::vector<int>& units : blocks) {
      groups.emplace_back();
      for (const int module : units) groups.back().push_back({at(model, module).name});
    }
    groups_of_stacks.push_back(std::move(groups));
  }
  return groups_of_stacks;
}

std::vector<UnitGroup> neighbors_of(const Model& model, const std::vector<int>& blocks, std::int64_t blocks_per_unit) {
  std::vector<UnitGroup> groups;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (i % static_cast<std::size_t>(blocks_per_unit) == 0) groups.push_back({UnitModules{}});
    groups.back().front().push_back(at(model, blocks[i]).name);
  }
  return groups;
}

/// For a module that holds some names of a parameter and lacks others.
std::string describe_tie(const Model& model, const std::string& module) {
  for (const Parameter& parameter : model.parameters) {
    std::vector<std::string> names = {parameter.name};
    names.insert(names.end(), parameter.tied_names.begin(), parameter.tied_names.end());
    const auto outside = std::stable_partition(names.begin(), names.end(),
                                               [&](const std::string& name) { return is_inside(name, module); });
    if (outside == names.begin() || outside == names.end()) continue;
    return fmt::format("\"{}\" is the parameter \"{}\", which lies outside of it", names.front(), *outside);
  }
  return "";
}

/// For a module with a parameter that an op outside its forward reads.
std::string describe_reader(const Model& model, int module) {
  for (const Call& call : model.calls) {
    for (const Op& op : model.blocks[call.block].ops) {
      const int reader = call.modules[op.module];
      if (lies_in(model, reader, module)) continue;
      for (const int index : op.parameters) {
        const Parameter& parameter = model.parameters[call.parameters[index]];
        if (!lies_in(model, parameter.module, module)) continue;
        return fmt::format("\"{}\" is read by the forward of \"{}\", which would not gather it", parameter.name,
                           reader < 0 ? "" : at(model, reader).name);
      }
    }
  }
  return "";
}

}  // namespace

std::vector<UnitModules> models_of_passes(const Model& model) {
  std::vector<UnitModules> roots;
  if (!has_passes(model)) return roots;
  for (const int root : roots_of(model)) roots.push_back({at(model, root).name});
  return roots;
}

Result<Wrapping> wrapping_of(const Model& model, const Wrappables& wrappables, const Wrap& wrap, bool ends,
                             bool frozen) {
  Wrapping wrapping{.stacks = {}, .others = {}, .roots = models_of_passes(model)};
  if (wrap.parts != BlockParts::Whole) {
    const auto& inside = wrappables.inside(wrap.parts);
    if (inside.empty()) {
      return failure("--wrap", fmt::format("No block of {} has modules inside that can be units.", model.name),
                     "Write \"blocks\", a number of blocks, or \"root\".");
    }
    wrapping.stacks = units_of_parts(model, inside);
  } else if (wrap.blocks_per_unit > 0) {
    for (const std::vector<int>& blocks : wrappables.stacks) {
      wrapping.stacks.push_back(neighbors_of(model, blocks, wrap.blocks_per_unit));
    }
  }
  if (wrap.parts != BlockParts::Whole || wrap.blocks_per_unit > 0) {
    for (const int module : wrappables.idle) wrapping.idle.push_back({at(model, module).name});
  }
  if (ends) {
    const int last_block = wrappables.stacks.empty() ? -1 : wrappables.stacks.back().back();
    for (const int module : wrappables.ends) {
      wrapping.others.push_back({at(model, module).name});
      if (module > last_block) wrapping.heads.push_back(at(model, module).name);
    }
  }
  if (frozen) {
    for (const int module : wrappables.frozen) wrapping.others.push_back({at(model, module).name});
  }
  return wrapping;
}

std::vector<Obstacle> obstacles_of(const Model& model) {
  const std::vector<Subtree> subtrees = subtrees_of(model);
  std::vector<Obstacle> obstacles(model.modules.size(), Obstacle::None);
  for (std::size_t i = 1; i < obstacles.size(); ++i)
    obstacles[i] = obstacle_of(at(model, static_cast<int>(i)), subtrees[i]);
  return obstacles;
}

std::string describe(const Model& model, int module, Obstacle obstacle) {
  switch (obstacle) {
    case Obstacle::Shared:
      return describe_tie(model, at(model, module).name);
    case Obstacle::NoParameters:
      return "there are no parameters in it";
    case Obstacle::NotCalled:
      return "its forward is never called";
    case Obstacle::ReadOutside:
      return describe_reader(model, module);
    case Obstacle::None:
      break;
  }
  return "";
}

Wrapping wrapping_of_modules(const Model& model, const std::vector<bool>& chosen) {
  Wrapping wrapping{.stacks = {}, .others = {}, .roots = models_of_passes(model)};
  // Modules are in pre-order. We append a module at the end of its subtree, so that children come first.
  std::vector<int> open;
  const auto close_until = [&](int parent) {
    while (!open.empty() && open.back() != parent) {
      const int module = open.back();
      open.pop_back();
      if (chosen[module] && !is_model_of_passes(model, module)) wrapping.others.push_back({at(model, module).name});
    }
  };
  for (int module = 0; module < static_cast<int>(model.modules.size()); ++module) {
    close_until(at(model, module).parent);
    open.push_back(module);
  }
  close_until(-1);
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
        // A class name matches all modules of the class, as in FSDP1's transformer_auto_wrap_policy.
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
  return wrapping_of_modules(model, chosen);
}

// transformers 5.24.0: base_model_fsdp_plan of PreTrainedConfig, _fsdp_plan of the classes with a head, and
// distributed/fsdp.py (is_norm_and_head_pair).
Wrapping wrapping_of_transformers(const Model& model) {
  Wrapping wrapping = wrapping_of(model, wrappables_of(model), Wrap{}, false, false).value_or(Wrapping{});
  wrapping.others.clear();
  for (const int module : expert_modules(model)) wrapping.experts.push_back({at(model, module).name});
  if (wrapping.experts.empty() || model.stacks.empty()) return {};
  const std::string base(parent_name(model.stacks.front().name));
  const std::string prefix = base.empty() ? base : base + ".";
  const ModelIndex index = index_of(model);
  const auto has = [&](const std::string& name) { return index.find(name) >= 0; };
  const std::string embedding = prefix + "embed_tokens";
  if (has(embedding)) wrapping.others.push_back({embedding});
  UnitModules kept;
  for (const std::string& name : {prefix + "norm", std::string("lm_head")}) {
    if (has(name)) kept.push_back(name);
  }
  if (!kept.empty()) wrapping.kept_ends.push_back(std::move(kept));
  return wrapping;
}

void leave_to_root_what_never_runs(Plan& plan, const Model& model) {
  const auto never_runs = [&](const std::string& name) {
    return std::any_of(model.modules.begin(), model.modules.end(),
                       [&](const Module& module) { return module.name == name && !module.called; });
  };
  std::erase_if(plan.units, [&](const Unit& unit) {
    return !is_root(unit) && std::all_of(unit.modules.begin(), unit.modules.end(), never_runs);
  });
}

}  // namespace fsdp::planner
