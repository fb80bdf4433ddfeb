// The ranks of a node share its drives, which read and write one after the other. With R bytes that a rank's optimizer
// reads, W that it writes, a bandwidth B of its own and U that the host computes, its turn takes
//
//   U + R/B + W/B             one sub-group after the other,
//   max(U, R/B) + W/B         with pipeline_read,
//   max(U, W/B) + R/B         with pipeline_write,
//   max(U, R/B + W/B)         with both.
//
// A gradient is written on the stream of its reduction, beside the backward. A part of a parameter is read before it is
// gathered; reads ahead run beside the use of others, and take no time.
//
// Sources: deepspeed/runtime/swap_tensor/partitioned_optimizer_swapper.py, pipelined_optimizer_swapper.py
// (swap_in_optimizer_state, swap_out_optimizer_state), DeepSpeed 0.19.8.
//
// Not modeled: the first sub-group of a pipeline, which has no compute beside it; a drive that reads faster than it
// writes; the cost of many small requests; drives that slow down under long writes.

#include "simulator/time/drive_times.h"

#include <algorithm>

#include "core/frameworks/zero/zero_nvme.h"

namespace fsdp::simulator {

Seconds with_drive(Seconds updating, const Layout& layout, const Plan& plan, BytesPerSecond drive) {
  if (!uses_drive(plan)) return updating;
  const DriveUse use = drive_use(layout, plan, Schedule{});
  const Seconds read = Bytes(use.read) / drive;
  const Seconds written = Bytes(use.written - use.gradients) / drive;
  const NvmeOptions& nvme = plan.zero.nvme;
  if (nvme.pipeline_read && nvme.pipeline_write) return std::max(updating, read + written);
  if (nvme.pipeline_read) return std::max(updating, read) + written;
  if (nvme.pipeline_write) return std::max(updating, written) + read;
  return updating + read + written;
}

Seconds gradient_write_time(const GradientBucket& bucket, const Layout& layout, const Plan& plan,
                            BytesPerSecond drive) {
  if (!uses_drive(plan) || !plan.zero.nvme.optimizer) return Seconds(0);
  const double written = static_cast<double>(drive_use(layout, plan, Schedule{}).gradients);
  std::int64_t all = 0;
  for (const GradientBucket& each : layout.buckets) all += each.elements;
  if (all == 0) return Seconds(0);
  const double share = static_cast<double>(bucket.elements) / static_cast<double>(all);
  return Seconds(share * written / drive.count() / static_cast<double>(plan.accumulation));
}

Seconds parameter_read_time(const ParameterGroup& group, const Plan& plan, BytesPerSecond drive) {
  if (!uses_drive(plan)) return Seconds(0);
  return Bytes(group.drive_bytes) / drive;
}

}  // namespace fsdp::simulator
