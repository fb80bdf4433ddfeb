#include "tests/support/allocator_trace.h"

#include <fmt/format.h>

#include <cstdlib>
#include <map>
#include <sstream>
#include <vector>

#include "simulator/allocator_settings.h"
#include "simulator/caching_allocator.h"

namespace fsdp::simulator {

namespace {

std::vector<std::string> split_words(std::string_view text) {
  std::istringstream in{std::string(text)};
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

std::vector<std::string> split_lines(std::string_view text) {
  std::istringstream in{std::string(text)};
  std::vector<std::string> lines;
  for (std::string line; std::getline(in, line);) lines.push_back(line);
  return lines;
}

class Replay {
 public:
  std::string run(std::string_view trace) {
    const std::vector<std::string> lines = split_lines(trace);
    AllocatorDevice device;
    AllocatorSettings settings;
    for (const std::string& line : lines) {
      if (!line.starts_with('!')) continue;
      const std::vector<std::string> words = split_words(line);
      if (words.size() != 2 || !apply_header(words[0], words[1], device, settings)) complain("header", line);
    }
    allocator_.reset(device, settings);
    for (const std::string& line : lines) replay_line(line);
    summarise();
    return std::move(out_);
  }

 private:
  void complain(std::string_view what, std::string_view line) { out_ += fmt::format("!! bad {}: {}\n", what, line); }

  bool apply_header(const std::string& key, const std::string& value, AllocatorDevice& device,
                    AllocatorSettings& settings) {
    if (key == "!device_bytes") {
      device.total = Bytes(std::atoll(value.c_str()));
    } else if (key == "!events" && (value == "hold" || value == "instant")) {
      device.progress = value == "hold" ? StreamProgress::OnDemand : StreamProgress::Instant;
    } else if (key == "!config") {
      const Result<AllocatorSettings> parsed = parse_allocator_settings(value);
      if (!parsed) return false;
      settings = *parsed;
    } else {
      return key == "!addresses" && value == "bump";
    }
    return true;
  }

  void replay_line(const std::string& line) {
    if (line.starts_with('=') || line.starts_with('@')) return;
    if (line.empty() || line.starts_with('#') || line.starts_with('!')) {
      out_ += line + "\n";
      return;
    }
    const std::vector<std::string> words = split_words(line.substr(0, line.find('|')));
    const std::string result = replay_operation(words);
    if (result.empty()) return complain("operation", line);
    out_ += fmt::format("{} | {} ", fmt::join(words, " "), result);
    const AllocatorStatistics s = allocator_.statistics();
    out_ += fmt::format("{} {} {} {} {} {} {} {}\n", s.allocated_bytes.all.current, s.reserved_bytes.all.current,
                        s.active_bytes.all.current, s.requested_bytes.all.current, s.inactive_split_bytes.all.current,
                        s.segment.all.current, s.num_device_alloc, s.num_device_free);
  }

  /// The result of the operation, or nothing if it makes no sense.
  std::string replay_operation(const std::vector<std::string>& words) {
    const std::string& name = words[0];
    if (name == "alloc" && words.size() == 4) return malloc(words[1], std::atoll(words[2].c_str()), words[3]);
    if (name == "empty_cache") {
      allocator_.empty_cache();
    } else if (name == "reset_peak") {
      allocator_.reset_peak();
    } else if (name == "sync" && words.size() == 1) {
      allocator_.synchronize();
    } else if (name == "sync") {
      allocator_.synchronize(stream_of(words[1]));
    } else if (words.size() < 2) {
      return {};
    } else if (name == "fraction") {
      allocator_.set_memory_fraction(std::atof(words[1].c_str()));
    } else if (name == "config") {
      const Result<AllocatorSettings> settings = parse_allocator_settings(words[1], allocator_.settings());
      if (!settings) return {};
      allocator_.set_settings(*settings);
    } else {
      const auto live = ids_.find(words[1]);
      if (live == ids_.end()) return {};
      if (name == "record" && words.size() == 3) {
        allocator_.record_stream(live->second, stream_of(words[2]));
      } else if (name == "free") {
        allocator_.free(live->second);
        unused_.push_back(live->second);
        ids_.erase(live);
      } else {
        return {};
      }
    }
    return "- -";
  }

  static AllocatorStream stream_of(const std::string& word) {
    return static_cast<AllocatorStream>(std::atoi(word.c_str()));
  }

  std::string malloc(const std::string& name, std::int64_t bytes, const std::string& stream) {
    if (unused_.empty()) unused_.push_back(static_cast<AllocationId>(ids_.size()));
    const AllocationId id = unused_.back();
    if (!ids_.emplace(name, id).second) return {};
    unused_.pop_back();
    switch (allocator_.malloc(id, Bytes(bytes), stream_of(stream))) {
      case AllocationOutcome::Empty:
        return "null 0";
      case AllocationOutcome::OutOfMemory:
        return "oom -";
      case AllocationOutcome::Allocated:
        break;
    }
    return fmt::format("{:x} {}", allocator_.address(id), allocator_.block_bytes(id).count());
  }

  void add_stats(std::string_view name, const AllocatorStats& stats) {
    const auto add = [&](std::string_view pool, const AllocatorStat& stat) {
      out_ += fmt::format("= {} {} {} {} {} {}\n", name, pool, stat.current, stat.peak, stat.allocated, stat.freed);
    };
    add("all", stats.all);
    add("small", stats.small);
    add("large", stats.large);
  }

  void summarise() {
    const AllocatorStatistics s = allocator_.statistics();
    add_stats("allocation", s.allocation);
    add_stats("segment", s.segment);
    add_stats("active", s.active);
    add_stats("inactive_split", s.inactive_split);
    add_stats("allocated_bytes", s.allocated_bytes);
    add_stats("reserved_bytes", s.reserved_bytes);
    add_stats("active_bytes", s.active_bytes);
    add_stats("inactive_split_bytes", s.inactive_split_bytes);
    add_stats("requested_bytes", s.requested_bytes);
    const DriverCalls& calls = allocator_.driver_calls();
    const std::vector<std::pair<const char*, std::int64_t>> numbers = {
        {"num_alloc_retries", s.num_alloc_retries},
        {"num_ooms", s.num_ooms},
        {"num_sync_all_streams", s.num_sync_all_streams},
        {"num_device_alloc", s.num_device_alloc},
        {"num_device_free", s.num_device_free},
        {"oversize_allocations", s.oversize_allocations.current},
        {"oversize_segments", s.oversize_segments.current},
        {"device_cudaMalloc_ok", calls.num_malloc},
        {"device_cudaMalloc_fail", calls.num_malloc_failed},
        {"device_cudaFree", calls.num_free},
        {"device_cuMemCreate_ok", calls.num_create},
        {"device_cuMemCreate_fail", calls.num_create_failed},
        {"device_cuMemUnmap", calls.num_unmap},
        {"device_cuMemAddressReserve", calls.num_reserve},
        {"device_cudaEventRecord", calls.num_event_record},
        {"device_used_bytes", allocator_.device_used_bytes().count()},
        {"device_peak_used_bytes", calls.peak_used.count()}};
    for (const auto& [name, value] : numbers) out_ += fmt::format("= {} {}\n", name, value);
    for (const SegmentSnapshot& segment : allocator_.snapshot()) {
      out_ += fmt::format("@ {:x} {} {} {}", segment.address, static_cast<int>(segment.stream),
                          segment.is_large ? "large" : "small", segment.is_expandable ? "expandable" : "plain");
      for (const BlockSnapshot& block : segment.blocks) {
        const char* state = block.state == SnapshotState::Allocated     ? "a"
                            : block.state == SnapshotState::PendingFree ? "p"
                                                                        : "-";
        out_ += fmt::format(" {}{}", block.size.count(), state);
      }
      out_ += "\n";
    }
  }

  CachingAllocator allocator_;
  std::map<std::string, AllocationId> ids_;  ///< Live names.
  std::vector<AllocationId> unused_;
  std::string out_;
};

}  // namespace

std::string replay_allocator_trace(std::string_view trace) {
  return Replay().run(trace);
}

}  // namespace fsdp::simulator
