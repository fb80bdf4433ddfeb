// Fits two factors, one after the other, each by bisection on a scale of ratios. The factor of computing makes the
// compute thread or stream as busy as in the measurement; then the factor of links makes it idle for as long. Both
// times only grow with their factor, and links do not change the first. If no factor matches (a run that waited for
// nothing, or one rank), uses the nearest end of the range, or 1.
//
// Not modeled: different factors for products and memory traffic, which one run cannot separate.

#include "runs/calibrate.h"

#include <fmt/format.h>

#include <cmath>
#include <functional>

#include "simulator/predictor.h"
#include "text/figures.h"

namespace fsdp::runs {

namespace {

constexpr double kFastest = 1e-4;
constexpr double kSlowest = 1e6;
constexpr int kHalvings = 40;

using TimeOf = std::function<Result<Seconds>(double factor)>;

Result<double> fit(const TimeOf& time_of, Seconds measured) {
  double low = std::log(kFastest);
  double high = std::log(kSlowest);
  for (int i = 0; i < kHalvings; ++i) {
    const double middle = (low + high) / 2;
    FSDP_TRY(const Seconds time, time_of(std::exp(middle)));
    (time < measured ? low : high) = middle;
  }
  return std::exp((low + high) / 2);
}

}  // namespace

Result<Calibration> calibrate(const Model& model, const Plan& plan, const Cluster& cluster, const TimeReport& predicted,
                              const StepReport& measured) {
  Calibration found{.device = measured.gpu, .ranks = world_size(cluster)};
  found.source = fmt::format("measured: a step of {} on {}", model.name, text::counted(found.ranks, "rank"));
  found.residuals = compare_times(predicted, measured.time);
  const auto fitted = [&](double Calibration::*factor, Seconds simulator::Outcome::*time, Seconds wanted) {
    const TimeOf time_of = [&](double tried_factor) -> Result<Seconds> {
      Calibration tried = found;
      tried.*factor = tried_factor;
      simulator::Predictor predictor(model, calibrated(cluster, tried));
      FSDP_TRY(const simulator::Outcome outcome, predictor.evaluate(plan, simulator::Detail::Time));
      return outcome.*time;
    };
    return fit(time_of, wanted);
  };
  FSDP_TRY(found.compute, fitted(&Calibration::compute, &simulator::Outcome::compute, measured.time.compute));
  const Seconds exposed = measured.time.exposed_communication;
  if (found.ranks == 1 || exposed == Seconds(0)) return found;
  FSDP_TRY(found.communication,
           fitted(&Calibration::communication, &simulator::Outcome::exposed_communication, exposed));
  return found;
}

std::vector<TimeResidual> compare_times(const TimeReport& predicted, const TimeReport& measured) {
  return {{"step", predicted.step, measured.step},
          {"compute", predicted.compute, measured.compute},
          {"exposed communication", predicted.exposed_communication, measured.exposed_communication},
          {"optimizer", predicted.optimizer, measured.optimizer}};
}

}  // namespace fsdp::runs
