// A run of different lengths through one allocator.
//
// Nothing is reset between steps: segments that an early long batch made serve later ones, and blocks that the split of
// a short batch left stay as they are. That is the fragmentation for which a run may run out of memory after thousands
// of steps.
//
// As long as reserved memory is below the device's, no request is refused, and pools (segment_pool.h) give the same
// bytes as the whole model of the allocator in a seventh of the time. So we try them first. If they come to the limit,
// the run is repeated with the whole model, which returns the cache and asks again, as PyTorch does:
//
//   request -> cudaMalloc refused -> all cached segments without a live block return (num_alloc_retries + 1)
//           -> cudaMalloc again -> refused: torch.OutOfMemoryError (num_ooms + 1), which ends the run.
//
// Sources: pytorch, c10/cuda/CUDACachingAllocator.cpp (malloc, release_cached_blocks); docs/allocator.md.

#include "simulator/lengths/length_run.h"

#include <algorithm>
#include <cassert>

#include "simulator/allocator/allocator_sizes.h"

namespace fsdp::simulator {

namespace {

/// Plays pieces into a sink.
template <class Sink>
class Player {
 public:
  Player(const RecordedLengths& recorded, Sink& sink) : recorded_(recorded), sink_(sink) {}

  void play(const EventPiece& piece) {
    const bool swaps = piece.turn >= 0 ? piece.turn == turn_ : is_swapped_;
    if (piece.turn >= 0) turn_ = swaps ? 1 - piece.turn : piece.turn;
    is_swapped_ = swaps;
    std::size_t next = 0;
    for (const RunEvent& event : *piece.events) {
      const int id = swaps && recorded_.is_input(event.id) ? recorded_.other_place(event.id) : event.id;
      switch (event.kind) {
        case RunEventKind::Alloc:
          sink_.alloc(id, piece.bytes[next++], event.stream, MemoryCategory::Temp);
          if (sink_.has_enough()) return;
          break;
        case RunEventKind::Free:
          sink_.free(id);
          break;
        case RunEventKind::ReturnCache:
          sink_.empty_cache();
          break;
      }
    }
  }

 private:
  const RecordedLengths& recorded_;
  Sink& sink_;
  int turn_ = 1;  // The first micro-batch arrives in place 0.
  bool is_swapped_ = false;
};

/// The walked piece of a micro-batch.
const EventPiece& piece_at(const std::vector<EventPiece>& pieces, std::int64_t micro_batch, std::int64_t count) {
  const auto walked = static_cast<std::int64_t>(pieces.size());
  assert(walked > 0);
  if (micro_batch + 1 == count) return pieces.back();
  return pieces[static_cast<std::size_t>(std::min<std::int64_t>(micro_batch, walked - 2))];
}

/// `flushes`: the allocator's so far.
template <class Sink, class Flushes>
LengthRun run(const RecordedLengths& recorded, const std::vector<std::int64_t>& lengths, Sink& sink,
              const Flushes& flushes, const auto& current) {
  LengthRun result;
  Player<Sink> player(recorded, sink);
  const std::int64_t count = recorded.accumulation();
  const auto finish = [&] {
    result.peak_reserved = std::max(result.peak_reserved, sink.peak_reserved());
    result.peak_allocated = std::max(result.peak_allocated, sink.peak_allocated());
  };
  if (!lengths.empty()) player.play(recorded.at(lengths.front()).initialization);
  finish();
  for (std::size_t i = 0; i < lengths.size() && !sink.has_enough();) {
    sink.reset_peak();
    const std::int64_t before = flushes();
    for (std::int64_t m = 0; m < count && !sink.has_enough(); ++m, ++i) {
      const LengthEvents& events = recorded.at(lengths[i]);
      const std::size_t step = result.steps.size();
      const std::vector<EventPiece>& pieces = step == 0 ? events.first : step == 1 ? events.second : events.steady;
      player.play(piece_at(pieces, m, count));
    }
    const auto [allocated, reserved] = current();
    result.steps.push_back({.allocated = sink.peak_allocated(),
                            .reserved = sink.peak_reserved(),
                            .allocated_after = allocated,
                            .reserved_after = reserved,
                            .flushes = flushes() - before});
    finish();
  }
  result.flushes = flushes();
  result.is_out_of_memory = sink.has_enough();
  return result;
}

struct Current {
  Bytes allocated, reserved;
};

}  // namespace

LengthRun run_lengths(const RecordedLengths& recorded, const std::vector<std::int64_t>& lengths,
                      const AllocatorSettings& settings, const AllocatorDevice& device, LengthAllocators& allocators) {
  // The driver counts in units.
  const Bytes room = device.total - device.used_by_others - Bytes(kDriverUnit);
  PoolSink& pools = allocators.pools;
  // Pools cannot return pages of expandable segments.
  const bool can_use_pools = pools_suffice(settings) && !(settings.expandable_segments && recorded.returns_cache());
  if (can_use_pools && room > Bytes(0)) {
    pools.reset(recorded.num_ids(), settings, room);
    LengthRun result = run(
        recorded, lengths, pools, [] { return std::int64_t{0}; },
        [&] {
          return Current{pools.allocated(), pools.reserved()};
        });
    if (!result.is_out_of_memory) return result;
  }
  CachingAllocator& allocator = allocators.allocator;
  allocator.reset(device, settings);
  AllocatorSink sink(recorded.num_ids(), allocator);
  LengthRun result = run(
      recorded, lengths, sink, [&] { return allocator.num_alloc_retries(); },
      [&] {
        return Current{allocator.allocated_bytes(), allocator.reserved_bytes()};
      });
  result.refused = allocator.last_out_of_memory();
  return result;
}

}  // namespace fsdp::simulator
