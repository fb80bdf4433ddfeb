#pragma once

// A calibration from one run: the factors by which a machine is slower than its figures. A file beside a plan holds
// them for the next prediction on that machine.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/result.h"
#include "core/base/units.h"
#include "core/cluster/cluster.h"
#include "core/model/kernel_workspaces.h"

namespace fsdp {

inline constexpr std::string_view kCalibrationFormatVersion = "1.1";

/// A predicted time and the time of the run.
struct TimeResidual {
  std::string term;  ///< "step", "compute", "exposed communication", "optimizer".
  Seconds predicted{0};
  Seconds measured{0};

  bool operator==(const TimeResidual&) const = default;
};

/// Both factors are relative to the machine's figures before calibration: 2 is half as fast.
struct Calibration {
  std::string device;      ///< As in a report: "CPU", "H100 80GB SXM".
  std::int64_t ranks = 1;  ///< Ranks that ran at once and shared cores and links.
  double compute = 1;
  double communication = 1;
  std::string source;                   ///< "3 timed steps of Llama-3.2-1B on 4 ranks".
  std::vector<TimeResidual> residuals;  ///< From the run of the calibration.
  KernelWorkspaces workspaces;          ///< For a CPU. Since 1.1.

  bool operator==(const Calibration&) const = default;
};

/// The machines with their rates divided by the factors and marked as measured, and with the measurements of their
/// kernels.
Cluster calibrated(Cluster cluster, const Calibration& calibration);

std::string to_text(const Calibration& calibration);
/// Error: all faults of the file.
Result<Calibration> read_calibration_file(const std::string& path);

}  // namespace fsdp
