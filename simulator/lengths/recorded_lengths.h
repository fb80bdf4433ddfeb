#pragma once

// The requests for memory of one plan's steps at several lengths of a batch, under numbers that all lengths share, so
// that one allocator can serve a run whose batches differ. recorded_lengths.cpp explains how.

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "core/base/result.h"
#include "core/cluster/cluster.h"
#include "core/model/model.h"
#include "core/plan/plan.h"
#include "simulator/memory/memory_ids.h"
#include "simulator/memory/memory_sinks.h"
#include "simulator/time/plan_times.h"

namespace fsdp::simulator {

enum class RunEventKind : std::uint8_t { Alloc, Free, ReturnCache };

/// A request without its bytes, a free, or torch.cuda.empty_cache().
struct RunEvent {
  std::int32_t id = 0;
  MemoryStream stream = MemoryStream::Compute;  ///< That of an Alloc.
  RunEventKind kind = RunEventKind::Alloc;

  bool operator==(const RunEvent&) const = default;
};

/// The events from the arrival of one micro-batch to that of the next one.
struct EventPiece {
  std::shared_ptr<const std::vector<RunEvent>> events;  ///< Shared by the lengths that have the same ones.
  std::vector<std::int64_t> bytes;                      ///< [Allocs of `events`] As requested.
  /// The place, 0 or 1, of the inputs that arrive in it: the batch before has the other one. -1 if none arrive.
  int turn = -1;
};

/// The pieces of a run whose micro-batches all have one length.
struct LengthEvents {
  EventPiece initialization;       ///< With the arrival of the first micro-batch.
  std::vector<EventPiece> first;   ///< [micro-batches walked] The first step.
  std::vector<EventPiece> second;  ///< The second one.
  std::vector<EventPiece> steady;  ///< All later ones.
};

class RecordedLengths {
 public:
  /// `rank`: of the world. REQUIRES: both outlive this.
  RecordedLengths(const Cluster& cluster, const Plan& plan, std::int64_t rank);

  /// Records one length, unless it is known. `model`: the model at that length. Only a length `with_start` has the
  /// pieces of initialization and of the first two steps. Errors: those of Predictor::report.
  Result<void> record(std::int64_t length, const Model& model, bool with_start);

  /// REQUIRES: it was recorded.
  const LengthEvents& at(std::int64_t length) const { return lengths_.at(length); }
  bool has(std::int64_t length, bool with_start = false) const {
    const auto found = lengths_.find(length);
    return found != lengths_.end() && (!with_start || !found->second.first.empty());
  }
  /// True if a step returns the cache by itself, as ZeRO-3's does.
  bool returns_cache() const { return returns_cache_; }

  /// Micro-batches of a step.
  std::int64_t accumulation() const { return plan_.accumulation; }
  const Plan& plan() const { return plan_; }
  const Cluster& cluster() const { return cluster_; }
  /// Numbers are below this.
  int num_ids() const { return base_.total + static_cast<int>(beyond_.size()); }
  /// True if `id` is an input of a micro-batch; then the same input of the other place.
  bool is_input(int id) const {
    return id >= base_.inputs_base() && id < inputs_end_ && (id - base_.inputs_base()) % 3 < 2;
  }
  int other_place(int id) const { return (id - base_.inputs_base()) % 3 == 0 ? id + 1 : id - 1; }

 private:
  int common_id(const MemoryIds& ids, int id);
  EventPiece piece_of(const MemoryIds& ids, std::size_t begin, std::size_t end);
  std::vector<EventPiece> pieces_of(const MemoryIds& ids, std::size_t begin, std::size_t end);
  std::shared_ptr<const std::vector<RunEvent>> share(std::vector<RunEvent> events);

  const Cluster& cluster_;
  const Plan& plan_;
  std::int64_t rank_;
  MeshCosts mesh_;
  TraceSink trace_;
  MemoryIds base_;  // Those of the first recorded length.
  int inputs_end_ = 0;
  bool returns_cache_ = false;
  bool has_base_numbers_ = false;              // True while a length with the numbers of `base_` is recorded.
  std::map<std::pair<int, int>, int> beyond_;  // Numbers of storages that `base_` lacks, by call and storage.
  std::vector<std::shared_ptr<const std::vector<RunEvent>>> known_;
  std::map<std::int64_t, LengthEvents> lengths_;
};

}  // namespace fsdp::simulator
