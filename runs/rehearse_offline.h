#pragma once

#include <string>
#include <utility>
#include <vector>

namespace fsdp::runs {

/// Variables that stop a rehearsed script's uploads to trackers and hubs. `folder`: for the local files that they
/// write instead. Variables that the user has set to fetch models stay unchanged.
std::vector<std::pair<std::string, std::string>> offline_environment(const std::string& folder);

}  // namespace fsdp::runs
