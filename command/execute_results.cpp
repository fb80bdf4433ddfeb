#include "command/execute_results.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <system_error>
#include <vector>

#include "core/base/files.h"
#include "core/base/json_writer.h"
#include "core/report/report_json.h"
#include "render/result_json.h"
#include "replay/export_step.h"
#include "runs/calibrate.h"
#include "runs/framework_run.h"
#include "text/figures.h"

namespace fsdp::command {

namespace {

constexpr std::size_t kLargestTrace = std::size_t{1} << 30;

Result<void> fill_folder(const std::string& folder, const Executed& executed) {
  const auto write = [&](const std::string& name, const std::string& text) {
    return write_file_atomically(folder + "/" + name, text, Overwrite::Allow);
  };
  if (auto written = write("plan.json", to_text(executed.given.file)); !written) return written;
  if (auto written = write("predicted.json", render::to_json(executed.predicted, &executed.given.cluster)); !written) {
    return written;
  }
  FSDP_TRY(const simulator::StepCurves curves, executed.predictor.curves(executed.plan, executed.rank));
  return write("predicted-trace.json", to_chrome_trace(replay::trace_of(executed.predicted, curves, executed.rank)));
}

std::string milliseconds(Seconds time) {
  return fmt::format("{:.2f} ms", time.count() * 1e3);
}

}  // namespace

std::string workspaces_file(const std::string& folder) {
  return folder + "/workspaces.json";
}

Result<KernelWorkspaces> read_workspaces(const std::string& folder) {
  std::error_code error;
  if (!std::filesystem::exists(workspaces_file(folder), error)) return KernelWorkspaces();
  return read_kernel_workspaces(workspaces_file(folder));
}

Result<std::optional<Calibration>> read_calibration(const CommandLine& line) {
  const std::string path = line.value(Option::Calibration).value_or("");
  std::error_code error;
  if (path.empty() || !std::filesystem::exists(path, error)) return std::optional<Calibration>();
  FSDP_TRY(Calibration calibration, read_calibration_file(path));
  return calibration;
}

Result<void> keep_results(const CommandLine& line, const std::string& folder, const Executed& executed) {
  if (line.has(Option::RunFolder)) {
    if (auto written = fill_folder(folder, executed); !written) return written;
  }
  if (const auto path = line.value(Option::ChromeTrace)) {
    FSDP_TRY(const std::string trace,
             read_text_file(fmt::format("{}/trace-{}.json", folder, executed.rank), kLargestTrace));
    const auto overwrite = line.has(Option::Force) ? Overwrite::Allow : Overwrite::Refuse;
    if (auto written = write_file_atomically(*path, trace, overwrite); !written) return written;
  }
  // Another framework's own run does not report its compute time, so no calibration can be learned from it.
  const bool is_learned_from = runs::framework_trainer(executed.plan.runtime.framework).is_fsdp_exec;
  if (const auto path = line.value(Option::Calibration); path && is_learned_from) {
    FSDP_TRY(Calibration learned, runs::calibrate(executed.given.model, executed.given.file.plan,
                                                  executed.given.cluster, executed.predicted.time, executed.measured));
    learned.workspaces = executed.workspaces;
    if (executed.calibration) learned.workspaces.add(executed.calibration->workspaces);
    return write_file_atomically(*path, to_text(learned), Overwrite::Allow);
  }
  return {};
}

void add_calibration(text::Document& document, const Executed& executed) {
  const MachineTables* tables = executed.given.cluster.gpu.machine.of_ranks(executed.given.file.plan.mesh.world_size());
  if (!executed.calibration && tables == nullptr) return;
  text::Table table{.name = "times",
                    .columns = {{"time", "time"},
                                {"predicted", "predicted", true},
                                {"measured", "measured", true},
                                {"relative", "relative", true}}};
  for (const TimeResidual& time : runs::compare_times(executed.predicted.time, executed.measured.time)) {
    const double relative = time.measured > Seconds(0) ? time.predicted / time.measured - 1 : 0;
    table.rows.push_back({time.term, milliseconds(time.predicted), milliseconds(time.measured),
                          time.measured > Seconds(0) ? fmt::format("{:+.1f} %", relative * 100) : "none measured"});
  }
  document.push_back(std::move(table));
  if (tables != nullptr)
    document.push_back(text::Entry{.label = "times", .lines = {"predicted as " + describe(*tables)}});
  if (!executed.calibration) return;
  const Calibration& used = *executed.calibration;
  std::vector<std::string> lines = {used.source};
  if (used.device != executed.measured.gpu || used.ranks != executed.given.file.plan.mesh.world_size()) {
    lines.push_back(fmt::format("It is for {} with {}, but this run was on {}.", used.device,
                                text::counted(used.ranks, "rank"), executed.measured.gpu));
  }
  const std::string& here = executed.workspaces.measured_on;
  if (!used.workspaces.empty() && here != used.workspaces.measured_on) {
    lines.push_back(
        fmt::format("Its kernels' memory is that of {}, and this is {}.", used.workspaces.measured_on, here));
  }
  document.push_back(text::Entry{.label = "calibrated", .lines = std::move(lines)});
}

}  // namespace fsdp::command
