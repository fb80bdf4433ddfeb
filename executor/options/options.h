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
  std::string folder;      ///< The folder of the checkpoints.
  std::int64_t every = 0;  ///< Steps between checkpoints; 0 for only after the last step.
  std::int64_t keep = 0;   ///< How many to keep; 0 for all.
};

struct RunOptions {
  std::string plan;
  std::int64_t steps = 3;
  std::uint64_t seed = 0;
  TrainingOptions training;
  std::vector<std::string> weights;        ///< Safetensors files, folders or indices. Empty for parameters from the
                                           ///< seed.
  std::vector<std::string> tokens;         ///< Files of token ids. Empty for data from the seed.
  std::vector<std::string> labels;         ///< One for each of them, or none.
  std::optional<std::string> token_dtype;  ///< The dtype of raw token files.
  std::vector<std::string> evaluated;      ///< Token files of an evaluation. Defaults to none.
  std::int64_t evaluate_every = 0;         ///< Steps between evaluations; 0 for only after the last one.
  std::int64_t evaluate_samples = 0;       ///< The most samples; 0 for all.
  std::string metrics;                     ///< File with a line for each step. Empty for none.
  CheckpointSettings checkpoints;          ///< No folder means no checkpoints.
  std::string resume;                      ///< Folder of a checkpoint, or "latest". Empty to start anew.
  bool has_seed = false;                   ///< Whether the seed was given. Otherwise a checkpoint's is used.
  std::int64_t measure_every = 1;          ///< Steps between measured and printed ones.
  std::string report;                      ///< File of this rank's report. Empty for none.
  std::string parameters;                  ///< File of all parameters after the last step, as safetensors. Empty for
                                           ///< none.
  std::string logits;                      ///< File of the inputs of the first step's losses. Empty for none.
  std::string allocations;                 ///< File of all allocations of the last step. Empty for none.
  std::string trace;                       ///< File of the last step as a Chrome trace. Empty for none.
  std::string workspaces;                  ///< File of kernels' scratch memory. Empty for none.
  std::string measure;                     ///< File of the measured machine (rank 0). Empty for none.
  bool measures_collectives = false;       ///< With --measure: times collectives by themselves, too.
  ReduceAlgorithm reduce = ReduceAlgorithm::Direct;
  std::chrono::milliseconds timeout{300'000};
  std::chrono::milliseconds heartbeat{30'000};  ///< Silence after which a rank counts as lost. On GPUs.
  Bytes memory{0};                              ///< Limit on the live bytes of this rank; 0 for none.
  int threads = 0;                              ///< 0 for each local rank's share of the cores.
  bool stands_in = false;  ///< This rank runs alone, and receives its own data in place of others'.
  int stand_in_rank = 0;
  bool stops_at_nonfinite_loss = true;
  bool on_cuda = false;            ///< The program for GPUs, in the same folder, takes over.
  std::vector<std::string> notes;  ///< Sentences about the options, for people.
  bool nccl_alone = false;         ///< A rank that runs alone calls NCCL anyway; the stub's NCCL plays the others.
};

/// Reads the arguments after the program's name. Error: all their faults; an empty list if help was printed.
Result<RunOptions> read_options(int argc, const char* const* argv);
std::string usage();

}  // namespace fsdp::executor
