#pragma once

// Integers of a file, read a sample at a time. Mapping the file would end the process silently if the file became
// shorter during training.

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/result.h"

namespace fsdp::executor {

class IdFile {
 public:
  /// A .npy file of integers, or raw ones of `raw_type` (uint16, int32, uint32, int64). Errors: a file that cannot be
  /// read, is of another kind, or ends within a number.
  static Result<std::shared_ptr<const IdFile>> open(const std::string& path, const std::string& raw_type);
  ~IdFile();
  IdFile(const IdFile&) = delete;
  IdFile& operator=(const IdFile&) = delete;

  const std::string& path() const { return path_; }
  std::int64_t count() const { return count_; }
  const std::string& type() const { return type_; }
  /// Numbers [begin, begin + count). May be called by several threads. REQUIRES: begin + count <= count(). Throws
  /// std::runtime_error if the file has become shorter, or cannot be read any more.
  std::vector<std::int64_t> read(std::int64_t begin, std::int64_t count) const;

 private:
  IdFile() = default;

  std::string path_;
  std::string type_;
  int descriptor_ = -1;
  std::int64_t begins_ = 0;  ///< Bytes before the first number.
  std::int64_t bytes_per_id_ = 2;
  bool is_signed_ = false;
  std::int64_t count_ = 0;
};

}  // namespace fsdp::executor
