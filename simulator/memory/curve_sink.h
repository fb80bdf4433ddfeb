#pragma once

// Listens to the memory walk and records every moment: for charts, never for searches.

#include <cstdint>
#include <vector>

#include "simulator/memory/memory_sinks.h"

namespace fsdp::simulator {

/// One allocation or free, and the live memory after it.
struct CurveMoment {
  std::int32_t tensor = -1;
  std::int32_t instruction = -1;  ///< Number of actions so far in this phase, minus one.
  MemoryCategory category = MemoryCategory::Temp;
  std::int64_t change = 0;
  std::int64_t allocated = 0;
  std::int64_t reserved = 0;
};

class CurveSink {
 public:
  CurveSink(int num_ids, CachingAllocator& allocator)
      : bytes_(static_cast<std::size_t>(num_ids), 0), category_(bytes_.size()), allocator_(allocator) {}

  void alloc(int id, std::int64_t bytes, MemoryStream stream, MemoryCategory category) {
    const auto slot = static_cast<std::size_t>(id);
    bytes_[slot] = bytes;
    category_[slot] = category;
    allocator_.malloc(static_cast<AllocationId>(id), Bytes(bytes), static_cast<AllocatorStream>(stream));
    note(id, bytes, category);
  }
  void free(int id) {
    const auto slot = static_cast<std::size_t>(id);
    allocator_.free(static_cast<AllocationId>(id));
    note(id, -bytes_[slot], category_[slot]);
    bytes_[slot] = 0;
  }
  void mark() { ++instruction_; }
  void collective() {}
  void empty_cache() { allocator_.empty_cache(); }

  /// Starts a phase after `instructions` of its step have run.
  void begin_phase(std::int32_t instructions) {
    moments_.clear();
    instruction_ = instructions - 1;
    note(-1, 0, MemoryCategory::Temp);
  }
  const std::vector<CurveMoment>& moments() const { return moments_; }
  std::int64_t bytes_of(int id) const { return bytes_[id]; }
  MemoryCategory category_of(int id) const { return category_[id]; }
  int num_ids() const { return static_cast<int>(bytes_.size()); }

 private:
  void note(std::int32_t id, std::int64_t change, MemoryCategory category) {
    moments_.push_back({id, instruction_, category, change, allocator_.allocated_bytes().count(),
                        allocator_.reserved_bytes().count()});
  }

  std::vector<std::int64_t> bytes_;
  std::vector<MemoryCategory> category_;
  std::vector<CurveMoment> moments_;
  CachingAllocator& allocator_;
  std::int32_t instruction_ = -1;
};

}  // namespace fsdp::simulator
