#pragma once

// The command line of fsdp-exec.

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/base/units.h"
#include "executor/network/collectives.h"
#include "executor/options/training_options.h"

namespace fsdp::executor {

struct CheckpointSettings {
  std::string folder;      ///< Where checkpoints lie.
  std::int64_t every = 0;  ///< Steps from one to the next; 0: only after the last step.
  std::int64_t keep = 0;   ///< How many are left; 0: all.
};

struct RunOptions {
  std::string plan;
  std::int64_t steps = 3;
  std::uint64_t seed = 0;
  TrainingOptions training;
  std::vector<std::string> weights;        ///< Safetensors files, folders or indices; none: parameters from the seed.
  std::vector<std::string> tokens;         ///< Files of token ids; none: data from the seed.
  std::vector<std::string> labels;         ///< One for each of them, or none.
  std::optional<std::string> token_dtype;  ///< The dtype of raw token files.
  std::vector<std::string> evaluated;      ///< Token files of an evaluation. Defaults to none.
  std::int64_t evaluate_every = 0;         ///< Steps; 0: only after the last one.
  std::int64_t evaluate_samples = 0;       ///< At most; 0: all.
  std::string metrics;                     ///< File of a line for each step; empty: none.
  CheckpointSettings checkpoints;          ///< No folder: none are written.
  std::string resume;                      ///< Folder of a checkpoint, or "latest"; empty: from the beginning.
  bool has_seed = false;                   ///< Whether the seed was given; else a checkpoint's counts.
  std::int64_t measure_every = 1;          ///< Steps from one that is measured and printed to the next.
  std::string report;                      ///< File of this rank's report; empty: none.
  std::string parameters;                  ///< File of all parameters after the last step, as safetensors; empty: none.
  std::string logits;                      ///< File of the inputs of the first step's losses; empty: none.
  std::string allocations;                 ///< File of all allocations of the last step; empty: none.
  std::string trace;                       ///< File of the last step as a Chrome trace; empty: none.
  std::string workspaces;                  ///< File of kernels' scratch memory; empty: none.
  std::string measure;                     ///< File of the measured machine (rank 0); empty: none.
  bool measures_collectives = false;       ///< With --measure: times collectives by themselves, too.
  ReduceAlgorithm reduce = ReduceAlgorithm::Direct;
  std::chrono::milliseconds timeout{300'000};
  std::chrono::milliseconds heartbeat{30'000};  ///< Silence after which a rank is given up. On GPUs.
  Bytes memory{0};                              ///< Limit on the live bytes of this rank; 0: none.
  int threads = 0;                              ///< 0: as many cores as each local rank has.
  bool stands_in = false;  ///< This rank runs alone, and receives its own data in place of others'.
  int stand_in_rank = 0;
  bool stops_at_nonfinite_loss = true;
  bool on_cuda = false;            ///< The program for GPUs, beside this one, takes over.
  std::vector<std::string> notes;  ///< Sentences about the options, for people.
  bool nccl_alone = false;  ///< A rank that runs alone calls NCCL all the same; the stub's NCCL plays the others.
};

/// Reads the arguments after the program's name. Error: all their faults; an empty list if help was printed.
Result<RunOptions> read_options(int argc, const char* const* argv);
std::string usage();

}  // namespace fsdp::executor
