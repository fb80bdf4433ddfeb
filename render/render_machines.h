#pragma once

// The answer about several machines: the best one with its plan, and the others beside it.

#include "planner/request/machine_choice.h"
#include "render/render_brief.h"
#include "render/render_report.h"
#include "text/document.h"

namespace fsdp::render {

/// The answer of `result`, with the reason why its machine is best and, after the verdict, the table of all machines.
text::Document document_of(const planner::MachineComparison& comparison, planner::MachineObjective objective,
                           const View& view, const AnswerContext& context);

/// The best machine and the reason.
text::Entry entry_of(const planner::MachineComparison& comparison, planner::MachineObjective objective);

}  // namespace fsdp::render
