#include "tests/support/allocator_any_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <utility>

#include "simulator/allocator/allocator_sizes.h"

namespace fsdp::simulator {

namespace {

constexpr std::int64_t kKiB = 1 << 10;

/// SplitMix64: the same numbers everywhere, which the distributions of the standard library do not promise.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ULL + 1) {}

  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9E3779B97F4A7C15ULL;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }
  /// From 0 to n - 1.
  std::int64_t below(std::int64_t n) { return static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(n)); }
  std::int64_t between(std::int64_t low, std::int64_t high) { return low + below(high - low + 1); }
  bool one_in(std::int64_t n) { return below(n) == 0; }
  template <class List>
  auto pick(const List& list) {
    return *(std::begin(list) + below(static_cast<std::int64_t>(std::size(list))));
  }

 private:
  std::uint64_t state_;
};

std::string divisions(Random& random) {
  if (random.one_in(2)) return fmt::format("{}", 1 << random.below(6));
  std::string list;
  for (std::int64_t megabytes = 1 << random.below(4); megabytes <= 4096; megabytes <<= random.between(1, 4)) {
    list += fmt::format("{}{}:{}", list.empty() ? "" : ",", megabytes, random.one_in(5) ? 0 : 1 << random.below(6));
    if (random.one_in(3)) break;
  }
  if (random.one_in(2)) list += fmt::format(",>:{}", 1 << random.below(5));
  return "[" + list + "]";
}

/// What a whole trace is drawn with.
struct Character {
  std::int64_t num_streams = 1;
  std::int64_t most_live = 30;
  std::int64_t record_one_in = 0;  ///< 0: never.
  std::int64_t change_one_in = 0;  ///< Settings and memory fraction, while running.
  int sizes = 0;
  int lifetimes = 0;
};

class TraceMaker {
 public:
  explicit TraceMaker(std::uint64_t seed) : random_(seed), seed_(seed) {}

  AllocatorTrace make() {
    choose_device();
    trace_.settings_text = settings(true);
    trace_.settings = parse_allocator_settings(trace_.settings_text).value();
    choose_character();
    const std::int64_t num_steps = random_.between(20, 500);
    while (static_cast<std::int64_t>(trace_.steps.size()) < num_steps) step();
    if (random_.one_in(3)) add({.operation = TraceOperation::EmptyCache});
    return std::move(trace_);
  }

 private:
  void add(const TraceStep& step) { trace_.steps.push_back(step); }

  void choose_device() {
    // From hopeless to plenty, mostly such that it runs out now and then; not always a whole number of pages.
    constexpr std::int64_t kSizes[] = {40, 64, 100, 150, 200, 300, 500, 800, 1000, 1500, 2500, 4000, 80'000};
    trace_.device.total =
        Bytes(random_.pick(kSizes) * kMebibyte + (random_.one_in(4) ? random_.below(3 * kMebibyte) : 0));
    if (random_.one_in(6)) trace_.device.used_by_others = Bytes(random_.below(trace_.device.total.count() / 3));
    trace_.device.progress = random_.one_in(2) ? StreamProgress::OnDemand : StreamProgress::Instant;
  }

  std::string settings(bool at_start) {
    if (at_start && seed_ % 5 == 0) return "";
    std::string text;
    const auto put = [&](std::string_view key, const std::string& value) {
      text += fmt::format("{}{}:{}", text.empty() ? "" : ",", key, value);
    };
    if (random_.one_in(2)) put("expandable_segments", random_.one_in(at_start ? 5 : 2) ? "False" : "True");
    std::int64_t large = 20;
    if (at_start && random_.one_in(5)) {
      large = 2 * random_.between(6, 40);
      put("large_segment_size_mb", fmt::format("{}", large));
    }
    // Lowered while running, it can stop the original with an error of its own.
    if (at_start && random_.one_in(3)) put("max_split_size_mb", fmt::format("{}", large + random_.below(200)));
    if (random_.one_in(5)) put("max_non_split_rounding_mb", fmt::format("{}", large + random_.below(60)));
    if (random_.one_in(3)) put("roundup_power2_divisions", divisions(random_));
    if (random_.one_in(3)) {
      put("garbage_collection_threshold", fmt::format("{}", 0.05 * static_cast<double>(random_.between(1, 19))));
    }
    if (at_start && random_.one_in(3)) {
      put("per_process_memory_fraction", fmt::format("{}", 0.05 * static_cast<double>(random_.between(4, 20))));
    }
    if (text.empty()) put("expandable_segments", "False");
    return text;
  }

  void choose_character() {
    constexpr std::int64_t kLive[] = {3, 10, 30, 100, 300};
    character_.num_streams = random_.one_in(2) ? 1 : random_.between(2, 5);
    character_.most_live = random_.pick(kLive);
    if (random_.one_in(2)) character_.record_one_in = random_.between(1, 12);
    if (random_.one_in(4)) character_.change_one_in = random_.between(20, 100);
    character_.sizes = static_cast<int>(random_.below(7));
    character_.lifetimes = static_cast<int>(random_.below(4));
    for (int i = 0; i < 7; ++i) favorites_[i] = any_size(static_cast<int>(random_.below(5)));
  }

  std::int64_t any_size(int kind) {
    constexpr std::int64_t kEdges[] = {512,
                                       512 * 3,
                                       kMebibyte / 2,
                                       kMebibyte,
                                       2 * kMebibyte,
                                       10 * kMebibyte,
                                       12 * kMebibyte,
                                       20 * kMebibyte,
                                       22 * kMebibyte,
                                       32 * kMebibyte,
                                       64 * kMebibyte,
                                       128 * kMebibyte,
                                       kMebibyte + 512,
                                       11 * kMebibyte,
                                       19 * kMebibyte,
                                       40 * kMebibyte};
    switch (kind) {
      case 0:  // Over all orders of magnitude.
        return random_.between(1, std::int64_t{1} << random_.between(1, 27));
      case 1:  // Around what the rules name.
        return std::max<std::int64_t>(0, random_.pick(kEdges) + random_.between(-2, 2) * (random_.one_in(2) ? 1 : 512));
      case 2:
        return random_.between(1, 64 * kKiB);
      case 3:
        return random_.between(kMebibyte / 2, 30 * kMebibyte);
      case 4:
        return random_.between(8 * kMebibyte, 120 * kMebibyte);
      case 5:  // The same few again and again: many equal free blocks.
        return favorites_[random_.below(7)];
      default:
        return any_size(static_cast<int>(random_.below(6)));
    }
  }

  void step() {
    if (character_.change_one_in > 0 && random_.one_in(character_.change_one_in)) return change();
    if (random_.one_in(60)) return rare();
    const auto num_live = static_cast<std::int64_t>(live_.size());
    // It fills up, stays about full and is emptied, with a drain now and then as at the end of a step.
    if (draining_ > 0 && num_live > 0) {
      --draining_;
      return free_one();
    }
    if (random_.one_in(80)) draining_ = num_live;
    if (num_live == 0 || (num_live < character_.most_live && !random_.one_in(3)) || random_.one_in(4)) return malloc();
    if (character_.record_one_in > 0 && random_.one_in(character_.record_one_in)) {
      return add({.id = random_.pick(live_),
                  .stream = static_cast<std::int16_t>(random_.below(character_.num_streams + 1)),
                  .operation = TraceOperation::RecordStream});
    }
    free_one();
  }

  void malloc() {
    const std::int64_t bytes = random_.one_in(50) ? 0 : any_size(character_.sizes);
    const auto stream = static_cast<std::int16_t>(random_.below(character_.num_streams));
    live_.push_back(next_id_);
    add({.bytes = bytes, .id = next_id_++, .stream = stream, .operation = TraceOperation::Malloc});
  }

  void free_one() {
    const auto last = static_cast<std::int64_t>(live_.size()) - 1;
    const std::int64_t index = character_.lifetimes == 0   ? last
                               : character_.lifetimes == 1 ? 0
                               : character_.lifetimes == 2 ? random_.below(last + 1)
                                                           : last - random_.below(std::min<std::int64_t>(4, last + 1));
    add({.id = live_[index], .operation = TraceOperation::Free});
    live_.erase(live_.begin() + index);
  }

  void rare() {
    switch (random_.below(6)) {
      case 0:
      case 1:
        return add({.operation = TraceOperation::SynchronizeAll});
      case 2:
        return add({.stream = static_cast<std::int16_t>(random_.below(character_.num_streams + 1)),
                    .operation = TraceOperation::Synchronize});
      case 3:
        return add({.operation = TraceOperation::ResetPeak});
      case 4:
        return add({.operation = TraceOperation::EmptyCache});
      default:
        return;
    }
  }

  void change() {
    if (random_.one_in(2)) {
      add({.bytes = static_cast<std::int64_t>(trace_.fractions.size()), .operation = TraceOperation::LimitMemory});
      trace_.fractions.push_back(random_.one_in(4) ? 1.0 : 0.05 * static_cast<double>(random_.between(2, 19)));
    } else {
      add({.bytes = static_cast<std::int64_t>(trace_.settings_changes.size()),
           .operation = TraceOperation::ChangeSettings});
      trace_.settings_changes.push_back(settings(false));
    }
  }

  Random random_;
  std::uint64_t seed_;
  AllocatorTrace trace_;
  Character character_;
  std::int64_t favorites_[7] = {};
  std::vector<std::int32_t> live_;
  std::int32_t next_id_ = 0;
  std::int64_t draining_ = 0;
};

}  // namespace

AllocatorTrace any_trace(std::uint64_t seed) {
  return TraceMaker(seed).make();
}

AllocatorTrace with_steps(const AllocatorTrace& trace, std::vector<TraceStep> steps) {
  std::set<std::int32_t> live;
  std::erase_if(steps, [&](const TraceStep& step) {
    switch (step.operation) {
      case TraceOperation::Malloc:
        return !live.insert(step.id).second;
      case TraceOperation::Free:
        return live.erase(step.id) == 0;
      case TraceOperation::RecordStream:
        return !live.contains(step.id);
      default:
        return false;
    }
  });
  AllocatorTrace shorter = trace;
  shorter.steps = std::move(steps);
  return shorter;
}

std::uint64_t digest_of(const AllocatorTrace& trace, const TraceRunner& runner) {
  const bool has_streams = std::any_of(trace.steps.begin(), trace.steps.end(), [](const TraceStep& step) {
    return step.operation == TraceOperation::RecordStream;
  });
  std::string text = annotated_text(trace, to_text(trace), runner);
  std::uint64_t digest = 14695981039346656037ULL;  // FNV-1a
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = rest.substr(0, rest.find('\n') + 1);
    rest.remove_prefix(line.size());
    if (has_streams && line.starts_with("= inactive_split")) continue;
    for (const char c : line) digest = (digest ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  }
  return digest;
}

}  // namespace fsdp::simulator
