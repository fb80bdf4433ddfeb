#include "tests/support/snapshot_pickle.h"

#include <cstdlib>

namespace fsdp::planner {

namespace {

std::string little_endian(std::uint64_t number, int num_bytes) {
  std::string bytes;
  for (int i = 0; i < num_bytes; ++i) bytes += static_cast<char>(number >> (8 * i) & 0xFF);
  return bytes;
}

}  // namespace

std::string pickled(std::int64_t number) {
  return "\x8a\x08" + little_endian(static_cast<std::uint64_t>(number), 8);
}

std::string pickled(std::string_view text) {
  return "X" + little_endian(text.size(), 4) + std::string(text);
}

std::string pickled_list(const std::vector<std::string>& items) {
  std::string bytes = "](";
  for (const std::string& item : items) bytes += item;
  return bytes + "e";
}

std::string pickled_dict(const std::vector<std::pair<std::string, std::string>>& items) {
  std::string bytes = "}(";
  for (const auto& [key, value] : items) bytes += pickled(key) + value;
  return bytes + "u";
}

std::string pickle_of(const std::string& root) {
  return "\x80\x04" + root + ".";
}

std::string snapshot_event(std::string_view action, std::int64_t address, std::int64_t size, std::int64_t stream,
                           std::int64_t line, std::string_view function) {
  std::vector<std::string> frames;
  if (line > 0) {
    frames.push_back(
        pickled_dict({{"name", pickled(function)}, {"filename", pickled("train.py")}, {"line", pickled(line)}}));
  }
  return pickled_dict({{"action", pickled(action)},
                       {action == "oom" ? "device_free" : "addr", pickled(address)},
                       {"size", pickled(size)},
                       {"stream", pickled(stream)},
                       {"time_us", pickled(std::int64_t{1'000'000} + line * 1000)},
                       {"frames", pickled_list(frames)}});
}

std::string snapshot_segment(std::int64_t address, const std::vector<std::int64_t>& blocks, std::int64_t stream) {
  std::int64_t total = 0;
  std::vector<std::string> items;
  for (const std::int64_t block : blocks) {
    const std::int64_t size = std::abs(block);
    total += size;
    items.push_back(pickled_dict({{"size", pickled(size)},
                                  {"requested_size", pickled(size)},
                                  {"state", pickled(block < 0 ? "inactive" : "active_allocated")}}));
  }
  return pickled_dict({{"device", pickled(std::int64_t{0})},
                       {"address", pickled(address)},
                       {"total_size", pickled(total)},
                       {"stream", pickled(stream)},
                       {"blocks", pickled_list(items)}});
}

std::string snapshot_of(const std::vector<std::string>& events, const std::vector<std::string>& segments,
                        std::string_view alloc_conf) {
  return pickle_of(
      pickled_dict({{"segments", pickled_list(segments)},
                    {"device_traces", pickled_list({pickled_list(events)})},
                    {"allocator_settings", pickled_dict({{"PYTORCH_CUDA_ALLOC_CONF", pickled(alloc_conf)}})}}));
}

}  // namespace fsdp::planner
