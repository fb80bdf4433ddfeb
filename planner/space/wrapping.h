#pragma once

// The modules of a model that become FSDP units, for each way of wrapping in the space.

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
/// Units that are resharded, or stay unsharded, together: one unit of neighboring blocks; or those inside a block, then
/// the rest of that block.
using UnitGroup = std::vector<UnitModules>;

/// The units below the root.
struct Wrapping {
  std::vector<std::vector<UnitGroup>> stacks;  ///< [stack][group], in forward order. Omits empty stacks.
  std::vector<UnitModules> others;             ///< Ends, frozen modules, and matches of patterns; children first.
  std::vector<UnitModules> roots;           ///< For a step of several passes: its models. FSDP2 treats each as a root.
  std::vector<UnitModules> experts = {};    ///< Those that ranks share, a unit for each layer: sharded first of all.
  std::vector<UnitModules> kept_ends = {};  ///< Beside those: units that always stay unsharded, after the others.
  std::vector<UnitModules> idle = {};       ///< Blocks that do not run, such as a tower's; sharded before the stacks.
  std::vector<std::string> heads = {};      ///< The modules among `others` that are ends after the blocks.

  bool has_units() const { return !experts.empty() || !stacks.empty() || !others.empty() || !idle.empty(); }
  /// Groups of the stack that has most. 1 if there are only other units.
  std::int64_t longest() const;
  bool operator==(const Wrapping&) const = default;
};

/// The modules of a model that can be wrapped.
struct Wrappables {
  std::vector<std::vector<int>> stacks;  ///< [stack][block] Indices of `Model::modules`: blocks that may be units.
  /// [stack][block] Units inside each block, children first; the block itself is last if enough of it remains. Both are
  /// empty if no block can be cut; wrapping.cpp explains where blocks are cut.
  std::vector<std::vector<std::vector<int>>> sublayers, projections;
  std::vector<int> idle;           ///< Blocks whose forward does not run: each is a unit that stays sharded.
  std::vector<int> ends;           ///< Embeddings, heads and other large modules outside the stacks.
  std::vector<int> frozen;         ///< Modules outside the stacks without a trained parameter.
  std::int64_t largest_block = 0;  ///< Its elements. 0 if there are no stacks.

  /// REQUIRES: not BlockParts::Whole.
  const std::vector<std::vector<std::vector<int>>>& inside(BlockParts parts) const {
    return parts == BlockParts::Sublayers ? sublayers : projections;
  }
};

/// A module may be a unit if its forward is called, it has parameters, no op outside that forward reads them, and it
/// wholly holds every parameter that it shares. Ends have at least a million parameters; smaller modules (a final norm)
/// stay in the root, which saves a collective each.
Wrappables wrappables_of(const Model& model);

/// For a step of several passes, the units that are its models. Otherwise empty.
std::vector<UnitModules> models_of_passes(const Model& model);

/// Stacks in units according to `wrap`, and the requested ends and frozen modules. Errors: parts of blocks were
/// requested, and no block can be cut. REQUIRES: no patterns.
Result<Wrapping> wrapping_of(const Model& model, const Wrappables& wrappables, const Wrap& wrap, bool ends,
                             bool frozen);

/// The reason why a module cannot be a unit.
enum class Obstacle : std::uint8_t {
  None,
  Shared,        ///< It has some names of a parameter, and others lie outside it.
  NoParameters,  ///< It has nothing to shard.
  NotCalled,     ///< Its forward never runs, so that nothing would gather it.
  ReadOutside,   ///< A forward outside it reads one of its parameters.
};

/// [num_modules] The obstacle of each module; None for the root.
std::vector<Obstacle> obstacles_of(const Model& model);

/// The obstacle of a module, as the end of a sentence. REQUIRES: not Obstacle::None.
std::string describe(const Model& model, int module, Obstacle obstacle);

/// A unit for each of these modules, children first. `chosen` is [num_modules].
Wrapping wrapping_of_modules(const Model& model, const std::vector<bool>& chosen);

/// Exactly the modules that match. Errors: a pattern matches no module that can be a unit.
Result<Wrapping> wrapping_of_patterns(const Model& model, const std::vector<std::string>& patterns);

/// The units of transformers' own fsdp_plan beside experts that ranks share: the experts of each layer, each block, the
/// embedding, and final norm with head (or tied embedding), which stay unsharded. Empty `experts` if the model has
/// none.
Wrapping wrapping_of_transformers(const Model& model);

/// Leaves units of modules that never run, such as a head that the loss reads, to the root.
void leave_to_root_what_never_runs(Plan& plan, const Model& model);

}  // namespace fsdp::planner
