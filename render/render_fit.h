#pragma once

// The sizes that fit each GPU, for people and for scripts.

#include <string>

#include "planner/request/fit.h"
#include "text/document.h"

namespace fsdp::render {

/// A row for each GPU: the largest micro-batch and the longest sequence, with and without activation checkpointing.
text::Table table_of(const planner::FitTable& table);

/// Verdict, table, meaning of the figures, next commands. `model`: as typed.
text::Document document_of(const planner::FitTable& table, const std::string& model, bool only_verdict);

}  // namespace fsdp::render
