#pragma once

// The result of a capture, for people: the verdict, the recordings, and the comparison with the script itself.

#include <string>

#include "core/base/units.h"
#include "core/spec/captured_model.h"
#include "runs/plan_check.h"
#include "text/document.h"

namespace fsdp::render {

/// Verdict first. `target`: the output file of the capture. REQUIRES: `spec.captured`.
text::Document document_of(const ModelSpec& spec, const runs::PlanCheck& check, const std::string& target,
                           Seconds seconds);

}  // namespace fsdp::render
