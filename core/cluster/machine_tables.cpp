// Measured times of work on one machine, and the interpolation between them.
//
// Between two measured sizes the logarithm of a time is linear in that of the size, as in
// core/cluster/measurements.cpp. A table of one point holds at that size only. Work of several depths (attention over
// sequences of several lengths) uses the tables of the two depths around the requested one, and interpolates between
// them in the same way: tables of depth d0 < d < d1 give t0 and t1 at the requested size, and
//
//   log t = log t0 + (log d - log d0) / (log d1 - log d0) (log t1 - log t0).
//
// Outside of the measured range, the result is the nearest time and the distance to it, and the caller extrapolates by
// its formula.
//
// Source: the measurements (executor/calibrate/).
//
// Not modeled: sizes between the points at which a kernel switches its algorithm.

#include "core/cluster/machine_tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <tuple>

#include "core/base/object_fields.h"
#include "core/base/parse_units.h"

namespace fsdp {

namespace {

constexpr NotEmpty kStated{"There is no text.", "Describe it."};
constexpr RealRange kWorkSize{1e-3, 1e18};
constexpr RealRange kDepth{0, 1e12};
constexpr RealRange kWorkMicroseconds{1e-4, 1e12};
constexpr RealRange kLossShare{0, 1};
constexpr RealRange kLoad{0, 1e6};

void check_points(Fields& fields, const WorkTimes& times) {
  ObjectReader* object = fields.object();
  if (object == nullptr) return;
  const std::vector<double>& sizes = times.sizes;
  if (sizes.empty() || std::adjacent_find(sizes.begin(), sizes.end(), std::greater_equal<>()) != sizes.end()) {
    object->fail("sizes", "The sizes do not rise.", "Write at least one, each larger than the one before.");
  }
  const auto check_count = [&](std::string_view key, std::size_t found) {
    if (found == sizes.size()) return;
    object->fail(key, fmt::format("There are {} values for {} sizes.", found, sizes.size()), "Write one for each.");
  };
  check_count("microseconds", times.microseconds.size());
  if (!times.backward_microseconds.empty()) check_count("backward_microseconds", times.backward_microseconds.size());
}

void work_times_fields(Fields& fields, WorkTimes& times) {
  fields.required("work", "The measured work: an op with its dtype and parameters, a copy, a collective.", times.work,
                  kStated);
  fields.optional("depth", "The length of the sequence, for attention.", times.depth, kDepth);
  fields.required("sizes", "Elements of an op's inputs and outputs, or bytes; rising.", times.sizes, kWorkSize);
  fields.required("microseconds", "The time for each size; for an op, its forward.", times.microseconds,
                  kWorkMicroseconds);
  fields.optional("backward_microseconds", "The time of an op's backward for each size.", times.backward_microseconds,
                  kWorkMicroseconds);
  check_points(fields, times);
}

}  // namespace

static bool read_json(const JsonValue& value, WorkTimes& out, JsonErrors& errors) {
  ObjectReader object(value, errors);
  Fields fields(object);
  work_times_fields(fields, out);
  return object.finish();
}
static std::string schema_of(const WorkTimes& /*value*/) {
  return schema_of_fields([](Fields& fields) {
    WorkTimes times;
    work_times_fields(fields, times);
  });
}

namespace {

void machine_fields(Fields& fields, MachineTables& tables) {
  fields.required("ranks", "Processes that ran at once and shared the machine.", tables.ranks, kRanks);
  fields.required("threads", "The threads of each process, on a CPU.", tables.threads, IntegerRange{1, 4096});
  fields.required("device", "The driver's name of the device that computed.", tables.device, kStated);
  fields.required("processor", "The host's processor.", tables.processor, kStated);
  fields.required("libraries", "The libraries that ran, with versions.", tables.libraries, kStated);
  fields.required("model", "The model whose shapes were measured.", tables.model, kStated);
  fields.required("measured_at", "Date and time.", tables.measured_at, kStated);
  fields.required("spent", "The time that measuring took.", tables.spent);
  fields.required("load", "Cores that other programs used meanwhile, in the busiest run.", tables.load, kLoad);
  fields.optional("compute_share",
                  "The time that computing loses to a concurrent collective, as a share of the collective's time.",
                  tables.compute_share, kLossShare);
  fields.optional("context", "The memory of a GPU's context.", tables.context);
  fields.optional("communicator", "The memory of an NCCL communicator on a GPU.", tables.communicator);
  fields.optional("launch_microseconds", "The host's time to start one kernel on a GPU.", tables.launch_microseconds,
                  kWorkMicroseconds);
  fields.optional("host_to_gpu", "Copies from pinned memory to a GPU.", tables.host_to_gpu);
  fields.optional("gpu_to_host", "Copies from a GPU to pinned memory.", tables.gpu_to_host);
  fields.optional("ops", "Ops of the model.", tables.ops);
  fields.optional("actions", "The other work of a step: copies, reductions, the optimizer.", tables.actions);
  fields.optional("collectives", "Collectives by themselves and in steps; sizes are bytes of the whole buffer.",
                  tables.collectives);
}

bool is_before(const WorkTimes& a, const WorkTimes& b) {
  return std::tie(a.work, a.depth) < std::tie(b.work, b.depth);
}

// So that look_up can search files of any writer.
void sort_works(std::vector<WorkTimes>& times) {
  std::stable_sort(times.begin(), times.end(), is_before);
}

double log_between(double at, double low, double high, double log_low, double log_high) {
  if (!(high > low)) return log_low;
  const double part = std::log(at / low) / std::log(high / low);
  return log_low + part * (log_high - log_low);
}

struct LogTime {
  double value = 0;
  double beyond = 1;
};

std::optional<LogTime> log_time(const WorkTimes& times, double size, WorkDirection direction) {
  const std::vector<double>& values =
      direction == WorkDirection::Forward ? times.microseconds : times.backward_microseconds;
  if (values.empty()) return std::nullopt;
  const auto above = std::lower_bound(times.sizes.begin(), times.sizes.end(), size);
  const auto index = static_cast<std::size_t>(above - times.sizes.begin());
  if (above != times.sizes.end() && *above == size) return LogTime{std::log(values[index]), 1};
  if (index == 0) return LogTime{std::log(values.front()), size / times.sizes.front()};
  if (above == times.sizes.end()) return LogTime{std::log(values.back()), size / times.sizes.back()};
  return LogTime{log_between(size, times.sizes[index - 1], times.sizes[index], std::log(values[index - 1]),
                             std::log(values[index])),
                 1};
}

// The one of two distances that is farther from 1.
double farther(double a, double b) {
  return std::abs(std::log(a)) > std::abs(std::log(b)) ? a : b;
}

using Point = std::pair<double, double>;  // Forward, backward; a negative backward means none.
using Points = std::map<std::tuple<std::string, double>, std::map<double, Point>>;

void add_points(Points& points, const std::vector<WorkTimes>& tables) {
  for (const WorkTimes& times : tables) {
    auto& of_work = points[{times.work, times.depth}];
    for (std::size_t i = 0; i < times.sizes.size(); ++i) {
      const double backward = times.backward_microseconds.empty() ? -1 : times.backward_microseconds[i];
      const auto [known, is_new] = of_work.try_emplace(times.sizes[i], times.microseconds[i], backward);
      if (is_new) continue;
      Point& point = known->second;
      point.first = std::min(point.first, times.microseconds[i]);
      if (backward >= 0) point.second = point.second < 0 ? backward : std::min(point.second, backward);
    }
  }
}

std::vector<WorkTimes> merged(const std::vector<WorkTimes>& into, const std::vector<WorkTimes>& from) {
  Points points;
  add_points(points, into);
  add_points(points, from);
  std::vector<WorkTimes> result;
  for (const auto& [key, of_work] : points) {
    WorkTimes times{.work = std::get<0>(key), .depth = std::get<1>(key)};
    const bool has_backward =
        std::all_of(of_work.begin(), of_work.end(), [](const auto& point) { return point.second.second >= 0; });
    for (const auto& [size, point] : of_work) {
      times.sizes.push_back(size);
      times.microseconds.push_back(point.first);
      if (has_backward) times.backward_microseconds.push_back(point.second);
    }
    result.push_back(std::move(times));
  }
  return result;
}

void write_works(JsonWriter& json, std::string_view key, const std::vector<WorkTimes>& tables) {
  if (tables.empty()) return;
  json.key(key);
  json.begin_array();
  for (const WorkTimes& times : tables) {
    json.begin_object(JsonLayout::OneLine);
    json.member("work", times.work);
    if (times.depth > 0) json.member("depth", times.depth);
    json.member("sizes", times.sizes);
    json.member("microseconds", times.microseconds);
    if (!times.backward_microseconds.empty()) json.member("backward_microseconds", times.backward_microseconds);
    json.end_object();
  }
  json.end_array();
}

}  // namespace

const MachineTables* MeasuredMachine::of_ranks(std::int64_t ranks) const {
  for (const MachineTables& each : tables()) {
    if (each.ranks == ranks) return &each;
  }
  return nullptr;
}

std::optional<LookedUp> look_up(const std::vector<WorkTimes>& tables, std::string_view work, double depth, double size,
                                WorkDirection direction) {
  const auto first = std::lower_bound(tables.begin(), tables.end(), work,
                                      [](const WorkTimes& times, std::string_view name) { return times.work < name; });
  const auto last = std::find_if(first, tables.end(), [&](const WorkTimes& times) { return times.work != work; });
  if (first == last || size <= 0) return std::nullopt;
  const auto above = std::find_if(first, last, [&](const WorkTimes& times) { return times.depth >= depth; });
  const auto& high = above == last ? *(last - 1) : *above;
  const auto& low = above == first || high.depth <= depth ? high : *(above - 1);
  const std::optional<LogTime> of_high = log_time(high, size, direction);
  const std::optional<LogTime> of_low = log_time(low, size, direction);
  if (!of_high || !of_low) return std::nullopt;
  const double log = low.depth == high.depth ? of_high->value
                                             : log_between(depth, std::max(low.depth, 1.), std::max(high.depth, 1.),
                                                           of_low->value, of_high->value);
  double beyond = farther(of_low->beyond, of_high->beyond);
  const bool is_between = low.depth <= depth && depth <= high.depth;
  if (!is_between && high.depth > 0 && depth > 0) beyond = farther(beyond, depth / high.depth);
  return LookedUp{Seconds(1e-6 * std::exp(log)), beyond};
}

void merge(MachineTables& into, const MachineTables& from) {
  into.ops = merged(into.ops, from.ops);
  into.actions = merged(into.actions, from.actions);
  into.collectives = merged(into.collectives, from.collectives);
  if (from.compute_share > 0) into.compute_share = from.compute_share;
  for (const auto member : {&MachineTables::context, &MachineTables::communicator}) {
    if (from.*member) into.*member = from.*member;
  }
  for (const auto member : {&MachineTables::host_to_gpu, &MachineTables::gpu_to_host}) {
    if (from.*member) into.*member = from.*member;
  }
  if (from.launch_microseconds) into.launch_microseconds = from.launch_microseconds;
}

std::string in_steps(std::string_view work) {
  return std::string(work) + " in steps";
}

std::string describe(const MachineTables& tables) {
  return fmt::format("measured on this machine by fsdp-plan calibrate, {} with {} {}, {}, {}", tables.device,
                     tables.ranks, tables.ranks == 1 ? "rank" : "ranks", tables.libraries, tables.measured_at);
}

bool read_json(const JsonValue& value, MachineTables& tables, JsonErrors& errors) {
  ObjectReader object(value, errors);
  Fields fields(object);
  machine_fields(fields, tables);
  const bool good = object.finish();
  for (std::vector<WorkTimes>* works : {&tables.ops, &tables.actions, &tables.collectives}) sort_works(*works);
  return good;
}

std::string schema_of(const MachineTables& /*value*/) {
  return schema_of_fields([](Fields& fields) {
    MachineTables tables;
    machine_fields(fields, tables);
  });
}

void write_json(const MachineTables& tables, JsonWriter& json) {
  json.begin_object();
  json.member("ranks", tables.ranks);
  json.member("threads", tables.threads);
  json.member("device", tables.device);
  json.member("processor", tables.processor);
  json.member("libraries", tables.libraries);
  json.member("model", tables.model);
  json.member("measured_at", tables.measured_at);
  json.member("spent", exact_time(tables.spent));
  json.member("load", tables.load);
  if (tables.compute_share > 0) json.member("compute_share", tables.compute_share);
  if (tables.context) json.member("context", exact_size(*tables.context));
  if (tables.communicator) json.member("communicator", exact_size(*tables.communicator));
  if (tables.launch_microseconds) json.member("launch_microseconds", *tables.launch_microseconds);
  if (tables.host_to_gpu) json.member("host_to_gpu", exact_bandwidth(*tables.host_to_gpu));
  if (tables.gpu_to_host) json.member("gpu_to_host", exact_bandwidth(*tables.gpu_to_host));
  write_works(json, "ops", tables.ops);
  write_works(json, "actions", tables.actions);
  write_works(json, "collectives", tables.collectives);
  json.end_object();
}

}  // namespace fsdp
