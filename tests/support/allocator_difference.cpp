#include "tests/support/allocator_difference.h"

#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <set>
#include <sstream>

#include "tests/support/allocator_any_trace.h"
#include "tests/support/allocator_real.h"

namespace fsdp::simulator {

namespace {

using Kind = AllocatorDifference::Kind;

constexpr std::int64_t kStepsBetweenMaps = 8;
constexpr std::size_t kMostText = 4000;

/// What comes back from the process of a trace.
struct Message {
  Kind kind = Kind::None;
  std::int64_t num_steps = 0;
  std::int64_t num_ooms = 0;
  std::int64_t num_retries = 0;
  std::array<char, kMostText> text{};
};

/// PyTorch ends the waits of several streams in the order of a hash table. On it depend the sums and the peak of
/// inactive_split, and which request a free block, melted from several, remembers; but no current value.
void forget_order_of_streams(AllocatorState& state) {
  for (AllocatorStats* stats : {&state.statistics.inactive_split, &state.statistics.inactive_split_bytes}) {
    for (AllocatorStat* stat : {&stats->all, &stats->small, &stats->large}) {
      *stat = {.current = stat->current};
    }
  }
  for (SegmentSnapshot& segment : state.segments) {
    for (BlockSnapshot& block : segment.blocks) {
      if (block.state == SnapshotState::Free) block.requested = Bytes(0);
    }
  }
}

class Comparison {
 public:
  explicit Comparison(const AllocatorTrace& trace) : trace_(trace), real_(trace), ours_(trace) {}

  Message run() {
    for (const TraceStep& step : trace_.steps) {
      note_streams(step);
      const std::optional<StepResult> expected = real_.result_of(step);
      if (!expected) {
        message_.kind = Kind::OriginalStopped;
        break;
      }
      const StepResult actual = ours_.result_of(step);
      const bool is_last = &step == &trace_.steps.back();
      const std::string difference = compare(step, *expected, actual, is_last);
      if (!difference.empty()) {
        message_.kind = Kind::Differs;
        const std::string text = fmt::format("step {}, \"{}\":\n{}", message_.num_steps, text_of(step), difference);
        std::copy_n(text.begin(), std::min(text.size(), kMostText - 1), message_.text.begin());
        break;
      }
      ++message_.num_steps;
    }
    message_.num_ooms = ours_.allocator().statistics().num_ooms;
    message_.num_retries = ours_.allocator().statistics().num_alloc_retries;
    return message_;
  }

 private:
  void note_streams(const TraceStep& step) {
    if (step.operation == TraceOperation::RecordStream) streams_.insert(step.stream);
  }

  std::string text_of(const TraceStep& step) const {
    AllocatorTrace one = trace_;
    one.steps = {step};
    std::string text = to_text(one);
    text.pop_back();
    return text.substr(text.rfind('\n') + 1);
  }

  std::string compare(const TraceStep& step, const StepResult& expected, const StepResult& actual, bool is_last) {
    AllocatorState real{.statistics = real_.statistics(), .driver_calls = {}, .segments = {}};
    AllocatorState ours{.statistics = ours_.allocator().statistics(), .driver_calls = {}, .segments = {}};
    if (is_last || message_.num_steps % kStepsBetweenMaps == 0) {
      real = real_.state();
      ours = state_of(ours_.allocator());
    }
    if (streams_.size() > 1) {
      forget_order_of_streams(real);
      forget_order_of_streams(ours);
    }
    const bool is_same = expected == actual && real.statistics == ours.statistics &&
                         real.driver_calls == ours.driver_calls && real.device_used == ours.device_used &&
                         real.segments == ours.segments;
    if (is_same) return {};
    const auto lines = [&](const StepResult& result, const AllocatorState& state) {
      std::string text = result_text(step.operation, result, state.statistics) + "\n" + summary_text(state);
      for (const SegmentSnapshot& segment : state.segments) {
        for (const BlockSnapshot& block : segment.blocks) {
          text += fmt::format("block {:x} requested {}\n", block.address, block.requested.count());
        }
      }
      text += fmt::format("oversize peaks {} {}\n", state.statistics.oversize_allocations.peak,
                          state.statistics.oversize_segments.peak);
      return text;
    };
    std::istringstream expected_lines(lines(expected, real));
    std::istringstream actual_lines(lines(actual, ours));
    std::string wanted;
    std::string got;
    while (wanted == got && (std::getline(expected_lines, wanted) || std::getline(actual_lines, got))) {
      std::getline(actual_lines, got);
    }
    return fmt::format("  PyTorch {}\n  ours    {}\n", wanted, got);
  }

  const AllocatorTrace& trace_;
  RealAllocator real_;
  AllocatorReplay ours_;
  Message message_;
  std::set<std::int16_t> streams_;  ///< With a record_stream.
};

/// What `work` gives in a process of its own; nothing if that did not come to its end.
template <class Answer, class Work>
std::optional<Answer> in_own_process(Work work) {
  int ends[2] = {};
  if (::pipe(ends) != 0) return std::nullopt;
  const pid_t child = ::fork();
  if (child == 0) {
    const Answer answer = work();
    const auto written = ::write(ends[1], &answer, sizeof answer);
    ::_exit(written == static_cast<ssize_t>(sizeof answer) ? 0 : 1);
  }
  ::close(ends[1]);
  Answer answer{};
  std::size_t received = 0;
  while (received < sizeof answer) {
    const auto more = ::read(ends[0], reinterpret_cast<char*>(&answer) + received, sizeof answer - received);
    if (more <= 0) break;
    received += static_cast<std::size_t>(more);
  }
  ::close(ends[0]);
  ::waitpid(child, nullptr, 0);
  if (received < sizeof answer) return std::nullopt;
  return answer;
}

}  // namespace

AllocatorDifference difference_of(const AllocatorTrace& trace) {
  const auto message = in_own_process<Message>([&] { return Comparison(trace).run(); });
  if (!message) return {.kind = Kind::Differs, .text = "the process of the trace died"};
  return {.kind = message->kind,
          .num_steps = message->num_steps,
          .num_ooms = message->num_ooms,
          .num_retries = message->num_retries,
          .text = message->text.data()};
}

std::optional<std::uint64_t> digest_of_original(const AllocatorTrace& trace) {
  if (difference_of(trace).kind == Kind::OriginalStopped) return std::nullopt;
  return in_own_process<std::uint64_t>([&] {
    RealAllocator allocator(trace);
    return digest_of(trace, runner_of(allocator));
  });
}

AllocatorTrace shortest_with_difference(AllocatorTrace trace) {
  const auto differs = [](const AllocatorTrace& each) { return difference_of(each).kind == Kind::Differs; };
  // Nothing after the first difference matters; then ever smaller runs of steps are left out.
  const auto first = static_cast<std::size_t>(difference_of(trace).num_steps) + 1;
  if (first < trace.steps.size()) trace.steps.resize(first);
  for (std::size_t length = std::max<std::size_t>(1, trace.steps.size() / 2);; length /= 2) {
    for (std::size_t end = trace.steps.size(); end > 0;) {
      const std::size_t begin = end > length ? end - length : 0;
      std::vector<TraceStep> steps = trace.steps;
      steps.erase(steps.begin() + static_cast<std::ptrdiff_t>(begin), steps.begin() + static_cast<std::ptrdiff_t>(end));
      AllocatorTrace shorter = with_steps(trace, std::move(steps));
      end = begin;
      if (!differs(shorter)) continue;
      trace = std::move(shorter);
      end = std::min(end, trace.steps.size());
    }
    if (length <= 1) return trace;
  }
}

}  // namespace fsdp::simulator
