#pragma once

// Allocations, collectives and FLOPs of torch.optim.Muon for one matrix. newton_schulz.cpp has the order of it.

#include <cstdint>
#include <vector>

#include "core/report/report.h"
#include "simulator/ops/dtensor_products.h"
#include "simulator/ops/reduction_scratch.h"

namespace fsdp::simulator {

/// The most tensors that Muon has of a matrix at once.
inline constexpr int kNumMuonTensors = 20;

struct MuonEvent {
  enum class What : std::uint8_t { Alloc, Free, Collective };
  What what = What::Alloc;
  int tensor = -1;                                        ///< For Alloc and Free: below `MuonUpdate::num_tensors`.
  std::int64_t bytes = 0;                                 ///< Bytes of Alloc. For Collective its payload, as reports
                                                          ///< have it.
  CollectiveKind collective = CollectiveKind::AllReduce;  ///< In bfloat16.
  int dimension = 0;                                      ///< Dimension of the mesh.

  bool operator==(const MuonEvent&) const = default;
};

/// The matrix, and how the optimizer was made.
struct MuonMatrix {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::int64_t item = 4;  ///< Bytes of an element of the gradient.
  bool nesterov = true;
  std::int64_t ns_steps = 5;

  bool operator==(const MuonMatrix&) const = default;
};

/// A number of a tensor may be given to another one once it is free.
struct MuonUpdate {
  std::vector<MuonEvent> making;    ///< Until the new update is there, after which that of the matrix before goes.
  std::vector<MuonEvent> changing;  ///< All that follows. The update itself stays, until the next matrix has its own.
  int update = -1;                  ///< The tensor that stays; -1: none, as of a matrix of which the rank has nothing.
  int num_tensors = 0;
  double flops = 0;    ///< On the rank, in bfloat16.
  double traffic = 0;  ///< Bytes that the rank's kernels read and write.

  bool operator==(const MuonUpdate&) const = default;
};

/// The update of a matrix whose rows are cut over the last dimension of the mesh; of a mesh of one device, of the whole
/// matrix. REQUIRES: rows and columns divide by the devices of the mesh, or its last dimension has one.
MuonUpdate muon_update(const MuonMatrix& matrix, const TensorMesh& mesh, const LaunchLimits& limits);

}  // namespace fsdp::simulator
