#pragma once

// Listens to the memory walk for the peaks of live, allocated and reserved bytes, through a pool for each stream and
// size class: for every answer under common settings, and for searches, which walk hundreds of plans.

#include <algorithm>
#include <array>
#include <cassert>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "core/base/rounding.h"
#include "simulator/allocator/allocator_settings.h"
#include "simulator/allocator/allocator_sizes.h"
#include "simulator/allocator/segment_pool.h"
#include "simulator/memory/memory_sinks.h"

namespace fsdp::simulator {

/// Feeds a pool for each stream and size class. Reused from one walk to the next for its memory.
class PoolSink {
 public:
  /// Starts a walk, which ends if more than `enough` bytes are reserved. REQUIRES: pools_suffice(settings). With
  /// `holds`, memory that another stream uses returns after the CPU has waited for it; otherwise immediately.
  void reset(int num_ids, const AllocatorSettings& settings, Bytes enough, bool holds = false) {
    if (places_.size() < static_cast<std::size_t>(num_ids)) places_.resize(static_cast<std::size_t>(num_ids));
    ++walk_;
    for (SegmentPool& pool : pools_) pool.reset(settings.large_segment_size.count(), settings.expandable_segments);
    reserved_ = most_ = 0;
    live_ = most_live_ = allocated_ = most_allocated_ = 0;
    enough_ = enough.count();
    place_ = Requests::Usual;
    holds_ = holds;
    for (std::deque<Held>& held : held_) held.clear();
    unused_runs_.clear();
    num_runs_ = 0;
  }

  void alloc(int id, std::int64_t bytes, MemoryStream stream, MemoryCategory /*category*/) {
    if (bytes == 0) return;
    ++num_requests_;
    const std::int64_t size = round_up_to_power(bytes, kMinBlockSize);
    const int number = pool_of(size, stream);
    SegmentPool& pool = pools_[static_cast<std::size_t>(number)];
    const std::int64_t before = pool.reserved();
    SegmentPool::Block* const block = pool.malloc(size);
    reserved_ += pool.reserved() - before;
    places_[id] = {block, bytes, walk_, number};
    live_ += bytes;
    most_live_ = std::max(most_live_, live_);
    allocated_ += block->size;
    most_allocated_ = std::max(most_allocated_, allocated_);
  }
  void free(int id) {
    Place& place = places_[id];
    if (place.block == nullptr || place.walk != walk_) return;
    assert(place.pool >= 0);
    give_up(place);
    pools_[static_cast<std::size_t>(place.pool)].free(place.block);
    place.block = nullptr;
  }
  /// `count` tensors of this size, one after the other, which are freed together. All of them have one number.
  void alloc_alike(int id, std::int64_t count, std::int64_t bytes, MemoryStream stream, MemoryCategory category) {
    if (count == 1) return alloc(id, bytes, stream, category);
    if (bytes == 0) return;
    num_requests_ += 1 + count / kAlikeInARequest;
    const std::int64_t size = round_up_to_power(bytes, kMinBlockSize);
    const int number = pool_of(size, stream);
    SegmentPool& pool = pools_[static_cast<std::size_t>(number)];
    reserved_ -= pool.reserved();
    const std::int32_t number_of_run = new_run();
    Run& run = runs_[static_cast<std::size_t>(number_of_run)];
    run.pool = number;
    pool.malloc_alike(size, count, run.blocks);
    reserved_ += pool.reserved();
    places_[id] = {run.blocks.front(), count * bytes, walk_, -1 - number_of_run};
    live_ += count * bytes;
    most_live_ = std::max(most_live_, live_);
    for (const SegmentPool::Block* block : run.blocks) allocated_ += block->size;
    most_allocated_ = std::max(most_allocated_, allocated_);
  }
  /// Frees memory of alloc_alike.
  void free_alike(int id) {
    Place& place = places_[id];
    if (place.pool >= 0 || place.block == nullptr || place.walk != walk_) return free(id);
    const std::int32_t number = -1 - place.pool;
    const Run& run = runs_[static_cast<std::size_t>(number)];
    live_ -= place.bytes;
    for (SegmentPool::Block* block : run.blocks) {
      allocated_ -= block->size;
      pools_[static_cast<std::size_t>(run.pool)].free(block);
    }
    unused_runs_.push_back(number);
    place.block = nullptr;
  }
  /// True if memory that another stream uses returns late.
  bool holds() const { return holds_; }
  /// The other stream passes its use at `ticket`.
  void free_behind(int id, MemoryStream stream, std::int64_t ticket) {
    Place& place = places_[id];
    if (!holds_ || place.block == nullptr || place.walk != walk_) return free(id);
    give_up(place);
    held_[static_cast<std::size_t>(stream)].push_back({ticket, place});
    place.block = nullptr;
  }
  /// The CPU knows that a stream has passed `ticket`.
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

  /// From here on, requests of the compute stream come from a stream of their own: a CUDA graph's warm-up.
  void begin_warm_up() { place_ = Requests::OfWarmUp; }
  /// From here on, all requests come from the private pool of a CUDA graph, before which the cache is emptied.
  void begin_capture() {
    empty_cache();
    place_ = Requests::OfGraph;
  }
  /// From here on, requests are as usual. What the private pool has reserved stays.
  void end_of_graph() { place_ = Requests::Usual; }

  bool has_enough() const { return reserved_ > enough_; }
  /// The maximum since the walk began or reset_peak() was called.
  Bytes peak_reserved() const { return Bytes(std::max(most_, reserved_)); }
  Bytes peak_allocated() const { return Bytes(most_allocated_); }
  Bytes peak_live() const { return Bytes(most_live_); }
  /// Now.
  Bytes reserved() const { return Bytes(reserved_); }
  Bytes allocated() const { return Bytes(allocated_); }
  /// Requests of all walks so far: a measure of their cost.
  std::int64_t num_requests() const { return num_requests_; }
  void reset_peak() {
    most_ = 0;
    most_live_ = live_;
    most_allocated_ = allocated_;
  }

 private:
  struct Place {
    SegmentPool::Block* block = nullptr;  // For a run, its first one.
    std::int64_t bytes = 0;
    std::uint32_t walk = 0;  // The walk that made it.
    std::int32_t pool = 0;   // Negative: -1 - the number of a run.
  };
  /// Tensors that were allocated together.
  struct Run {
    std::int32_t pool = 0;
    std::vector<SegmentPool::Block*> blocks;
  };

  struct Held {
    std::int64_t ticket = 0;
    Place place;
  };

  static constexpr std::int64_t kAlikeInARequest = 8;  // As many, served together, cost one request.

  enum class Requests : std::uint8_t { Usual, OfWarmUp, OfGraph };
  static constexpr int kPoolsOfGraph = 2 * kNumMemoryStreams;  // The private pool has pools for each stream, too.
  static constexpr int kPoolsOfWarmUp = 2 * kPoolsOfGraph;
  static constexpr int kNumPools = kPoolsOfWarmUp + 2;

  int pool_of(std::int64_t size, MemoryStream stream) const {
    const int large = size > SegmentPool::kLargestSmall ? 1 : 0;
    if (place_ == Requests::OfWarmUp && stream == MemoryStream::Compute) return kPoolsOfWarmUp + large;
    return (place_ == Requests::OfGraph ? kPoolsOfGraph : 0) + 2 * static_cast<int>(stream) + large;
  }

  // Its number; it is empty.
  std::int32_t new_run() {
    if (!unused_runs_.empty()) {
      const std::int32_t number = unused_runs_.back();
      unused_runs_.pop_back();
      runs_[static_cast<std::size_t>(number)].blocks.clear();
      return number;
    }
    if (num_runs_ == runs_.size()) runs_.emplace_back();
    runs_[num_runs_].blocks.clear();
    return static_cast<std::int32_t>(num_runs_++);
  }

  // The program no longer holds it.
  void give_up(const Place& place) {
    live_ -= place.bytes;
    allocated_ -= place.block->size;
  }

  std::vector<Place> places_;  // [num ids]
  std::vector<Run> runs_;      // [num_runs_ and more]
  std::vector<std::int32_t> unused_runs_;
  std::size_t num_runs_ = 0;
  std::array<std::deque<Held>, kNumMemoryStreams> held_;
  bool holds_ = false;
  std::uint32_t walk_ = 0;
  // Each stream's pools of small blocks and of large ones.
  template <std::size_t... kPools>
  static std::array<SegmentPool, sizeof...(kPools)> make_pools(std::index_sequence<kPools...>) {
    return {SegmentPool(kPools % 2 == 1)...};
  }
  std::array<SegmentPool, kNumPools> pools_ = make_pools(std::make_index_sequence<std::size_t{kNumPools}>());
  Requests place_ = Requests::Usual;
  std::int64_t num_requests_ = 0;
  std::int64_t reserved_ = 0;
  std::int64_t most_ = 0;  // Before the cache was emptied.
  std::int64_t live_ = 0;
  std::int64_t most_live_ = 0;
  std::int64_t allocated_ = 0;
  std::int64_t most_allocated_ = 0;
  std::int64_t enough_ = kEndlessMemory.count();
};

/// A sink that takes equal tensors together, with one number for all.
template <class Sink>
concept TakesAlike = requires(Sink& sink) {
  sink.free_alike(0);
};

}  // namespace fsdp::simulator
