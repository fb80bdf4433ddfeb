#pragma once

// The largest batch of a training script that fits, found by rehearsals with one batch after the other.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/base/units.h"
#include "core/report/report_additions.h"
#include "text/document.h"

namespace fsdp::runs {

/// The result of one batch.
struct BatchTrial {
  std::int64_t batch = 0;
  bool fits = false;
  Bytes device_peak;  ///< Until it ended or ran out of memory. 0 if the rehearsal failed.
  std::string why;    ///< Why the rehearsal failed.

  bool operator==(const BatchTrial&) const = default;
};

/// Rehearses one batch. `nullopt` stops the search, which returns its results so far.
using TryBatch = std::function<std::optional<BatchTrial>(std::int64_t)>;

struct BatchSearch {
  std::vector<BatchTrial> trials;       ///< Ascending by batch.
  std::optional<std::int64_t> largest;  ///< The largest that fits; `nullopt` if not even 1 does.
  bool given_up = false;

  bool operator==(const BatchSearch&) const = default;
};

/// The largest batch from 1 to `most` that fits. Assumes that all batches above one that does not fit do not fit
/// either. Tries at most 2 log2(most) + 2 batches.
BatchSearch find_largest_batch(const TryBatch& try_batch, std::int64_t most);

/// The words to add to a command: "--batch-size {}" with the number in place of "{}". Error: no "{}".
Result<std::vector<std::string>> batch_words(std::string_view pattern, std::int64_t batch,
                                             std::string_view option = "--find-batch");

/// A command with those words appended, if the pattern has "{}".
std::vector<std::string> with_batch(std::vector<std::string> command, std::string_view pattern, std::int64_t batch);

/// The summary of the search, and the table of batch against peak.
void add_batches(text::Document& document, const BatchSearch& search);
/// The same for scripts.
void add_batches(ReportAdditions& additions, const BatchSearch& search);

}  // namespace fsdp::runs
