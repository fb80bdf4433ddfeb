#pragma once

// The clocks of a timeline, independent of instructions: the CPU that issues, the stream that computes, the collectives
// that it waits for, and the events of a chart. timeline.cpp puts each instruction on them.

#include <algorithm>
#include <cstddef>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "simulator/time/timeline.h"

namespace fsdp::simulator {

class Streams {
 protected:
  Streams(const TimelineInput& input, TimelineDetail* detail) : in_(input), detail_(detail) {}

  // Work of a CPU's computing thread beside ops.
  void work_on_host(std::size_t instruction) {
    if (in_.on_host == nullptr) return;
    const Seconds time = (*in_.on_host)[instruction];
    if (time == Seconds(0)) return;
    on_compute(time, Seconds(0), has_names() ? std::string(name_of(main_->kind)) : std::string());
  }

  // Threads of a CPU that move bytes take cores from those that compute.
  void share_cores(CollectiveKind kind, Seconds collective) {
    const double share = in_.compute_shares[static_cast<std::size_t>(kind)];
    if (in_.on_host == nullptr || share <= 0) return;
    on_compute(share * collective, Seconds(0), "beside a collective");
  }

  // On a CPU the computing thread issues its own work.
  void keep_pace() {
    if (in_.on_host != nullptr) cpu_ = compute_;
  }

  const ShardedUnit& unit_of(const Instruction& step) const { return in_.layout->units[step.unit]; }

  bool has_names() const { return detail_ != nullptr; }

  // The index of the new event; -1 if there is no detail, or if it takes no time. Omits waits on nothing (-1).
  int record(Stream stream, std::string_view name, Seconds start, Seconds end, std::initializer_list<int> waits) {
    if (detail_ == nullptr || end <= start) return -1;
    StreamEvent event{.stream = stream, .name = std::string(name), .start = start, .end = end};
    event.unit = unit_name(*main_);
    event.phase = main_->phase;
    event.instruction = static_cast<int>(detail_->instructions.size()) - 1;
    event.micro_batch = main_->micro_batch;
    for (const int other : waits) {
      if (other >= 0) event.waits_for.push_back(other);
    }
    detail_->events.push_back(std::move(event));
    return static_cast<int>(detail_->events.size()) - 1;
  }

  void carry(int event, StreamPayload payload) {
    if (event >= 0) detail_->events[event].payload = payload;
  }

  // The unit of an instruction, or the innermost one around the module that it runs.
  std::string unit_name(const Instruction& step) const {
    if (step.unit >= 0) return unit_of(step).name;
    if (step.call < 0) return {};
    const int module = in_.index->model->calls[step.call].module;
    for (const ShardedUnit& unit : in_.layout->units) {
      const auto holds = [&](int m) { return module >= 0 && in_.index->contains(m, module); };
      if (std::any_of(unit.modules.begin(), unit.modules.end(), holds)) return unit.name;
    }
    return {};
  }

  // Work on the compute stream that the CPU needs `cpu` to issue.
  void on_compute(Seconds device, Seconds cpu, std::string_view name) {
    const Seconds start = std::max(compute_, cpu_);
    cpu_ += cpu;
    compute_ = std::max(start + device, cpu_);
    keep_pace();
    result_.compute += device;
    if (const int event = record(Stream::Compute, name, start, compute_, {}); event >= 0) {
      detail_->events[event].waits_for = std::move(compute_waits_);
      compute_waits_.clear();
      compute_event_ = event;
    }
  }

  // The next work on the compute stream comes after an event.
  void wait_for_event(int event) {
    if (event >= 0) compute_waits_.push_back(event);
  }

  // The compute stream waits for a collective until then.
  void expose(Seconds until, std::size_t slot, int event) {
    wait_for_event(event);
    if (until <= compute_) return;
    if (event >= 0) detail_->events[event].exposed += until - compute_;
    result_.exposed += until - compute_;
    result_.exposed_of_collective[slot] += until - compute_;
    compute_ = until;
    keep_pace();
  }

  std::size_t new_collective() {
    result_.exposed_of_collective.push_back(Seconds(0));
    return result_.exposed_of_collective.size() - 1;
  }

  StreamPayload payload(CollectiveKind kind, Dtype dtype, Bytes bytes, const RankGroup& ranks) const {
    return {kind, dtype, bytes, dimension_of(ranks), in_.layout->mesh.size(ranks)};
  }

  const TimelineInput& in_;
  TimelineDetail* detail_;             // May be nullptr.
  const Instruction* main_ = nullptr;  // The current action's instruction.
  TimelineResult result_;
  Seconds cpu_{0}, compute_{0};
  int compute_event_ = -1;  // The last one; -1 for none, or for one that took no time.

 private:
  std::vector<int> compute_waits_;
};

}  // namespace fsdp::simulator
