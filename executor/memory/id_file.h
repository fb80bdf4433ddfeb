#pragma once

// Whole numbers of a file, mapped.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "core/base/result.h"

namespace fsdp::executor {

class MappedIds {
 public:
  /// A .npy file of whole numbers, or raw ones of `raw_type` (uint16, int32, uint32, int64). Errors: a file that cannot
  /// be read, or is of another kind.
  static Result<std::shared_ptr<const MappedIds>> open(const std::string& path, const std::string& raw_type);
  ~MappedIds();
  MappedIds(const MappedIds&) = delete;
  MappedIds& operator=(const MappedIds&) = delete;

  const std::string& path() const { return path_; }
  std::int64_t count() const { return count_; }
  const std::string& type() const { return type_; }
  /// REQUIRES: index < count().
  std::int64_t at(std::int64_t index) const;

 private:
  MappedIds() = default;

  std::string path_;
  std::string type_;
  const char* mapped_ = nullptr;
  std::size_t mapped_bytes_ = 0;
  const char* ids_ = nullptr;
  std::int64_t bytes_per_id_ = 2;
  bool is_signed_ = false;
  std::int64_t count_ = 0;
};

}  // namespace fsdp::executor
