#pragma once

#include <string>
#include <utility>
#include <vector>

namespace fsdp::planner {

/// Variables that keep what a rehearsed script would send to trackers and hubs from being sent. `folder`: for what they
/// write instead. Variables that the user has set so that models may be fetched stay as they are.
std::vector<std::pair<std::string, std::string>> offline_environment(const std::string& folder);

}  // namespace fsdp::planner
