#pragma once

// Additions of the commands to a report: how a plan was found and why, the measurements of one run or of many, and the
// comparison with another report. In the words of the file; whoever adds something makes these of its own values.

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
  std::int64_t number = 0;  ///< From 1 on, those before a checkpoint counted.
  std::int64_t mean_of = 1;
  double loss = 0;  ///< Not finite where training has failed, as the norm.
  double gradient_norm = 0;
  double learning_rate = 0;
  Seconds wall{0};
  Seconds cpu{0};
  Bytes live{-1};       ///< Below 0: nothing looked at it.
  Bytes allocated{-1};  ///< Below 0: there is no allocator that says it, as the three below.
  Bytes reserved{-1};
  std::int64_t segments = -1;
  Bytes device{-1};
};

/// fsdp-exec's measurements on held-out data.
struct MeasuredEvaluation {
  double loss = 0;
  Bytes live;
};

/// A batch that was rehearsed.
struct TriedBatch {
  std::int64_t batch = 0;
  bool fits = false;
  Bytes device_peak;
  std::string why;  ///< Why it could not be rehearsed; empty: it was.
};

/// Another plan, by what tells it from its neighbors.
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

/// How a plan was found.
struct SearchAddition {
  std::int64_t space = 0;
  std::int64_t evaluated = 0;
  std::vector<PlansRuledOut> ruled_out;
  double optimality_gap = 0;  ///< NaN: not proven.
  std::string best;
  std::vector<OtherPlan> pareto;
  std::vector<std::string> notes;
  bool stopped_early = false;             ///< A limit ended the search.
  bool compared_ties = true;              ///< All plans that are as good as equally fast were compared.
  std::optional<std::string> refinement;  ///< How the fastest plan differs from the named one.
  Bytes saved;                            ///< Memory that the fastest plan needs more.
  std::string objective = "time";         ///< The objective of the search.
  double samples_per_second = 0;          ///< Rate of all GPUs.
};

/// The price of a change of the plan.
struct PriceAddition {
  std::int64_t delta_bytes = 0;
  double delta_seconds = 0;
  Verdict verdict = Verdict::Unknown;
  bool is_tight = false;  ///< It runs, without room to spare.
};

/// A change, predicted again.
struct RemedyAddition {
  std::string what;
  std::string flag;
  std::int64_t delta_bytes = 0;
  double delta_seconds = 0;
  Verdict verdict = Verdict::Unknown;
  bool is_tight = false;                        ///< It runs, without room to spare.
  std::string priced;                           ///< "search" or "same plan".
  std::string kind = "free";                    ///< Or "training", "machine": what it costs beside bytes and seconds.
  std::optional<PriceAddition> same_plan = {};  ///< Price of the same plan with the change, where `priced` is "search".
};

/// Modules of which an auto-wrap policy of PyTorch says the same.
struct PolicyRowAddition {
  std::string modules;  ///< "model.layers.{0..27}"; "" is the root.
  std::string class_name;
  std::int64_t count = 0;
  std::int64_t elements = 0;   ///< Elements of the parameters below each.
  std::int64_t remaining = 0;  ///< Without those of the units inside.
  bool is_unit = false;
  std::string why;
};

/// How such a policy chose the units.
struct PolicyAddition {
  std::string policy;  ///< "size:100M"
  std::vector<PolicyRowAddition> visited;
  std::int64_t root_elements = 0;
  std::vector<std::string> in_root;
};

/// Why a plan was named.
struct ExplainAddition {
  std::string binding;
  std::vector<RejectedPlan> rejected;
  std::vector<RemedyAddition> remedies;
  std::optional<PolicyAddition> wrap = {};  ///< Where a policy chose the units.
};

/// A machine with the best plan on it, beside others.
struct MachineAddition {
  std::string machine;
  std::int64_t gpus = 0;
  std::string why_not;  ///< Why what was asked makes no sense on it; empty: it does, and the rest counts.
  Verdict verdict = Verdict::Unknown;
  bool is_tight = false;  ///< It runs, without room to spare.
  Seconds step{0};
  std::int64_t samples = 0;
  Bytes device_peak;
  double samples_per_second = 0;
  double gpu_seconds_per_sample = 0;
  std::optional<double> price_per_hour;
  std::optional<double> price_per_sample;
};

/// A framework with the best plan of it, beside others.
struct RuntimeAddition {
  std::string runtime;
  std::string why_not;  ///< Why what was asked cannot be had of it; empty: it can, and the rest counts.
  Verdict verdict = Verdict::Unknown;
  bool is_tight = false;  ///< It runs, without room to spare.
  std::string plan;
  Seconds step{0};
  std::int64_t samples = 0;
  Bytes device_peak;
  Bytes needed;  ///< That and the safety margin.
  Bytes sent_per_gpu;
  std::int64_t collectives = 0;
  Bytes host;
};

/// In the order of the file. Empty ones are left out.
struct ReportAdditions {
  std::optional<std::vector<MeasuredStep>> steps;        ///< From fsdp-exec.
  std::optional<MeasuredEvaluation> evaluation;          ///< From fsdp-exec.
  std::optional<Comparison> comparison;                  ///< From `execute`, and `rehearse` beside a prediction.
  std::optional<std::vector<std::string>> assumptions;   ///< From `execute`: what its prediction rests on.
  std::optional<std::vector<TriedBatch>> batches;        ///< From `rehearse --find-batch`, smallest first.
  std::optional<std::int64_t> largest_batch;             ///< That fits.
  std::optional<std::vector<MachineAddition>> machines;  ///< From `plan` of several machines, the best one first.
  std::optional<std::vector<RuntimeAddition>> runtimes;  ///< From `plan` of several frameworks, the best one first.
  std::optional<SearchAddition> search;                  ///< From `plan`.
  std::optional<ExplainAddition> explain;                ///< From `plan` and `explain`.
};

}  // namespace fsdp
