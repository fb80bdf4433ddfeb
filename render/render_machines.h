#pragma once

// The answer about several machines: the best one with its plan, and the others beside it.

#include "planner/request/machine_choice.h"
#include "render/render_brief.h"
#include "render/render_report.h"
#include "text/document.h"

namespace fsdp::planner {

/// The answer of `result` alone, with what makes the machine the best and the table of all machines after the verdict.
Document document_of(const MachineComparison& comparison, MachineObjective objective, const View& view,
                     const AnswerContext& context);

/// Which machine is best, and why.
Entry entry_of(const MachineComparison& comparison, MachineObjective objective);

}  // namespace fsdp::planner
