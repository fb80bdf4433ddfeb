#pragma once

// The answer that a command gives when nobody asks for more: at most twelve lines of 80 columns.
// --verbose has the rest.

#include <cstddef>
#include <string>
#include <vector>

#include "core/report/report.h"
#include "planner/search/search.h"
#include "planner/space/plan_sentence.h"
#include "text/document.h"

namespace fsdp::planner {

/// Facts that an answer needs beyond its report.
struct AnswerContext {
  ModelFacts facts;
  std::string batch_origin;           ///< "from recipe sft": where the batch comes from; empty: it was given.
  std::string train;                  ///< The command to train by the plan (train_line); empty: nothing.
  std::vector<std::string> commands;  ///< The next commands, one a line of the verbose answer.
  bool no_plan_fits = false;          ///< The plan is the one of a space that needs least.
  bool may_suggest = false;           ///< Suggestions come, or have come: room is kept for them.
  bool explains = false;              ///< Say more of the peak, and all suggestions.
  bool explains_units = false;        ///< Say what an auto-wrap policy found at each module.
};

/// When a peak is, in words: "backward pass of model.layers.3 in the steady state". With the op, if `with_op`.
std::string moment_of(const MemoryReport& memory, bool with_op);

/// Where the peak is and what fills the device there, largest first: "backward pass of model.layers.3 in the
/// steady state: OptState 3.55 GiB, ..., other 128 MiB", in at most `most_lines` lines of `columns` where the moment
/// leaves room and "other" is no more than each of the others. The terms add up to the device's peak.
std::string peak_of(const MemoryReport& memory, bool with_op, int columns, std::size_t most_lines);

/// Suggestions that are worth a line, each as the option to type and what comes of it, the first `most` of
/// those that are short enough.
std::vector<std::string> suggestion_lines(const StepReport& report, const std::vector<Remedy>& remedies,
                                          std::size_t most, int columns);

/// How many sections of a brief_of say what was found: up to the plan. With AnswerContext::may_suggest they do not
/// depend on suggestions, and neither does how wide the labels are.
std::size_t sections_of_verdict(const Document& brief);

/// The whole short answer. `explanation` and `notes` may be empty.
Document brief_of(const StepReport& report, const Explanation& explanation, const std::vector<std::string>& notes,
                  const AnswerContext& context, int width);

}  // namespace fsdp::planner
