#pragma once

// Measures a rank's machine during a run: ops, the time between them, collectives. `fsdp-exec --measure`.

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "core/cluster/machine_tables.h"
#include "core/model/model_index.h"
#include "core/plan/schedule.h"
#include "core/plan/workload.h"
#include "executor/calibrate/op_clock.h"
#include "executor/network/collectives.h"
#include "executor/training/trainer.h"

namespace fsdp::executor {

/// Samples of the times of named work, one for each time that it ran.
class WorkSamples {
 public:
  void add(const NamedWork& work, Seconds forward);
  void add(const NamedWork& work, Seconds forward, Seconds backward);
  /// Sorted; each point is the mean of the samples between its quartiles.
  std::vector<WorkTimes> tables() const;

 private:
  struct Point {
    std::vector<double> forward;
    std::vector<double> backward;
  };
  std::map<std::tuple<std::string, double>, std::map<double, Point>> points_;
};

class Calibrator {
 public:
  /// Listens to the trainer's steps until its destruction. REQUIRES: all references outlive it.
  Calibrator(const ModelIndex& index, const Plan& plan, const Layout& layout, const Schedule& schedule,
             Trainer& trainer);
  ~Calibrator();
  Calibrator(const Calibrator&) = delete;
  Calibrator& operator=(const Calibrator&) = delete;

  /// Adds the times of a step. It ignores the first two steps, which allocate what later ones reuse.
  void take(const StepMeasurement& step);
  /// Times collectives by themselves, to which steps add theirs, and during computation. All ranks call it. It does
  /// nothing on one rank.
  void measure_collectives();
  /// Times copies between host and GPU. It does nothing on a CPU.
  void measure_copies();
  /// The measured tables. `libraries`: the library that ran the collectives: "Gloo".
  MachineTables tables(const std::string& device, const std::string& libraries) const;

 private:
  void take_actions(const StepMeasurement& step, const std::vector<OpSample>& ops);
  void take_collectives(const StepMeasurement& step);

  const ModelIndex& index_;
  const Plan& plan_;
  const Layout& layout_;
  const Schedule& schedule_;
  Trainer& trainer_;
  Dtype activation_;
  Implementations implementations_;
  std::chrono::steady_clock::time_point began_;
  std::string measured_at_;
  std::int64_t steps_ = 0;
  OpClock clock_;
  WorkSamples ops_;
  WorkSamples actions_;
  WorkSamples collectives_;  ///< From steps.
  MachineTables measured_;   ///< Collectives and copies.
};

}  // namespace fsdp::executor
