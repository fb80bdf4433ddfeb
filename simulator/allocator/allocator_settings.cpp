// Reads PYTORCH_ALLOC_CONF.
//
// The string is a list of key:value pairs separated by commas; blanks do not matter. Only roundup_power2_divisions
// takes a list in brackets, of interval:divisions pairs.
//
// Sources: PyTorch 2.11.0, c10/core/AllocatorConfig.h and c10/cuda/CUDAAllocatorConfig.h for the keys; we found the
// ranges by passing strings to its library. We reproduce two of its surprises: in the list form, entries between two
// named intervals stay 0, and ">" fills from the one after the last named interval.
//
// Not modeled: backend:cudaMallocAsync, another allocator, which we refuse.

#include "simulator/allocator/allocator_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cctype>
#include <charconv>
#include <optional>
#include <string>
#include <vector>

#include "core/base/nearest.h"
#include "simulator/allocator/allocator_sizes.h"

namespace fsdp::simulator {

namespace {

constexpr std::string_view kVariable = "PYTORCH_ALLOC_CONF";

constexpr std::array<std::string_view, 16> kKeys = {
    "expandable_segments",
    "max_split_size_mb",
    "garbage_collection_threshold",
    "roundup_power2_divisions",
    "max_non_split_rounding_mb",
    "large_segment_size_mb",
    "per_process_memory_fraction",
    "backend",
    "release_lock_on_cudamalloc",
    "release_lock_on_hipmalloc",
    "graph_capture_record_stream_reuse",
    "pinned_use_cuda_host_register",
    "pinned_use_hip_host_register",
    "pinned_use_background_threads",
    "pinned_num_register_threads",
    "pinned_reserve_segment_size_mb",
};

constexpr std::int64_t kMaxMebibytes = kUnlimitedSplitSize.count() / kMebibyte;

struct Pair {
  std::string key;
  std::string value;  ///< With its brackets, if it has any.
  bool has_value = false;
};

/// Splits at the commas outside brackets.
std::vector<Pair> split_pairs(std::string_view text) {
  std::vector<Pair> pairs;
  Pair pair;
  int depth = 0;
  bool is_empty = true;
  const auto finish = [&] {
    if (!is_empty) pairs.push_back(std::move(pair));
    pair = {};
    is_empty = true;
  };
  for (const char c : text) {
    if (std::isspace(static_cast<unsigned char>(c)) != 0) continue;
    if (c == ',' && depth == 0) {
      finish();
      continue;
    }
    is_empty = false;
    depth += c == '[' ? 1 : c == ']' && depth > 0 ? -1 : 0;
    if (c == ':' && !pair.has_value) {
      pair.has_value = true;
    } else {
      (pair.has_value ? pair.value : pair.key) += c;
    }
  }
  finish();
  return pairs;
}

template <class Number>
std::optional<Number> read_number(std::string_view text) {
  Number value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool is_power_of_2(std::int64_t value) {
  return value > 0 && std::has_single_bit(static_cast<std::uint64_t>(value));
}

class SettingsReader {
 public:
  explicit SettingsReader(const AllocatorSettings& current) : settings_(current) {
    const AllocatorSettings defaults;
    settings_.max_split_size = defaults.max_split_size;
    settings_.garbage_collection_threshold = defaults.garbage_collection_threshold;
    settings_.roundup_power2_divisions = defaults.roundup_power2_divisions;
  }

  Result<AllocatorSettings> read(std::string_view text) {
    const std::vector<Pair> pairs = split_pairs(text);
    // The segment size bounds two other settings, at any position in the string.
    for (const Pair& pair : pairs) {
      if (pair.key == "large_segment_size_mb") read_large_segment_size(pair);
    }
    for (const Pair& pair : pairs) read_pair(pair);
    check_expandable_page();
    if (!errors_.empty()) return tl::unexpected(std::move(errors_));
    return settings_;
  }

 private:
  void complain(std::string_view key, std::string what, std::string hint) {
    std::string where = key.empty() ? std::string(kVariable) : fmt::format("{}: {}", kVariable, key);
    errors_.push_back({std::move(where), std::move(what), std::move(hint)});
  }

  void complain_about_value(const Pair& pair, std::string hint) {
    complain(pair.key, pair.has_value ? fmt::format("Found \"{}\".", pair.value) : "Found no value.", std::move(hint));
  }

  void read_pair(const Pair& pair) {
    const std::string_view key = pair.key;
    AllocatorSettings& s = settings_;
    if (key == "large_segment_size_mb") return;
    if (key == "max_split_size_mb") return read_mebibytes(pair, min_split_mebibytes(), s.max_split_size);
    if (key == "max_non_split_rounding_mb") {
      return read_mebibytes(pair, min_split_mebibytes(), s.max_non_split_rounding_size);
    }
    if (key == "garbage_collection_threshold") return read_threshold(pair);
    if (key == "roundup_power2_divisions") return read_divisions(pair);
    if (key == "expandable_segments") return read_bool(pair, s.expandable_segments);
    if (key == "per_process_memory_fraction") return read_fraction(pair);
    if (key == "backend") return read_backend(pair);
    if (key == "release_lock_on_cudamalloc" || key == "release_lock_on_hipmalloc") {
      return read_bool(pair, s.release_lock_on_cudamalloc);
    }
    if (key == "graph_capture_record_stream_reuse") return read_bool(pair, s.graph_capture_record_stream_reuse);
    if (key == "pinned_use_cuda_host_register" || key == "pinned_use_hip_host_register") {
      return read_bool(pair, s.pinned_use_cuda_host_register);
    }
    if (key == "pinned_use_background_threads") return read_bool(pair, s.pinned_use_background_threads);
    if (key == "pinned_num_register_threads") return read_register_threads(pair);
    if (key == "pinned_reserve_segment_size_mb") return read_pinned_segment_size(pair);
    complain({}, fmt::format("Unknown key \"{}\".", key), suggest_name(key, kKeys));
  }

  std::int64_t min_split_mebibytes() const { return settings_.large_segment_size.count() / kMebibyte; }

  void read_mebibytes(const Pair& pair, std::int64_t min, Bytes& setting) {
    const std::optional<std::int64_t> value = read_number<std::int64_t>(pair.value);
    if (!value || *value < min || *value > kMaxMebibytes) {
      return complain_about_value(
          pair, fmt::format("Write a whole number of MiB from {} (the size of a large segment) up.", min));
    }
    setting = Bytes(*value * kMebibyte);
  }

  void read_large_segment_size(const Pair& pair) {
    const std::optional<std::int64_t> value = read_number<std::int64_t>(pair.value);
    // More than a device can hold is a typo; PyTorch itself would overflow.
    constexpr std::int64_t kMost = 1 << 20;
    if (!value || *value <= 10 || *value > kMost) {
      return complain_about_value(pair, fmt::format("Write a whole number of MiB above 10, up to {}.", kMost));
    }
    settings_.large_segment_size = Bytes(*value * kMebibyte);
    settings_.max_non_split_rounding_size = settings_.large_segment_size;
  }

  void check_expandable_page() {
    const std::int64_t size = settings_.large_segment_size.count() / kMebibyte;
    if (!settings_.expandable_segments || size % 2 == 0) return;
    complain("large_segment_size_mb", fmt::format("Found {} together with expandable_segments:True.", size),
             "Write an even number: the driver maps memory in pages of 2 MiB.");
  }

  void read_threshold(const Pair& pair) {
    const std::optional<double> value = read_number<double>(pair.value);
    if (!value || !(*value > 0 && *value < 1)) {
      return complain_about_value(pair, "Write a number above 0 and below 1, such as 0.8.");
    }
    settings_.garbage_collection_threshold = *value;
  }

  void read_fraction(const Pair& pair) {
    const std::optional<double> value = read_number<double>(pair.value);
    if (!value || !(*value >= 0 && *value <= 1)) {
      return complain_about_value(pair, "Write a number from 0 to 1, such as 0.9.");
    }
    settings_.per_process_memory_fraction = *value;
  }

  void read_bool(const Pair& pair, bool& setting) {
    if (pair.value != "True" && pair.value != "False") return complain_about_value(pair, "Write True or False.");
    setting = pair.value == "True";
  }

  void read_backend(const Pair& pair) {
    if (pair.value == "cudaMallocAsync") {
      return complain_about_value(
          pair, "Write native: the other backend is an allocator of the driver, which is not modeled.");
    }
    if (pair.value != "native") complain_about_value(pair, "Write native.");
  }

  void read_register_threads(const Pair& pair) {
    const std::optional<std::int64_t> value = read_number<std::int64_t>(pair.value);
    if (!value || !is_power_of_2(*value) || *value > 128) {
      return complain_about_value(pair, "Write a power of two from 1 to 128.");
    }
    settings_.pinned_num_register_threads = *value;
  }

  void read_pinned_segment_size(const Pair& pair) {
    const std::optional<std::int64_t> value = read_number<std::int64_t>(pair.value);
    if (!value || *value <= 0 || *value > kMaxMebibytes) {
      return complain_about_value(pair, "Write a whole number of MiB above 0.");
    }
    settings_.pinned_reserve_segment_size_mb = *value;
  }

  void read_divisions(const Pair& pair) {
    auto& divisions = settings_.roundup_power2_divisions;
    if (pair.value.starts_with('[')) return read_division_list(pair);
    const std::optional<std::int64_t> value = read_number<std::int64_t>(pair.value);
    if (!value || !is_power_of_2(*value)) {
      return complain_about_value(pair, "Write a power of two, such as 8, or a list, such as [256:1,512:2,>:4].");
    }
    divisions.fill(*value);
  }

  void read_division_list(const Pair& pair) {
    auto& divisions = settings_.roundup_power2_divisions;
    if (!pair.value.ends_with(']')) return complain_about_value(pair, "Close the list with \"]\".");
    std::size_t last = 0;
    bool is_first = true;
    for (const Pair& item : split_pairs(std::string_view(pair.value).substr(1, pair.value.size() - 2))) {
      const std::optional<std::int64_t> value = read_number<std::int64_t>(item.value);
      const std::optional<std::int64_t> interval = read_number<std::int64_t>(item.key);
      if (!value || (*value != 0 && !is_power_of_2(*value)) ||
          (item.key != ">" && (!interval || !is_power_of_2(*interval)))) {
        complain(pair.key,
                 fmt::format("Found \"{}{}{}\" in the list.", item.key, item.has_value ? ":" : "", item.value),
                 "Write interval:divisions, such as 256:4 or >:8. The interval is a power of two in MiB, or \">\" for "
                 "all above the last one; the divisions are a power of two, or 0 for none.");
        continue;
      }
      if (item.key == ">") {
        std::fill(divisions.begin() + static_cast<std::ptrdiff_t>(std::min(last + 1, divisions.size())),
                  divisions.end(), *value);
        continue;
      }
      const auto log2 = static_cast<std::size_t>(std::countr_zero(static_cast<std::uint64_t>(*interval)));
      last = std::min(log2, divisions.size() - 1);
      if (is_first) std::fill_n(divisions.begin(), last, *value);
      is_first = false;
      divisions[last] = *value;
    }
  }

  AllocatorSettings settings_;
  Errors errors_;
};

}  // namespace

Result<AllocatorSettings> parse_allocator_settings(std::string_view text, const AllocatorSettings& current) {
  return SettingsReader(current).read(text);
}

}  // namespace fsdp::simulator
