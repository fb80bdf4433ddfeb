#include "tests/gui/chart_fixture.h"

#include <QDir>
#include <QImage>
#include <QPainter>
#include <cstdlib>
#include <iostream>

#include "core/cluster/cluster_library.h"
#include "core/spec/model_spec.h"
#include "simulator/predictor.h"

namespace fsdp::gui {

namespace {

template <class T>
T value_of(Result<T> result) {
  if (result) return *std::move(result);
  for (const Error& error : result.error()) std::cerr << to_string(error) << "\n";
  std::abort();
}

}  // namespace

namespace {

SnapshotPtr make_gpt2_snapshot(bool checkpointed) {
  const ModelSpec spec = value_of(read_model_spec("model_specs/gpt2.json"));
  Workload workload;
  workload.dimensions = {{"batch", 4}, {"seq", 1024}};
  Model model = value_of(build_model(spec, workload));
  Plan plan;
  plan.mesh = {1, 4};
  for (const Stack& stack : model.stacks) {
    for (const int call : stack.calls) {
      const std::string& name = model.modules[model.calls[call].module].name;
      plan.units.push_back({{name}, {}});
      if (checkpointed) plan.checkpointing.entries.push_back({name, CheckpointMode::Full});
    }
  }
  plan.units.push_back({{""}, {}});
  plan.parameter_dtype = Dtype::Float32;
  plan.mixed_precision = {.param_dtype = Dtype::BFloat16, .reduce_dtype = Dtype::Float32};
  auto snapshot = std::make_shared<Snapshot>();
  const ClusterLibrary library = value_of(read_cluster_library("model_specs/clusters"));
  snapshot->cluster = value_of(make_cluster(value_of(find_gpu("A100-40G", library.gpus, "gpu")), 4, 1));
  snapshot->cluster.gpu.usable_memory.value = Bytes(16) * (std::int64_t{1} << 30);
  simulator::Predictor predictor(std::move(model), snapshot->cluster);
  snapshot->report = value_of(predictor.report(plan));
  snapshot->curves = value_of(predictor.curves(plan));
  return snapshot;
}

}  // namespace

SnapshotPtr gpt2_snapshot(bool checkpointed) {
  static const SnapshotPtr plain = make_gpt2_snapshot(false);
  static const SnapshotPtr lean = make_gpt2_snapshot(true);
  return checkpointed ? lean : plain;
}

SnapshotPtr with_plans(const SnapshotPtr& snapshot) {
  auto changed = std::make_shared<Snapshot>(*snapshot);
  const double step = snapshot->report.time.step.count();
  const double peak = static_cast<double>(snapshot->report.memory.peaks.device.count());
  // A cloud on both sides of the current plan: faster ones need more.
  for (int i = 0; i < 60; ++i) {
    planner::Candidate plan{.plan = snapshot->report.plan, .label = "plan " + std::to_string(i)};
    plan.plan.backward_prefetch = 2 + i;
    const double faster = (i % 12) / 12.0;
    plan.step = Seconds(step * (1.4 - 0.6 * faster + 0.02 * (i / 12)));
    plan.device_peak = Bytes(static_cast<std::int64_t>(peak * (0.6 + 2.4 * faster * faster + 0.13 * (i / 12))));
    plan.missing = std::max(Bytes(0), plan.device_peak - snapshot->report.memory.budget);
    changed->plans.push_back(std::move(plan));
  }
  changed->plans.push_back({.plan = snapshot->report.plan,
                            .label = "this plan",
                            .step = snapshot->report.time.step,
                            .device_peak = snapshot->report.memory.peaks.device});
  return changed;
}

QImage picture_of(PlotWidget& widget, const QSize& size, qreal scale) {
  QImage image((QSizeF(size) * scale).toSize(), QImage::Format_ARGB32_Premultiplied);
  image.setDevicePixelRatio(scale);
  QPainter painter(&image);
  widget.draw(painter, QRectF(QPointF(0, 0), QSizeF(size)));
  return image;
}

void keep(const QImage& image, const QString& name) {
  const QString folder = qEnvironmentVariable("FSDP_CHART_PICTURES");
  if (!folder.isEmpty()) image.save(QDir(folder).filePath(name + ".png"));
}

}  // namespace fsdp::gui
