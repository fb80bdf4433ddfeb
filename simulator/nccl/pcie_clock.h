#pragma once

// The time of a collective between the GPUs of one node without NVLink.

#include "core/base/units.h"
#include "simulator/nccl/group_shape.h"
#include "simulator/nccl/nccl_tuning.h"

namespace fsdp::simulator {

/// Bus bandwidth, as nccl-tests defines it, that large collectives reach between such GPUs: the stated one, otherwise a
/// share of the rate of a GPU's PCIe link. REQUIRES: a group inside one node whose link is PCIe.
BytesPerSecond pcie_bus(const GroupShape& shape);

/// The time of one collective, without overlap. `total` is the whole buffer, as in nccl-tests.
/// REQUIRES: as `pcie_bus`; a tuning of this group; positive total.
Seconds time_over_pcie(const NcclTuning& tuning, const GroupShape& shape, CollectiveKind kind, Bytes total);

}  // namespace fsdp::simulator
