#pragma once

// The measurements of a real job beside the prediction.

#include <cstdint>

#include "core/report/compare.h"
#include "core/report/report.h"
#include "runs/child_process.h"
#include "runs/rehearse_record.h"
#include "text/document.h"

namespace fsdp::render {

struct MeasuredAnswer {
  const StepReport& measured;
  const runs::RehearsalRecord& record;  ///< Record of a rank, for facts other than figures.
  std::int64_t num_ranks = 1;           ///< Ranks measured on this machine.
  runs::ExitStatus ended;               ///< How the command ended.
  const StepReport* predicted = nullptr;
  const Comparison* comparison = nullptr;  ///< With `predicted`.
  double tolerance = 0;                    ///< Relative.

  /// Whether it fits and every compared term is within the tolerance.
  bool holds() const;
};

/// Verdict first.
text::Document document_of(const MeasuredAnswer& answer, bool only_verdict);

}  // namespace fsdp::render
