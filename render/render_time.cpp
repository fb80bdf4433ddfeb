#include "render/render_time.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "core/base/json_writer.h"
#include "core/base/parse_units.h"
#include "core/report/report_names.h"
#include "render/choice_words.h"
#include "render/render_report.h"
#include "text/figures.h"

namespace fsdp::render {

namespace {

double share_of(Seconds time, Seconds step) {
  return step > Seconds(0) ? time / step : 0;
}

std::string percent_of_step(double share) {
  return fmt::format("{:.1f} %", 100 * share);
}

/// "28 all-gathers of model.layers.*"
std::string name_of_wait(const planner::Wait& wait) {
  const bool one = wait.count == 1;
  const std::string of = wait.units.empty() ? "the root" : wait.units;
  switch (wait.stream) {
    case Stream::AllGather:
      return fmt::format("{} {} of {}", wait.count, one ? "all-gather" : "all-gathers", of);
    case Stream::ReduceScatter:
      return fmt::format("{} {} of {}", wait.count, one ? "reduce-scatter" : "reduce-scatters", of);
    case Stream::AllReduce:
      return fmt::format("{} {} of {}", wait.count, one ? "all-reduce" : "all-reduces", of);
    case Stream::Copy:
    case Stream::ToHost:
      return fmt::format("{} {} to the host: {}", wait.count, one ? "copy" : "copies", of);
    case Stream::Compute:
      break;
  }
  return of;
}

std::string_view others_of(Stream stream) {
  switch (stream) {
    case Stream::AllGather:
      return "all-gathers";
    case Stream::ReduceScatter:
      return "reduce-scatters";
    case Stream::AllReduce:
      return "all-reduces";
    case Stream::Copy:
      return "copies of shards";
    case Stream::ToHost:
      return "copies of gradients to the host";
    case Stream::Compute:
      break;
  }
  return "compute";
}

std::string cause_of(const planner::Wait& wait) {
  const Seconds each = wait.taken / static_cast<double>(wait.count);
  const Seconds hidden = std::max(Seconds(0), wait.taken - (wait.exposed - wait.queued));
  const std::string takes = fmt::format("{} {}", format_time(each), wait.count == 1 ? "long" : "each");
  if (wait.queued > 0.5 * wait.exposed) {
    const auto most = std::max_element(wait.queued_behind.begin(), wait.queued_behind.end());
    if (*most <= Seconds(0)) return fmt::format("{}, issued late", takes);
    const auto stream = static_cast<Stream>(most - wait.queued_behind.begin());
    return fmt::format("{}, queued behind {}", takes, others_of(stream));
  }
  if (hidden < 0.05 * wait.taken) return fmt::format("{}, with nothing to compute beside it", takes);
  return fmt::format("{}, {} of it beside compute", takes, percent_of_step(hidden / wait.taken));
}

/// The change that removes the wait, with its price.
std::string change_of(const StepReport& report, const planner::ExplainedWait& explained) {
  if (!explained.change) return "no tried change makes it shorter";
  const planner::Remedy& remedy = explained.change->remedy;
  std::string text = fmt::format("{} ({}): {} left, -{} a step", remedy.what, flags_of(remedy.change),
                                 format_time(explained.change->exposed), format_time(-remedy.delta_time));
  text += fmt::format(", {}", format_bytes(report.memory.peaks.device + remedy.delta_bytes));
  if (remedy.verdict != Verdict::Fits) text += ", does not fit";
  if (remedy.is_tight) text += ", without room to spare";
  return text;
}

text::Table uses_table(const planner::TimeAccount& account) {
  text::Table table{
      .name = "goes", .columns = {{"time", "seconds", true}, {"of step", "share", true}, {"into", "use"}}, .rows = {}};
  for (int use = 0; use < planner::kNumTimeUses; ++use) {
    const Seconds time = account.uses[static_cast<std::size_t>(use)];
    const double share = share_of(time, account.step);
    if (share < 0.0005) continue;
    table.rows.push_back({text::cell(time), text::Cell{percent_of_step(share), shortest(share)},
                          std::string(name_of(static_cast<planner::TimeUse>(use)))});
  }
  return table;
}

void write_wait(JsonWriter& json, const planner::ExplainedWait& explained) {
  const planner::Wait& wait = explained.wait;
  json.begin_object();
  json.member("stream", name_of(wait.stream));
  json.member("phase", name_of(wait.phase));
  json.member("units", wait.units);
  json.member("count", wait.count);
  json.member("exposed_seconds", wait.exposed.count());
  json.member("taken_seconds", wait.taken.count());
  json.member("queued_seconds", wait.queued.count());
  json.member("cause", cause_of(wait));
  json.key("change");
  if (explained.change) {
    const planner::Remedy& remedy = explained.change->remedy;
    json.begin_object();
    json.member("what", remedy.what);
    json.member("flag", flags_of(remedy.change));
    json.member("exposed_seconds", explained.change->exposed.count());
    json.member("delta_seconds", remedy.delta_time.count());
    json.member("delta_bytes", remedy.delta_bytes.count());
    json.member("verdict", name_of(remedy.verdict));
    if (remedy.is_tight) json.member("tight", true);
    json.end_object();
  } else {
    json.value(nullptr);
  }
  json.end_object();
}

}  // namespace

text::Document document_of(const StepReport& report, const planner::TimeExplanation& explanation) {
  const planner::TimeAccount& account = explanation.account;
  const Seconds waits = account.uses[static_cast<std::size_t>(planner::TimeUse::Collectives)];
  text::Document document = {
      text::Entry{.label = "STEP",
                  .lines = {fmt::format("{} ({}), of which the GPU waits {} for collectives and {} for the CPU",
                                        format_time(account.step), band_of(report.time),
                                        percent_of_step(share_of(waits, account.step)),
                                        percent_of_step(share_of(account.launches, account.step)))}},
      uses_table(account)};
  int number = 0;
  for (const planner::ExplainedWait& explained : explanation.waits) {
    const planner::Wait& wait = explained.wait;
    document.push_back(text::Entry{.label = fmt::format("wait {}", ++number),
                                   .lines = {fmt::format("{} ({}) in the {}: {}", format_time(wait.exposed),
                                                         percent_of_step(share_of(wait.exposed, account.step)),
                                                         name_of(wait.phase), name_of_wait(wait)),
                                             cause_of(wait), change_of(report, explained)}});
  }
  if (explanation.waits.empty()) {
    document.push_back(text::Entry{.label = "waits", .lines = {"The GPU waits for no collective."}});
  } else {
    document.push_back(
        text::Entry{.label = "note",
                    .lines = {"Each change is predicted by itself, in this plan, and may help several waits. "
                              "Collectives are not slowed by compute beside them, nor compute by them."}});
  }
  return document;
}

std::string to_json(const StepReport& report, const planner::TimeExplanation& explanation) {
  const planner::TimeAccount& account = explanation.account;
  JsonWriter json;
  json.begin_object();
  json.member("format_version", "1.0");
  json.member("kind", "time");
  json.member("model", report.model);
  json.member("step_seconds", account.step.count());
  json.member("low_seconds", report.time.low.count());
  if (report.time.without_cost.empty()) json.member("high_seconds", report.time.high.count());
  json.member("waits_for_cpu_seconds", account.launches.count());
  json.key("goes");
  json.begin_object();
  for (int use = 0; use < planner::kNumTimeUses; ++use) {
    json.member(name_of(static_cast<planner::TimeUse>(use)), account.uses[static_cast<std::size_t>(use)].count());
  }
  json.end_object();
  json.key("waits");
  json.begin_array();
  for (const planner::ExplainedWait& explained : explanation.waits) write_wait(json, explained);
  json.end_array();
  json.end_object();
  return std::move(json).take();
}

}  // namespace fsdp::render
