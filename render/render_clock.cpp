#include "render/render_clock.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "core/base/json_writer.h"
#include "core/base/parse_units.h"
#include "core/report/report_names.h"
#include "text/figures.h"

namespace fsdp::render {

namespace {

using simulator::TimedKernel;
using simulator::UncertaintyBand;

std::string name_of_kind(CollectiveKind kind) {
  return std::string(name_of(kCollectiveKindTable, kind));
}

Seconds time_of(const CollectiveClock& clock, Bytes total) {
  return simulator::collective_time(clock.cost, clock.kind, total);
}

/// "1.4 ms (1.33 ms to 1.54 ms)"
std::string with_band(Seconds time, UncertaintyBand band) {
  return fmt::format("{} ({} to {})", format_time(time), format_time(band.low * time), format_time(band.high * time));
}

BytesPerSecond rate_of(Bytes total, Seconds time) {
  return BytesPerSecond(static_cast<double>(total.count()) / time.count());
}

std::string signed_percent(double difference) {
  return fmt::format("{:+.1f} %", 100 * difference);
}

double difference_of(const CollectiveClock& clock, const ClockedSize& size) {
  return time_of(clock, size.total) / *size.measured - 1;
}

bool has_measured(const CollectiveClock& clock) {
  return !clock.sizes.empty() && clock.sizes.front().measured.has_value();
}

text::Cell bandwidth_cell(BytesPerSecond rate) {
  return {fmt::format("{:.3g}", 1e-9 * rate.count()), shortest(rate.count())};
}

text::Table sizes_table(const CollectiveClock& clock) {
  text::Table table{.name = "times",
                    .columns = {{"size", "bytes", true},
                                {"time", "time_seconds", true},
                                {"from", "low_seconds", true},
                                {"to", "high_seconds", true},
                                {"algbw GB/s", "algorithm_bandwidth", true},
                                {"busbw GB/s", "bus_bandwidth", true}}};
  for (const ClockedSize& size : clock.sizes) {
    const Seconds time = time_of(clock, size.total);
    const UncertaintyBand band = uncertainty(clock.cost, size.total);
    table.rows.push_back({text::cell(size.total), text::cell(time), text::cell(band.low * time),
                          text::cell(band.high * time), bandwidth_cell(rate_of(size.total, time)),
                          bandwidth_cell(bus_bandwidth(clock.kind, size.total, clock.cost.shape.ranks, time))});
  }
  return table;
}

text::Table comparison_table(const CollectiveClock& clock) {
  text::Table table{.name = "compared",
                    .columns = {{"size", "bytes", true},
                                {"measured", "measured_seconds", true},
                                {"predicted", "time_seconds", true},
                                {"error", "relative_error", true},
                                {"in the band", "is_inside"}}};
  for (const ClockedSize& size : clock.sizes) {
    const Seconds time = time_of(clock, size.total);
    const UncertaintyBand band = uncertainty(clock.cost, size.total);
    const double error = difference_of(clock, size);
    const bool is_inside = *size.measured >= band.low * time && *size.measured <= band.high * time;
    table.rows.push_back({text::cell(size.total), text::cell(*size.measured), text::cell(time),
                          text::Cell{signed_percent(error), shortest(error)},
                          text::Cell{is_inside ? "yes" : "no", is_inside ? "true" : "false",
                                     is_inside ? text::Style::Plain : text::Style::Warning}});
  }
  return table;
}

/// "median error 2.1 %, largest +7.2 % at 16 MiB"
std::string errors_text(const CollectiveClock& clock) {
  std::vector<double> errors;
  const ClockedSize* worst = &clock.sizes.front();
  for (const ClockedSize& size : clock.sizes) {
    errors.push_back(std::abs(difference_of(clock, size)));
    if (errors.back() > std::abs(difference_of(clock, *worst))) worst = &size;
  }
  std::sort(errors.begin(), errors.end());
  const std::size_t middle = errors.size() / 2;
  const double median = errors.size() % 2 == 1 ? errors[middle] : (errors[middle - 1] + errors[middle]) / 2;
  return fmt::format("{} of {} on {}: median error {:.1f} %, largest {} at {}",
                     text::counted(static_cast<std::int64_t>(errors.size()), "size"), name_of_kind(clock.kind),
                     clock.machine, 100 * median, signed_percent(difference_of(clock, *worst)),
                     format_bytes(worst->total));
}

text::Entry verdict_of(const CollectiveClock& clock) {
  if (has_measured(clock)) return {.label = "COMPARED", .lines = {errors_text(clock)}};
  if (clock.sizes.size() > 1) {
    return {.label = "TIME", .lines = {fmt::format("{} on {}", name_of_kind(clock.kind), clock.machine)}};
  }
  const Bytes total = clock.sizes.front().total;
  const Seconds time = time_of(clock, total);
  const BytesPerSecond bus = bus_bandwidth(clock.kind, total, clock.cost.shape.ranks, time);
  return {.label = "TIME",
          .lines = {with_band(time, uncertainty(clock.cost, total)),
                    fmt::format("{} of {} on {}, {:.3g} GB/s algorithm bandwidth, {:.3g} GB/s bus bandwidth",
                                name_of_kind(clock.kind), format_bytes(total), clock.machine,
                                1e-9 * rate_of(total, time).count(), 1e-9 * bus.count())}};
}

void write_band(JsonWriter& json, Seconds time, UncertaintyBand band) {
  json.member("time_seconds", time.count());
  json.member("low_seconds", band.low * time.count());
  json.member("high_seconds", band.high * time.count());
}

void write_timed(JsonWriter& json, std::string_view key, const TimedKernel& timed) {
  json.key(key);
  json.begin_object();
  write_band(json, timed.time, timed.band);
  json.member("source", timed.source);
  json.end_object();
}

void write_head(JsonWriter& json) {
  json.begin_object();
  json.member("format_version", "1.0");
  json.member("kind", "clock");
}

}  // namespace

BytesPerSecond bus_bandwidth(CollectiveKind kind, Bytes total, int ranks, Seconds time) {
  const double once = kind == CollectiveKind::Broadcast ? 1 : static_cast<double>(ranks - 1) / ranks;
  const double factor = kind == CollectiveKind::AllReduce ? 2 * once : once;
  return BytesPerSecond(factor * rate_of(total, time).count());
}

text::Document document_of(const CollectiveClock& clock, bool only_verdict) {
  text::Document document = {verdict_of(clock)};
  if (only_verdict) return document;
  const bool is_one = clock.sizes.size() == 1 && !has_measured(clock);
  text::Table table = has_measured(clock) ? comparison_table(clock) : sizes_table(clock);
  table.only_for_scripts = is_one;
  document.emplace_back(std::move(table));
  document.emplace_back(text::Entry{.label = "source", .lines = {clock.cost.provenance}});
  if (!clock.assumptions.empty()) document.emplace_back(text::Entry{.label = "assume", .lines = clock.assumptions});
  return document;
}

text::Document document_of(const KernelClockAnswer& answer, bool only_verdict) {
  const simulator::KernelClock& clock = answer.clock;
  const auto rate = [&](const TimedKernel& timed) {
    return format_flops_rate(FlopsPerSecond(clock.work.count() / timed.time.count()));
  };
  text::Document document = {
      text::Entry{.label = "TIME",
                  .lines = {with_band(clock.alone.time, clock.alone.band),
                            fmt::format("{} on {}, {}", answer.what, answer.machine, rate(clock.alone))}}};
  if (only_verdict) return document;
  document.emplace_back(text::Entry{.label = "source", .lines = {clock.alone.source + "."}});
  if (clock.alone != clock.in_step) {
    document.emplace_back(
        text::Entry{.label = "in a step",
                    .lines = {fmt::format("{}, {}: {}", with_band(clock.in_step.time, clock.in_step.band),
                                          rate(clock.in_step), clock.in_step.source + ".")}});
  }
  text::Table table{.name = "times",
                    .columns = {{"what", "what"},
                                {"time", "time_seconds", true},
                                {"from", "low_seconds", true},
                                {"to", "high_seconds", true}},
                    .only_for_scripts = true};
  for (const auto& [name, timed] : {std::pair{"alone", &clock.alone}, std::pair{"in a step", &clock.in_step}}) {
    table.rows.push_back({name, text::cell(timed->time), text::cell(timed->band.low * timed->time),
                          text::cell(timed->band.high * timed->time)});
  }
  document.emplace_back(std::move(table));
  return document;
}

std::string to_json(const CollectiveClock& clock) {
  JsonWriter json;
  write_head(json);
  json.member("what", name_of_kind(clock.kind));
  json.member("machine", clock.machine);
  json.member("ranks", clock.cost.shape.ranks);
  json.member("source", clock.cost.provenance);
  json.member("assumptions", clock.assumptions);
  json.key("times");
  json.begin_array();
  for (const ClockedSize& size : clock.sizes) {
    const Seconds time = time_of(clock, size.total);
    json.begin_object(JsonLayout::OneLine);
    json.member("bytes", size.total.count());
    write_band(json, time, uncertainty(clock.cost, size.total));
    json.member("algorithm_bandwidth", rate_of(size.total, time).count());
    json.member("bus_bandwidth", bus_bandwidth(clock.kind, size.total, clock.cost.shape.ranks, time).count());
    if (size.measured) {
      json.member("measured_seconds", size.measured->count());
      json.member("relative_error", difference_of(clock, size));
    }
    json.end_object();
  }
  json.end_array();
  json.end_object();
  return std::move(json).take();
}

std::string to_json(const KernelClockAnswer& answer) {
  JsonWriter json;
  write_head(json);
  json.member("what", answer.what);
  json.member("machine", answer.machine);
  json.member("flops", answer.clock.work.count());
  write_timed(json, "alone", answer.clock.alone);
  write_timed(json, "in_step", answer.clock.in_step);
  json.end_object();
  return std::move(json).take();
}

}  // namespace fsdp::render
