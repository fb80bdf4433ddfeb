#pragma once

// The progress of a run: a line of JSON for each step and evaluation, written to the disk at once.

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>

#include "core/base/json_writer.h"
#include "core/base/result.h"

namespace fsdp::executor {

class MetricsFile {
 public:
  /// Continues a file of this kind, and removes lines of steps after `steps_before`. Errors: the file is of another
  /// kind, and is not changed; it cannot be written.
  static Result<MetricsFile> open(const std::string& path, std::int64_t steps_before);

  /// Writes a line. Error: the disk refuses.
  Result<void> add(JsonWriter line);

 private:
  std::string path_;
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_{nullptr, &std::fclose};
};

}  // namespace fsdp::executor
