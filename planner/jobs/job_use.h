#pragma once

// What to change in a trainer's own files, and what that gives.

#include <cstddef>
#include <string>

#include "core/base/units.h"
#include "core/report/report.h"
#include "planner/jobs/job_changes.h"

namespace fsdp::planner {

struct JobUse {
  EditedJob edited;                    ///< Without edits if the job is as fast as any other of its program.
  Verdict verdict = Verdict::Unknown;  ///< The changed job's.
  bool is_tight = false;               ///< It runs without room to spare.
  Seconds step{0};
  Bytes device_peak;
  Seconds step_before{0};       ///< The given job's; 0 if that does not fit.
  std::size_t num_untried = 0;  ///< Variants that were not planned, because they are many. Then nothing else counts.
  std::string environment;      ///< "PYTORCH_ALLOC_CONF=..." that the job needs beside its files. Empty if none.
};

}  // namespace fsdp::planner
