#pragma once

// The script to rehearse, and its machines.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/cluster/cluster.h"
#include "core/report/report.h"
#include "runs/rehearse_command.h"

namespace fsdp::runs {

/// The paths of a rehearsal's parts.
struct RehearsalPlaces {
  std::string stub;     ///< The library that stands in for the GPU.
  std::string python;   ///< Folder with hook/, fsdp_rehearsal/ and fsdp_plan_runner/.
  std::string overlay;  ///< The library that redirects scripts' writes away from the disk.
  std::string path;     ///< PATH.

  bool operator==(const RehearsalPlaces&) const = default;
};

/// FSDP_PLAN_STUB_GPU, FSDP_PLAN_PYTHON_PATH and FSDP_PLAN_OVERLAY, or their places beside the running program.
RehearsalPlaces rehearsal_places_of_process();

/// The ranks to run.
struct RankChoice {
  enum class Kind : std::uint8_t {
    Numbers,
    All,
    Worst,  ///< Those that may need most: all of up to 8, otherwise the first two, the middle, the last, and node 2's
            ///< first.
  };
  Kind kind = Kind::Numbers;
  std::vector<std::int64_t> numbers = {0};

  bool operator==(const RankChoice&) const = default;
};
/// The ranks of a world, ascending, each once. Error: a rank outside the world.
Result<std::vector<std::int64_t>> ranks_of(const RankChoice& choice, std::int64_t world_size,
                                           std::int64_t gpus_per_node);

/// When recorded work counts as finished, which frees memory that another stream used.
enum class EventBound : std::uint8_t { Done, Hold };

/// Device memory of one communicator.
struct CommunicatorMemory {
  int ranks = 0;
  DeviceTerm term;

  bool operator==(const CommunicatorMemory&) const = default;
};

struct RehearsalSettings {
  RehearsalPlaces places;
  std::vector<std::string> command;        ///< As typed.
  std::vector<std::string> shown_command;  ///< The command in the report instead; empty if it is the same.
  std::string program;                     ///< Path of its first word.
  Launch launch;
  Cluster cluster;            ///< Its number of GPUs is a guess before anything ran, unless `counts_known`.
  bool counts_known = false;  ///< An option or the launcher's arguments gave the number of GPUs.
  bool counts_given = false;  ///< An option gave it and overrules the launcher.
  RankChoice ranks;
  std::int64_t steps = 3;  ///< 0 runs to the end.
  Seconds timeout{600};
  std::optional<EventBound> bound;  ///< `nullopt` runs both if it matters.
  std::string routing = "balanced";
  std::string apply;                         ///< File of a plan to apply to the script; may be empty.
  std::string apply_name;                    ///< The user's name for it.
  bool leaves_out_compile = false;           ///< Skips torch.compile in the script: the plan has none.
  std::string capture;                       ///< File for the captured model; may be empty.
  std::vector<std::string> capture_command;  ///< Without the words of the batch.
  std::string capture_batch_option;          ///< The script's option for its batch: "--batch-size {}"; may be empty.
  bool allow_writes = false;                 ///< The script writes to the user's disk.
  std::vector<CommunicatorMemory> nccl;      ///< By number of ranks; the last serves all other sizes.
  DeviceTerm context;
  std::optional<Bytes> cudnn_workspace;  ///< For every plan; `nullopt` uses cuDNN's answer for the GPU.
  std::string progress;                  ///< File for lines of progress; may be empty.
  std::string snapshot;                  ///< File to write; may be empty.
  std::string trace;
  std::vector<std::string> assumptions;
};

/// Adds missing parts of the installation to `errors`. `needs_overlay`: the script may not write to the disk.
void check_places(const RehearsalPlaces& places, bool needs_overlay, Errors& errors);

/// Memory of communicators of each size: estimated, or `given` for each. REQUIRES: `settings.cluster` is set.
std::vector<CommunicatorMemory> communicators_of(const RehearsalSettings& settings, std::optional<Bytes> given);

}  // namespace fsdp::runs
