// Reads the text form of a trace in one pass, without a copy: reading a million lines has to take a fraction of a
// second.
//
// The ids of a file are arbitrary words. The steps have small numbers instead; a free number is reused, the latest
// first. Ids that are plain numbers, as in nearly every file, are looked up in an array.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <map>
#include <optional>

#include "core/base/nearest.h"
#include "simulator/allocator/allocator_trace.h"

namespace fsdp::simulator {

namespace {

constexpr std::size_t kMostErrors = 50;
/// More than any device has; sums of it stay far from an overflow.
constexpr std::int64_t kMostBytes = std::int64_t{1} << 42;
constexpr std::size_t kMostLiveIds = std::size_t{1} << 22;
constexpr std::size_t kMostWords = 5;

constexpr std::string_view kOperations[] = {"alloc",       "free",   "record",   "sync",
                                            "empty_cache", "config", "fraction", "reset_peak"};
constexpr std::string_view kHeaders[] = {"!device_bytes", "!config", "!events", "!addresses"};

struct Words {
  std::string_view at[kMostWords];
  std::size_t count = 0;  ///< Includes those without room.
};

bool is_blank(char c) {
  return c == ' ' || c == '\t' || c == '\r';
}

Words split_words(std::string_view line) {
  Words words;
  const char* next = line.data();
  const char* const end = next + line.size();
  while (true) {
    while (next != end && is_blank(*next)) ++next;
    if (next == end) return words;
    const char* const begin = next;
    while (next != end && !is_blank(*next)) ++next;
    if (words.count < kMostWords) words.at[words.count] = {begin, static_cast<std::size_t>(next - begin)};
    ++words.count;
  }
}

/// Digits only, up to 18 of them, so that nothing overflows.
std::optional<std::int64_t> read_count(std::string_view word) {
  if (word.empty() || word.size() > 18) return std::nullopt;
  std::int64_t value = 0;
  for (const char c : word) {
    const auto digit = static_cast<unsigned>(c - '0');
    if (digit > 9) return std::nullopt;
    value = 10 * value + digit;
  }
  return value;
}

/// Maps the ids of a file to those of the steps.
class LiveIds {
 public:
  /// nullopt if it is live already, or if there are too many.
  std::optional<std::int32_t> add(std::string_view word) {
    std::int32_t& slot = slot_of(word);
    if (slot >= 0 || (unused_.empty() && num_slots_ >= kMostLiveIds)) return std::nullopt;
    if (unused_.empty()) {
      slot = static_cast<std::int32_t>(num_slots_++);
    } else {
      slot = unused_.back();
      unused_.pop_back();
    }
    return slot;
  }

  std::optional<std::int32_t> find(std::string_view word) {
    const std::int32_t slot = slot_of(word);
    if (slot < 0) return std::nullopt;
    return slot;
  }

  std::optional<std::int32_t> remove(std::string_view word) {
    std::int32_t& slot = slot_of(word);
    if (slot < 0) return std::nullopt;
    const std::int32_t removed = slot;
    unused_.push_back(removed);
    slot = -1;
    return removed;
  }

 private:
  /// -1 if it is not live.
  std::int32_t& slot_of(std::string_view word) {
    if (word.size() <= 8 && (word[0] != '0' || word.size() == 1)) {
      if (const std::optional<std::int64_t> number = read_count(word); number && *number < (1 << 24)) {
        const auto index = static_cast<std::size_t>(*number);
        if (index >= slot_of_number_.size())
          slot_of_number_.resize(std::max(index + 1, 2 * slot_of_number_.size()), -1);
        return slot_of_number_[index];
      }
    }
    return slot_of_word_.try_emplace(std::string(word), -1).first->second;
  }

  std::vector<std::int32_t> slot_of_number_;
  std::map<std::string, std::int32_t, std::less<>> slot_of_word_;
  std::vector<std::int32_t> unused_;
  std::size_t num_slots_ = 0;
};

class TraceReader {
 public:
  TraceReader(std::string_view text, std::string_view name) : text_(text), name_(name) {}

  Result<AllocatorTrace> read() {
    trace_.steps.reserve(std::min<std::size_t>(text_.size() / 24 + 16, std::size_t{1} << 22));
    for (std::size_t begin = 0; begin < text_.size() && errors_.size() < kMostErrors;) {
      const void* const newline = std::memchr(text_.data() + begin, '\n', text_.size() - begin);
      const std::size_t end = newline == nullptr
                                  ? text_.size()
                                  : static_cast<std::size_t>(static_cast<const char*>(newline) - text_.data());
      ++line_number_;
      line_ = text_.substr(begin, end - begin);
      read_line();
      begin = end + 1;
    }
    if (!errors_.empty()) return tl::unexpected(std::move(errors_));
    return std::move(trace_);
  }

 private:
  /// `word` is a part of the line.
  void complain(std::string_view word, std::string what, std::string hint = {}) {
    const auto column = static_cast<std::size_t>(word.data() - line_.data()) + 1;
    errors_.push_back({fmt::format("{}:{}:{}", name_, line_number_, column), std::move(what), std::move(hint)});
  }

  void read_line() {
    if (line_.empty() || line_[0] == '#' || line_[0] == '=' || line_[0] == '@') return;
    const void* const bar = std::memchr(line_.data(), '|', line_.size());
    const std::string_view asked =
        bar == nullptr ? line_
                       : line_.substr(0, static_cast<std::size_t>(static_cast<const char*>(bar) - line_.data()));
    const Words words = split_words(asked);
    if (words.count == 0) return;
    if (line_[0] == '!') return read_header(words);
    switch (words.at[0][0]) {
      case 'a':
        if (words.at[0] == "alloc") return read_malloc(words);
        break;
      case 'f':
        if (words.at[0] == "free") return read_free(words);
        break;
      default:
        break;
    }
    read_rare(words);
  }

  bool has_words(const Words& words, std::size_t count, std::string_view form) {
    if (words.count == count) return true;
    complain(words.at[0], fmt::format("\"{}\" has {} words.", words.at[0], words.count),
             fmt::format("Write \"{}\".", form));
    return false;
  }

  std::optional<std::int64_t> read_number(std::string_view word, std::int64_t most, std::string_view what) {
    const std::optional<std::int64_t> value = read_count(word);
    if (value && *value <= most) [[likely]]
      return value;
    complain(word, fmt::format("\"{}\" is not {}.", word, what), fmt::format("Write a whole number up to {}.", most));
    return std::nullopt;
  }

  std::optional<std::int16_t> read_stream(std::string_view word) {
    const std::optional<std::int64_t> stream = read_number(word, kMostTraceStream, "the number of a stream");
    if (!stream) return std::nullopt;
    return static_cast<std::int16_t>(*stream);
  }

  void read_malloc(const Words& words) {
    if (!has_words(words, 4, "alloc ID BYTES STREAM")) return;
    const std::optional<std::int64_t> bytes = read_number(words.at[2], kMostBytes, "a size in bytes");
    const std::optional<std::int16_t> stream = read_stream(words.at[3]);
    const std::optional<std::int32_t> id = ids_.add(words.at[1]);
    if (!id) return complain(words.at[1], fmt::format("\"{}\" is live already.", words.at[1]), "Free it first.");
    if (!bytes || !stream) return;
    trace_.steps.push_back({.bytes = *bytes, .id = *id, .stream = *stream, .operation = TraceOperation::Malloc});
  }

  void read_free(const Words& words) {
    if (!has_words(words, 2, "free ID")) return;
    const std::optional<std::int32_t> id = ids_.remove(words.at[1]);
    if (!id) return complain_about_dead(words.at[1]);
    trace_.steps.push_back({.id = *id, .operation = TraceOperation::Free});
  }

  void complain_about_dead(std::string_view word) {
    complain(word, fmt::format("\"{}\" is not live.", word),
             "Only memory that an alloc made and no free ended can be named.");
  }

  void read_rare(const Words& words) {
    const std::string_view name = words.at[0];
    std::vector<TraceStep>& steps = trace_.steps;
    if (name == "record") return read_record(words);
    if (name == "sync") {
      if (words.count == 1) return steps.push_back({.operation = TraceOperation::SynchronizeAll});
      if (!has_words(words, 2, "sync\" or \"sync STREAM")) return;
      const std::optional<std::int16_t> stream = read_stream(words.at[1]);
      if (stream) steps.push_back({.stream = *stream, .operation = TraceOperation::Synchronize});
    } else if (name == "empty_cache") {
      if (has_words(words, 1, name)) steps.push_back({.operation = TraceOperation::EmptyCache});
    } else if (name == "reset_peak") {
      if (has_words(words, 1, name)) steps.push_back({.operation = TraceOperation::ResetPeak});
    } else if (name == "config") {
      if (!has_words(words, 2, "config SETTINGS") || !read_settings(words.at[1], current_)) return;
      steps.push_back({.bytes = static_cast<std::int64_t>(trace_.settings_changes.size()),
                       .operation = TraceOperation::ChangeSettings});
      trace_.settings_changes.emplace_back(words.at[1]);
    } else if (name == "fraction") {
      if (has_words(words, 2, "fraction F")) read_fraction(words.at[1]);
    } else {
      complain(name, fmt::format("There is no operation \"{}\".", name), suggest_name(name, kOperations));
    }
  }

  void read_record(const Words& words) {
    if (!has_words(words, 3, "record ID STREAM")) return;
    const std::optional<std::int32_t> id = ids_.find(words.at[1]);
    const std::optional<std::int16_t> stream = read_stream(words.at[2]);
    if (!id) return complain_about_dead(words.at[1]);
    if (stream) trace_.steps.push_back({.id = *id, .stream = *stream, .operation = TraceOperation::RecordStream});
  }

  void read_fraction(std::string_view word) {
    double fraction = 0;
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), fraction);
    if (error != std::errc() || end != word.data() + word.size() || !(fraction >= 0 && fraction <= 1)) {
      return complain(word, fmt::format("\"{}\" is not a share of the memory.", word), "Write a number from 0 to 1.");
    }
    trace_.steps.push_back(
        {.bytes = static_cast<std::int64_t>(trace_.fractions.size()), .operation = TraceOperation::LimitMemory});
    trace_.fractions.push_back(fraction);
  }

  bool read_settings(std::string_view word, AllocatorSettings& settings) {
    const Result<AllocatorSettings> parsed = parse_allocator_settings(word, settings);
    if (parsed) {
      settings = *parsed;
      return true;
    }
    for (const Error& error : parsed.error()) complain(word, error.where + ": " + error.what, error.hint);
    return false;
  }

  void read_header(const Words& words) {
    const std::string_view key = words.at[0];
    if (std::find(std::begin(kHeaders), std::end(kHeaders), key) == std::end(kHeaders)) {
      return complain(key, fmt::format("There is no header \"{}\".", key), suggest_name(key, kHeaders));
    }
    if (!trace_.steps.empty()) {
      return complain(key, "A header comes after an operation.", "Headers come first; \"config\" changes settings.");
    }
    if (!has_words(words, 2, fmt::format("{} VALUE", key))) return;
    const std::string_view value = words.at[1];
    if (key == "!device_bytes") {
      const std::optional<std::int64_t> bytes = read_number(value, kMostBytes, "a size in bytes");
      if (bytes) trace_.device.total = Bytes(*bytes);
    } else if (key == "!config") {
      current_ = AllocatorSettings();
      if (!read_settings(value, current_)) return;
      trace_.settings_text = value;
      trace_.settings = current_;
    } else if (key == "!events") {
      if (value != "hold" && value != "instant") {
        return complain(value, fmt::format("Events cannot be \"{}\".", value), "Write hold or instant.");
      }
      trace_.device.progress = value == "hold" ? StreamProgress::OnDemand : StreamProgress::Instant;
    } else if (value != "bump") {
      complain(value, fmt::format("Addresses \"{}\" are not modeled.", value), "Write bump: they rise from 0.");
    }
  }

  std::string_view text_;
  std::string_view name_;
  std::string_view line_;
  std::size_t line_number_ = 0;
  AllocatorTrace trace_;
  AllocatorSettings current_;  ///< In force at the current line.
  LiveIds ids_;
  Errors errors_;
};

}  // namespace

Result<AllocatorTrace> read_allocator_trace(std::string_view text, std::string_view name) {
  return TraceReader(text, name).read();
}

}  // namespace fsdp::simulator
