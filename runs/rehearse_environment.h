#pragma once

// The environment variables that a rehearsal sets for its processes: for the stub GPU (STUB_GPU_*,
// rehearsal/options.h) and for the hook in Python (FSDP_REHEARSAL_*, python/fsdp_rehearsal/settings.py).

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runs/rehearse_settings.h"

namespace fsdp::runs {

/// One process that plays one rank.
struct RankJob {
  std::int64_t rank = 0;
  EventBound bound = EventBound::Done;

  bool operator==(const RankJob&) const = default;
};

/// Files of one process.
struct RankFiles {
  std::string record;
  std::string log;
  std::string progress;
  std::string overlay;   ///< Folder for the script's writes.
  std::string snapshot;  ///< May be empty.
  std::string trace;
};

/// Variables to set for a process. `threads`: number of CPU threads that it may use.
std::vector<std::pair<std::string, std::string>> rehearsal_environment(const RehearsalSettings& settings,
                                                                       const RankJob& job, const RankFiles& files,
                                                                       unsigned threads);

/// Whether a variable of our own environment would mislead the process: settings of another rehearsal, hidden GPUs,
/// and, if the options give the number of ranks, the ranks of a surrounding job.
bool is_misleading(std::string_view name, const RehearsalSettings& settings);

/// The driver's name of the GPU, as torch.cuda.get_device_name() returns it: "NVIDIA A100-SXM4-80GB".
std::string driver_name(const Gpu& gpu);

}  // namespace fsdp::runs
