#pragma once

// The answer about several frameworks: the best one with its plan, and the others beside it.

#include "planner/request/runtime_choice.h"
#include "render/render_brief.h"
#include "render/render_report.h"
#include "text/document.h"

namespace fsdp::render {

/// The answer of `result`, with the reason why its framework is best and, after the verdict, the table of all
/// frameworks.
text::Document document_of(const planner::RuntimeComparison& comparison, const View& view,
                           const AnswerContext& context);

/// The best framework and the reason.
text::Entry entry_of(const planner::RuntimeComparison& comparison);

}  // namespace fsdp::render
