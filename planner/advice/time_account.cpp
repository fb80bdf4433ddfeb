// The account of a step, from the events of its timeline.
//
//     step = forward + recomputation + backward + copies + clipping + optimizer    the events of the compute stream
//          + exposed communication                                                 its waits
//          + launches                                                              the remaining gaps
//
// A wait ends with the event that it waits for. It is `exposed` long, so
//
//     begin  = end - exposed
//     queued = max(0, start - begin)      the event had not begun: others ran on its stream or before
//     hidden = taken - (exposed - queued) the event ran beside compute
//
// We merge waits of one stream and phase for units whose names differ by numbers alone.
//
// Not modeled: a shorter wait lets a later one begin earlier. The effect of a change of the plan is predicted anew
// (planner/advice/time_changes.cpp).

#include "planner/advice/time_account.h"

#include <algorithm>
#include <initializer_list>
#include <tuple>

#include "core/base/name_pattern.h"

namespace fsdp::planner {

namespace {

bool begins_with_any(std::string_view name, std::initializer_list<std::string_view> beginnings) {
  return std::any_of(beginnings.begin(), beginnings.end(),
                     [&](std::string_view each) { return name.starts_with(each); });
}

TimeUse use_of(const StreamEvent& event) {
  if (event.name == "recompute") return TimeUse::Recompute;
  if (event.name == "clip_grad_norm") return TimeUse::Clip;
  if (begins_with_any(event.name, {"copy-out ", "copy-in ", "copy into ", "copy out of ", "accumulate ", "flatten "})) {
    return TimeUse::Copies;
  }
  if (event.phase == StepPhase::Forward) return TimeUse::Forward;
  return event.phase == StepPhase::Backward ? TimeUse::Backward : TimeUse::Optimizer;
}

/// "model.layers.*", "bucket *": the names of repeated events differ by a number.
std::string units_of(const StreamEvent& event) {
  const std::size_t space = event.name.rfind(' ');
  if (event.name.starts_with("bucket ") && space != std::string::npos) return event.name.substr(0, space) + " *";
  return without_numbers(event.name);
}

void add_wait(const std::vector<StreamEvent>& events, std::size_t place, Wait& wait) {
  const StreamEvent& event = events[place];
  ++wait.count;
  wait.exposed += event.exposed;
  wait.taken += event.end - event.start;
  const Seconds begin = event.end - event.exposed;
  if (event.start <= begin) return;
  wait.queued += event.start - begin;
  // The current event of a stream is not far back in the order of issue.
  constexpr std::size_t kMostBehind = 256;
  for (std::size_t e = place - std::min(place, kMostBehind); e < place; ++e) {
    const StreamEvent& other = events[e];
    if (other.stream == Stream::Compute) continue;
    const Seconds both = std::min(other.end, event.start) - std::max(other.start, begin);
    if (both > Seconds(0)) wait.queued_behind[static_cast<std::size_t>(other.stream)] += both;
  }
}

}  // namespace

std::string_view name_of(TimeUse use) {
  static constexpr std::array<std::string_view, kNumTimeUses> kNames = {
      "forward",   "recomputation",           "backward",           "copies for collectives", "gradient clipping",
      "optimizer", "waiting for collectives", "waiting for the CPU"};
  return kNames[static_cast<std::size_t>(use)];
}

TimeAccount account_of(const simulator::StepTimeline& timeline) {
  TimeAccount account{.step = timeline.step};
  Seconds left = timeline.step - timeline.exposed_communication;
  for (std::size_t e = 0; e < timeline.events.size(); ++e) {
    const StreamEvent& event = timeline.events[e];
    if (event.stream == Stream::Compute) {
      account.uses[static_cast<std::size_t>(use_of(event))] += event.end - event.start;
      left -= event.end - event.start;
    }
    if (event.exposed <= Seconds(0)) continue;
    const auto is_same = [&, units = units_of(event)](const Wait& wait) {
      return wait.stream == event.stream && wait.phase == event.phase && wait.units == units;
    };
    auto known = std::find_if(account.waits.begin(), account.waits.end(), is_same);
    if (known == account.waits.end()) {
      account.waits.push_back({.stream = event.stream, .phase = event.phase, .units = units_of(event)});
      known = account.waits.end() - 1;
    }
    add_wait(timeline.events, e, *known);
  }
  account.uses[static_cast<std::size_t>(TimeUse::Collectives)] = timeline.exposed_communication;
  account.uses[static_cast<std::size_t>(TimeUse::Launches)] = std::max(Seconds(0), left);
  account.launches = std::max(Seconds(0), timeline.step - timeline.compute - timeline.exposed_communication);
  std::stable_sort(account.waits.begin(), account.waits.end(),
                   [](const Wait& a, const Wait& b) { return a.exposed > b.exposed; });
  return account;
}

Seconds exposed_of(const TimeAccount& account, const Wait& wait) {
  for (const Wait& other : account.waits) {
    if (std::tie(other.stream, other.phase, other.units) == std::tie(wait.stream, wait.phase, wait.units)) {
      return other.exposed;
    }
  }
  return Seconds(0);
}

}  // namespace fsdp::planner
