#pragma once

// Listens to the memory walk for what it reserves, and nothing else: for searches, which ask it of hundreds of plans.

#include <algorithm>
#include <array>
#include <cstdint>
#include <deque>
#include <vector>

#include "simulator/allocator/allocator_settings.h"
#include "simulator/allocator/segment_pool.h"
#include "simulator/memory/memory_sinks.h"

namespace fsdp::simulator {

/// Feeds a pool for each stream and size class. Kept from one walk to the next for its memory.
class ReservedSink {
 public:
  /// Begins a walk, which ends when more than `enough` bytes are reserved. REQUIRES: pools_suffice(settings).
  /// With `holds`, memory that another stream uses comes back when the CPU has waited for it; else at once.
  void reset(int num_ids, const AllocatorSettings& settings, Bytes enough, bool holds = false) {
    if (places_.size() < static_cast<std::size_t>(num_ids)) places_.resize(static_cast<std::size_t>(num_ids));
    ++walk_;
    for (SegmentPool& pool : pools_) pool.reset(settings.large_segment_size.count());
    reserved_ = most_ = 0;
    enough_ = enough.count();
    holds_ = holds;
    for (std::deque<Held>& held : held_) held.clear();
  }

  void alloc(int id, std::int64_t bytes, MemoryStream stream, MemoryCategory /*category*/) {
    if (bytes == 0) return;
    const std::int64_t size = (bytes + 511) / 512 * 512;
    const int number = 2 * static_cast<int>(stream) + (size > SegmentPool::kLargestSmall ? 1 : 0);
    SegmentPool& pool = pools_[number];
    reserved_ -= pool.reserved();
    places_[id] = {pool.malloc(size), number, walk_};
    reserved_ += pool.reserved();
  }
  void free(int id) {
    Place& place = places_[id];
    if (place.block < 0 || place.walk != walk_) return;
    pools_[static_cast<std::size_t>(place.pool)].free(place.block);
    place.block = -1;
  }
  /// Whether memory that another stream uses comes back late.
  bool holds() const { return holds_; }
  /// The other stream is past it at `ticket`.
  void free_behind(int id, MemoryStream stream, std::int64_t ticket) {
    Place& place = places_[id];
    if (!holds_ || place.block < 0 || place.walk != walk_) return free(id);
    held_[static_cast<std::size_t>(stream)].push_back({ticket, place});
    place.block = -1;
  }
  /// The CPU knows that a stream is past `ticket`.
  void reach(MemoryStream stream, std::int64_t ticket) {
    std::deque<Held>& held = held_[static_cast<std::size_t>(stream)];
    for (; !held.empty() && held.front().ticket <= ticket; held.pop_front()) {
      const Place& place = held.front().place;
      pools_[static_cast<std::size_t>(place.pool)].free(place.block);
    }
  }
  void mark() {}
  void collective() {}
  void empty_cache() {
    most_ = std::max(most_, reserved_);
    reserved_ = 0;
    for (SegmentPool& pool : pools_) {
      pool.give_back();
      reserved_ += pool.reserved();
    }
  }

  bool has_enough() const { return reserved_ > enough_; }
  /// The most of the walk so far.
  Bytes reserved() const { return Bytes(std::max(most_, reserved_)); }

 private:
  struct Place {
    std::int32_t block = -1;
    std::int32_t pool = 0;
    std::uint32_t walk = 0;  // In which it was made.
  };

  struct Held {
    std::int64_t ticket = 0;
    Place place;
  };

  std::vector<Place> places_;  // [num ids]
  std::array<std::deque<Held>, kNumMemoryStreams> held_;
  bool holds_ = false;
  std::uint32_t walk_ = 0;
  std::array<SegmentPool, 2 * kNumMemoryStreams> pools_ = {
      SegmentPool(false), SegmentPool(true),  SegmentPool(false), SegmentPool(true),  SegmentPool(false),
      SegmentPool(true),  SegmentPool(false), SegmentPool(true),  SegmentPool(false), SegmentPool(true)};
  std::int64_t reserved_ = 0;
  std::int64_t most_ = 0;  // Before the cache was emptied.
  std::int64_t enough_ = kEndlessMemory.count();
};

}  // namespace fsdp::simulator
