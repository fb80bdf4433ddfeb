#pragma once

// axolotl's training from a YAML file: `axolotl train FILE`, or axolotl.cli.train under `accelerate launch`.

#include "core/base/json_document.h"
#include "planner/jobs/job_source.h"

namespace fsdp::planner {

/// axolotl's reader and changes.
const JobProgram& axolotl_program();

/// Takes the prefix "fsdp_" from keys of fsdp_config, as axolotl does. Places stay.
void remove_fsdp_prefixes(JsonDocument& document);

}  // namespace fsdp::planner
