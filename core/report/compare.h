#pragma once

// Compares two reports of one step, term by term: a prediction and a measurement, or any other two.

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
  /// The difference relative to the measurement: 0.02 is 2 % too much. Infinite if the measurement is zero and the
  /// prediction is not.
  double relative() const;

  bool operator==(const ComparedTerm&) const = default;
};

/// Two reports side by side.
struct Comparison {
  std::vector<ComparedTerm> terms;  ///< Worst first; equally wrong ones in the order of the report.
  std::vector<std::string> notes;   ///< Why the two may not describe the same run: another world size, another card.
  std::vector<std::string> beyond;  ///< Terms that differ by more than their limits, which the caller sets.

  bool operator==(const Comparison&) const = default;
};

/// Peaks of the run and of each phase that both have, collectives by kind (count and payload), parameters. A rehearsal
/// that ended before a step did has no terms for the collectives of a step and the memory of its peak.
Comparison compare(const StepReport& predicted, const StepReport& measured);

/// True if every term is within `tolerance` of the measurement: 0.02 is 2 %.
bool is_within(const Comparison& comparison, double tolerance);

/// The member `comparison` of a report from `execute` or `rehearse`: the measurement beside its prediction, on the
/// devices of that very run. `nullopt` if the report has none. Error: all its faults.
Result<std::optional<Comparison>> read_comparison(const JsonDocument& report);

}  // namespace fsdp
