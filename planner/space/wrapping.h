#pragma once

// Which modules of a model become FSDP units, for each way of wrapping that the space knows.

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "planner/space/space.h"

namespace fsdp::planner {

/// Names of the modules of one unit.
using UnitModules = std::vector<std::string>;
/// Units that are resharded, or stay unsharded, together: one of neighboring blocks, or those inside a block and then
/// what is left of the block.
using UnitGroup = std::vector<UnitModules>;

/// The units below the root.
struct Wrapping {
  std::vector<std::vector<UnitGroup>> stacks;  ///< [stack][group], in forward order. Empty stacks are left out.
  std::vector<UnitModules> others;             ///< Ends, frozen modules, matches of patterns; children first.
  std::vector<UnitModules> roots;  ///< For a step of several passes: its models, each a root for FSDP2 by itself.

  bool has_units() const { return !stacks.empty() || !others.empty(); }
  /// Groups of the stack that has most; 1 where there are only others.
  std::int64_t longest() const;
  bool operator==(const Wrapping&) const = default;
};

/// What a model has to wrap.
struct Wrappables {
  std::vector<std::vector<int>> stacks;  ///< [stack][block] In `Model::modules`: blocks that may be units.
  /// [stack][block] Units inside each block, children first, and last the block itself where enough is left of it.
  /// Both empty where no block can be cut; wrapping.cpp says where blocks are cut.
  std::vector<std::vector<std::vector<int>>> sublayers, projections;
  std::vector<int> ends;           ///< Embeddings, heads and other large modules outside of the stacks.
  std::vector<int> frozen;         ///< Modules outside of the stacks without a trained parameter.
  std::int64_t largest_block = 0;  ///< Its elements; 0: there are no stacks.

  /// REQUIRES: not BlockParts::Whole.
  const std::vector<std::vector<std::vector<int>>>& inside(BlockParts parts) const {
    return parts == BlockParts::Sublayers ? sublayers : projections;
  }
};

/// A module may be a unit when its forward is called, it has parameters, none of them is read outside of that forward,
/// and it holds every parameter that it shares with others as a whole. Ends have at least a million parameters; smaller
/// modules (a final norm) stay in the root, where they save a collective of their own.
Wrappables wrappables_of(const Model& model);

/// For a step of several passes, the units that its models are; else none.
std::vector<UnitModules> models_of_passes(const Model& model);

/// Stacks in units as `wrap` asks for, and the ends and frozen modules that are asked for. Error: parts of blocks of
/// which none can be cut. REQUIRES: no patterns.
Result<Wrapping> wrapping_of(const Model& model, const Wrappables& wrappables, const Wrap& wrap, bool ends,
                             bool frozen);

/// Why a module cannot be a unit.
enum class Obstacle : std::uint8_t {
  None,
  Shared,        ///< It has some of the names of a parameter, and others lie outside of it.
  NoParameters,  ///< Nothing to shard.
  NotCalled,     ///< Its forward never runs, so that nothing would gather it.
  ReadOutside,   ///< A forward outside of it reads a parameter of it.
};

/// [num_modules] What is in the way of each module; of the root: nothing.
std::vector<Obstacle> obstacles_of(const Model& model);

/// The same of one module, as the end of a sentence. REQUIRES: not Obstacle::None.
std::string describe(const Model& model, int module, Obstacle obstacle);

/// A unit for each of these modules, children first. `chosen` is per module.
Wrapping wrapping_of_modules(const Model& model, const std::vector<bool>& chosen);

/// Exactly the modules that match. Error: a pattern that matches no module that can be a unit.
Result<Wrapping> wrapping_of_patterns(const Model& model, const std::vector<std::string>& patterns);

}  // namespace fsdp::planner
