#include "executor/measured/metrics_file.h"

#include <fmt/format.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string_view>
#include <system_error>
#include <utility>

#include "core/base/files.h"

namespace fsdp::executor {

namespace {

constexpr std::string_view kBegin = "{\"step\": ";

}  // namespace

Result<MetricsFile> MetricsFile::open(const std::string& path, std::int64_t steps_before) {
  std::error_code error;
  if (std::filesystem::exists(path, error)) {
    if (!std::filesystem::is_regular_file(path, error))
      return failure(path, "Metrics cannot be written to this: it is not a regular file.");
    std::ifstream before(path, std::ios::binary);
    std::string kept;
    for (std::string line; std::getline(before, line);) {
      if (!line.starts_with(kBegin)) {
        return failure(path, "This file exists and was not written by --metrics.", "Name another.");
      }
      // The last line of a killed run may be incomplete.
      const bool is_whole = line.ends_with('}');
      if (is_whole && std::strtoll(line.c_str() + kBegin.size(), nullptr, 10) <= steps_before) kept += line + "\n";
    }
    if (const Result<void> written = write_file_atomically(path, kept, Overwrite::Allow); !written) {
      return tl::unexpected(written.error());
    }
  }
  MetricsFile metrics;
  metrics.path_ = path;
  metrics.file_.reset(std::fopen(path.c_str(), "a"));
  if (!metrics.file_) return failure(path, fmt::format("The file cannot be written: {}.", std::strerror(errno)));
  return metrics;
}

Result<void> MetricsFile::add(JsonWriter line) {
  std::string text = std::move(line).take();
  while (!text.empty() && text.back() == '\n') text.pop_back();
  text += '\n';
  const bool is_written =
      std::fwrite(text.data(), 1, text.size(), file_.get()) == text.size() && std::fflush(file_.get()) == 0;
  if (is_written) return {};
  return failure(path_, fmt::format("The file cannot be written: {}.", std::strerror(errno)));
}

}  // namespace fsdp::executor
