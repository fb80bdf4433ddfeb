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

namespace fsdp::planner {

/// Where the parts of a rehearsal are.
struct RehearsalPlaces {
  std::string stub;     ///< The library that stands in for the GPU.
  std::string python;   ///< Folder with hook/, fsdp_rehearsal/ and fsdp_plan_runner/.
  std::string overlay;  ///< The library that keeps what scripts write away from the disk.
  std::string path;     ///< PATH.

  bool operator==(const RehearsalPlaces&) const = default;
};

/// FSDP_PLAN_STUB_GPU, FSDP_PLAN_PYTHON_PATH and FSDP_PLAN_OVERLAY, or their places beside the running program.
RehearsalPlaces rehearsal_places_of_process();

/// Which ranks are run.
struct RankChoice {
  enum class Kind : std::uint8_t {
    Numbers,
    All,
    Worst,  ///< Those that may need most: all up to 8, else the first two, the middle, the last, and the first of
            ///< node 2.
  };
  Kind kind = Kind::Numbers;
  std::vector<std::int64_t> numbers = {0};

  bool operator==(const RankChoice&) const = default;
};
/// The ranks of a world, ascending, each once. Error: a rank that is not there.
Result<std::vector<std::int64_t>> ranks_of(const RankChoice& choice, std::int64_t world_size,
                                           std::int64_t gpus_per_node);

/// When work that was recorded counts as finished: memory that another stream used is free then.
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
  std::vector<std::string> shown_command;  ///< The command in the report instead; empty: the command.
  std::string program;                     ///< Its first word, found.
  Launch launch;
  Cluster cluster;            ///< How many GPUs is a guess before anything ran, unless `counts_known`.
  bool counts_known = false;  ///< Somebody said how many GPUs there are: an option, or the launcher's arguments.
  bool counts_given = false;  ///< An option did: it overrules the launcher.
  RankChoice ranks;
  std::int64_t steps = 3;  ///< 0: to the end.
  Seconds timeout{600};
  std::optional<EventBound> bound;  ///< Empty: both, where it matters.
  std::string routing = "balanced";
  std::string apply;                         ///< File of a plan to put into the script; empty: none.
  std::string apply_name;                    ///< The user's name for it.
  bool leaves_out_compile = false;           ///< torch.compile of the script gives way: the plan is of one without.
  std::string capture;                       ///< File for the model that is captured; empty: none is.
  std::vector<std::string> capture_command;  ///< Without the words that say a batch.
  std::string capture_batch_option;          ///< How the script is told its batch: "--batch-size {}"; empty: not known.
  bool allow_writes = false;                 ///< The script writes to the user's disk.
  std::vector<CommunicatorMemory> nccl;      ///< By ranks; the last serves for all other sizes.
  DeviceTerm context;
  std::optional<Bytes> cudnn_workspace;  ///< For every plan; empty: what cuDNN says for the card.
  std::string progress;                  ///< File for lines that say what is done; empty: none.
  std::string snapshot;                  ///< File to write; empty: none.
  std::string trace;
  std::vector<std::string> assumptions;
};

/// Adds what is missing of the installation. `needs_overlay`: the script may not write to the disk.
void check_places(const RehearsalPlaces& places, bool needs_overlay, Errors& errors);

/// Memory of communicators of each size: as estimated, or `given` each. REQUIRES: `settings.cluster` is set.
std::vector<CommunicatorMemory> communicators_of(const RehearsalSettings& settings, std::optional<Bytes> given);

}  // namespace fsdp::planner
