#include "replay/replay_snapshot_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <optional>

#include "core/base/parse_units.h"

namespace fsdp::replay {

namespace {

using simulator::AllocatorSettings;

std::string text_of(const PickleValue& settings, std::string_view key) {
  const std::optional<PickleValue> value = settings.find(key);
  return without_blanks(value ? value->as_text().value_or("") : "");
}

/// The settings of the fields; `base` has the others.
AllocatorSettings fields_of(const PickleValue& settings, const AllocatorSettings& base) {
  AllocatorSettings read = base;
  if (const auto value = settings.find("max_split_size")) {
    const std::int64_t bytes = value->as_int().value_or(-1);
    read.max_split_size = bytes < 0 ? simulator::kUnlimitedSplitSize : Bytes(bytes);
  }
  if (const auto value = settings.find("garbage_collection_threshold")) {
    read.garbage_collection_threshold = value->as_float().value_or(0);
  }
  if (const auto value = settings.find("expandable_segments"))
    read.expandable_segments = value->as_bool().value_or(false);
  if (const auto value = settings.find("roundup_power2_divisions"); value && value->kind() == PickleKind::Dict) {
    for (std::size_t i = 0; i < value->size(); ++i) {
      const std::optional<std::int64_t> megabytes = parse_integer(value->key_at(i).as_text().value_or(""));
      for (std::size_t entry = 0; megabytes && entry < read.roundup_power2_divisions.size(); ++entry) {
        if (*megabytes == std::int64_t{1} << entry) {
          read.roundup_power2_divisions[entry] = std::max<std::int64_t>(0, value->at(i).as_int().value_or(0));
        }
      }
    }
  }
  return read;
}

std::string divisions_text(const AllocatorSettings& settings) {
  std::string list;
  for (std::size_t i = 0; i < settings.roundup_power2_divisions.size(); ++i) {
    list += fmt::format("{}{}:{}", i == 0 ? "" : ",", std::int64_t{1} << i, settings.roundup_power2_divisions[i]);
  }
  return fmt::format("[{}]", list);
}

/// The settings that the fields can express, as text.
std::string to_text(const AllocatorSettings& settings) {
  const AllocatorSettings defaults;
  std::string text = settings.expandable_segments ? "expandable_segments:True" : "expandable_segments:False";
  if (settings.max_split_size != defaults.max_split_size) {
    text += fmt::format(",max_split_size_mb:{}", settings.max_split_size.count() >> 20);
  }
  if (settings.garbage_collection_threshold > 0) {
    text += fmt::format(",garbage_collection_threshold:{}", settings.garbage_collection_threshold);
  }
  if (settings.roundup_power2_divisions != defaults.roundup_power2_divisions) {
    text += ",roundup_power2_divisions:" + divisions_text(settings);
  }
  return text;
}

}  // namespace

std::string without_blanks(std::string_view settings) {
  std::string text;
  for (const char c : settings) {
    if (std::isspace(static_cast<unsigned char>(c)) == 0) text += c;
  }
  return text;
}

std::pair<std::string, AllocatorSettings> settings_of_snapshot(const PickleValue& settings,
                                                               std::vector<std::string>& notes) {
  std::string text = text_of(settings, "PYTORCH_CUDA_ALLOC_CONF");
  const Result<AllocatorSettings> written = simulator::parse_allocator_settings(text);
  if (!written) notes.push_back(fmt::format("The settings \"{}\" are not known to PyTorch 2.11.", text));
  const AllocatorSettings base = written ? *written : AllocatorSettings();
  const AllocatorSettings fields = fields_of(settings, base);
  if (written && fields == base) return {text, base};
  const Result<AllocatorSettings> said = simulator::parse_allocator_settings(to_text(fields));
  if (!said) {
    notes.emplace_back("The settings of the snapshot are invalid; the defaults are used.");
    return {"", AllocatorSettings()};
  }
  return {to_text(fields), *said};
}

}  // namespace fsdp::replay
