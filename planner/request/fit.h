#pragma once

// What fits: the largest micro-batch and the longest sequence of a model on each kind of GPU.

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
  std::int64_t size = 0;  ///< 0: not even the smallest does.
  bool is_last = false;   ///< Nothing larger could be asked: of a capture, or of a model with so many positions.
  bool is_open = false;   ///< A larger one may fit: a limit of work ended the question.
  /// A larger one with which some plan runs without room to spare; 0: none is known. Asked where there is one machine.
  std::int64_t tight = 0;
  std::int64_t flushes = 0;  ///< How often a step the fastest such plan gives back the allocator's cache.

  bool operator==(const LargestSize&) const = default;
};

/// One way of training: with or without activation checkpointing.
struct FitMode {
  std::string name;  ///< "none", "full": as --activation-checkpointing takes it.
  CheckpointChoice checkpoint;

  bool operator==(const FitMode&) const = default;
};

/// What fits one kind of GPU.
struct FitRow {
  std::string gpu;
  std::string machine;                   ///< "8x L4".
  Bytes memory;                          ///< That a process can use.
  PlanChoices choices;                   ///< What was asked there, but for sizes and checkpointing.
  bool is_offloaded = false;             ///< Nothing fits but with CPU offload, which nobody asked for.
  std::string why_not;                   ///< Why the model cannot be trained there at all; empty: it can.
  std::vector<LargestSize> micro_batch;  ///< [modes], with sequences of FitTable::sequence.
  std::vector<LargestSize> sequence;     ///< [modes], with micro-batches of FitTable::micro_batch; empty: it has none.

  /// Whether something is so of any size of any kind.
  bool any_size(bool (*is_so)(const LargestSize&)) const;
  /// Whether any size of any kind fits.
  bool trains() const;
  /// Whether some size runs without room to spare.
  bool runs_tight() const;

  bool operator==(const FitRow&) const = default;
};

struct FitTable {
  std::string model;
  std::vector<FitMode> modes;
  std::vector<FitRow> rows;                 ///< By memory.
  std::optional<std::int64_t> sequence;     ///< Tokens of a sample; empty: the model has no such size.
  std::int64_t micro_batch = 1;             ///< Micro-batch of the longest sequences.
  bool tries_offload = true;                ///< CPU offload, where nothing fits without; false: it was forbidden.
  std::vector<std::int64_t> only_captured;  ///< The micro-batches that a capture has; empty: any.

  bool operator==(const FitTable&) const = default;
};

/// Sequences are told in steps of this many tokens.
inline constexpr std::int64_t kSequenceStep = 256;

struct FitOptions {
  std::vector<std::string> gpu_names;  ///< Names of the library; empty: all of it, unless the choices name a machine.
  /// Called before each question: the GPU, and what is asked.
  std::function<void(const std::string&)> on_question;
  /// Work (simulator::Predictor::work) for each machine; 0: no limit.
  std::int64_t most_work = kMostWork;
};

/// Asks for each GPU, in FSDP2's own space, with all that the choices leave open. Parameters stay on the GPUs where
/// something fits so, and a step has one micro-batch, unless the choices say otherwise. Errors: those of resolve that
/// every GPU has, a name that is unknown.
Result<FitTable> what_fits(const PlanRequest& request, const std::string& library, const FitOptions& options = {});

/// The largest of `sizes`, ascending, for which `fits` is true, where it is false for all that are larger than one for
/// which it is; nothing: of none. Looks near the size with index `guess` first. Asks at most 2 log2(number) + 2 times.
/// Errors: those of `fits`.
Result<std::optional<std::size_t>> largest_that_fits(std::size_t num_sizes, std::size_t guess,
                                                     const std::function<Result<bool>(std::size_t)>& fits);

}  // namespace fsdp::planner
