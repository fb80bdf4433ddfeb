#pragma once

// The answer about several frameworks: the best one with its plan, and the others beside it.

#include "planner/request/runtime_choice.h"
#include "render/render_brief.h"
#include "render/render_report.h"
#include "text/document.h"

namespace fsdp::planner {

/// "FSDP2": what people call it.
std::string_view spoken_name(Framework framework);

/// The answer of `result` alone, with what makes the framework the best and the table of all of them after the verdict.
Document document_of(const RuntimeComparison& comparison, const View& view, const AnswerContext& context);

/// Which framework is best, and why.
Entry entry_of(const RuntimeComparison& comparison);

}  // namespace fsdp::planner
