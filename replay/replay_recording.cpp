#include "replay/replay_recording.h"

#include <charconv>
#include <string_view>

#include "core/base/files.h"

namespace fsdp::replay {

namespace {

constexpr std::size_t kMostFileBytes = std::size_t{4} << 30;

/// "| - - ALLOCATED RESERVED": the fourth word after the bar.
std::optional<Bytes> reserved_of(std::string_view line) {
  std::size_t at = line.find('|');
  for (int word = 0; word < 4; ++word) {
    if (at == std::string_view::npos) return std::nullopt;
    at = line.find_first_not_of(" \t|", line.find_first_of(" \t|", at));
  }
  if (at == std::string_view::npos) return std::nullopt;
  std::int64_t bytes = 0;
  const auto [end, error] = std::from_chars(line.data() + at, line.data() + line.size(), bytes);
  if (error != std::errc() || end == line.data() + at) return std::nullopt;
  return Bytes(bytes);
}

/// The recorded column of every operation. Empty if some line lacks it.
std::vector<Bytes> recorded_reserved(std::string_view text, std::size_t num_steps) {
  std::vector<Bytes> reserved;
  if (text.find('|') == std::string_view::npos) return reserved;
  reserved.reserve(num_steps);
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    const std::string_view line = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (line.empty() || line[0] == '#' || line[0] == '!' || line[0] == '=' || line[0] == '@') continue;
    const std::optional<Bytes> bytes = reserved_of(line);
    if (!bytes) return {};
    reserved.push_back(*bytes);
  }
  if (reserved.size() != num_steps) reserved.clear();
  return reserved;
}

}  // namespace

Result<Recording> read_recorded_trace(std::string text, const std::string& name) {
  Recording recording;
  FSDP_TRY(recording.trace, simulator::read_allocator_trace(text, name));
  if (recording.trace.steps.empty()) {
    return failure(name, "There is no operation in it.",
                   "Give a memory snapshot of PyTorch, or a text trace with lines such as \"alloc 0 512 0\".");
  }
  recording.knows_device = text.starts_with("!device_bytes") || text.find("\n!device_bytes") != std::string::npos;
  recording.reserved = recorded_reserved(text, recording.trace.steps.size());
  recording.text = std::move(text);
  return recording;
}

Result<Recording> read_recording(const std::string& path) {
  FSDP_TRY(std::string data, read_text_file(path, kMostFileBytes));
  const std::string name = path == "-" ? "standard input" : path;
  return is_pickle(data) ? read_recorded_snapshot(std::move(data), name) : read_recorded_trace(std::move(data), name);
}

}  // namespace fsdp::replay
