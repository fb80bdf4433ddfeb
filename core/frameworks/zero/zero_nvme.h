#pragma once

// The parts of DeepSpeed's ZeRO-3 in files on an NVMe drive (ZeRO-Infinity). zero_nvme.cpp says what goes there.

#include <cstdint>
#include <vector>

#include "core/model/model.h"
#include "core/plan/plan.h"
#include "core/plan/schedule.h"
#include "core/plan/sharding.h"

namespace fsdp {

/// Something of the plan is on a drive.
bool uses_drive(const Plan& plan);

/// Elements of a file for so many of `item` bytes each: DeepSpeed writes whole pieces.
std::int64_t elements_of_file(std::int64_t elements, std::int64_t item, const Plan& plan);

/// Bytes of the file that a rank's part of a parameter has.
std::int64_t file_bytes(const ShardedParameter& p, const Layout& layout, const Plan& plan);

/// Tensors of fewer bytes stay in memory.
std::int64_t smallest_file(const Plan& plan);

/// [sub-groups] What the optimizer updates of it is on the drive. REQUIRES: a layout of ZeRO-3.
std::vector<bool> groups_on_drive(const ZeroBuffer& buffer, const Plan& plan);

/// Sub-groups, the first ones, whose 16-bit parameters are in host memory as one tensor: max_in_cpu. REQUIRES: the
/// same, and a plan with parameters on the drive.
std::size_t groups_in_memory(const ZeroBuffer& buffer, const Plan& plan);

/// [num parameters] The rank's part of it is on the drive, trained or not. REQUIRES: a layout of ZeRO-3.
std::vector<bool> parameters_on_drive(const Layout& layout, const Plan& plan);

/// Bytes of the buffer by which updated parameters go to the drive; 0: none does. REQUIRES: the same.
std::int64_t parameter_write_buffer(const Layout& layout, const Plan& plan);

/// Total elements of the page-locked buffers of the optimizer's sub-groups, and of its parameters. In bytes.
std::int64_t optimizer_swap_buffers(const ZeroBuffer& buffer, const Plan& plan);
std::int64_t parameter_swap_buffers(const Layout& layout, const Plan& plan);

/// How many of the optimizer's buffers DeepSpeed needs at once.
std::int64_t needed_optimizer_buffers(const ZeroBuffer& buffer, const Plan& plan);

/// Elements of a part of a gradient, of `elements`, that go into a file; the others stay on the device until the
/// optimizer reads them, in the tensor that all of them are in.
std::int64_t gradient_elements_on_drive(std::int64_t elements, const Plan& plan);

/// For one rank.
struct DriveUse {
  std::int64_t kept = 0;       ///< Bytes of all files.
  std::int64_t read = 0;       ///< In a steady step: by the optimizer, and
  std::int64_t written = 0;    ///< by it and by the backward.
  std::int64_t fetched = 0;    ///< Read by forward and backward: parameters.
  std::int64_t gradients = 0;  ///< The part of `written` that the backward writes.

  bool operator==(const DriveUse&) const = default;
};
DriveUse drive_use(const Layout& layout, const Plan& plan, const Schedule& steady);

/// Settings with which DeepSpeed fails: too few buffers, or too small ones. REQUIRES: a plan that uses a drive.
Errors check_drive(const Layout& layout, const Plan& plan, const Schedule& first, const Schedule& steady);

/// All that DeepSpeed refuses of a plan's NVMe, and what is not predicted, whatever its layout is.
Errors check_nvme(const Plan& plan);

}  // namespace fsdp
