#pragma once

// The default answer of a command: at most twelve lines of 80 columns. --verbose prints the rest.

#include <cstddef>
#include <string>
#include <vector>

#include "core/report/report.h"
#include "planner/search/search.h"
#include "planner/space/plan_sentence.h"
#include "text/document.h"

namespace fsdp::render {

/// Facts that an answer needs beyond its report.
struct AnswerContext {
  planner::ModelFacts facts;
  std::string batch_origin;           ///< "from recipe sft": the origin of the batch; empty if the user gave it.
  std::string train;                  ///< The command to train by the plan (train_line); may be empty.
  std::vector<std::string> commands;  ///< The next commands, one a line of the verbose answer.
  bool no_plan_fits = false;          ///< The plan needs the least memory of its space.
  bool may_suggest = false;           ///< Suggestions follow or were printed: reserve room for them.
  bool explains = false;              ///< Print more of the peak, and all suggestions.
  bool explains_units = false;        ///< Print an auto-wrap policy's finding at each module.
};

/// The moment of a peak: "backward pass of model.layers.3 in the steady state". With the op if `with_op`.
std::string moment_of(const MemoryReport& memory, bool with_op);

/// The moment of the peak and the terms on the device then, largest first: "backward pass of model.layers.3 in the
/// steady state: OptState 3.55 GiB, ..., other 128 MiB". At most `most_lines` lines of `columns`, if the moment leaves
/// room and "other" is at most each other term. The terms add up to the device's peak.
std::string peak_of(const MemoryReport& memory, bool with_op, int columns, std::size_t most_lines);

/// Suggestions that are worth a line, each as the option to type and its effect: the first `most` that are short
/// enough.
std::vector<std::string> suggestion_lines(const StepReport& report, const std::vector<planner::Remedy>& remedies,
                                          std::size_t most, int columns);

/// The number of sections of brief_of with findings, up to the plan. With AnswerContext::may_suggest these sections
/// and the width of the labels do not depend on suggestions.
std::size_t sections_of_verdict(const text::Document& brief);

/// The whole short answer. `explanation` and `notes` may be empty.
text::Document brief_of(const StepReport& report, const planner::Explanation& explanation,
                        const std::vector<std::string>& notes, const AnswerContext& context, int width);

}  // namespace fsdp::render
