// Every rank of a node has files of its own on one nvme_path. Their parts are padded to one size, so no rank has more
// than the first one, and a node has that size times its number of GPUs.
//
// Sources: deepspeed/runtime/swap_tensor/optimizer_utils.py, partitioned_param_swapper.py (a folder for each rank),
// DeepSpeed 0.19.8.
//
// Not modeled: a file system's own data; files of an earlier run, which stay.

#include "simulator/memory/drive_report.h"

#include "core/frameworks/zero/zero_nvme.h"

namespace fsdp::simulator {

std::optional<DriveReport> drive_report(const Cluster& cluster, const Plan& plan, const Layout& layout,
                                        const Schedule& steady) {
  if (!uses_drive(plan)) return std::nullopt;
  const DriveUse use = drive_use(layout, plan, steady);
  const std::int64_t ranks = cluster.gpus_per_node;
  const Sourced<BytesPerSecond> bandwidth = nvme_bandwidth(cluster);
  DriveReport report{.kept = Bytes(ranks * use.kept),
                     .read = Bytes(ranks * (use.read + use.fetched)),
                     .written = Bytes(ranks * use.written),
                     .in_a_second = Bytes(static_cast<std::int64_t>(bandwidth.value.count())),
                     .provenance = bandwidth.provenance,
                     .source = bandwidth.source};
  if (cluster.nvme_capacity) report.capacity = cluster.nvme_capacity->value;
  return report;
}

}  // namespace fsdp::simulator
