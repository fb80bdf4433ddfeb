#pragma once

// Lines up two reports of one step, term by term: a prediction and a measurement, or any other two.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/json_document.h"
#include "core/base/result.h"
#include "core/report/report.h"

namespace fsdp {

enum class TermUnit : std::uint8_t { Bytes, Count };

/// One figure that both reports have.
struct ComparedTerm {
  std::string name;  ///< "reserved peak", "steady step: allocated peak", "all_gather payload".
  TermUnit unit = TermUnit::Bytes;
  std::int64_t predicted = 0;
  std::int64_t measured = 0;

  std::int64_t difference() const { return predicted - measured; }
  /// The difference over what was measured: 0.02 is 2 % too much. Infinite where nothing was measured and something
  /// predicted.
  double relative() const;

  bool operator==(const ComparedTerm&) const = default;
};

/// Two reports side by side.
struct Comparison {
  std::vector<ComparedTerm> terms;  ///< Worst first; equally wrong ones in the order of the report.
  std::vector<std::string> notes;   ///< Why the two may not be about the same: another world size, another card.
  std::vector<std::string> beyond;  ///< Names of terms that differ by more than they may, as whoever compares says.

  bool operator==(const Comparison&) const = default;
};

/// Peaks of the run and of each phase that both have, collectives by kind (count and payload), parameters. A rehearsal
/// that ended before a step did has neither collectives of a step nor the memory of its peak: these are no terms.
Comparison compare(const StepReport& predicted, const StepReport& measured);

/// True when every term is within `tolerance` of what was measured: 0.02 is 2 %.
bool is_within(const Comparison& comparison, double tolerance);

/// The member `comparison` of a report that `execute` or `rehearse` wrote: what was measured beside its prediction on
/// the devices of that very run. Nothing when the report has none. Error: everything that is wrong with it.
Result<std::optional<Comparison>> read_comparison(const JsonDocument& report);

}  // namespace fsdp
