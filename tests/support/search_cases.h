#pragma once

// Random and fixed requests for searches, and their prices by brute force.

#include <cstdint>
#include <memory>
#include <vector>

#include "core/cluster/cluster.h"
#include "core/spec/model_spec.h"
#include "planner/search/predicted_cost.h"
#include "planner/search/predictors.h"
#include "planner/space/families.h"
#include "planner/space/space.h"

namespace fsdp::planner {

inline constexpr Bytes kPlenty(std::int64_t{64} << 30);

/// A model on a cluster, with all that a search needs but its budget.
struct Case {
  ModelSpec spec;
  Workload workload;
  Cluster cluster;
  Space space;
};

/// Four blocks of a decoder on four GPUs of one node.
Case standard_case(Bytes memory);

/// A small decoder, mixture of experts, encoder with a decoder, or TTS model on up to two nodes, with a part of the
/// space: all of it would take seconds by brute force. REQUIRES: runs inside a property.
Case random_case();

/// The parts of a search, put together as search() does. REQUIRES: the case outlives it.
struct Engine {
  explicit Engine(const Case& c);
  /// A search that has asked nothing so far, of the model and the cluster of another: models and tapes are shared.
  Engine(const Case& c, const Engine& other);

  std::shared_ptr<Predictors> predictors;
  Families families;
  PredictedCost cost;

 private:
  Engine(const Case& c, std::shared_ptr<Predictors> shared);
};

/// A point with its full prediction.
struct Priced {
  Box box;
  double nanoseconds = 0;
  std::int64_t needed = 0;
};

/// Every point of the space, in its order. What needs more than `enough` is told as any number above it that is not too
/// large.
std::vector<Priced> price_all(Engine& engine, Bytes enough = simulator::kWholePrediction);

}  // namespace fsdp::planner
