#pragma once

// The words of a line with one option changed.

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/json_document.h"
#include "core/base/result.h"
#include "planner/jobs/job_source.h"

namespace fsdp::planner {

struct OptionEdit {
  std::vector<std::string> words;
  std::string flag;           ///< "--max_length"
  std::size_t place = 0;      ///< The word that changed, or before which words were added.
  std::size_t num_added = 0;  ///< Words more than before.
};

/// The line with an option in `range` set: as "--key value", "--key=value" or "key=value", whichever it has; a new one
/// at the end of the range, as `naming` has it. Errors: an object that is on the line already.
Result<OptionEdit> with_option(std::vector<std::string> words, WordRange range, std::string_view key,
                               const JsonValue& value, OptionName naming);

/// A range of the words after an edit.
WordRange moved(WordRange range, const OptionEdit& edit);

}  // namespace fsdp::planner
