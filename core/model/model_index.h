#pragma once

// Frequently needed facts that follow from a model alone: names, the runs of each module, the values with a gradient.
// Made once per model; refers to it.
//
// All ops of a model are numbered in forward order: the ops of call c have the positions
// [call_begin[c], call_begin[c + 1]).

#include <string_view>
#include <utility>
#include <vector>

#include "core/model/model.h"

namespace fsdp {

/// Positions [begin, end).
struct Span {
  int begin = 0;
  int end = 0;

  bool operator==(const Span&) const = default;
};

/// A value that stays alive until the forward of one module returns, before position `end`, because several calls below
/// it read it as the module's argument, or because one of its local variables names it.
struct HeldArgument {
  int value = 0;  ///< In `Model::values`.
  int end = 0;
  int module = 0;  ///< In `Model::modules`.

  bool operator==(const HeldArgument&) const = default;
};

struct ModelIndex {
  const Model* model = nullptr;
  std::vector<int> call_begin;                          ///< [num_calls + 1]
  std::vector<std::pair<std::string_view, int>> names;  ///< Modules, sorted by name.
  std::vector<std::vector<Span>> runs;                  ///< [num_modules] One span per run of the module's forward.
  std::vector<int> last_descendant;       ///< [num_modules] Modules [m, last_descendant[m]] are m and all below it.
  std::vector<std::vector<int>> buffers;  ///< [num_modules] In `Model::buffers`: a module's own.
  /// [num_modules] In `Model::parameters`, in the order of registration: those that are named first in this module.
  /// Excludes names that are tied to one of them, here or in another module.
  std::vector<std::vector<int>> own_parameters;
  std::vector<HeldArgument> held_arguments;  ///< In order of `end`. Without the model's inputs, which the batch holds.
  GradientFlow flow;
  /// [num positions] The last position whose backward reads the op's output, in its call or a later one; -1 if none.
  std::vector<int> last_read;
  std::vector<bool> in_backward;  ///< [num positions] The op has a backward: its output requires a gradient and leads
                                  ///< to the loss.
  /// [num positions] The first op of the run of ops in one call, up to this one, that all have a backward or all have
  /// none.
  std::vector<int> alike_from;
  std::vector<int> made_at;  ///< [num values] The position of the op that makes it; -1 for the model's inputs.

  /// The module with this name; -1 if there is none.
  int find(std::string_view name) const;
  bool contains(int ancestor, int module) const { return ancestor <= module && module <= last_descendant[ancestor]; }
  int num_positions() const { return call_begin.back(); }
  /// The call that contains a position.
  int call_at(int position) const;
};

/// REQUIRES: modules in pre-order (a parent, then its subtree, then its next sibling).
ModelIndex index_of(const Model& model);

}  // namespace fsdp
