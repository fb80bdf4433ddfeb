#pragma once

// Allocations, collectives and FLOPs of torch.optim.Muon for one matrix. newton_schulz.cpp has their order.

#include <cstdint>
#include <vector>

#include "core/report/report.h"
#include "simulator/ops/dtensor_products.h"
#include "simulator/ops/reduction_scratch.h"

namespace fsdp::simulator {

/// The maximum number of tensors that Muon has of a matrix at once.
inline constexpr int kNumMuonTensors = 20;

struct MuonEvent {
  enum class What : std::uint8_t { Alloc, Free, Collective };
  What what = What::Alloc;
  int tensor = -1;                                        ///< For Alloc and Free: below `MuonUpdate::num_tensors`.
  std::int64_t bytes = 0;                                 ///< Bytes of Alloc. Payload of Collective, as in reports.
  CollectiveKind collective = CollectiveKind::AllReduce;  ///< In bfloat16.
  int dimension = 0;                                      ///< Dimension of the mesh.

  bool operator==(const MuonEvent&) const = default;
};

/// The matrix, and the options of the optimizer.
struct MuonMatrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t item = 4;  ///< Bytes of an element of the gradient.
  bool nesterov = true;
  std::int64_t ns_steps = 5;

  bool operator==(const MuonMatrix&) const = default;
};

/// The number of a freed tensor may be reused.
struct MuonUpdate {
  std::vector<MuonEvent> making;    ///< Until the new update exists; then the update of the previous matrix is freed.
  std::vector<MuonEvent> changing;  ///< The rest. The update itself stays until the next matrix replaces it.
  int update = -1;                  ///< The tensor that stays. -1 if the rank has nothing of the matrix.
  int num_tensors = 0;
  double flops = 0;    ///< On the rank, in bfloat16.
  double traffic = 0;  ///< Bytes that the rank's kernels read and write.

  bool operator==(const MuonUpdate&) const = default;
};

/// The update of a matrix whose rows are sharded over the last dimension of the mesh; for a mesh of one device, of the
/// whole matrix. REQUIRES: rows and columns divide by the devices of the mesh, or its last dimension has one.
MuonUpdate muon_update(const MuonMatrix& matrix, const TensorMesh& mesh, const LaunchLimits& limits);

}  // namespace fsdp::simulator
