#pragma once

// Which parts of parameters ZeRO-3 reads from a drive when, and how many buffers they are in: DeepSpeed's
// AsyncPartitionedParameterSwapper, call by call. zero_drive_reader.cpp says how.

#include <cstdint>
#include <vector>

#include "core/plan/plan.h"
#include "core/plan/schedule.h"
#include "core/plan/sharding.h"

namespace fsdp {

/// Parts of parameters on the drive; of plans without one, nothing.
class ZeroDriveReader {
 public:
  ZeroDriveReader(const Layout& layout, const Plan& plan, std::size_t num_parameters);

  /// Some part is on a drive.
  bool has_any() const { return has_any_; }
  /// It is neither in a buffer nor on its way.
  bool is_away(int parameter) const { return on_drive_[parameter] && parts_[parameter] == Part::Away; }
  /// They are about to be gathered. Returns bytes that the CPU reads, and waits for.
  std::int64_t need(const std::vector<int>& parameters);
  /// They are read while others are used.
  void read_ahead(const std::vector<int>& parameters);
  /// The part is used no more, and its buffer is free.
  void release(int parameter);

  std::int64_t free_buffers() const { return buffers_ - used_; }
  /// Bytes read, and number of buffers needed, since the last call.
  DriveReads take_counts();

 private:
  enum class Part : std::uint8_t { Away, OnItsWay, There };

  void read(int parameter, Part becomes);

  std::vector<bool> on_drive_;  // [parameters]
  bool has_any_ = false;
  std::vector<Part> parts_;          // [parameters]
  std::vector<std::int64_t> bytes_;  // [parameters] Of the file.
  std::int64_t buffers_ = 0;
  std::int64_t used_ = 0;
  DriveReads counts_;
};

}  // namespace fsdp
