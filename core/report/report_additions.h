#pragma once

// Additions of the commands to a report: the search and its reasons, the measurements of one run or of many, and the
// comparison with another report. In the terms of the file; callers convert their own values.

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/base/units.h"
#include "core/report/compare.h"
#include "core/report/report.h"

namespace fsdp {

/// A step of a run.
struct MeasuredStep {
  std::int64_t number = 0;  ///< From 1 on, including those before a checkpoint.
  std::int64_t mean_of = 1;
  double loss = 0;  ///< Not finite if training has failed, like the norm.
  double gradient_norm = 0;
  double learning_rate = 0;
  Seconds wall{0};
  Seconds cpu{0};
  Bytes live{-1};       ///< Negative if not measured.
  Bytes allocated{-1};  ///< Negative if there is no allocator that reports it, like the next three.
  Bytes reserved{-1};
  std::int64_t segments = -1;
  Bytes device{-1};
};

/// fsdp-exec's measurements on held-out data.
struct MeasuredEvaluation {
  double loss = 0;
  Bytes live;
};

/// A rehearsed batch.
struct TriedBatch {
  std::int64_t batch = 0;
  bool fits = false;
  Bytes device_peak;
  std::string why;  ///< Why it could not be rehearsed; empty if it was.
};

/// Another plan, by its differences from its neighbors.
struct OtherPlan {
  std::string label;
  Bytes device_peak;
  Seconds step{0};
};

struct RejectedPlan {
  OtherPlan plan;
  Bytes missing;
};

struct PlansRuledOut {
  std::string reason;
  std::int64_t plans = 0;
};

/// The search of a plan.
struct SearchAddition {
  std::int64_t space = 0;
  std::int64_t evaluated = 0;
  std::vector<PlansRuledOut> ruled_out;
  double optimality_gap = 0;  ///< NaN if not proven.
  std::string best;
  std::vector<OtherPlan> pareto;
  std::vector<std::string> notes;
  bool stopped_early = false;             ///< A limit ended the search.
  bool compared_ties = true;              ///< All plans with practically the same time were compared.
  std::optional<std::string> refinement;  ///< The difference between the fastest plan and the named one.
  Bytes saved;                            ///< Memory that the fastest plan needs in addition.
  std::string objective = "time";         ///< The objective of the search.
  double samples_per_second = 0;          ///< Rate of all GPUs.
};

/// The price of a change of the plan.
struct PriceAddition {
  std::int64_t delta_bytes = 0;
  double delta_seconds = 0;
  Verdict verdict = Verdict::Unknown;
  bool is_tight = false;  ///< It runs without room to spare.
};

/// A change with its new prediction.
struct RemedyAddition {
  std::string what;
  std::string flag;
  std::int64_t delta_bytes = 0;
  double delta_seconds = 0;
  Verdict verdict = Verdict::Unknown;
  bool is_tight = false;                        ///< It runs without room to spare.
  std::string priced;                           ///< "search" or "same plan".
  std::string kind = "free";                    ///< Or "training", "machine": its cost beside bytes and seconds.
  std::optional<PriceAddition> same_plan = {};  ///< Price of the same plan with the change, if `priced` is "search".
};

/// Modules with the same finding of PyTorch's auto-wrap policy.
struct PolicyRowAddition {
  std::string modules;  ///< "model.layers.{0..27}"; "" is the root.
  std::string class_name;
  std::int64_t count = 0;
  std::int64_t elements = 0;   ///< Elements of the parameters below each.
  std::int64_t remaining = 0;  ///< Without those of the units inside.
  bool is_unit = false;
  std::string why;
};

/// How that policy chose the units.
struct PolicyAddition {
  std::string policy;  ///< "size:100M"
  std::vector<PolicyRowAddition> visited;
  std::int64_t root_elements = 0;
  std::vector<std::string> in_root;
};

/// The reasons for a plan.
struct ExplainAddition {
  std::string binding;
  std::vector<RejectedPlan> rejected;
  std::vector<RemedyAddition> remedies;
  std::optional<PolicyAddition> wrap = {};  ///< If a policy chose the units.
};

/// A machine among others, with its best plan.
struct MachineAddition {
  std::string machine;
  std::int64_t gpus = 0;
  std::string why_not;  ///< Why the request makes no sense on it. Empty if it does; only then the rest counts.
  Verdict verdict = Verdict::Unknown;
  bool is_tight = false;  ///< It runs without room to spare.
  Seconds step{0};
  std::int64_t samples = 0;
  Bytes device_peak;
  double samples_per_second = 0;
  double gpu_seconds_per_sample = 0;
  std::optional<double> price_per_hour;
  std::optional<double> price_per_sample;
};

/// A framework among others, with its best plan.
struct RuntimeAddition {
  std::string runtime;
  std::string why_not;  ///< Why it cannot do what was requested. Empty if it can; only then the rest counts.
  Verdict verdict = Verdict::Unknown;
  bool is_tight = false;  ///< It runs without room to spare.
  std::string plan;
  Seconds step{0};
  std::int64_t samples = 0;
  Bytes device_peak;
  Bytes needed;  ///< The peak and the safety margin.
  Bytes sent_per_gpu;
  std::int64_t collectives = 0;
  Bytes host;
};

/// The spread of a figure.
struct SpreadAddition {
  std::int64_t least = 0;
  std::int64_t median = 0;
  std::int64_t p95 = 0;
  std::int64_t most = 0;
};

/// Runs of drawn GPUs with batches of different lengths.
struct LengthRowAddition {
  std::string what;
  std::string how;  ///< Setting that asks for it. Empty for the plan as it is.
  Verdict verdict = Verdict::Unknown;
  bool is_tight = false;
  Bytes reserved;
  Bytes allocated;
  std::int64_t flushes = 0;
  double flushes_per_100 = 0;
  std::int64_t num_out = 0;
  std::int64_t first_out = 0;
  double padding = 0;
};

/// From `--lengths`.
struct LengthsAddition {
  Verdict verdict = Verdict::Unknown;
  bool is_tight = false;
  std::int64_t samples = 0;
  std::int64_t limit = 0;
  std::int64_t num_cut = 0;
  std::int64_t steps = 0;
  std::int64_t seed = 0;
  std::int64_t batch = 0;
  std::int64_t accumulation = 0;
  std::int64_t drawn_gpus = 0;
  double probability = 0;
  SpreadAddition sample_tokens;
  SpreadAddition batch_tokens;
  SpreadAddition reserved;
  SpreadAddition allocated;
  std::int64_t longest = 0;
  Bytes at_longest;
  bool longest_is_out = false;
  Bytes outside;
  Bytes margin;
  LengthRowAddition planned;
  std::vector<LengthRowAddition> changes;
};

/// A phase of a job (core/report/job_phases.h).
struct PhaseAddition {
  std::string phase;
  std::string how;
  Verdict verdict = Verdict::Unknown;                      ///< The worse one of device and host.
  bool is_tight = false;                                   ///< It runs without room to spare.
  std::optional<Bytes> live, allocated, reserved, device;  ///< `nullopt` if not predicted.
  std::optional<Bytes> margin;
  Bytes host;
  std::optional<Bytes> host_missing;  ///< `nullopt` if the host's memory is unknown.
};

/// A key of a trainer's configuration with another value.
struct ChangeAddition {
  std::string file;  ///< Empty for the line that starts the training.
  std::string key;
  std::string before;  ///< Empty if the key was not there.
  std::string after;
};

/// What to change in a trainer's own files, and what that gives.
struct UseAddition {
  std::vector<ChangeAddition> changes = {};
  Verdict verdict = Verdict::Unknown;
  bool is_tight = false;
  Seconds step{0};
  Bytes device_peak;
  std::string environment;        ///< Empty if none is needed.
  std::vector<std::string> line;  ///< Its words. Empty if it stays.
};

/// In the order of the file, which omits empty ones.
struct ReportAdditions {
  std::optional<std::vector<MeasuredStep>> steps;        ///< From fsdp-exec.
  std::optional<MeasuredEvaluation> evaluation;          ///< From fsdp-exec.
  std::optional<Comparison> comparison;                  ///< From `execute`, and `rehearse` beside a prediction.
  std::optional<std::vector<std::string>> assumptions;   ///< From `execute`: the assumptions of its prediction.
  std::optional<std::vector<TriedBatch>> batches;        ///< From `rehearse --find-batch`, smallest first.
  std::optional<std::int64_t> largest_batch;             ///< The largest that fits.
  std::optional<std::vector<MachineAddition>> machines;  ///< From `plan` of several machines, the best one first.
  std::optional<std::vector<RuntimeAddition>> runtimes;  ///< From `plan` of several frameworks, the best one first.
  std::optional<LengthsAddition> lengths;                ///< From `plan` and `simulate` with --lengths.
  std::optional<SearchAddition> search;                  ///< From `plan`.
  std::optional<ExplainAddition> explain;                ///< From `plan` and `explain`.
  std::optional<UseAddition> use = {};                   ///< From `plan` of a trainer's own files.
  std::optional<std::vector<PhaseAddition>> job_phases = {};  ///< From `plan`, `simulate` and `explain` with --phases.
};

}  // namespace fsdp
