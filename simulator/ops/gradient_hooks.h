#pragma once

// The positions of FSDP2's post-backward hooks: nodes of autograd before the modules of units, in which the gradients
// of a module's arguments are summed and wait until the unit has been reduced.
//
// Sources: torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py (_register_post_backward_hook,
// RegisterPostBackwardFunction), torch 2.11.

#include <vector>

#include "core/model/model_index.h"
#include "core/plan/sharding.h"

namespace fsdp::simulator {

/// A pass through a module with such a hook.
struct HookedPass {
  Span positions;
  int unit = 0;  ///< An index of `Layout::units`.
};

/// The shorter ones first, so that inner ones precede those around them. In a unit of several modules, only the first
/// one to run has the hook. The root is left out, because nothing comes after its hook.
std::vector<HookedPass> hooked_passes(const ModelIndex& index, const Layout& layout);

/// [num_calls] Those that begin after the first op of a call and end within it, as ranges of its ops, in the same
/// order. Empty if no call has any.
std::vector<std::vector<Span>> hooks_inside_calls(const ModelIndex& index, const std::vector<HookedPass>& passes);

}  // namespace fsdp::simulator
