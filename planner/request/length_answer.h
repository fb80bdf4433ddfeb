#pragma once

// Whether a plan survives a run whose batches differ in length, how much memory the run reserves, and what would change
// that. length_answer.cpp explains how it is found.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/base/result.h"
#include "core/base/units.h"
#include "core/cluster/cluster.h"
#include "core/plan/plan.h"
#include "core/report/device_verdict.h"
#include "core/report/report.h"
#include "core/spec/model_spec.h"

namespace fsdp::planner {

inline constexpr std::int64_t kLengthSteps = 2000;
/// GPUs whose batches are drawn.
inline constexpr std::int64_t kDrawnGpus = 4;

struct LengthOptions {
  std::int64_t steps = kLengthSteps;
  std::int64_t seed = 0;
  /// Tries the settings that would change the run.
  bool tries_remedies = true;
  /// Called before each run with what it tries.
  std::function<void(const std::string&)> on_run = {};
};

/// The spread of a figure.
struct LengthSpread {
  std::int64_t least = 0;
  std::int64_t median = 0;
  std::int64_t p95 = 0;  ///< 95 of 100 are at most this.
  std::int64_t most = 0;

  bool operator==(const LengthSpread&) const = default;
};

/// The runs of drawn GPUs with one way to batch and one setting of the allocator.
struct LengthRow {
  std::string what;     ///< "pad to a multiple of 64"
  std::string how;      ///< The trainer's key, or the environment variable.
  Bytes peak_reserved;  ///< The most of any GPU.
  Bytes peak_allocated;
  std::int64_t flushes = 0;    ///< On the GPU that returns its cache most often: in all its steps.
  std::int64_t num_out = 0;    ///< Drawn GPUs that run out of memory.
  std::int64_t first_out = 0;  ///< The first step, from 1 on, in which one does. 0 if none does.
  double padding = 0;          ///< Share of padding in the tokens of the batches.
  DeviceVerdict device;        ///< With the safety margin.

  bool operator==(const LengthRow&) const = default;
};

struct LengthAnswer {
  std::int64_t samples = 0;    ///< Lengths in the file.
  std::int64_t num_cut = 0;    ///< Those of them that are cut to `limit`.
  std::int64_t limit = 0;      ///< 0 without a limit.
  LengthSpread sample_tokens;  ///< After the cut.
  LengthSpread batch_tokens;   ///< A row of the padded micro-batches.
  std::int64_t batch = 1;
  std::int64_t accumulation = 1;
  bool has_mask = false;        ///< The model makes a mask of padding.
  std::int64_t gpus = 1;        ///< Those of the job.
  std::int64_t drawn_gpus = 1;  ///< Whose batches were drawn.
  std::int64_t steps = 0;
  std::int64_t seed = 0;
  LengthSpread reserved;  ///< Those of steps, in bytes.
  LengthSpread allocated;
  std::int64_t longest = 0;     ///< The longest length that a batch can have.
  Bytes at_longest;             ///< Reserved without a limit, if every batch had it.
  bool longest_is_out = false;  ///< True if a run of such batches runs out of memory.
  Bytes outside;                ///< Outside of the allocator.
  Bytes margin;                 ///< The safety margin on top of `planned`.
  Bytes budget;
  LengthRow planned;            ///< All drawn GPUs.
  std::vector<LengthRow> rows;  ///< The drawn GPU that needs most: as planned, then with one change each.

  /// It does not fit if a drawn GPU runs out of memory, or if the longest batch would.
  DeviceVerdict verdict() const;
  /// The probability that some GPU of the job runs out of memory within the steps.
  double probability() const;
  bool operator==(const LengthAnswer&) const = default;
};

/// The lengths of a data set, as a plan trains it.
struct LengthSamples {
  std::vector<std::int64_t> lengths;
  std::int64_t limit = 0;  ///< Longer ones are cut to this. 0 for none.
  std::string where;       ///< The file, for errors.
};

/// Errors: a model without a dimension "seq", or one that its capture fixes; a CPU; a length that the model cannot be
/// built with, such as one above its positions.
Result<LengthAnswer> answer_lengths(const ModelSpec& spec, const Plan& plan, const Cluster& cluster,
                                    const MemoryReport& predicted, const LengthSamples& samples,
                                    const LengthOptions& options);

/// The length to plan for: the longest one, cut to the limit.
std::int64_t longest_of(const LengthSamples& samples);

}  // namespace fsdp::planner
