#pragma once

// The largest micro-batch and the longest sequence of a model that fit each kind of GPU.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "planner/request/plan_request.h"
#include "planner/search/search.h"

namespace fsdp::planner {

/// The largest size of one kind that fits.
struct LargestSize {
  std::int64_t size = 0;  ///< 0 if not even the smallest fits.
  bool is_last = false;   ///< True if no larger size can be tried, because of a capture or the number of positions.
  bool is_open = false;   ///< True if a larger one may fit, because a limit of work ended the question.
  /// A larger one with which some plan runs without room to spare. 0 if none is known. Computed for a single machine.
  std::int64_t tight = 0;
  std::int64_t flushes = 0;  ///< How often per step the fastest such plan returns the allocator's cache.

  bool operator==(const LargestSize&) const = default;
};

/// One way of training: with or without activation checkpointing.
struct FitMode {
  std::string name;  ///< "none", "full": as --activation-checkpointing takes it.
  CheckpointChoice checkpoint;

  bool operator==(const FitMode&) const = default;
};

/// The sizes that fit one kind of GPU.
struct FitRow {
  std::string gpu;
  std::string machine;                   ///< "8x L4".
  Bytes memory;                          ///< The memory that a process can use.
  PlanChoices choices;                   ///< Its choices without sizes and checkpointing.
  bool is_offloaded = false;             ///< True if something fits only with CPU offload, without a request for it.
  std::string why_not;                   ///< The reason why the model cannot be trained there at all. Empty if it can.
  std::vector<LargestSize> micro_batch;  ///< [modes], with sequences of FitTable::sequence.
  std::vector<LargestSize> sequence;     ///< [modes], with micro-batches of FitTable::micro_batch. Empty without
                                         ///< sequences.

  /// True if a condition holds for any size of any kind.
  bool any_size(bool (*is_so)(const LargestSize&)) const;
  /// True if any size of any kind fits.
  bool trains() const;
  /// True if some size runs without room to spare.
  bool runs_tight() const;

  bool operator==(const FitRow&) const = default;
};

struct FitTable {
  std::string model;
  std::vector<FitMode> modes;
  std::vector<FitRow> rows;                 ///< By memory.
  std::optional<std::int64_t> sequence;     ///< Tokens of a sample. nullopt if the model has no such size.
  std::int64_t micro_batch = 1;             ///< Micro-batch of the longest sequences.
  bool tries_offload = true;                ///< Tries CPU offload if nothing fits without it. False if the user
                                            ///< excluded it.
  std::vector<std::int64_t> only_captured;  ///< The micro-batches in a capture. Empty for any.

  bool operator==(const FitTable&) const = default;
};

/// Sequences are multiples of this many tokens.
inline constexpr std::int64_t kSequenceStep = 256;

struct FitOptions {
  std::vector<std::string> gpu_names;  ///< Names in the library. Empty for all, unless the choices name a machine.
  /// Called before each question with the GPU and the question.
  std::function<void(const std::string&)> on_question;
  /// Work (simulator::Predictor::work) for each machine. 0 for no limit.
  std::int64_t most_work = kMostWork;
};

/// Tries each GPU in FSDP2's own space, with everything that the choices leave open. Parameters stay on the GPUs if
/// something fits that way, and a step has one micro-batch, unless the choices decide otherwise. Errors: those of
/// resolve() that every GPU has; an unknown name.
Result<FitTable> what_fits(const PlanRequest& request, const std::string& library, const FitOptions& options = {});

/// The index of the largest of `num_sizes` ascending sizes for which `fits` is true; nullopt if there is none.
/// REQUIRES: `fits` is false for all sizes above one for which it is false. Tries indices near `guess` first, at most 2
/// log2(number) + 2 times. Errors: those of `fits`.
Result<std::optional<std::size_t>> largest_that_fits(std::size_t num_sizes, std::size_t guess,
                                                     const std::function<Result<bool>(std::size_t)>& fits);

}  // namespace fsdp::planner
