#pragma once

// The output of a run while it trains: a line for each step, metrics, evaluations, and a loss that is not finite.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/base/result.h"
#include "executor/measured/metrics_file.h"
#include "executor/options/options.h"
#include "executor/training/agreement.h"
#include "executor/training/sample_source.h"
#include "executor/training/trainer.h"

namespace fsdp::executor {

/// Prints a line on standard error, printable on a terminal.
void say(const std::string& line);

/// A failure of one rank ends all of them, at once and with the same message. `others`: null if there are none.
Result<void> agree(const Result<void>& own, std::int64_t rank, Agreement* others);

class ProgressOfRun {
 public:
  /// `speaks`: this rank prints and writes for all. `evaluated` and `others` may be null. REQUIRES: references outlive
  /// it.
  ProgressOfRun(const RunOptions& options, Trainer& trainer, Agreement* others, bool speaks,
                std::shared_ptr<const SampleSource> evaluated);

  /// All ranks call it before the first step. Error: the metrics cannot be written.
  Result<void> begin();
  /// All ranks call it after each step. Error, on all ranks: a loss is infinite or not a number.
  Result<void> after_step(const StepMeasurement& step, std::int64_t number);

  bool evaluates_after(std::int64_t number) const;
  /// All ranks call it. REQUIRES: evaluates_after(number).
  Result<void> evaluate(std::int64_t number);
  /// The last evaluation.
  const std::optional<Evaluation>& evaluation() const { return evaluation_; }

 private:
  void print_step(const StepMeasurement& step, std::int64_t number) const;
  double tokens_per_second(const StepMeasurement& step) const;
  Result<void> write_metrics(const StepMeasurement& step, std::int64_t number, double loss);

  const RunOptions& options_;
  Trainer& trainer_;
  Agreement* others_;
  bool speaks_;
  std::shared_ptr<const SampleSource> evaluated_;
  std::optional<MetricsFile> metrics_;
  std::optional<Evaluation> evaluation_;
};

}  // namespace fsdp::executor
