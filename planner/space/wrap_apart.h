#pragma once

// Units that FSDP1 needs beside those of a wrapping, because one flat parameter holds one kind of parameters.

#include "core/model/model.h"
#include "core/plan/plan.h"
#include "planner/space/wrapping.h"

namespace fsdp::planner {

/// Whether one flat parameter cannot hold all of a model: parts of it are frozen, or of another dtype. `base`: whose
/// parameter_dtype counts.
bool has_kinds(const Model& model, const Plan& base);

/// Whether a block has parts of two kinds, so that FSDP1 makes units inside of it whatever is wrapped. What it does
/// with those where the block is checkpointed is not predicted.
bool has_kinds_in_a_block(const Model& model, const Plan& base);

/// Adds to the units of a wrapping, the root among them, those inside it that hold what is trained beside frozen parts,
/// or is of another dtype than most of the unit: each the outermost module of one kind. That is what peft's
/// fsdp_auto_wrap_policy does with adapters, and with it accelerate, Trainer, axolotl and LLaMA-Factory. Each stands
/// before the unit that it is cut out of. What lies in no module that can be a unit stays where it is.
/// REQUIRES: units of one module; of others nothing is cut.
void wrap_apart(const Model& model, const Plan& base, Wrapping& wrapping);

}  // namespace fsdp::planner
