#pragma once

// A calibration by one run: by how much a machine is slower than its figures. Kept in a file beside a plan,
// so that the next prediction on that machine uses it.

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

/// A time that was predicted before the run, and what the run took.
struct TimeResidual {
  std::string term;  ///< "step", "compute", "exposed communication", "optimizer".
  Seconds predicted{0};
  Seconds measured{0};

  bool operator==(const TimeResidual&) const = default;
};

/// Both factors are over the figures that the program has for the machine by itself: 2 is half as fast.
struct Calibration {
  std::string device;      ///< As a report names it: "CPU", "H100 80GB SXM".
  std::int64_t ranks = 1;  ///< That ran at once: they share cores and links.
  double compute = 1;
  double communication = 1;
  std::string source;                   ///< "3 timed steps of Llama-3.2-1B on 4 ranks".
  std::vector<TimeResidual> residuals;  ///< From the run that it was made from.
  KernelWorkspaces workspaces;          ///< For a CPU. Since 1.1.

  bool operator==(const Calibration&) const = default;
};

/// The machines with their rates divided by the factors, and said to be measured, and with what is known of their
/// kernels.
Cluster calibrated(Cluster cluster, const Calibration& calibration);

std::string to_text(const Calibration& calibration);
/// Error: everything that is wrong with the file.
Result<Calibration> read_calibration_file(const std::string& path);

}  // namespace fsdp
