#pragma once

// Memory snapshots as PyTorch writes them, for tests: values of a pickle as its bytes, put together.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace fsdp::planner {

std::string pickled(std::int64_t number);
std::string pickled(std::string_view text);
std::string pickled_list(const std::vector<std::string>& items);
std::string pickled_dict(const std::vector<std::pair<std::string, std::string>>& items);
/// The file.
std::string pickle_of(const std::string& root);

/// An entry of a device's history; `line` is that of train.py which asked, in `function`.
std::string snapshot_event(std::string_view action, std::int64_t address, std::int64_t size, std::int64_t stream = 0,
                           std::int64_t line = 0, std::string_view function = "main");
/// A segment at the end; blocks are sizes, negative ones free.
std::string snapshot_segment(std::int64_t address, const std::vector<std::int64_t>& blocks, std::int64_t stream = 0);

/// A snapshot of one device.
std::string snapshot_of(const std::vector<std::string>& events, const std::vector<std::string>& segments = {},
                        std::string_view alloc_conf = "");

}  // namespace fsdp::planner
