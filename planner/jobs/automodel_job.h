#pragma once

// NeMo Automodel's training from a YAML file: `automodel FILE`.

#include "core/base/json_document.h"
#include "planner/jobs/job_source.h"

namespace fsdp::planner {

/// Whether a file is one of NeMo Automodel's: it names a recipe or a class of it.
bool is_automodel_file(const JsonValue& root);

const JobProgram& automodel_program();

}  // namespace fsdp::planner
