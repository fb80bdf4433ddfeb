// Each plan is a run of its own, so that a failed rank loses nothing else, and finished runs stay finished. After each
// run the partial file, which has the finished runs with their tables, is replaced as a whole. The command removes it
// when everything is in the cluster file.
//
// Other programs only make a run longer. Their use of the cores is the CPU time of the whole machine minus that of the
// run; disturbed runs are repeated. Work of a virtual machine's host is invisible in it, and can slow the machine for
// minutes: so while there is time, all runs are repeated, one round after the other. For each run the fastest total
// time wins, because the shortest times of single ops would add up to a step that never ran.

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

namespace fsdp::runs {

namespace {

constexpr std::string_view kPartialVersion = "2.0";
constexpr int kSteps = 12;            // Without the first two.
constexpr int kMostAttempts = 3;      // For a disturbed run.
constexpr double kQuietCores = 0.15;  // Cores that other programs may use meanwhile.

struct Measured {
  std::string name;
  MachineTables tables;
};

bool read_json(const JsonValue& value, Measured& out, JsonErrors& errors) {
  ObjectReader object(value, errors);
  object.required("name", out.name);
  object.required("tables", out.tables);
  return object.finish();
}

struct Partial {
  std::string key;
  std::vector<Measured> done;
};

Measured* find(Partial& partial, const std::string& name) {
  const auto found =
      std::find_if(partial.done.begin(), partial.done.end(), [&](const Measured& each) { return each.name == name; });
  return found == partial.done.end() ? nullptr : &*found;
}

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
  object.finish();
  return std::move(errors).result(std::move(partial));
}

Result<void> write_partial(const std::string& path, const Partial& partial) {
  JsonWriter json;
  json.begin_object();
  json.member("format_version", kPartialVersion);
  json.member("key", partial.key);
  json.key("done");
  json.begin_array();
  for (const Measured& each : partial.done) {
    json.begin_object();
    json.member("name", each.name);
    json.key("tables");
    write_json(each.tables, json);
    json.end_object();
  }
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
                 fmt::format("This unfinished calibration is for {}, not for {}.", found.key, settings.key),
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

std::vector<MachineTables> machine_of(const Partial& partial) {
  std::vector<MachineTables> machine;
  for (const Measured& each : partial.done) add_tables(machine, each.tables);
  return machine;
}

/// Sum of all timed work, once each.
double sum_of_times(const MachineTables& tables) {
  double sum = 0;
  for (const std::vector<WorkTimes>* works : {&tables.ops, &tables.actions, &tables.collectives}) {
    for (const WorkTimes& times : *works) {
      for (const double each : times.microseconds) sum += each;
      for (const double each : times.backward_microseconds) sum += each;
    }
  }
  return sum;
}

/// Stores the faster of the present tables and `tables`.
void keep_faster(Partial& partial, const std::string& name, MachineTables tables) {
  Measured* known = find(partial, name);
  if (known == nullptr) {
    partial.done.push_back({name, std::move(tables)});
    return;
  }
  const Seconds spent = known->tables.spent + tables.spent;
  if (sum_of_times(tables) < sum_of_times(known->tables)) known->tables = std::move(tables);
  known->tables.spent = spent;
}

Result<MachineTables> read_tables(const std::string& path) {
  FSDP_TRY(const JsonDocument document, read_json_file(path));
  JsonErrors errors(document);
  MachineTables tables;
  read_json(document.root, tables, errors);
  return std::move(errors).result(std::move(tables));
}

/// CPU time of all programs of this machine, and of those that this process has waited for.
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

/// `nullopt` if the user ended it.
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
  ExecutionSettings execution{.words = {settings.program, plan}, .ranks = item.plan.mesh.world_size()};
  execution.options = {"--steps", std::to_string(kSteps), "--measure", measured, "--nonfinite-loss", "continue"};
  if (item.with_collectives) execution.options.emplace_back("--measure-collectives");
  if (settings.on_gpus) execution.options.insert(execution.options.end(), {"--device", "cuda"});
  FSDP_TRY(const ExecutionOutcome outcome, execute_ranks(execution, folder, nullptr, supervision));
  interrupted_by = outcome.interrupted_by;
  if (interrupted_by != 0) return std::optional<MachineTables>();
  if (outcome.first_failed >= 0) return failure(item.name, outcome.message, "Earlier measurements are kept.");
  FSDP_TRY(MachineTables tables, read_tables(measured));
  return tables;
}

/// Runs an item until it is undisturbed, a few times at most, and stores the fastest result.
Result<void> measure_quietly(const CalibrationItem& item, const CalibrationSettings& settings,
                             const std::string& folder, const std::function<bool()>& is_over,
                             CalibrationOutcome& result, Partial& partial, Supervision& supervision) {
  for (int attempt = 0; attempt < kMostAttempts && result.interrupted_by == 0; ++attempt) {
    const CpuTimes before = cpu_times();
    const Seconds at = text::seconds_of_this_process();
    FSDP_TRY(std::optional<MachineTables> tables, run_item(item, settings, folder, result.interrupted_by, supervision));
    if (!tables) break;
    const CpuTimes after = cpu_times();
    const Seconds took = text::seconds_of_this_process() - at;
    tables->load = std::max(0., (after.all - before.all - (after.own - before.own)) / took.count());
    const bool is_quiet = tables->load <= kQuietCores;
    keep_faster(partial, item.name, *std::move(tables));
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
  const Seconds began = text::seconds_of_this_process();
  const auto is_over = [&] { return text::seconds_of_this_process() - began >= settings.budget; };
  const auto is_done = [&](const CalibrationItem& item) { return find(partial, item.name) != nullptr; };
  result.found = static_cast<std::size_t>(std::count_if(items.begin(), items.end(), is_done));
  for (int round = 0; round < settings.rounds && !is_over() && result.interrupted_by == 0; ++round) {
    for (std::size_t i = 0; i < items.size() && !is_over(); ++i) {
      const CalibrationItem& item = items[i];
      if (round == 0 && is_done(item)) continue;
      if (settings.tell) {
        settings.tell(fmt::format("{}{} of {}: {} ({:.0f} of {:.0f} s)", round > 0 ? "again, " : "", i + 1,
                                  items.size(), item.name, (text::seconds_of_this_process() - began).count(),
                                  settings.budget.count()));
      }
      const auto measured = measure_quietly(item, settings, folder.path(), is_over, result, partial, supervision);
      if (!measured) return tl::unexpected(measured.error());
      if (result.interrupted_by != 0) break;
      if (auto written = write_partial(settings.partial, partial); !written) return tl::unexpected(written.error());
    }
  }
  result.done = partial.done.size();
  result.machine = machine_of(partial);
  return result;
}

}  // namespace fsdp::runs
