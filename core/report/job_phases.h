#pragma once

// What a job does beside its training steps, and what each of these phases needs on the device and on the host.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/units.h"
#include "core/report/device_verdict.h"
#include "core/report/report.h"

namespace fsdp {

/// In the order of a job.
enum class JobPhase : std::uint8_t {
  Loading,        ///< The weights of a pretrained model, before the first step.
  FirstStep,      ///< Makes the optimizer's states.
  SteadyStep,     ///< All later steps.
  Evaluation,     ///< A forward without gradients, between two steps.
  SavingWhole,    ///< All weights in one file, which rank 0 writes.
  SavingParts,    ///< Each rank writes its part of weights and states.
  ResumingWhole,  ///< From a file of all weights and one of all states, which rank 0 reads.
  ResumingParts,  ///< Each rank reads its part.
  Generation,     ///< Another program's turn on the same GPUs, between two steps.
};
/// Those of the plan alone, without Generation.
inline constexpr int kNumJobPhases = static_cast<int>(JobPhase::ResumingParts) + 1;
/// "saving_whole".
std::string_view name_of(JobPhase phase);
/// "saving, whole", for people.
std::string_view title_of(JobPhase phase);

/// The needs of a phase. `host` is that of the node that needs most.
struct JobPhaseNeed {
  JobPhase phase = JobPhase::Loading;
  std::string how;                         ///< What happens, in a few words.
  std::optional<MemoryPeaks> device = {};  ///< `nullopt` if it is not predicted for this plan.
  Bytes margin;                            ///< Safety margin on top of `device->device`.
  DeviceVerdict on_device = {};            ///< Unknown if `device` is.
  HostMemory host;

  /// Whether neither device nor host rules it out.
  bool fits() const { return on_device.verdict != Verdict::DoesNotFit && host.missing() == Bytes(0); }
  bool operator==(const JobPhaseNeed&) const = default;
};

/// Whether it runs without room to spare on the device.
inline bool is_tight(const JobPhaseNeed& need) {
  return need.fits() && need.on_device.tightness != Tightness::None;
}

/// The verdict of device and host together.
inline Verdict verdict_of(const JobPhaseNeed& need) {
  return need.fits() ? need.on_device.verdict : Verdict::DoesNotFit;
}

/// "saving, whole needs 310 GiB of host memory on a node, 60.0 GiB more than it has": the first phase that does not
/// fit. Empty if all fit.
std::string first_misfit(const std::vector<JobPhaseNeed>& phases, Bytes budget);

}  // namespace fsdp
