// The driver makes a file /dev/nvidiaN for each GPU; a container has only the files of its own GPUs.
//
// Source: CUDA C++ Programming Guide, CUDA_VISIBLE_DEVICES (the list ends at the first invalid number).

#include "runs/gpus_here.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <system_error>

namespace fsdp::runs {

namespace {

int num_visible(std::string_view list) {
  int count = 0;
  while (!list.empty() && list.front() != '-') {
    ++count;
    const std::size_t comma = list.find(',');
    if (comma == std::string_view::npos) break;
    list.remove_prefix(comma + 1);
  }
  return count;
}

bool is_gpu(const std::string& name) {
  constexpr std::string_view kStart = "nvidia";
  return name.size() > kStart.size() && name.starts_with(kStart) &&
         std::all_of(name.begin() + kStart.size(), name.end(), [](unsigned char c) { return std::isdigit(c) != 0; });
}

}  // namespace

int num_gpus_here() {
  int count = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/dev", error)) {
    if (is_gpu(entry.path().filename().string())) ++count;
  }
  const char* visible = std::getenv("CUDA_VISIBLE_DEVICES");
  return visible == nullptr ? count : std::min(count, num_visible(visible));
}

}  // namespace fsdp::runs
