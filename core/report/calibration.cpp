#include "core/report/calibration.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "core/base/json_writer.h"
#include "core/base/object_reader.h"
#include "core/plan/plan_json.h"

namespace fsdp {

static bool read_json(const JsonValue& value, TimeResidual& residual, JsonErrors& errors) {
  ObjectReader object(value, errors);
  double predicted = 0;
  double measured = 0;
  object.required("term", residual.term);
  object.required("predicted_seconds", predicted, RealRange{0, 1e12});
  object.required("measured_seconds", measured, RealRange{0, 1e12});
  residual.predicted = Seconds(predicted);
  residual.measured = Seconds(measured);
  return object.finish();
}

namespace {

constexpr RealRange kFactor{1e-6, 1e9};

// The run measured these figures; earlier measurements came from other machines of the kind.
template <class T>
void slow_down(Sourced<T>& figure, double factor, const std::string& source) {
  figure.value = figure.value * (1 / factor);
  figure.provenance = Provenance::Measured;
  figure.source = source;
}

template <class T>
void slow_down(std::optional<Sourced<T>>& figure, double factor, const std::string& source) {
  if (figure) slow_down(*figure, factor, source);
}

void slow_down(Sourced<Seconds>& latency, double factor, const std::string& source) {
  latency.value = latency.value * factor;
  latency.provenance = Provenance::Measured;
  latency.source = source;
}

}  // namespace

Cluster calibrated(Cluster cluster, const Calibration& calibration) {
  const auto compute = [&](auto& figure) { slow_down(figure, calibration.compute, calibration.source); };
  const auto link = [&](auto& figure) { slow_down(figure, calibration.communication, calibration.source); };
  compute(cluster.gpu.memory_bandwidth);
  compute(cluster.gpu.fp32);
  compute(cluster.gpu.tf32);
  compute(cluster.gpu.fp16);
  compute(cluster.gpu.bf16);
  link(cluster.intra_node.bandwidth);
  link(cluster.intra_node.bus_bandwidth);
  link(cluster.intra_node.latency);
  link(cluster.network.nic_bandwidth);
  link(cluster.network.latency);
  if (!calibration.workspaces.empty()) {
    cluster.gpu.kernel_workspaces = std::make_shared<const KernelWorkspaces>(calibration.workspaces);
  }
  return cluster;
}

std::string to_text(const Calibration& calibration) {
  JsonWriter writer;
  writer.begin_object();
  writer.member("format_version", kCalibrationFormatVersion);
  writer.member("device", calibration.device);
  writer.member("ranks", calibration.ranks);
  writer.member("compute", calibration.compute);
  writer.member("communication", calibration.communication);
  writer.member("source", calibration.source);
  writer.key("residuals");
  writer.begin_array();
  for (const TimeResidual& residual : calibration.residuals) {
    writer.begin_object(JsonLayout::OneLine);
    writer.member("term", residual.term);
    writer.member("predicted_seconds", residual.predicted.count());
    writer.member("measured_seconds", residual.measured.count());
    writer.end_object();
  }
  writer.end_array();
  if (!calibration.workspaces.empty()) {
    writer.key("workspaces");
    calibration.workspaces.write(writer);
  }
  writer.end_object();
  return std::move(writer).take();
}

Result<Calibration> read_calibration_file(const std::string& path) {
  FSDP_TRY(const JsonDocument document, read_json_file(path));
  JsonErrors errors(document);
  ObjectReader object(document.root, errors);
  Calibration calibration;
  std::string version;
  if (object.required("format_version", version) && !is_readable_version(version, kCalibrationFormatVersion)) {
    object.fail("format_version", fmt::format("This program does not read calibrations of version \"{}\".", version),
                fmt::format("It reads up to {}; run again with --calibration to make one.", kCalibrationFormatVersion));
  }
  object.required("device", calibration.device);
  object.required("ranks", calibration.ranks, IntegerRange{1, 1 << 30});
  object.required("compute", calibration.compute, kFactor);
  object.required("communication", calibration.communication, kFactor);
  object.required("source", calibration.source);
  object.optional("residuals", calibration.residuals);
  object.optional("workspaces", calibration.workspaces);
  object.finish();
  return std::move(errors).result(std::move(calibration));
}

}  // namespace fsdp
