#pragma once

// The environment variables by which a rehearsal speaks to the process that it starts: to the stub GPU (STUB_GPU_*,
// rehearsal/options.h) and to the hook in Python (FSDP_REHEARSAL_*, python/fsdp_rehearsal/settings.py).

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runs/rehearse_settings.h"

namespace fsdp::planner {

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
  std::string overlay;   ///< Folder for what the script writes.
  std::string snapshot;  ///< Empty: none is asked for.
  std::string trace;
};

/// Variables to set for a process. `threads`: CPU threads that it may use.
std::vector<std::pair<std::string, std::string>> rehearsal_environment(const RehearsalSettings& settings,
                                                                       const RankJob& job, const RankFiles& files,
                                                                       unsigned threads);

/// Whether a variable of our own environment would mislead the process: settings of another rehearsal, GPUs that are
/// hidden, and, when the options say how many ranks there are, the ranks of a job that we run in.
bool is_misleading(std::string_view name, const RehearsalSettings& settings);

/// The driver's name of the GPU, as torch.cuda.get_device_name() says: "NVIDIA A100-SXM4-80GB".
std::string driver_name(const Gpu& gpu);

}  // namespace fsdp::planner
