// The comparison of two reports: decisions first, then their costs.

#include <QObject>
#include <algorithm>
#include <map>
#include <set>

#include "core/frameworks/zero/zero_nvme.h"
#include "core/plan/plan_names.h"
#include "core/report/compare.h"
#include "gui/charts/plot_paint.h"
#include "gui/panels/comparison_panel.h"
#include "planner/space/batches.h"

namespace fsdp::gui {

namespace {

using Kind = ComparedFigure::Kind;

QString name_of_dtype(const std::optional<Dtype>& dtype) {
  return dtype ? QString::fromStdString(std::string(name_of(*dtype))) : QObject::tr("as the parameters");
}

QString checkpointing_of(const Plan& plan) {
  QStringList parts;
  const auto add = [&](CheckpointMode mode, const QString& text) {
    if (const auto count = plan.checkpointing.modules(mode).size(); count > 0) parts << text.arg(count);
  };
  add(CheckpointMode::Full, QObject::tr("%1 full"));
  add(CheckpointMode::Selective, QObject::tr("%1 selective"));
  add(CheckpointMode::Nested, QObject::tr("%1 nested"));
  add(CheckpointMode::Reentrant, QObject::tr("%1 reentrant"));
  if (parts.empty()) return QObject::tr("none");
  return parts.join(", ");
}

QString resharding_of(const Plan& plan) {
  std::map<QString, int> counts;
  for (const Unit& unit : plan.units) {
    switch (unit.reshard_after_forward.kind) {
      case ReshardAfterForward::Kind::Default:
      case ReshardAfterForward::Kind::Always:
        ++counts[QObject::tr("after forward")];
        break;
      case ReshardAfterForward::Kind::Never:
        ++counts[QObject::tr("not after forward")];
        break;
      case ReshardAfterForward::Kind::Smaller:
        ++counts[QObject::tr("to groups of %1").arg(unit.reshard_after_forward.world_size)];
        break;
    }
  }
  QStringList parts;
  for (const auto& [what, count] : counts) parts << QObject::tr("%1 %2").arg(count).arg(what);
  return parts.join(", ");
}

class Figures {
 public:
  Figures(const StepReport& before, const StepReport& after) : before_(before), after_(after) {}

  std::vector<ComparedFigure> list() {
    plan();
    time();
    memory();
    traffic();
    return std::move(figures_);
  }

 private:
  void text(const QString& name, const QString& a, const QString& b) {
    figures_.push_back({group_, name, Kind::Text, 0, 0, a, b});
  }
  void bytes(const QString& name, Bytes a, Bytes b, bool less_is_good = true) {
    figures_.push_back({group_,
                        name,
                        Kind::Bytes,
                        static_cast<double>(a.count()),
                        static_cast<double>(b.count()),
                        {},
                        {},
                        less_is_good});
  }
  void seconds(const QString& name, Seconds a, Seconds b) {
    if (a < Seconds(0) || b < Seconds(0)) return;  // Not measured.
    figures_.push_back({group_, name, Kind::Time, a.count(), b.count(), {}, {}});
  }
  void number(const QString& name, double a, double b, bool less_is_good) {
    figures_.push_back({group_, name, Kind::Number, a, b, {}, {}, less_is_good});
  }

  void plan() {
    group_ = QObject::tr("plan");
    const Plan& a = before_.plan;
    const Plan& b = after_.plan;
    const auto both = [&](const QString& name, auto read) { text(name, read(a), read(b)); };
    text(QObject::tr("model"), QString::fromStdString(before_.model), QString::fromStdString(after_.model));
    text(QObject::tr("GPU"), QString::fromStdString(before_.gpu), QString::fromStdString(after_.gpu));
    both(QObject::tr("mesh"),
         [](const Plan& p) { return QObject::tr("%1 x %2").arg(p.mesh.dp_replicate()).arg(p.mesh.dp_shard()); });
    std::set<std::string> names;
    for (const Plan* p : {&a, &b}) {
      for (const Dimension& dimension : p->dimensions) names.insert(dimension.name);
    }
    for (const std::string& name : names) {
      both(QString::fromStdString(name), [&](const Plan& p) {
        const Dimension* found = find_dimension(p.dimensions, name);
        return found == nullptr ? QObject::tr("as in the model") : QString::number(found->value);
      });
    }
    both(QObject::tr("micro-batches"), [](const Plan& p) { return QString::number(p.accumulation); });
    both(QObject::tr("gradients reduced"), [](const Plan& p) {
      return p.sync_every_micro_batch ? QObject::tr("every micro-batch") : QObject::tr("once a step");
    });
    both(QObject::tr("units"), [](const Plan& p) { return QString::number(p.units.size()); });
    both(QObject::tr("reshard"), resharding_of);
    both(QObject::tr("checkpointed"), checkpointing_of);
    both(QObject::tr("forward prefetch"), [](const Plan& p) { return QString::number(p.forward_prefetch); });
    both(QObject::tr("backward prefetch"), [](const Plan& p) { return QString::number(p.backward_prefetch); });
    both(QObject::tr("offload"), [](const Plan& p) {
      if (uses_drive(p)) return QObject::tr("to an NVMe drive");
      return p.cpu_offload ? QObject::tr("yes") : QObject::tr("no");
    });
    both(QObject::tr("sharded parameters in"), [](const Plan& p) { return name_of_dtype(p.parameter_dtype); });
    both(QObject::tr("param_dtype"), [](const Plan& p) { return name_of_dtype(p.mixed_precision.param_dtype); });
    both(QObject::tr("reduce_dtype"), [](const Plan& p) { return name_of_dtype(p.mixed_precision.reduce_dtype); });
    both(QObject::tr("optimizer"), [](const Plan& p) {
      return QString::fromStdString(
          std::string(fsdp::name_of(kOptimizerKindTable, p.optimizer.kind)) + ", " +
          std::string(fsdp::name_of(kOptimizerImplementationTable, p.optimizer.implementation)) + ", " +
          std::string(fsdp::name_of(kOptimizerStatesTable, p.optimizer.states)));
    });
    both(QObject::tr("allocator"), [](const Plan& p) {
      return p.runtime.allocator_settings.empty() ? QObject::tr("default")
                                                  : QString::fromStdString(p.runtime.allocator_settings);
    });
  }

  void time() {
    group_ = QObject::tr("time");
    text(QObject::tr("verdict"), QString::fromStdString(std::string(name_of(before_.verdict))),
         QString::fromStdString(std::string(name_of(after_.verdict))));
    const TimeReport& a = before_.time;
    const TimeReport& b = after_.time;
    seconds(QObject::tr("step"), a.step, b.step);
    seconds(QObject::tr("compute"), a.compute, b.compute);
    seconds(QObject::tr("exposed communication"), a.exposed_communication, b.exposed_communication);
    seconds(QObject::tr("optimizer"), a.optimizer, b.optimizer);
    const auto samples = [](const StepReport& report) { return static_cast<double>(planner::samples_of(report.plan)); };
    const auto rate = [&](const StepReport& report) {
      return report.time.step > Seconds(0) ? samples(report) / report.time.step.count() : 0;
    };
    number(QObject::tr("samples a step"), samples(before_), samples(after_), false);
    number(QObject::tr("samples/s"), rate(before_), rate(after_), false);
    number(QObject::tr("tokens/s per GPU"), a.tokens_per_second_per_gpu, b.tokens_per_second_per_gpu, false);
    figures_.push_back({group_, QObject::tr("MFU"), Kind::Share, a.mfu, b.mfu, {}, {}, false});
  }

  void memory() {
    group_ = QObject::tr("memory");
    const MemoryReport& a = before_.memory;
    const MemoryReport& b = after_.memory;
    bytes(QObject::tr("device peak"), a.peaks.device, b.peaks.device);
    bytes(QObject::tr("reserved peak"), a.peaks.reserved, b.peaks.reserved);
    bytes(QObject::tr("allocated peak"), a.peaks.allocated, b.peaks.allocated);
    bytes(QObject::tr("live peak"), a.peaks.live, b.peaks.live);
    bytes(QObject::tr("capacity"), a.budget, b.budget, false);
    bytes(QObject::tr("margin"), a.margin, b.margin);
    bytes(QObject::tr("pinned host memory"), a.host_pinned, b.host_pinned);
    if (a.drive || b.drive) drive(a.drive.value_or(DriveReport{}), b.drive.value_or(DriveReport{}));
    text(QObject::tr("peak in"), QString::fromStdString(a.peak.instruction),
         QString::fromStdString(b.peak.instruction));
    group_ = QObject::tr("live at the peak");
    for (std::size_t c = 0; c < a.at_peak.size(); ++c) {
      const std::string name(name_of(static_cast<MemoryCategory>(c)));
      bytes(QString::fromStdString(name), a.at_peak[c], b.at_peak[c]);
    }
    group_ = QObject::tr("on the device");
    std::map<std::string, std::pair<Bytes, Bytes>> terms;
    for (const DeviceTerm& term : a.device_terms) terms[term.name].first += term.bytes;
    for (const DeviceTerm& term : b.device_terms) terms[term.name].second += term.bytes;
    for (const auto& [name, sizes] : terms) bytes(QString::fromStdString(name), sizes.first, sizes.second);
  }

  void drive(const DriveReport& a, const DriveReport& b) {
    bytes(QObject::tr("in files on NVMe drives of a node"), a.kept, b.kept);
    bytes(QObject::tr("read from them in a step"), a.read, b.read);
    bytes(QObject::tr("written to them in a step"), a.written, b.written);
  }

  void traffic() {
    group_ = QObject::tr("traffic");
    for (int k = 0; k < kNumTrafficKinds; ++k) {
      const TrafficTotal& a = before_.traffic.totals[k];
      const TrafficTotal& b = after_.traffic.totals[k];
      if (a.count == 0 && b.count == 0) continue;
      const QString name = QString::fromStdString(std::string(name_of(static_cast<CollectiveKind>(k))));
      number(QObject::tr("%1 calls").arg(name), static_cast<double>(a.count), static_cast<double>(b.count), true);
      bytes(QObject::tr("%1 payload").arg(name), a.payload, b.payload);
      bytes(QObject::tr("%1 sent per rank").arg(name), a.sent_per_rank, b.sent_per_rank);
    }
  }

  const StepReport& before_;
  const StepReport& after_;
  QString group_;
  std::vector<ComparedFigure> figures_;
};

}  // namespace

std::vector<ComparedFigure> compared_figures(const StepReport& before, const StepReport& after) {
  return Figures(before, after).list();
}

namespace {

/// Share of the bytes a plan requests in a step that are in tensors of sizes that a snapshot also has.
double share_of_known_sizes(const simulator::StepCurves& curves, const std::vector<std::int64_t>& sizes) {
  constexpr std::int64_t kLeastTelling = 4096;
  std::int64_t all = 0;
  std::int64_t known = 0;
  const auto add = [&](std::int64_t bytes) {
    if (bytes < kLeastTelling) return;
    all += bytes;
    if (std::binary_search(sizes.begin(), sizes.end(), bytes)) known += bytes;
  };
  if (curves.empty()) return 1;
  const std::size_t phase = curves.peak_phase();
  for (const auto& held : curves.at_begin[phase]) add(held.bytes);
  for (const std::int64_t change : curves.phases[phase].change) add(change);
  return all > 0 ? static_cast<double>(known) / static_cast<double>(all) : 1;
}

ComparedFigure figure_of(const ComparedTerm& term) {
  return {QObject::tr("measured"),
          QString::fromStdString(term.name),
          term.unit == TermUnit::Bytes ? Kind::Bytes : Kind::Number,
          static_cast<double>(term.predicted),
          static_cast<double>(term.measured),
          {},
          {}};
}

/// The prediction, without its traffic if the recording has none.
StepReport as_known(StepReport predicted, const Overlay& measured) {
  if (!measured.knows_traffic) predicted.traffic = {};
  return predicted;
}

}  // namespace

MeasuredComparison measured_figures(const Snapshot& shown, const Overlay& measured) {
  MeasuredComparison result;
  if (!measured.report) return result;
  const StepReport& report = *measured.report;
  const bool is_own = measured.own.has_value();
  const Comparison comparison = is_own ? *measured.own : compare(as_known(shown.report, measured), report);
  // Only a report names its machines.
  const bool knows_machines = is_own || measured.source == "run report";
  for (const std::string& note : comparison.notes) {
    if (knows_machines) result.notes << QString::fromStdString(note);
  }
  for (const ComparedTerm& term : comparison.terms) {
    // A trace has no parameters of the model.
    if (term.measured == 0 && term.name.ends_with("parameters")) continue;
    if (term.name == "live peak") result.live_peak = term;
    result.figures.push_back(figure_of(term));
  }
  if (was_on_cpu(measured)) {
    result.notes << (is_own ? QObject::tr("It ran on this machine's CPU over Gloo, and is compared with the "
                                          "prediction for CPU: bytes of tensors and collectives. The charts "
                                          "show the prediction for %1.")
                                  .arg(QString::fromStdString(shown.report.gpu))
                            : QObject::tr("It ran on CPU over Gloo, and the prediction is for %1: kernels there "
                                          "take other memory.")
                                  .arg(QString::fromStdString(shown.report.gpu)));
  }
  if (measured.plan && !(*measured.plan == shown.report.plan)) {
    result.notes << QObject::tr("The run used a different plan from the one shown.");
  }
  if (!measured.requests.empty() && share_of_known_sizes(shown.curves, measured.requests) < kLeastKnownShare) {
    result.is_of_another = true;
    result.notes << QObject::tr(
                        "Its tensors have other sizes than those of %1 under this plan: it seems to be of "
                        "another model or another plan.")
                        .arg(QString::fromStdString(shown.report.model));
  }
  // The rates of a CPU are assumed, so its time is no prediction.
  const bool knows_time = report.time.step > Seconds(0) && !was_on_cpu(measured);
  if (knows_time) {
    result.figures.push_back({QObject::tr("time"),
                              QObject::tr("step"),
                              Kind::Time,
                              shown.report.time.step.count(),
                              report.time.step.count(),
                              {},
                              {}});
  }
  return result;
}

}  // namespace fsdp::gui
