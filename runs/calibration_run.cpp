// Each plan is a run of its own: a rank that fails takes nothing with it, and what is done is done. After each the
// partial file is replaced as a whole. It has the names of what is done, and the tables so far; the command removes it
// when everything is in the cluster file.
//
// Other programs make a run longer and never shorter. What they used of the cores meanwhile is the CPU time of the
// whole machine less that of the run; a run that they disturbed is made again, and of each time the shortest stays.
// What the host of a virtual machine does besides shows nowhere in it, and can slow it for minutes: so while there is
// time all runs are made again, one round after the other.

#include "runs/calibration_run.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <system_error>

#include "core/base/files.h"
#include "core/base/json_writer.h"
#include "core/base/object_reader.h"
#include "core/plan/plan_file.h"
#include "runs/execute_ranks.h"
#include "runs/rehearse_run.h"
#include "text/progress_line.h"

namespace fsdp::planner {

namespace {

constexpr std::string_view kPartialVersion = "1.0";
constexpr int kSteps = 12;            // Of which the first two are left out.
constexpr int kMostAttempts = 3;      // Of a run that others disturbed.
constexpr double kQuietCores = 0.15;  // What others may use meanwhile.

struct Partial {
  std::string key;
  std::vector<std::string> done;
  std::vector<MachineTables> machine;
};

Result<Partial> read_partial(const std::string& path) {
  FSDP_TRY(const JsonDocument document, read_json_file(path));
  JsonErrors errors(document);
  ObjectReader object(document.root, errors);
  Partial partial;
  std::string version;
  if (object.required("format_version", version) && version != kPartialVersion) {
    object.fail("format_version", fmt::format("Version {} is not known.", json_quoted(version)),
                "Remove it to begin anew.");
  }
  object.required("key", partial.key);
  object.required("done", partial.done);
  object.required("machine", partial.machine);
  object.finish();
  return std::move(errors).result(std::move(partial));
}

Result<void> write_partial(const std::string& path, const Partial& partial) {
  JsonWriter json;
  json.begin_object();
  json.member("format_version", kPartialVersion);
  json.member("key", partial.key);
  json.member("done", partial.done);
  json.key("machine");
  json.begin_array();
  for (const MachineTables& tables : partial.machine) write_json(tables, json);
  json.end_array();
  json.end_object();
  return write_file_atomically(path, std::move(json).take(), Overwrite::Allow);
}

Result<Partial> begin_partial(const CalibrationSettings& settings) {
  Partial partial{.key = settings.key};
  std::error_code ignored;
  if (!std::filesystem::exists(settings.partial, ignored)) return partial;
  FSDP_TRY(Partial found, read_partial(settings.partial));
  if (found.key == settings.key) return found;
  return failure(settings.partial,
                 fmt::format("This unfinished calibration is of {}, and not of {}.", found.key, settings.key),
                 "Remove it to begin anew, or write another file.");
}

void add_tables(std::vector<MachineTables>& machine, MachineTables tables) {
  for (MachineTables& known : machine) {
    if (known.ranks != tables.ranks) continue;
    merge(known, tables);
    known.measured_at = tables.measured_at;
    known.load = std::max(known.load, tables.load);
    known.spent += tables.spent;
    return;
  }
  machine.push_back(std::move(tables));
  std::sort(machine.begin(), machine.end(),
            [](const MachineTables& a, const MachineTables& b) { return a.ranks < b.ranks; });
}

Result<MachineTables> read_tables(const std::string& path) {
  FSDP_TRY(const JsonDocument document, read_json_file(path));
  JsonErrors errors(document);
  MachineTables tables;
  read_json(document.root, tables, errors);
  return std::move(errors).result(std::move(tables));
}

/// CPU time of all programs of this machine, and of those that this one has waited for.
struct CpuTimes {
  double all = 0;
  double own = 0;
};

CpuTimes cpu_times() {
  CpuTimes times;
  std::ifstream stat("/proc/stat");
  std::string name;
  double user = 0, nice = 0, system = 0, idle = 0, waiting = 0, interrupts = 0, soft = 0;
  stat >> name >> user >> nice >> system >> idle >> waiting >> interrupts >> soft;
  times.all = (user + nice + system + interrupts + soft) / static_cast<double>(sysconf(_SC_CLK_TCK));
  rusage usage{};
  getrusage(RUSAGE_CHILDREN, &usage);
  times.own = static_cast<double>(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
              1e-6 * static_cast<double>(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
  return times;
}

/// Nothing when somebody has ended it.
Result<std::optional<MachineTables>> run_item(const CalibrationItem& item, const CalibrationSettings& settings,
                                              const std::string& folder, int& interrupted_by,
                                              Supervision& supervision) {
  const std::string plan = folder + "/plan.json";
  const std::string measured = folder + "/measured.json";
  std::error_code ignored;
  for (const char* name : {"/store", "/0.log", "/measured.json"}) std::filesystem::remove(folder + name, ignored);
  const Result<void> written =
      write_file_atomically(plan, to_text(PlanFile{.plan = item.plan, .cluster = {}}), Overwrite::Allow);
  if (!written) return tl::unexpected(written.error());
  ExecutionSettings execution{.program = settings.program, .plan = plan, .ranks = item.plan.mesh.world_size()};
  execution.options = {"--steps", std::to_string(kSteps), "--measure", measured, "--nonfinite-loss", "continue"};
  if (item.with_collectives) execution.options.emplace_back("--measure-collectives");
  if (settings.on_gpus) execution.options.insert(execution.options.end(), {"--device", "cuda"});
  FSDP_TRY(const ExecutionOutcome outcome, execute_ranks(execution, folder, nullptr, supervision));
  interrupted_by = outcome.interrupted_by;
  if (interrupted_by != 0) return std::optional<MachineTables>();
  if (outcome.first_failed >= 0) return failure(item.name, outcome.message, "What was measured before is kept.");
  FSDP_TRY(MachineTables tables, read_tables(measured));
  return tables;
}

/// Runs an item until nobody disturbs it, a few times at most, and adds what it finds to the tables.
Result<void> measure_quietly(const CalibrationItem& item, const CalibrationSettings& settings,
                             const std::string& folder, const std::function<bool()>& is_over,
                             CalibrationOutcome& result, Partial& partial, Supervision& supervision) {
  for (int attempt = 0; attempt < kMostAttempts && result.interrupted_by == 0; ++attempt) {
    const CpuTimes before = cpu_times();
    const Seconds at = seconds_of_this_process();
    FSDP_TRY(std::optional<MachineTables> tables, run_item(item, settings, folder, result.interrupted_by, supervision));
    if (!tables) break;
    const CpuTimes after = cpu_times();
    const Seconds took = seconds_of_this_process() - at;
    tables->load = std::max(0., (after.all - before.all - (after.own - before.own)) / took.count());
    const bool is_quiet = tables->load <= kQuietCores;
    add_tables(partial.machine, *std::move(tables));
    if (is_quiet || is_over()) break;
  }
  return {};
}

}  // namespace

Result<CalibrationOutcome> run_calibration(const std::vector<CalibrationItem>& items,
                                           const CalibrationSettings& settings, Supervision& supervision) {
  FSDP_TRY(Partial partial, begin_partial(settings));
  FSDP_TRY(const TemporaryFolder folder, TemporaryFolder::make());
  CalibrationOutcome result;
  const Seconds began = seconds_of_this_process();
  const auto is_over = [&] { return seconds_of_this_process() - began >= settings.budget; };
  const auto is_done = [&](const CalibrationItem& item) {
    return std::find(partial.done.begin(), partial.done.end(), item.name) != partial.done.end();
  };
  result.found = static_cast<std::size_t>(std::count_if(items.begin(), items.end(), is_done));
  for (int round = 0; round < settings.rounds && !is_over() && result.interrupted_by == 0; ++round) {
    for (std::size_t i = 0; i < items.size() && !is_over(); ++i) {
      const CalibrationItem& item = items[i];
      if (round == 0 && is_done(item)) continue;
      if (settings.tell) {
        settings.tell(fmt::format("{}{} of {}: {} ({:.0f} of {:.0f} s)", round > 0 ? "again, " : "", i + 1,
                                  items.size(), item.name, (seconds_of_this_process() - began).count(),
                                  settings.budget.count()));
      }
      const auto measured = measure_quietly(item, settings, folder.path(), is_over, result, partial, supervision);
      if (!measured) return tl::unexpected(measured.error());
      if (result.interrupted_by != 0) break;
      if (!is_done(item)) partial.done.push_back(item.name);
      if (auto written = write_partial(settings.partial, partial); !written) return tl::unexpected(written.error());
    }
  }
  result.done = partial.done.size();
  result.machine = std::move(partial.machine);
  return result;
}

}  // namespace fsdp::planner
